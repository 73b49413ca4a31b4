/* test_code.c - code by content: fetched once for all workers, kept, refused when damaged. */
#include "tests/unit/agent/agent_rig.h"
#include <archive.h>
#include <archive_entry.h>

static char code_hex[65];
static char code_bytes[65536];

static size_t pack(const char *text)
{
    struct archive *out = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    size_t used = 0;
    archive_write_set_format_pax_restricted(out);
    archive_write_open_memory(out, code_bytes, sizeof(code_bytes), &used);
    archive_entry_set_pathname(entry, "hello.txt");
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, (la_int64_t)strlen(text));
    archive_write_header(out, entry);
    archive_write_data(out, text, strlen(text));
    archive_entry_free(entry);
    archive_write_close(out);
    archive_write_free(out);
    digest_sha256(code_bytes, used, code_hex);
    return used;
}

static bool both_have_ended(struct rig *rig)
{
    const Pb__ActualWorker *one = rig_worker(rig, 0), *two = rig_worker(rig, 1);
    return one && two && one->state == PB__ACTUAL_WORKER__STATE__EXITED &&
           two->state == PB__ACTUAL_WORKER__STATE__EXITED;
}

static void want_with_code(struct rig *rig)
{
    SCOPED_TEXT char *more = mem_printf("  code: {digest: %s}\n", code_hex);
    rig_want(rig, "cwd", more);
}

static void workers_share_one_fetch_and_later_ones_need_none(void **state)
{
    struct rig *rig = *state;
    rig->code_len = pack("hello");
    rig->code = code_bytes;
    want_with_code(rig);
    want_with_code(rig);
    rig_until(rig, both_have_ended);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
    assert_int_equal(rig_worker(rig, 1)->exit_code, 0);
    assert_int_equal(rig->fetches, 1);
    rig_unwant(rig);
    rig_say_desired(rig);
    rig_until(rig, rig_is_empty);
    rig_stop_agent(rig);
    rig_start_agent(rig);
    want_with_code(rig);
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->exit_code, 0);
    assert_int_equal(rig->fetches, 1);
}

static void damaged_code_fails_the_launch_with_a_reason(void **state)
{
    struct rig *rig = *state;
    rig->code_len = pack("hello");
    code_bytes[0] = (char)(code_bytes[0] ^ 1);
    rig->code = code_bytes;
    want_with_code(rig);
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->class_, PB__REASON__CODE__LAUNCH_FAILED);
    assert_non_null(strstr(rig_worker(rig, 0)->message, "arrived damaged"));
}

static void unknown_code_fails_the_launch_with_a_reason(void **state)
{
    struct rig *rig = *state;
    (void)pack("hello");
    want_with_code(rig);
    rig_until(rig, rig_is_exited);
    assert_non_null(strstr(rig_worker(rig, 0)->message, "no such code"));
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return access("hello.txt", R_OK) == 0 ? 0 : 8;
    }
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(workers_share_one_fetch_and_later_ones_need_none),
        T(damaged_code_fails_the_launch_with_a_reason),
        T(unknown_code_fails_the_launch_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
