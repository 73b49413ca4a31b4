/* test_dev_agents.c - agents are started once, found again, started anew when they end, and ended.
 * The agent here is a shell script that writes down that it ran. */
#include "base/log.h"
#include "daemon/dev_agents.h"
#include "daemon/dev_process.h"
#include "tests/unit/unit.h"
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

struct place {
    char *root, *path, *program;
    struct loop *loop;
    struct loop_timer *tick;
    struct dev_dir *dir;
    struct config config;
    struct dev_agents *agents;
    bool stopped;
};

static const char script[] =
    "#!/bin/sh\n"
    "for a; do case $a in --state-dir=*) d=${a#--state-dir=};; esac; done\n"
    "echo \"$@\" > \"$d/args\"\n"
    "echo run >> \"$d/runs\"\n"
    "trap 'exit 0' TERM\n"
    "while :; do sleep 0.1; done\n";

static void tick(void *arg)
{
    struct place *place = arg;

    loop_timer_set(place->tick, 20000);
}

static void turn(struct place *place)
{
    uv_run(loop_uv_handle(place->loop), UV_RUN_ONCE);
}

static int setup(void **state)
{
    struct place *place = NEW(struct place);

    log_setup("test", LOG_ERROR, -1);
    place->root = unit_dir_create();
    place->path = mem_printf("%s/dev", place->root);
    place->program = mem_printf("%s/agent.sh", place->root);
    assert_int_equal(file_write_atomic(place->program, script, strlen(script), 0700, NULL),
                     STATUS_OK);
    place->loop = loop_uv_create();
    place->tick = loop_timer_create(place->loop, tick, place);
    loop_timer_set(place->tick, 20000);
    assert_int_equal(dev_dir_open(place->path, NULL, &place->dir, NULL), STATUS_OK);
    option_defaults(config_daemon_rows, &place->config);
    place->config.agents = 2;
    mem_free(place->config.agent_program);
    place->config.agent_program = mem_strdup(place->program);
    *state = place;
    return 0;
}

static void start(struct place *place, const char *server)
{
    const struct dev_agents_options options = {place->loop, place->dir, &place->config, server};
    struct error err;

    if (dev_agents_start(&options, &place->agents, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static pid_t pid_of(struct place *place, const char *name)
{
    SCOPED_TEXT char *record = mem_printf("%s/agents/%s/agent.pid", place->path, name);
    pid_t pid = 0;
    int pidfd;

    if (dev_process_find(record, &pid, &pidfd) != STATUS_OK)
        return 0;
    close(pidfd);
    return pid;
}

static size_t runs_of(struct place *place, const char *name)
{
    SCOPED_TEXT char *path = mem_printf("%s/agents/%s/runs", place->path, name);
    SCOPED_TEXT char *text = NULL;
    size_t len = 0;

    return file_read(path, 1000, &text, &len, NULL) == STATUS_OK ? len / strlen("run\n") : 0;
}

#define UNTIL(place, condition)                                                                    \
    for (int64_t end = loop_now_us((place)->loop) + 60000000; !(condition);) {                     \
        assert_true(loop_now_us((place)->loop) < end);                                             \
        turn(place);                                                                               \
    }

static void on_stopped(void *arg)
{
    ((struct place *)arg)->stopped = true;
}

static int teardown(void **state)
{
    struct place *place = *state;

    place->stopped = false;
    dev_agents_stop(place->agents, on_stopped, place);
    UNTIL(place, place->stopped);
    dev_agents_destroy(place->agents);
    assert_int_equal(pid_of(place, "n1"), 0);
    assert_int_equal(pid_of(place, "n2"), 0);
    dev_dir_close(place->dir);
    config_fini(&place->config);
    loop_timer_destroy(place->tick);
    loop_uv_destroy(place->loop);
    unit_dir_destroy(place->root);
    mem_free(place->path);
    mem_free(place->program);
    mem_free(place);
    return 0;
}

static void a_new_daemon_finds_them_and_starts_no_second_one(void **state)
{
    struct place *place = *state;

    start(place, "127.0.0.1:1");
    UNTIL(place, runs_of(place, "n1") == 1 && runs_of(place, "n2") == 1);
    pid_t first = pid_of(place, "n1");
    dev_agents_destroy(place->agents); /* as a killed daemon would leave them */
    start(place, "127.0.0.1:1");
    for (int i = 0; i < 20; i++)
        turn(place);
    assert_int_equal(pid_of(place, "n1"), first);
    assert_int_equal(runs_of(place, "n1"), 1);
}

static char *ports_of(struct place *place, const char *name)
{
    SCOPED_TEXT char *path = mem_printf("%s/agents/%s/args", place->path, name);
    SCOPED_TEXT char *args = NULL;
    size_t len = 0;

    assert_int_equal(file_read(path, 4096, &args, &len, NULL), STATUS_OK);
    assert_non_null(strstr(args, "--worker-env=GLOO_SOCKET_IFNAME=lo"));
    const char *first = strstr(args, "--port-first=");
    assert_non_null(first);
    return mem_printf("%.*s", (int)strcspn(first, " "), first);
}

static void each_has_ports_of_its_own_and_keeps_them(void **state)
{
    struct place *place = *state;

    start(place, "127.0.0.1:1");
    UNTIL(place, runs_of(place, "n1") == 1 && runs_of(place, "n2") == 1);
    SCOPED_TEXT char *one = ports_of(place, "n1");
    SCOPED_TEXT char *two = ports_of(place, "n2");
    assert_string_not_equal(one, two);
    kill(pid_of(place, "n1"), SIGKILL);
    UNTIL(place, runs_of(place, "n1") == 2);
    SCOPED_TEXT char *again = ports_of(place, "n1");
    assert_string_equal(one, again);
}

static void one_that_ends_is_started_again(void **state)
{
    struct place *place = *state;

    start(place, "127.0.0.1:1");
    UNTIL(place, runs_of(place, "n2") == 1);
    kill(pid_of(place, "n2"), SIGKILL);
    UNTIL(place, runs_of(place, "n2") == 2);
    assert_int_equal(runs_of(place, "n1"), 1);
}

static void a_new_address_reaches_them(void **state)
{
    struct place *place = *state;

    start(place, "127.0.0.1:1");
    UNTIL(place, runs_of(place, "n1") == 1 && runs_of(place, "n2") == 1);
    dev_agents_destroy(place->agents);
    start(place, "127.0.0.1:2");
    UNTIL(place, runs_of(place, "n1") == 2 && runs_of(place, "n2") == 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_daemon_finds_them_and_starts_no_second_one),
        TEST(each_has_ports_of_its_own_and_keeps_them),
        TEST(one_that_ends_is_started_again),
        TEST(a_new_address_reaches_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
