/* test_stray.c - reading /proc, and whom a search finds and spares. */
#include "agent/stray.h"
#include "tests/unit/unit.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void stat_lines_with_odd_names_are_read(void **state)
{
    struct stray stray;
    (void)state;
    assert_true(stray_parse(
        "77 (a) b ) (c) S 5 6 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 99", &stray));
    assert_int_equal(stray.pid, 77);
    assert_int_equal(stray.state, 'S');
    assert_int_equal(stray.parent, 5);
    assert_int_equal(stray.session, 7);
    assert_int_equal(stray.start, 123456);
    assert_false(stray_parse("", &stray));
    assert_false(stray_parse("77 (a", &stray));
    assert_false(stray_parse("77 (a) S 1 2", &stray));
}

static void we_are_alive_and_only_with_our_start(void **state)
{
    struct stray self;
    (void)state;
    assert_true(stray_read(getpid(), &self));
    assert_int_equal(self.parent, getppid());
    assert_true(stray_is_alive(getpid(), self.start));
    assert_false(stray_is_alive(getpid(), self.start + 1));
}

static pid_t spawn_in(const char *env, const char *dir, bool session)
{
    const char *const argv[] = {"sleep", "1000", NULL};
    const char *const envp[] = {"A=b", env, dir, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (session)
            setsid();
        execve("/bin/sleep", (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)envp);
        _exit(1);
    }
    assert_true(pid > 0);
    char path[64], comm[32] = "";
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    for (int i = 0; strcmp(comm, "sleep\n") != 0; i++) { /* until it has executed */
        FILE *file = fopen(path, "re");
        assert_true(i < 60000 && file);
        if (!fgets(comm, sizeof(comm), file))
            comm[0] = '\0';
        fclose(file);
        usleep(1000);
    }
    return pid;
}

static pid_t spawn(const char *env, bool session)
{
    return spawn_in(env, NULL, session);
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static bool finds(const struct stray_query *query, pid_t pid)
{
    struct stray_list list;
    bool found = false;
    stray_find(query, &list);
    for (size_t i = 0; i < list.count; i++)
        found |= list.items[i].pid == pid;
    stray_list_fini(&list);
    return found;
}

static void the_tag_is_compared_whole(void **state)
{
    pid_t tagged = spawn("RONDO_WORKER=stray-test-7", false);
    pid_t longer = spawn("RONDO_WORKER=stray-test-77", false);
    pid_t inside = spawn("XRONDO_WORKER=stray-test-7", false);
    const struct stray_query query = {.tag = "stray-test-7"};
    (void)state;
    assert_true(finds(&query, tagged));
    assert_false(finds(&query, longer));
    assert_false(finds(&query, inside));
    end(tagged);
    assert_false(finds(&query, tagged));
    end(longer);
    end(inside);
}

static void what_is_older_is_spared(void **state)
{
    struct stray stray;
    pid_t tagged = spawn("RONDO_WORKER=stray-test-8", false);
    (void)state;
    assert_true(stray_read(tagged, &stray));
    const struct stray_query later = {.tag = "stray-test-8", .since = stray.start + 1};
    const struct stray_query same = {.tag = "stray-test-8", .since = stray.start};
    assert_false(finds(&later, tagged));
    assert_true(finds(&same, tagged));
    end(tagged);
}

static void sessions_and_descent_are_found_and_zombies_are_not(void **state)
{
    pid_t leader = spawn("NO=tag", true);
    const struct stray_query session = {.session = leader}, descent = {.root = getpid()};
    (void)state;
    assert_true(finds(&session, leader));
    assert_true(finds(&descent, leader));
    assert_false(finds(&descent, getpid()));
    kill(leader, SIGKILL);
    struct stray now;
    for (int i = 0; stray_read(leader, &now) && now.state != 'Z'; i++) {
        assert_true(i < 60000);
        usleep(1000);
    }
    assert_false(finds(&session, leader)); /* not reaped yet, but dead */
    waitpid(leader, NULL, 0);
}

static void a_kill_misses_who_has_the_pid_now(void **state)
{
    struct stray stray;
    pid_t pid = spawn("NO=tag", false);
    (void)state;
    assert_true(stray_read(pid, &stray));
    stray.start++;
    assert_false(stray_kill(&stray, SIGKILL));
    stray.start--;
    assert_true(stray_kill(&stray, SIGKILL));
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_false(stray_kill(&stray, SIGKILL));
}

/* Two agents on a machine, of two clusters, may each have a worker 5.1.w.0.1. */
static void the_workers_of_other_agents_are_not_ours(void **state)
{
    (void)state;
    pid_t ours = spawn_in("RONDO_WORKER=stray-test-9", "RONDO_DIR=/a/work/9", false);
    pid_t other = spawn_in("RONDO_WORKER=stray-test-9", "RONDO_DIR=/b/work/9", false);
    const struct stray_query query = {.tag = "stray-test-9", .dir = "/a/work/9"};
    assert_true(finds(&query, ours));
    assert_false(finds(&query, other));
    end(ours);
    end(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stat_lines_with_odd_names_are_read),
        cmocka_unit_test(we_are_alive_and_only_with_our_start),
        cmocka_unit_test(the_tag_is_compared_whole),
        cmocka_unit_test(the_workers_of_other_agents_are_not_ours),
        cmocka_unit_test(what_is_older_is_spared),
        cmocka_unit_test(sessions_and_descent_are_found_and_zombies_are_not),
        cmocka_unit_test(a_kill_misses_who_has_the_pid_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
