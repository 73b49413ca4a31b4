/* test_launcher_shim.c - starting workers under real shims: what they get, what is told. */
#include "tests/unit/agent/launcher_fixture.h"
#include <pwd.h>
#include <sched.h>

static void exit_code_comes_back(void **state)
{
    struct worker worker;
    worker_start_shell(&worker, *state, "echo out; echo err >&2; exit 7");
    worker_finish(&worker);
    assert_int_equal(worker.order[0], LAUNCHER_STARTED);
    assert_int_equal(worker.order[1], LAUNCHER_EXITED);
    assert_int_equal(worker.order[2], LAUNCHER_GONE);
    assert_int_equal(worker.count, 3);
    assert_int_equal(worker.exit_code, 7);
    assert_int_equal(worker.signal, 0);
    assert_false(worker.out_of_memory);
    worker_assert_out(&worker, "out\n");
    char *err = worker_file(&worker, "err", NULL);
    assert_string_equal(err, "err\n");
    mem_free(err);
}

static void signal_comes_back(void **state)
{
    struct worker worker;
    worker_start_shell(&worker, *state, "kill -SEGV $$");
    worker_finish(&worker);
    assert_int_equal(worker.signal, SIGSEGV);
    assert_int_equal(worker.exit_code, 0);
}

static void missing_program_is_named(void **state)
{
    struct worker worker;
    const char *const argv[] = {"/no/such/program", NULL};
    worker_start(&worker, *state, (struct launcher_request){.argv = argv});
    worker_finish(&worker);
    assert_int_equal(worker.order[0], LAUNCHER_FAILED);
    assert_int_equal(worker.count, 2);
    assert_string_equal(worker.text, "run /no/such/program: No such file or directory");
}

static void missing_directory_is_named(void **state)
{
    struct worker worker;
    const char *const argv[] = {"true", NULL};
    worker_start(&worker, *state, (struct launcher_request){.argv = argv, .cwd = "/no/such/dir"});
    worker_finish(&worker);
    assert_true(worker.told[LAUNCHER_FAILED]);
    assert_string_equal(worker.text, "change directory to /no/such/dir: No such file or directory");
}

static void program_is_found_in_the_workers_path(void **state)
{
    struct fixture *fixture = *state;
    struct worker worker;
    const char *const argv[] = {"greet", "you", NULL};
    char path[512];
    snprintf(path, sizeof(path), "PATH=/no/such:%s:/usr/bin:/bin", fixture->dir);
    const char *const env[] = {path, NULL};
    unit_write(unit_path(fixture->dir, "greet"), "#!/bin/sh\necho hello $1 in $(pwd)\n");
    assert_int_equal(chmod(unit_path(fixture->dir, "greet"), 0755), 0);
    worker_start(&worker, fixture,
                 (struct launcher_request){.argv = argv, .env = env, .cwd = "/usr"});
    worker_finish(&worker);
    worker_assert_out(&worker, "hello you in /usr\n");
}

static void unknown_user_fails(void **state)
{
    struct worker worker;
    const char *const argv[] = {"true", NULL};
    worker_start(&worker, *state,
                 (struct launcher_request){.argv = argv, .user = "no-such-user-here"});
    worker_finish(&worker);
    assert_true(worker.told[LAUNCHER_FAILED]);
    assert_non_null(strstr(worker.text, "no such user"));
}

static void worker_runs_as_its_user(void **state)
{
    struct worker worker;
    char expected[128];
    const char *const argv[] = {
        "sh", "-c", "id -u; id -g; id -G; umask; ulimit -c; echo named >>/dev/stdout", NULL};
    const struct passwd *nobody = getpwnam("nobody");
    if (geteuid() != 0 || !nobody)
        skip();
    snprintf(expected, sizeof(expected), "%u\n%u\n%u\n0027\n0\nnamed\n", nobody->pw_uid,
             nobody->pw_gid, nobody->pw_gid);
    worker_start(&worker, *state,
                 (struct launcher_request){.argv = argv, .user = "nobody", .umask = 027});
    worker_finish(&worker);
    worker_assert_out(&worker, expected);
}

static void nothing_of_the_agent_is_inherited(void **state)
{
    struct worker worker;
    int leak = open("/dev/null", O_RDONLY); /* on purpose without CLOEXEC */
    assert_true(leak >= 0);
    worker_start_shell(&worker, *state,
                       "echo /proc/self/fd/*; readlink /proc/self/fd/0; env | cut -d= -f1 | sort; "
                       "grep -E 'Sig(Blk|Ign)' /proc/self/status");
    worker_finish(&worker);
    close(leak);
    char *out = worker_file(&worker, "out", NULL);
    assert_non_null(strstr(out, "/dev/null\n"));
    assert_null(strstr(out, "/proc/self/fd/3 "));
    assert_null(strstr(out, "HOME"));
    assert_non_null(strstr(out, "SigBlk:\t0000000000000000"));
    assert_non_null(strstr(out, "SigIgn:\t0000000000000000"));
    mem_free(out);
}

static void worker_is_bound_to_its_cpus(void **state)
{
    struct worker worker;
    cpu_set_t allowed;
    uint32_t cpu = 0;
    char expected[64];
    const char *const argv[] = {"grep", "Cpus_allowed_list", "/proc/self/status", NULL};
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    while (!CPU_ISSET(cpu, &allowed))
        cpu++;
    snprintf(expected, sizeof(expected), "Cpus_allowed_list:\t%u\n", cpu);
    worker_start(&worker, *state,
                 (struct launcher_request){.argv = argv, .cpus = &cpu, .cpus_count = 1});
    worker_finish(&worker);
    worker_assert_out(&worker, expected);
}

/* M46: what a value holds is nobody's business but the worker's. */
static void m46_environment_passes_unchanged(void **state)
{
    struct worker worker;
    const char *const argv[] = {"cat", "/proc/self/environ", NULL};
    char *big[5];
    const char *env[16] = {
        "PATH=/usr/bin:/bin", "EMPTY=",          "EQUALS=a=b==c", "LINES=a\nb\n\nc\r",
        "BAD=\xff\xfe\x80 z", "QUOTES='\"$(x)`", "=odd",          "NOEQUALS"};
    size_t count = 8, total = 0;
    for (size_t i = 0; i < COUNT_OF(big);
         i++) { /* 5 x 105 kB: over 512 KiB, each below the kernel's */
        big[i] = mem_alloc(105001);
        memset(big[i], 'a' + (int)i, 105000);
        memcpy(big[i], "BIG_=", 5);
        env[count++] = big[i];
    }
    struct text expected;
    text_init(&expected, 0);
    for (size_t i = 0; i < count; i++) {
        text_add_bytes(&expected, env[i], strlen(env[i]) + 1);
        total += strlen(env[i]) + 1;
    }
    assert_true(total > (size_t)512 << 10);
    worker_start(&worker, *state, (struct launcher_request){.argv = argv, .env = env});
    worker_finish(&worker);
    assert_int_equal(worker.exit_code, 0);
    size_t len = 0;
    char *out = worker_file(&worker, "out", &len);
    assert_int_equal(len, expected.len);
    assert_memory_equal(out, expected.data, len);
    mem_free(out);
    text_fini(&expected);
    for (size_t i = 0; i < COUNT_OF(big); i++)
        mem_free(big[i]);
}

/* M46: past the kernel's bound the start fails and says so. */
static void m46_a_value_that_is_too_long_is_refused(void **state)
{
    struct worker worker;
    const char *const argv[] = {"true", NULL};
    char *big = mem_alloc(131073);
    memset(big, 'x', 131072);
    memcpy(big, "BIG=", 4);
    const char *const env[] = {"PATH=/usr/bin:/bin", big, NULL};
    worker_start(&worker, *state, (struct launcher_request){.argv = argv, .env = env});
    worker_finish(&worker);
    assert_true(worker.told[LAUNCHER_FAILED]);
    assert_string_equal(worker.text, "run true: Argument list too long");
    mem_free(big);
}

/* M7: output goes to the file without a hand in between. */
static void m7_last_bytes_before_an_abort_are_kept(void **state)
{
    struct worker worker;
    worker_start_self(&worker, *state, "abort", NULL);
    worker_finish(&worker);
    assert_int_equal(worker.signal, SIGABRT);
    size_t len = 0;
    char *out = worker_file(&worker, "out", &len);
    assert_int_equal(len, (size_t)1 << 20);
    for (size_t i = 0; i < len; i++)
        if (out[i] != (char)(i * 7 % 251))
            fail_msg("byte %zu differs", i);
    mem_free(out);
}

static void signal_reaches_the_main_process_alone(void **state)
{
    struct worker worker;
    worker_start_shell(&worker, *state,
                       "trap 'echo term; exit 5' TERM; sh -c 'trap \"echo child\" TERM; echo r; "
                       "while :; do sleep 0.05; done' & while :; do wait; done");
    worker_until_out(&worker, 2);
    worker.proc->ops->signal(worker.proc, SIGTERM);
    worker_finish(&worker);
    assert_int_equal(worker.exit_code, 5);
    worker_assert_out(&worker, "r\nterm\n");
    assert_int_equal(worker_survivors(&worker), 0);
}

static void early_signal_is_not_lost(void **state)
{
    struct worker worker;
    worker_start_shell(&worker, *state, "sleep 1000");
    worker.proc->ops->signal(worker.proc, SIGTERM);
    worker_finish(&worker);
    assert_int_equal(worker.signal, SIGTERM);
}

static void many_at_once_leave_nothing(void **state)
{
    enum { MANY = 48 };
    struct fixture *fixture = *state;
    struct worker *workers = mem_array(MANY, sizeof(*workers));
    size_t before = fixture_descriptors();
    for (int i = 0; i < MANY; i++)
        worker_start_shell(&workers[i], fixture, "exit 3");
    for (int i = 0; i < MANY; i++) {
        worker_finish(&workers[i]);
        assert_int_equal(workers[i].exit_code, 3);
    }
    fixture_run(fixture, 1000);
    assert_int_equal(fixture_descriptors(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie */
    assert_int_equal(errno, ECHILD);
    mem_free(workers);
}

static void memory_limit_is_told(void **state)
{
    struct fixture *fixture = *state;
    struct worker worker;
    /* No program of ours: a sanitizer's own memory is past any limit. */
    const char *const argv[] = {"dd", "if=/dev/zero", "of=/dev/null", "bs=512M", "count=1", NULL};
    const bool whole = !strstr(fixture->launcher->ops->limits(fixture->launcher), "memory.process");
    worker_start(&worker, fixture, (struct launcher_request){.argv = argv, .memory_mib = 64});
    worker_finish(&worker);
    assert_int_equal(worker.signal, whole ? SIGKILL : 0);
    assert_int_equal(worker.exit_code, whole ? 0 : 1);
    assert_true(worker.out_of_memory == whole);
}

static void limits_are_said(void **state)
{
    struct fixture *fixture = *state;
    assert_true(strlen(fixture->launcher->ops->limits(fixture->launcher)) > 0);
}

/* --- workers */

static int work_abort(void)
{
    size_t len = (size_t)1 << 20;
    char *bytes = malloc(len);
    for (size_t i = 0; bytes && i < len; i++)
        bytes[i] = (char)(i * 7 % 251);
    if (!bytes || write(1, bytes, len) != (ssize_t)len)
        return 1;
    signal(SIGABRT, SIG_DFL);
    abort();
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return work_abort();
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
#define BARE(name)                                                                                 \
    {                                                                                              \
        "bare_" #name, name, fixture_setup_bare, fixture_teardown, NULL                            \
    } /* no cgroups */
#define SPARE(name)                                                                                \
    {                                                                                              \
        "spare_" #name, name, fixture_setup_spares, fixture_teardown, NULL                         \
    } /* by a shim that waited */
    const struct CMUnitTest tests[] = {
        TEST(exit_code_comes_back),
        TEST(signal_comes_back),
        TEST(missing_program_is_named),
        TEST(missing_directory_is_named),
        TEST(program_is_found_in_the_workers_path),
        TEST(unknown_user_fails),
        TEST(worker_runs_as_its_user),
        TEST(nothing_of_the_agent_is_inherited),
        TEST(worker_is_bound_to_its_cpus),
        TEST(m46_environment_passes_unchanged),
        TEST(m46_a_value_that_is_too_long_is_refused),
        TEST(m7_last_bytes_before_an_abort_are_kept),
        TEST(signal_reaches_the_main_process_alone),
        TEST(early_signal_is_not_lost),
        TEST(many_at_once_leave_nothing),
        TEST(memory_limit_is_told),
        BARE(memory_limit_is_told),
        TEST(limits_are_said),
        SPARE(exit_code_comes_back),
        SPARE(missing_program_is_named),
        SPARE(program_is_found_in_the_workers_path),
        SPARE(unknown_user_fails),
        SPARE(worker_runs_as_its_user),
        SPARE(nothing_of_the_agent_is_inherited),
        SPARE(m46_environment_passes_unchanged),
        SPARE(m46_a_value_that_is_too_long_is_refused),
        SPARE(signal_reaches_the_main_process_alone),
        SPARE(early_signal_is_not_lost),
        SPARE(memory_limit_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
