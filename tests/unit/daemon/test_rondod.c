/* test_rondod.c - the whole daemon with its own PostgreSQL: starts, says where it is, goes on after
 * kill -9, stops; and refuses to start with a reason. Each daemon is a child of this program. */
#include "base/log.h"
#include "daemon/listener.h"
#include "daemon/rondod.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t spawn(const char *dir, const char *listen, const char *output)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    struct config config;
    int fd = open(output, O_WRONLY | O_CREAT | O_APPEND, 0600);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* a failed test leaves nothing running */
    dup2(fd, 1);
    dup2(fd, 2);
    log_setup("rondod", LOG_WARN, 2);
    umask(077);
    option_defaults(config_daemon_rows, &config);
    mem_free(config.dir);
    mem_free(config.listen);
    mem_free(config.status_listen);
    config.dir = mem_strdup(dir);
    config.listen = mem_strdup(listen);
    config.status_listen = mem_strdup("127.0.0.1:0");
    int code = rondod_run(&config, true);
    config_fini(&config);
    exit(code);
}

static int wait_for(pid_t pid)
{
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool says(const char *output, const char *part)
{
    SCOPED_TEXT char *text = NULL;
    size_t len;

    return file_read(output, 1 << 20, &text, &len, NULL) == STATUS_OK && strstr(text, part);
}

static bool wait_ready(pid_t pid, const char *output)
{
    for (int i = 0; i < 1200; i++) {
        if (says(output, "\nready\n"))
            return true;
        if (kill(pid, 0) != 0 || waitpid(pid, NULL, WNOHANG) == pid)
            return false;
        usleep(50000);
    }
    return false;
}

static bool have_postgres(void)
{
    glob_t found;
    bool have = glob("/usr/lib/postgresql/*/bin/initdb", 0, NULL, &found) == 0;

    if (have)
        globfree(&found);
    return have;
}

static void it_starts_survives_and_stops(void **state)
{
    SCOPED_TEXT char *dir = mem_printf("%s/d", (char *)*state);
    SCOPED_TEXT char *status = mem_printf("%s/d/status", (char *)*state);
    SCOPED_TEXT char *first = mem_printf("%s/first", (char *)*state);
    SCOPED_TEXT char *second = mem_printf("%s/second", (char *)*state);

    if (!have_postgres())
        skip();
    assert_int_equal(chmod(*state, 0711), 0); /* as root the database runs as another user */
    pid_t pid = spawn(dir, "127.0.0.1:0", first);
    assert_true(wait_ready(pid, first));
    assert_true(says(first, "term 1") && says(status, "grpc=127.0.0.1:"));
    kill(pid, SIGKILL);
    wait_for(pid);
    pid = spawn(dir, "127.0.0.1:0", second);
    assert_true(wait_ready(pid, second));
    assert_true(says(second, "term 2"));
    kill(pid, SIGTERM);
    usleep(50000);
    kill(pid, SIGTERM); /* as `timeout` does: one request in two signals still stops in order */
    assert_int_equal(wait_for(pid), 0);
    SCOPED_TEXT char *lock = mem_printf("%s/d/postgres/data/postmaster.pid", (char *)*state);
    assert_int_not_equal(access(lock, F_OK), 0); /* the database has ended cleanly */
}

static void a_taken_port_is_told_at_once(void **state)
{
    SCOPED_TEXT char *dir = mem_printf("%s/d", (char *)*state);
    SCOPED_TEXT char *output = mem_printf("%s/output", (char *)*state);
    uint16_t port;
    int fd;

    assert_int_equal(listener_open("127.0.0.1:0", &fd, &port, NULL), STATUS_OK);
    SCOPED_TEXT char *taken = mem_printf("127.0.0.1:%u", port);
    assert_int_equal(wait_for(spawn(dir, taken, output)), 1);
    assert_true(says(output, "in use") && says(output, "--listen"));
    close(fd);
}

static int teardown(void **state)
{
    unit_dir_destroy(*state);
    return 0;
}
#define TEST(name) cmocka_unit_test_setup_teardown(name, unit_dir_setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_starts_survives_and_stops),
        TEST(a_taken_port_is_told_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
