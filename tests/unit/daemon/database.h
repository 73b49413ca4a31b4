/* database.h - a private PostgreSQL for the tests that need one: one cluster a program, one
 * database a test. Header only: each test program is one file. */
#pragma once
#include "base/file.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "daemon/cluster.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after those */
#include <cmocka.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#define WAIT_S 120 /* generous: the machine may be very busy */

static struct loop *test_loop;
static char test_dir[64];
static int test_guard;

static void test_timeout(void *arg)
{
    *(bool *)arg = true;
}

static void test_tick(void *arg)
{
    struct loop_timer **tick = arg;

    loop_timer_set(*tick, 20000);
}

/* Runs the loop until *done, or that long. A turn of UV_RUN_ONCE that begins with the last timer
 * goes on to wait for events, for ever if there are none: the tick ends such a wait. */
static bool test_run(const bool *done, int64_t us)
{
    bool late = false;
    struct loop_timer *end = loop_timer_create(test_loop, test_timeout, &late);
    struct loop_timer *tick = loop_timer_create(test_loop, test_tick, &tick);

    loop_timer_set(end, us);
    test_tick(&tick);
    while (!*done && !late)
        uv_run(loop_uv_handle(test_loop), UV_RUN_ONCE);
    loop_timer_destroy(end);
    loop_timer_destroy(tick);
    return *done;
}

static void test_wait(const bool *done)
{
    assert_true(test_run(done, WAIT_S * 1000000LL));
}

static inline void test_sleep(int64_t us)
{
    const bool never = false;

    (void)test_run(&never, us);
}

/* Ends the server below test_dir, by the pid that its first line tells, and removes all of it. */
static void test_guard_clean(void)
{
    struct error err;
    char path[96];
    long pid = 0;

    snprintf(path, sizeof(path), "%s/db/data/postmaster.pid", test_dir);
    FILE *file = fopen(path, "re");
    bool known = file && fscanf(file, "%ld", &pid) == 1 && pid > 1;
    for (int i = 0; known && i < 1000 && kill((pid_t)pid, SIGQUIT) == 0; i++)
        usleep(10000);
    if (file_remove_tree(test_dir, &err) != STATUS_OK)
        _exit(1);
}

/* A test that is killed, or stopped by a sanitizer, leaves no server: a process of nobody waits for
 * the end of a pipe. A byte before it says that all went well. */
static void test_guard_start(void)
{
    int ends[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(ends[1]);
        if (fork() != 0)
            _exit(0);
        setsid();
        for (int fd = 0; fd <= 2; fd++) /* whoever reads the test's output is not kept waiting */
            (void)dup2(null, fd);
        if (read(ends[0], &byte, 1) == 0)
            test_guard_clean();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(null);
    close(ends[0]);
    test_guard = ends[1];
}

static void test_dir_make(void)
{
    log_setup("test", LOG_ERROR, 2);
    snprintf(test_dir, sizeof(test_dir), "/tmp/rdb-XXXXXX");
    assert_non_null(mkdtemp(test_dir));
    assert_int_equal(chmod(test_dir, 0711), 0);
    test_guard_start();
    test_loop = loop_uv_create();
}

static void test_dir_remove(void)
{
    struct error err = {0};

    loop_uv_destroy(test_loop);
    assert_int_equal(file_remove_tree(test_dir, &err), STATUS_OK);
    assert_int_equal(write(test_guard, "", 1), 1);
    close(test_guard);
}

struct test_start {
    bool done;
    enum status st;
    struct error err;
    char conninfo[256];
};

static void test_started(void *arg, enum status st, const struct error *err, const char *conninfo)
{
    struct test_start *start = arg;

    start->done = true;
    start->st = st;
    if (err)
        start->err = *err;
    snprintf(start->conninfo, sizeof(start->conninfo), "%s", conninfo ? conninfo : "");
}

static void test_flag(void *arg)
{
    *(bool *)arg = true;
}

/* Nobody can use PostgreSQL as root here when the user is missing: then there is nothing to test.
 */
static inline struct cluster *test_cluster_start(struct test_start *start)
{
    char dir[96];
    struct cluster_options options = {.loop = test_loop, .dir = dir};

    snprintf(dir, sizeof(dir), "%s/db", test_dir);
    *start = (struct test_start){0};
    struct cluster *cluster = cluster_start(&options, test_started, start);
    test_wait(&start->done);
    if (start->st != STATUS_OK)
        print_error("cluster: %s\n", start->err.text);
    assert_int_equal(start->st, STATUS_OK);
    return cluster;
}

static inline void test_cluster_end(struct cluster *cluster)
{
    bool stopped = false;

    cluster_stop(cluster, test_flag, &stopped);
    test_wait(&stopped);
    cluster_destroy(cluster);
}

/* One value of one query, as text, from a connection of its own; free it. */
static inline char *test_sql(const char *conninfo, const char *sql)
{
    PGconn *conn = PQconnectdb(conninfo);
    PGresult *result = PQexec(conn, sql);
    ExecStatusType kind = PQresultStatus(result);

    if (kind != PGRES_TUPLES_OK && kind != PGRES_COMMAND_OK)
        print_error("%s: %s\n", sql, PQerrorMessage(conn));
    assert_true(kind == PGRES_TUPLES_OK || kind == PGRES_COMMAND_OK);
    char *value = mem_strdup(PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    PQfinish(conn);
    return value;
}
