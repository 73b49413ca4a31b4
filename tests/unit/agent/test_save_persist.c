/* test_save_persist.c - parts handed over in slots reach the vault, whoever dies when. */
#include "checkpoint/vault.h"
#include "tests/support/slot_fill.h"
#include "tests/unit/agent/agent_rig.h"
#include <sys/socket.h>
#include <sys/un.h>

#define KIND(x) PB__WORKER_ASK__KIND__##x

/* --- workers */

static int agent_fd = -1;

static bool move(bool out, uint8_t *bytes, size_t len)
{
    for (ssize_t n; len > 0; bytes += n, len -= (size_t)n)
        if ((n = out ? write(agent_fd, bytes, len) : read(agent_fd, bytes, len)) <= 0)
            return false;
    return true;
}

static bool say(const uint8_t *ask, size_t len, uint8_t *answer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "sock"};
    uint8_t head[4];
    memcpy(head, ask, 4);
    if (agent_fd < 0) {
        agent_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(agent_fd, (struct sockaddr *)&address, sizeof(address)) != 0)
            goto lost;
    }
    if (move(true, head, 4) && move(true, (uint8_t *)(uintptr_t)ask + 4, len) &&
        move(false, answer, 4) && move(false, answer + 4, answer[0] + 256u * answer[1]))
        return true;
lost:
    (void)close(agent_fd);
    agent_fd = -1;
    (void)usleep(20000);
    return false;
}

static bool no_wait;

/* Until it is answered with anything but "try again". */
static int ask(Pb__WorkerAsk__Kind kind, int64_t step, uint64_t bytes, char dir[512])
{
    uint8_t out[256] = {0}, in[4096] = {0};
    Pb__WorkerAsk request = PB__WORKER_ASK__INIT;
    request.has_number = request.has_kind = request.has_step = request.has_bytes = true;
    request.number = 1;
    request.kind = kind;
    request.step = step;
    request.bytes = bytes;
    request.has_no_wait = request.no_wait = no_wait;
    request.has_samples = true;
    request.samples = step * 8;
    size_t len = pb__worker_ask__pack(&request, out + 4);
    out[0] = (uint8_t)len;
    for (;;) {
        if (!say(out, len, in))
            continue;
        Pb__WorkerAnswer *answer = pb__worker_answer__unpack(NULL, in[0] + 256u * in[1], in + 4);
        int status = answer ? answer->status : STATUS_INTERNAL;
        if (answer && dir)
            (void)snprintf(dir, 512, "%s", answer->dir ? answer->dir : "");
        if (answer)
            pb__worker_answer__free_unpacked(answer, NULL);
        if (status != STATUS_UNAVAILABLE || !dir)
            return status;
        (void)usleep(20000);
    }
}

/* Fills a slot of that step; the caller says STAGED, or does not. */
static int fill(int64_t step, enum slot_fill_fault fault)
{
    char slot[512];
    if (chdir(getenv("RONDO_DIR")) != 0 ||
        ask(KIND(STAGE), step, SLOT_FILL_BYTES, slot) != STATUS_OK)
        return 3;
    return slot_fill_file(slot, 1, 0, step, step * 8, fault) ? 0 : 4;
}

static int worker_staged(enum slot_fill_fault fault)
{
    int code = fill(5, fault);
    return code ? code : ask(KIND(STAGED), 5, 0, NULL) != STATUS_OK ? 5 : 0;
}

static int worker_dies(enum slot_fill_fault fault)
{
    int code = fill(5, fault);
    if (code == 0)
        (void)kill(getpid(), SIGKILL);
    return code;
}

/* Says STAGED to the agent after the one that gave the slot. */
static int worker_waits(const char *mode)
{
    int code = fill(5, SLOT_FILL_GOOD);
    if (code)
        return code;
    unit_write("filled", "");
    while (access("go-on", F_OK) != 0)
        (void)usleep(10000);
    (void)close(agent_fd);
    agent_fd = -1;
    return strcmp(mode, "silent") == 0 || ask(KIND(STAGED), 5, 0, NULL) == STATUS_OK ? 0 : 5;
}

/* Three saves in two slots; then one that is too large. */
static int worker_busy(void)
{
    char slots[3][512];
    for (int i = 0; i < 3; i++) {
        int64_t step = 5 + i;
        if (chdir(getenv("RONDO_DIR")) != 0 ||
            ask(KIND(STAGE), step, SLOT_FILL_BYTES, slots[i]) != STATUS_OK)
            return 3;
        if (!slot_fill_file(slots[i], 1, 0, step, step * 8, SLOT_FILL_GOOD))
            return 4;
        int first = ask(KIND(STAGED), step, 0, NULL);
        if (first != STATUS_OK || ask(KIND(STAGED), step, 0, NULL) != first) /* again */
            return 5;
    }
    if (strcmp(slots[0], slots[1]) == 0 ||
        (strcmp(slots[2], slots[0]) != 0 && strcmp(slots[2], slots[1]) != 0))
        return 6;
    if (ask(KIND(STAGE), 9, (uint64_t)4 << 20, slots[0]) != STATUS_EXHAUSTED)
        return 7;
    if (ask(KIND(STAGED), 9, 0, NULL) != STATUS_PRECONDITION)
        return 8;
    return 0;
}

/* Two saves that are not written yet, and a third one that waits for none of them. */
static int worker_skips(void)
{
    char slot[512];
    for (int64_t step = 5; step < 7; step++) {
        if (fill(step, SLOT_FILL_GOOD) != 0 || ask(KIND(STAGED), step, 0, NULL) != STATUS_OK)
            return 3;
    }
    no_wait = true;
    for (int i = 0; i < 2; i++) /* said again, it is the same */
        if (ask(KIND(STAGE), 7, SLOT_FILL_BYTES, slot) != STATUS_CANCELLED)
            return 4;
    unit_write("skipped", "");
    no_wait = false;
    if (ask(KIND(STAGE), 8, SLOT_FILL_BYTES, slot) != STATUS_OK) /* waits for one of them */
        return 5;
    if (!slot_fill_file(slot, 1, 0, 8, 64, SLOT_FILL_GOOD))
        return 6;
    return ask(KIND(STAGED), 8, 0, NULL) == STATUS_OK ? 0 : 7;
}

static int worker_large(void)
{
    char slot[512];
    if (chdir(getenv("RONDO_DIR")) != 0)
        return 3;
    return ask(KIND(STAGE), 5, (uint64_t)2049 << 20, slot) == STATUS_EXHAUSTED ? 0 : 4;
}

/* --- the rig's side */

static bool is_staged(struct rig *rig)
{
    return rig->staged && rig_is_exited(rig);
}

static void expect_good_part(const struct rig *rig)
{
    const Pb__ActualStaged *staged = rig->staged;
    assert_null(staged->error);
    assert_int_equal(staged->step, 5);
    assert_string_equal(staged->path, "job-7/step-5.1");
    const Pb__CheckpointPart *part = staged->part;
    assert_int_equal(part->n_files, 4);
    assert_string_equal(part->files[0]->path, "trainer-0/blocks.crc32c");
    assert_string_equal(part->files[2]->path,
                        "trainer-0/shard-00001-model-00001-of-00001.safetensors");
    assert_string_equal(part->layout, "trainer-0/layout.json");
    assert_int_equal(strlen(part->layout_digest), 32);
    assert_string_equal(part->node, "host");
    assert_int_equal(part->samples, 40);
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    Pb__CheckpointPart *parts[] = {staged->part};
    struct text manifest;
    char digest[65];
    const char *vault = unit_path(rig->dir, "vault");
    checkpoint.format = PB__CHECKPOINT__FORMAT__SHARDED;
    checkpoint.layout = part->layout;
    checkpoint.layout_digest = part->layout_digest;
    checkpoint.parts = parts;
    checkpoint.n_parts = 1;
    text_init(&manifest, 0);
    vault_manifest_build(&checkpoint, &manifest, digest);
    assert_int_equal(vault_seal(vault, staged->path, manifest.data, manifest.len, NULL), STATUS_OK);
    assert_int_equal(vault_verify(vault, staged->path, digest, true, NULL), STATUS_OK);
    text_fini(&manifest);
}

static void a_part_handed_over_is_staged(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "staged", "");
    rig_until(rig, is_staged);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
    expect_good_part(rig);
    assert_int_equal(rig->staged_count, 1);
}

static void a_worker_that_dies_after_filled_has_saved(void **state) /* K7 */
{
    struct rig *rig = *state;
    rig_want(rig, "dies", "");
    rig_until(rig, is_staged);
    assert_int_equal(rig_worker(rig, 0)->signal, SIGKILL);
    expect_good_part(rig);
}

static void what_was_not_filled_is_no_save(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "dies-unfilled", "");
    rig_until(rig, rig_is_exited);
    assert_null(rig->staged);
    assert_int_not_equal(access(unit_path(rig->dir, "vault/job-7"), F_OK), 0);
}

static void expect_error(struct rig *rig, const char *mode, const char *what)
{
    rig_want(rig, mode, "");
    rig_until(rig, is_staged);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0); /* training went on */
    assert_non_null(rig->staged->error);
    if (!strstr(rig->staged->error, what))
        fail_msg("%s", rig->staged->error);
    assert_int_not_equal(access(unit_path(rig->dir, "vault/job-7/step-5.1/trainer-0"), F_OK), 0);
}

static void a_flipped_byte_is_found_before_it_is_staged(void **state) /* K16, M59 */
{
    expect_error(*state, "flipped", "block");
}

static void a_hole_in_the_layout_is_no_part(void **state) /* K21, K24 */
{
    expect_error(*state, "hole", "w");
}

static void files_that_have_no_business_there_are_refused(void **state) /* K19 */
{
    expect_error(*state, "named", "manifest.json");
}

static bool is_filled(struct rig *rig)
{
    return access(unit_path(rig->dir, "state/work/7.1.trainer.0.1/filled"), F_OK) == 0;
}

static bool is_staged_only(struct rig *rig)
{
    return rig->staged != NULL;
}

/* The agent dies between FILLED and STAGED. */
static void the_next_agent_goes_on(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "waits", "");
    rig_until(rig, is_filled);
    rig_stop_agent(rig);
    rig_start_agent(rig);
    rig_until(rig, is_staged_only);
    unit_write(unit_path(rig->dir, "state/work/7.1.trainer.0.1/go-on"), "");
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
    assert_int_equal(rig->staged_count, 1);
    expect_good_part(rig);
}

static ino_t shard_inode(struct rig *rig)
{
    struct stat st;
    assert_int_equal(stat(unit_path(rig->dir, "vault/job-7/step-5.1/trainer-0/state.json"), &st),
                     0);
    return st.st_ino;
}

static size_t wanted_count;
static bool came_again(struct rig *rig)
{
    return rig->staged_count >= wanted_count;
}

/* It was told, and not acknowledged: the next agent tells it again and writes nothing. */
static void what_was_told_is_not_written_again(void **state) /* K4 */
{
    struct rig *rig = *state;
    rig->deaf = true;
    rig_want(rig, "staged", "");
    rig_until(rig, is_staged_only);
    ino_t before = shard_inode(rig);
    wanted_count = rig->staged_count + 1;
    rig_stop_agent(rig);
    rig_start_agent(rig);
    rig_until(rig, came_again);
    assert_int_equal(shard_inode(rig), before);
    rig->deaf = false;
    rig_until(rig, rig_is_exited);
    expect_good_part(rig);
}

static void two_slots_are_used_in_turn_and_bounded(void **state)
{
    struct rig *rig = *state;
    rig->config.slot_mib_max = 4;
    rig_want(rig, "busy", "");
    rig_until(rig, is_staged);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
    assert_int_equal(rig->staged_count, 3);
    assert_null(rig->staged->error);
}

static void a_slot_beyond_the_memory_asked_for_is_refused(void **state)
{
    struct rig *rig = *state;
    Pb__DesiredWorker *worker = rig_want(rig, "large", "");
    worker->launch->resources->has_memory_mib = true;
    worker->launch->resources->memory_mib = 2048;
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
}

/* A pool that begins no writing until it is told to. */
static struct {
    const struct vault_pool_ops *ops;
    struct held {
        struct vault_job *job;
        vault_pool_done done;
        void *arg;
    } held[8];
    size_t count;
    bool open;
} gate;

static void gate_run(struct vault_pool *pool, struct vault_job *job, vault_pool_done done,
                     void *arg)
{
    if (job->kind == VAULT_JOB_PERSIST && !gate.open && gate.count < COUNT_OF(gate.held))
        gate.held[gate.count++] = (struct held){job, done, arg};
    else
        gate.ops->run(pool, job, done, arg);
}

static void gate_destroy(struct vault_pool *pool)
{
    gate.ops->destroy(pool);
}

static void gate_open(struct vault_pool *pool)
{
    gate.open = true;
    for (size_t i = 0; i < gate.count; i++)
        gate.ops->run(pool, gate.held[i].job, gate.held[i].done, gate.held[i].arg);
    gate.count = 0;
}

static bool is_skipped(struct rig *rig)
{
    return rig->staged && rig->staged->step == 7 &&
           access(unit_path(rig->dir, "state/work/7.1.trainer.0.1/skipped"), F_OK) == 0;
}

static bool are_four_staged(struct rig *rig)
{
    return rig->staged_count == 4 && rig_is_exited(rig);
}

static void a_save_that_does_not_wait_is_skipped_and_told(void **state)
{
    static const struct vault_pool_ops ops = {gate_run, gate_destroy};
    struct rig *rig = *state;
    struct vault_pool *pool = rig->options.vaults;
    gate.ops = pool->ops;
    gate.open = false;
    pool->ops = &ops;
    rig_want(rig, "skips", "");
    rig_until(rig, is_skipped);
    assert_int_equal(rig->staged_count, 1);
    assert_non_null(rig->staged->error);
    assert_int_equal(strncmp(rig->staged->error, "skipped: ", 9), 0);
    gate_open(pool);
    rig_until(rig, are_four_staged);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
    assert_null(rig->staged->error);
    pool->ops = gate.ops;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        const char *mode = argv[2];
        (void)alarm(UNIT_WORKER_S);
        return strcmp(mode, "staged") == 0          ? worker_staged(SLOT_FILL_GOOD)
               : strcmp(mode, "dies") == 0          ? worker_dies(SLOT_FILL_GOOD)
               : strcmp(mode, "dies-unfilled") == 0 ? worker_dies(SLOT_FILL_UNFILLED)
               : strcmp(mode, "flipped") == 0       ? worker_staged(SLOT_FILL_FLIPPED)
               : strcmp(mode, "hole") == 0          ? worker_staged(SLOT_FILL_HOLE)
               : strcmp(mode, "named") == 0         ? worker_staged(SLOT_FILL_NAMED)
               : strcmp(mode, "large") == 0         ? worker_large()
               : strcmp(mode, "busy") == 0          ? worker_busy()
               : strcmp(mode, "skips") == 0         ? worker_skips()
                                                    : worker_waits(mode);
    }
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(a_part_handed_over_is_staged),
        T(a_worker_that_dies_after_filled_has_saved),
        T(what_was_not_filled_is_no_save),
        T(a_flipped_byte_is_found_before_it_is_staged),
        T(a_hole_in_the_layout_is_no_part),
        T(files_that_have_no_business_there_are_refused),
        T(the_next_agent_goes_on),
        T(what_was_told_is_not_written_again),
        T(two_slots_are_used_in_turn_and_bounded),
        T(a_slot_beyond_the_memory_asked_for_is_refused),
        T(a_save_that_does_not_wait_is_skipped_and_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
