/* test_logs.c - output by offset, followed to its end, kept after the worker has left. */
#include "tests/unit/agent/agent_rig.h"

static bool chunk_came(struct rig *rig)
{
    return rig->chunk != NULL;
}

static const Pb__LogChunk *ask_log(struct rig *rig, int64_t offset, uint32_t max, bool follow)
{
    static uint64_t number = 100;
    Pb__BulkDown down = PB__BULK_DOWN__INIT;
    Pb__LogAsk ask = PB__LOG_ASK__INIT;
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;
    key.has_job = key.has_attempt = key.has_rank = true;
    key.job = 7;
    key.role = (char *)(uintptr_t) "trainer";
    key.attempt = 1;
    ask.key = &key;
    ask.has_ask = ask.has_offset = ask.has_bytes_max = ask.has_follow = true;
    ask.ask = ++number;
    ask.offset = offset;
    ask.bytes_max = max;
    ask.follow = follow;
    down.log = &ask;
    if (rig->chunk)
        pb__log_chunk__free_unpacked(rig->chunk, NULL);
    rig->chunk = NULL;
    rig->events->bulk(rig->events_arg, &down);
    rig_until(rig, chunk_came);
    assert_int_equal(rig->chunk->ask, number);
    return rig->chunk;
}

static void follow_reads_every_byte_then_closes(void **state)
{
    struct rig *rig = *state;
    int64_t offset = 0;
    uint64_t sum = 0;
    rig_want(rig, "talk", NULL);
    rig_until(rig, rig_is_up);
    for (;;) {
        const Pb__LogChunk *chunk = ask_log(rig, offset, 100000, true);
        if (chunk->error && *chunk->error) { /* not started yet */
            assert_int_equal(offset, 0);
            continue;
        }
        assert_int_equal(chunk->offset, offset);
        for (size_t i = 0; i < chunk->data.len; i++)
            sum += chunk->data.data[i];
        offset += (int64_t)chunk->data.len;
        if (chunk->closed)
            break;
    }
    assert_int_equal(offset, 1 << 20);
    assert_int_equal(sum, (uint64_t)(1 << 20) / 256 * (255 * 256 / 2));
}

static void ended_logs_are_read_also_by_a_later_agent(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "talk", NULL);
    rig_until(rig, rig_is_exited);
    rig_unwant(rig);
    rig_say_desired(rig);
    rig_until(rig, rig_is_empty);
    rig_stop_agent(rig);
    rig->hellos = 0;
    rig_start_agent(rig);
    rig_until(rig, rig_is_up);
    const Pb__LogChunk *chunk = ask_log(rig, -10, 4, false);
    assert_int_equal(chunk->offset, (1 << 20) - 10);
    assert_int_equal(chunk->data.len, 4);
    assert_false(chunk->end);
    chunk = ask_log(rig, 1 << 20, 0, true);
    assert_true(chunk->closed);
}

static void unknown_worker_gets_an_error(void **state)
{
    struct rig *rig = *state;
    rig_until(rig, rig_is_up);
    assert_non_null(strstr(ask_log(rig, 0, 0, true)->error, "no logs"));
}

/* One MiB of every byte there is, then a sudden end. */
static int worker_talk(void)
{
    unsigned char block[4096];
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = (unsigned char)i;
    for (int i = 0; i < 256; i++)
        if (write(1, block, sizeof(block)) != (ssize_t)sizeof(block))
            return 9;
    abort();
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return worker_talk();
    }
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(follow_reads_every_byte_then_closes),
        T(ended_logs_are_read_also_by_a_later_agent),
        T(unknown_worker_gets_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
