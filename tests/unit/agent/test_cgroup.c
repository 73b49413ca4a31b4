/* test_cgroup.c - what a machine's trees offer, and one worker's groups. Skips what is not here. */
#include "agent/cgroup.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_machine_without_trees_offers_nothing(void **state)
{
    const struct cgroup_options options = {"/dev/null", "/dev/null", 64};
    struct cgroup *cgroup = cgroup_create(&options);
    struct cgroup_paths paths;
    (void)state;
    assert_string_equal(cgroup_limits(cgroup), "none");
    assert_int_equal(cgroup_add(cgroup, 64, &paths, NULL), STATUS_OK);
    assert_string_equal(paths.v2, "");
    assert_string_equal(paths.v1, "");
    assert_false(cgroup_kill(&paths));
    assert_true(cgroup_remove(&paths));
    assert_false(cgroup_is_out_of_memory(&paths));
    cgroup_destroy(cgroup);
}

static void a_tree_that_is_only_said_to_be_there_is_not_used(void **state)
{
    const char *dir = *state;
    char mountinfo[1024];
    const struct cgroup_options options = {unit_path(dir, "mountinfo"), unit_path(dir, "cgroup"),
                                           64};
    snprintf(mountinfo, sizeof(mountinfo),
             "1 2 0:3 / %s/none rw shared:1 - cgroup2 cgroup2 rw\n"
             "garbage\n"
             "1 2 0:3 / %s/none rw - cgroup cgroup rw,memory\n",
             dir, dir);
    unit_write(options.mountinfo, mountinfo);
    unit_write(options.membership, "0::/\n4:memory:/../../etc\n:::\nx\n");
    struct cgroup *cgroup = cgroup_create(&options);
    assert_string_equal(cgroup_limits(cgroup), "none");
    cgroup_destroy(cgroup);
}

/* A plain directory looks like a tree but cannot kill. */
static void a_plain_directory_is_not_used_and_left_as_it_was(void **state)
{
    const char *dir = *state;
    char mountinfo[1024];
    const struct cgroup_options options = {unit_path(dir, "mountinfo"), unit_path(dir, "cgroup"),
                                           64};
    assert_int_equal(mkdir(unit_path(dir, "tree"), 0755), 0);
    snprintf(mountinfo, sizeof(mountinfo), "1 2 0:3 / %s/tree rw - cgroup2 cgroup2 rw\n", dir);
    unit_write(options.mountinfo, mountinfo);
    unit_write(options.membership, "0::/\n");
    struct cgroup *cgroup = cgroup_create(&options);
    assert_string_equal(cgroup_limits(cgroup), "none");
    cgroup_destroy(cgroup);
    assert_int_equal(rmdir(unit_path(dir, "tree")), 0); /* nothing was left in it */
}

static void join(const char *group)
{
    int fd = open(unit_path(group, "cgroup.procs"), O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1)
        _exit(1);
    close(fd);
}

static void kill_reaches_all_of_a_group(void **state)
{
    struct cgroup *cgroup = cgroup_create(NULL);
    struct cgroup_paths paths;
    struct error err;
    int ends[2], status = 0;
    char byte;
    (void)state;
    if (!strstr(cgroup_limits(cgroup), "cgroup2.kill")) {
        cgroup_destroy(cgroup);
        skip();
    }
    if (cgroup_add(cgroup, 0, &paths, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        join(paths.v2);
        if (fork() == 0)
            setsid(); /* out of reach for a signal to the group of processes */
        if (write(ends[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_false(cgroup_remove(&paths)); /* in use */
    assert_true(cgroup_kill(&paths));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(read(ends[0], &byte, 1), 0); /* the other end is closed: both are dead */
    close(ends[0]);
    for (int i = 0; !cgroup_remove(&paths); i++) {
        assert_true(i < 60000);
        usleep(1000);
    }
    assert_int_equal(access(paths.v2, F_OK), -1);
    cgroup_destroy(cgroup);
}

static void memory_is_limited(void **state)
{
    struct cgroup *cgroup = cgroup_create(NULL);
    struct cgroup_paths paths;
    struct error err;
    int status = 0;
    (void)state;
    if (!strstr(cgroup_limits(cgroup), "memory")) {
        cgroup_destroy(cgroup);
        skip();
    }
    if (cgroup_add(cgroup, 32, &paths, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_false(cgroup_is_out_of_memory(&paths));
    pid_t pid = fork();
    if (pid == 0) {
        join(paths.v1[0] ? paths.v1 : paths.v2);
        for (int i = 0; i < 256; i++) {
            volatile char *bytes = malloc((size_t)1 << 20);
            for (size_t at = 0; bytes && at < (size_t)1 << 20; at += 4096)
                bytes[at] = 1;
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(cgroup_is_out_of_memory(&paths));
    for (int i = 0; !cgroup_remove(&paths); i++) {
        assert_true(i < 60000);
        usleep(1000);
    }
    cgroup_destroy(cgroup);
}

/* The one that is in it and seven more; threads count as well. */
static void tasks_are_limited(void **state)
{
    const struct cgroup_options options = {NULL, NULL, 8};
    struct cgroup *cgroup = cgroup_create(&options);
    struct cgroup_paths paths;
    struct error err;
    int status = 0;
    (void)state;
    const bool alone = !unit_has_thread_sanitizer(); /* its processes have a thread more each */
    if (!strstr(cgroup_limits(cgroup), "pids") || !alone) {
        cgroup_destroy(cgroup);
        skip();
    }
    if (cgroup_add(cgroup, 0, &paths, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    pid_t pid = fork();
    if (pid == 0) {
        pid_t children[100];
        int made = 0, why = 0;
        join(paths.pids[0] ? paths.pids : paths.v2);
        for (; made < 100 && (children[made] = fork()) >= 0; made++)
            if (children[made] == 0)
                for (;;)
                    pause();
        why = errno;
        for (int i = 0; i < made; i++) {
            kill(children[i], SIGKILL);
            waitpid(children[i], NULL, 0);
        }
        _exit(made < 100 && why == EAGAIN ? made : 101);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    for (int i = 0; !cgroup_remove(&paths); i++) {
        assert_true(i < 60000);
        usleep(1000);
    }
    cgroup_destroy(cgroup);
}

static void a_limit_past_all_numbers_is_refused(void **state)
{
    struct cgroup *cgroup = cgroup_create(NULL);
    struct cgroup_paths paths;
    (void)state;
    assert_int_equal(cgroup_add(cgroup, UINT64_MAX, &paths, NULL), STATUS_INVALID);
    cgroup_destroy(cgroup);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_without_trees_offers_nothing),
        cmocka_unit_test_setup_teardown(a_tree_that_is_only_said_to_be_there_is_not_used,
                                        unit_dir_setup, unit_dir_teardown),
        cmocka_unit_test_setup_teardown(a_plain_directory_is_not_used_and_left_as_it_was,
                                        unit_dir_setup, unit_dir_teardown),
        cmocka_unit_test(kill_reaches_all_of_a_group),
        cmocka_unit_test(memory_is_limited),
        cmocka_unit_test(tasks_are_limited),
        cmocka_unit_test(a_limit_past_all_numbers_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
