/* test_cluster.c - the embedded cluster: made once, supervised, taken over, left by nobody. */
#include "tests/unit/daemon/database.h"
#include <errno.h>
#include <signal.h>

struct states {
    int downs, ups;
    bool is_up;
};

static void on_state(void *arg, bool up, const char *text)
{
    struct states *states = arg;

    (void)text;
    states->is_up = up;
    *(up ? &states->ups : &states->downs) += 1;
}

static struct cluster *start(struct test_start *start, struct states *states)
{
    char dir[96];
    struct cluster_options options = {
        .loop = test_loop, .dir = dir, .on_state = on_state, .on_state_arg = states};

    snprintf(dir, sizeof(dir), "%s/db", test_dir);
    *start = (struct test_start){0};
    *states = (struct states){0};
    struct cluster *cluster = cluster_start(&options, test_started, start);
    test_wait(&start->done);
    if (start->st != STATUS_OK)
        print_error("cluster: %s\n", start->err.text);
    assert_int_equal(start->st, STATUS_OK);
    return cluster;
}

static int setup(void **state)
{
    (void)state;
    test_dir_make();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_dir_remove();
    return 0;
}

static bool is_alive(pid_t pid)
{
    return kill(pid, 0) == 0 || errno == EPERM;
}

static void a_test_that_is_killed_leaves_no_server(void **state)
{
    struct stat st;
    int ends[2];
    char dir[sizeof(test_dir)] = "";

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct test_start start;
        test_dir_make();
        (void)test_cluster_start(&start);
        (void)!write(ends[1], test_dir, sizeof(test_dir));
        raise(SIGKILL);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], dir, sizeof(dir)), sizeof(dir));
    close(ends[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    for (int i = 0; i < 12000 && stat(dir, &st) == 0; i++)
        usleep(10000);
    assert_int_equal(stat(dir, &st), -1);
}

static void makes_a_private_cluster_with_fsync(void **state)
{
    struct test_start s;
    struct states states;
    struct stat st;
    char path[128];

    (void)state;
    struct cluster *cluster = start(&s, &states);
    SCOPED_TEXT char *fsync_is = test_sql(s.conninfo, "show fsync");
    assert_string_equal(fsync_is, "on");
    SCOPED_TEXT char *listens = test_sql(s.conninfo, "show listen_addresses");
    assert_string_equal(listens, "");
    snprintf(path, sizeof(path), "/proc/%d", (int)cluster_pid(cluster));
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_uid != 0);
    snprintf(path, sizeof(path), "%s/db/run", test_dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(st.st_uid != 0);
    pid_t pid = cluster_pid(cluster);
    test_cluster_end(cluster);
    assert_false(is_alive(pid));
}

static void keeps_its_data_over_restarts(void **state)
{
    struct test_start s;
    struct states states;

    (void)state;
    struct cluster *cluster = start(&s, &states);
    mem_free(test_sql(s.conninfo, "create table kept as select 7 as n"));
    test_cluster_end(cluster);
    cluster = start(&s, &states);
    assert_false(cluster_adopted(cluster));
    SCOPED_TEXT char *n = test_sql(s.conninfo, "select n from kept");
    assert_string_equal(n, "7");
    test_cluster_end(cluster);
}

static void restarts_a_killed_server(void **state)
{
    struct test_start s;
    struct states states;

    (void)state;
    struct cluster *cluster = start(&s, &states);
    pid_t first = cluster_pid(cluster);
    assert_int_equal(kill(first, SIGKILL), 0);
    for (int i = 0; i < WAIT_S * 100 && states.ups == 0; i++)
        test_sleep(10000);
    assert_int_equal(states.ups, 1);
    assert_int_equal(states.downs, 1);
    assert_int_not_equal(cluster_pid(cluster), first);
    SCOPED_TEXT char *one = test_sql(s.conninfo, "select 1");
    assert_string_equal(one, "1");
    test_cluster_end(cluster);
}

static void takes_over_the_server_of_a_killed_daemon(void **state)
{
    struct test_start s;
    struct states states;

    (void)state;
    struct cluster *cluster = start(&s, &states);
    pid_t pid = cluster_pid(cluster);
    cluster_destroy(cluster); /* as if killed: nobody stopped it */
    cluster = start(&s, &states);
    assert_true(cluster_adopted(cluster));
    assert_int_equal(cluster_pid(cluster), pid);
    SCOPED_TEXT char *one = test_sql(s.conninfo, "select 1");
    assert_string_equal(one, "1");
    /* and supervises it, though it is not its child */
    assert_int_equal(kill(pid, SIGKILL), 0);
    for (int i = 0; i < WAIT_S * 100 && states.ups == 0; i++)
        test_sleep(10000);
    assert_int_equal(states.ups, 1);
    assert_false(cluster_adopted(cluster));
    test_cluster_end(cluster);
}

static void starts_beside_a_stale_pid_file_of_another_process(void **state)
{
    struct test_start s;
    struct states states;
    char path[128], text[256];

    (void)state;
    struct cluster *cluster = start(&s, &states);
    test_cluster_end(cluster);
    snprintf(path, sizeof(path), "%s/db/data/postmaster.pid", test_dir);
    snprintf(text, sizeof(text), "%d\n%s/db/data\n1\n5432\n%s/db/run\n\n0 0\nready   \n",
             (int)getpid(), test_dir, test_dir);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    cluster = start(&s, &states);
    assert_false(cluster_adopted(cluster));
    test_cluster_end(cluster);
}

static void refuses_a_second_daemon_in_the_same_directory(void **state)
{
    struct test_start s, second = {0};
    struct states states;
    char dir[96];
    struct cluster_options options = {.loop = test_loop, .dir = dir};

    (void)state;
    struct cluster *cluster = start(&s, &states);
    snprintf(dir, sizeof(dir), "%s/db", test_dir);
    struct cluster *other = cluster_start(&options, test_started, &second);
    assert_false(second.done); /* never before the call returns */
    test_wait(&second.done);
    assert_int_equal(second.st, STATUS_PRECONDITION);
    cluster_destroy(other);
    test_cluster_end(cluster);
}

static void says_which_parent_is_closed(void **state)
{
    struct test_start s = {0};
    char dir[128], closed[96];
    struct cluster_options options = {.loop = test_loop, .dir = dir};

    (void)state;
    if (geteuid() != 0)
        skip();
    snprintf(closed, sizeof(closed), "%s/closed", test_dir);
    assert_int_equal(mkdir(closed, 0700), 0);
    snprintf(dir, sizeof(dir), "%s/db", closed);
    struct cluster *cluster = cluster_start(&options, test_started, &s);
    test_wait(&s.done);
    assert_int_equal(s.st, STATUS_DENIED);
    assert_non_null(strstr(s.err.text, closed));
    cluster_destroy(cluster);
}

static void uses_a_short_socket_directory_for_a_long_path(void **state)
{
    struct test_start s = {0};
    char dir[256];
    struct cluster_options options = {.loop = test_loop, .dir = dir};

    (void)state;
    snprintf(dir, sizeof(dir), "%s/%0110d", test_dir, 0);
    struct cluster *cluster = cluster_start(&options, test_started, &s);
    test_wait(&s.done);
    assert_int_equal(s.st, STATUS_OK);
    char *from = strchr(s.conninfo, '\'') + 1;
    SCOPED_TEXT char *run = mem_strdup(from);
    *strchr(run, '\'') = '\0';
    assert_int_equal(strncmp(run, "/tmp/rondo-", 11), 0);
    SCOPED_TEXT char *one = test_sql(s.conninfo, "select 1");
    assert_string_equal(one, "1");
    test_cluster_end(cluster);
    assert_int_equal(rmdir(run), 0);
}

static void stops_while_it_is_being_made(void **state)
{
    struct test_start s = {0};
    char dir[96];
    struct cluster_options options = {.loop = test_loop, .dir = dir};
    bool stopped = false;

    (void)state;
    snprintf(dir, sizeof(dir), "%s/half", test_dir);
    struct cluster *cluster = cluster_start(&options, test_started, &s);
    test_sleep(100000);
    cluster_stop(cluster, test_flag, &stopped);
    test_wait(&stopped);
    assert_true(s.done);
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_test_that_is_killed_leaves_no_server),
        cmocka_unit_test(makes_a_private_cluster_with_fsync),
        cmocka_unit_test(keeps_its_data_over_restarts),
        cmocka_unit_test(restarts_a_killed_server),
        cmocka_unit_test(takes_over_the_server_of_a_killed_daemon),
        cmocka_unit_test(starts_beside_a_stale_pid_file_of_another_process),
        cmocka_unit_test(refuses_a_second_daemon_in_the_same_directory),
        cmocka_unit_test(says_which_parent_is_closed),
        cmocka_unit_test(uses_a_short_socket_directory_for_a_long_path),
        cmocka_unit_test(stops_while_it_is_being_made),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
