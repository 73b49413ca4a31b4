/* test_launcher_shim_wire.c - requests and records, whole and broken. */
#include "agent/launcher_shim_wire.h"
#include "tests/unit/unit.h"
#include <sys/stat.h>
#include <unistd.h>

static const char pid_record[] =
    "rondo-shim 1\nboot_id b\nshim_pid 12\nshim_start 34\nworker_pid 56\nworker_start 78\n"
    "started_us 9\nof_a_later_version x y z\ncgroup2 /a b\ntag job 1\nend\n";
static const char exit_record[] = "rondo-shim 1\nstage 0\nexec_errno 0\ncode 7\nsignal 0\nended_us "
                                  "5\nended_wall_us 6\nuser_us 1\n"
                                  "system_us 2\nrss_kib 3\ngone 1\nend\n";

static void records_are_read(void **state)
{
    struct launcher_shim_pid pid;
    struct launcher_shim_exit end;
    (void)state;
    assert_int_equal(launcher_shim_wire_pid(pid_record, strlen(pid_record), &pid, NULL), STATUS_OK);
    assert_int_equal(pid.shim, 12);
    assert_int_equal(pid.shim_start, 34);
    assert_int_equal(pid.worker, 56);
    assert_int_equal(pid.worker_start, 78);
    assert_string_equal(pid.boot_id, "b");
    assert_string_equal(pid.cgroup2, "/a b");
    assert_string_equal(pid.cgroup1, "");
    assert_string_equal(pid.tag, "job 1");
    assert_int_equal(launcher_shim_wire_exit(exit_record, strlen(exit_record), &end, NULL),
                     STATUS_OK);
    assert_int_equal(end.code, 7);
    assert_true(end.gone);
    assert_int_equal(end.ended_us, 5);
}

/* What a power loss leaves, or a hand that is not ours. */
static void a_record_cut_anywhere_is_refused(void **state)
{
    struct launcher_shim_pid pid;
    struct launcher_shim_exit end;
    (void)state;
    for (size_t len = 0; len < strlen(pid_record); len++)
        assert_int_equal(launcher_shim_wire_pid(pid_record, len, &pid, NULL), STATUS_DATA_LOSS);
    for (size_t len = 0; len < strlen(exit_record); len++)
        assert_int_equal(launcher_shim_wire_exit(exit_record, len, &end, NULL), STATUS_DATA_LOSS);
}

static void nonsense_is_refused(void **state)
{
    static const char *const pids[] = {
        "rondo-shim 1\nshim_pid 1\nworker_pid 5\nend\n", /* init is nobody's shim */
        "rondo-shim 1\nshim_pid -5\nworker_pid 5\nend\n",
        "rondo-shim 1\nshim_pid 5x\nworker_pid 5\nend\n",
        "rondo-shim 1\nshim_pid 5\nworker_pid 99999999999\nend\n",
        "other 1\nshim_pid 5\nworker_pid 6\nend\n",
    };
    static const char *const exits[] = {
        "rondo-shim 1\ncode 0\nend\n",
        "rondo-shim 1\nstage 0\ncode 256\nend\n",
        "rondo-shim 1\nstage 0\nsignal -1\nend\n",
    };
    struct launcher_shim_pid pid;
    struct launcher_shim_exit end;
    char zeros[1024] = {0};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pids); i++)
        assert_int_equal(launcher_shim_wire_pid(pids[i], strlen(pids[i]), &pid, NULL),
                         STATUS_DATA_LOSS);
    for (size_t i = 0; i < COUNT_OF(exits); i++)
        assert_int_equal(launcher_shim_wire_exit(exits[i], strlen(exits[i]), &end, NULL),
                         STATUS_DATA_LOSS);
    assert_int_equal(launcher_shim_wire_exit(zeros, sizeof(zeros), &end, NULL), STATUS_DATA_LOSS);
}

static void records_of_others_are_refused(void **state)
{
    const char *dir = *state, *path = unit_path(dir, "pid");
    char bytes[SHIM_WIRE_RECORD_MAX];
    size_t len = 0;
    assert_int_equal(launcher_shim_wire_read(dir, "pid", bytes, &len, NULL), STATUS_NOT_FOUND);
    unit_write(path, pid_record);
    assert_int_equal(launcher_shim_wire_read(dir, "pid", bytes, &len, NULL), STATUS_OK);
    assert_int_equal(len, strlen(pid_record));
    assert_int_equal(chmod(path, 0666), 0); /* anyone may have written it */
    assert_int_equal(launcher_shim_wire_read(dir, "pid", bytes, &len, NULL), STATUS_DENIED);
    assert_int_equal(chmod(path, 0644), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 1, 1), 0);
        assert_int_equal(launcher_shim_wire_read(dir, "pid", bytes, &len, NULL), STATUS_DENIED);
    }
    assert_int_equal(rename(path, unit_path(dir, "elsewhere")), 0);
    assert_int_equal(symlink("elsewhere", path), 0);
    assert_int_not_equal(launcher_shim_wire_read(dir, "pid", bytes, &len, NULL), STATUS_OK);
}

static void a_request_past_the_bounds_is_refused(void **state)
{
    const size_t count = SHIM_WIRE_STRINGS_MAX + 1;
    const char **many = mem_array(count + 1, sizeof(*many));
    struct text request;
    (void)state;
    for (size_t i = 0; i < count; i++)
        many[i] = "x";
    launcher_shim_wire_begin(&request);
    launcher_shim_wire_strings(&request, SHIM_WIRE_ENV, many);
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_EXHAUSTED);
    text_fini(&request);

    char *big = mem_alloc(SHIM_WIRE_REQUEST_MAX);
    memset(big, 'x', SHIM_WIRE_REQUEST_MAX - 1);
    launcher_shim_wire_begin(&request);
    launcher_shim_wire_text(&request, SHIM_WIRE_CWD, big);
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_EXHAUSTED);
    text_fini(&request);
    mem_free(big);
    mem_free(many);
}

static void a_failed_start_is_explained(void **state)
{
    struct launcher_shim_exit end = {.stage = SHIM_STAGE_EXEC, .exec_errno = 13};
    struct text text;
    (void)state;
    text_init(&text, 0);
    launcher_shim_wire_explain(&end, "train", "/w", NULL, &text);
    assert_string_equal(text_get(&text), "run train: Permission denied");
    text_reset(&text);
    end.stage = SHIM_STAGE_CHDIR;
    launcher_shim_wire_explain(&end, "train", "/w", "nobody", &text);
    assert_string_equal(text_get(&text), "change directory to /w: Permission denied (as nobody)");
    text_reset(&text);
    end.stage = 77; /* of a later version */
    launcher_shim_wire_explain(&end, "train", "/w", NULL, &text);
    assert_string_equal(text_get(&text), "start: Permission denied");
    text_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_read),
        cmocka_unit_test(a_record_cut_anywhere_is_refused),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test_setup_teardown(records_of_others_are_refused, unit_dir_setup,
                                        unit_dir_teardown),
        cmocka_unit_test(a_request_past_the_bounds_is_refused),
        cmocka_unit_test(a_failed_start_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
