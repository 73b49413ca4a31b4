/* test_launcher_shim_spare.c - shims that wait for a worker: used, lost, too few, let go. */
#include "tests/unit/agent/launcher_fixture.h"
#include <sys/socket.h>

static pid_t parent_of(pid_t pid)
{
    struct stray stray;
    return stray_read(pid, &stray) ? stray.parent : 0;
}

static void a_waiting_one_becomes_the_workers_shim(void **state)
{
    struct fixture *fixture = *state;
    pid_t pids[4];
    struct worker worker;
    assert_int_equal(fixture_waiting(pids, 4), 2);
    worker_start_shell(&worker, fixture, "sleep 1000");
    worker_until(&worker, LAUNCHER_STARTED);
    pid_t shim = parent_of(worker.pid);
    assert_true(shim == pids[0] || shim == pids[1]);
    assert_int_equal(stray_find_shim(worker.dir), shim); /* it shows what it is now */
    worker_kill(&worker);
    worker_finish(&worker);
    fixture_until_waiting(fixture, 2); /* and another one waits in its place */
}

static void lost_ones_are_replaced(void **state)
{
    struct fixture *fixture = *state;
    pid_t pids[4];
    struct worker workers[3];
    unsigned count = fixture_waiting(pids, 4);
    for (unsigned i = 0; i < count; i++)
        kill(pids[i], SIGKILL);
    while (fixture_waiting(pids, 4) > 0) /* a killed one takes a message as long as it lives */
        usleep(1000);
    for (int i = 0; i < 3; i++)
        worker_start_shell(&workers[i], fixture, "exit 5");
    for (int i = 0; i < 3; i++) {
        worker_finish(&workers[i]);
        assert_int_equal(workers[i].exit_code, 5);
    }
    fixture_until_waiting(fixture, 2);
}

static void more_than_there_are_start_as_well(void **state)
{
    enum { MANY = 12 };
    struct worker workers[MANY];
    for (int i = 0; i < MANY; i++)
        worker_start_shell(&workers[i], *state, "exit 6");
    for (int i = 0; i < MANY; i++) {
        worker_finish(&workers[i]);
        assert_int_equal(workers[i].exit_code, 6);
    }
}

static void none_outlives_the_agent(void **state)
{
    struct fixture *fixture = *state;
    fixture->launcher->ops->destroy(fixture->launcher);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    const struct launcher_shim_options options = {fixture->loop, RONDO_BINARY_DIR "/bin/rondo-shim",
                                                  false, 0, 0};
    assert_int_equal(launcher_shim_create(&options, &fixture->launcher, NULL), STATUS_OK);
}

/* A closed socket is all that a killed agent leaves. */
static void a_closed_socket_ends_it(void **state)
{
    int ends[2], status = -1;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char name[] = "rondo-shim", wait[] = "--wait", room[] = "          ";
        char *argv[] = {name, wait, room, NULL}, *env[] = {NULL};
        (void)dup2(ends[1], 3);
        execve(RONDO_BINARY_DIR "/bin/rondo-shim", argv, env);
        _exit(99);
    }
    close(ends[1]);
    assert_int_equal(send(ends[0], "", 0, 0), 0); /* nonsense ends it as well */
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup_spares, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_waiting_one_becomes_the_workers_shim), TEST(lost_ones_are_replaced),
        TEST(more_than_there_are_start_as_well),      TEST(none_outlives_the_agent),
        cmocka_unit_test(a_closed_socket_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
