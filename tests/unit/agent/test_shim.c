/* test_shim.c - the program rondo-shim on its own, as the wire format says it: what it does with
 * requests that no launcher of ours would send, and what it leaves behind. */
#include "agent/launcher_shim_wire.h"
#include "agent/stray.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHIM RONDO_BINARY_DIR "/bin/rondo-shim"

struct run { /* one shim */
    const char *dir;
    pid_t pid;
    int code;
    char said[SHIM_WIRE_RECORD_MAX + 1]; /* on the ready pipe */
};

static void begin(struct text *request, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    launcher_shim_wire_begin(request);
    launcher_shim_wire_strings(request, SHIM_WIRE_ARGV, argv);
    launcher_shim_wire_strings(request, SHIM_WIRE_ENV, env);
    launcher_shim_wire_text(request, SHIM_WIRE_OUT, "out");
    launcher_shim_wire_text(request, SHIM_WIRE_ERR, "err");
}

static void spawn(struct run *run, const char *dir, const struct text *request)
{
    int ends[2];
    *run = (struct run){.dir = dir};
    int fd = open(unit_path(dir, "request"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, request->data, request->len), (int)request->len);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    run->pid = fork();
    if (run->pid == 0) {
        int high = fcntl(fd, F_DUPFD, 20), ready = fcntl(ends[1], F_DUPFD, 21);
        dup2(ready, SHIM_WIRE_READY_FD);
        dup2(high, SHIM_WIRE_REQUEST_FD);
        execl(SHIM, "rondo-shim", dir, (char *)NULL);
        _exit(99);
    }
    close(fd);
    close(ends[1]);
    size_t len = 0;
    for (ssize_t got; (got = read(ends[0], run->said + len, SHIM_WIRE_RECORD_MAX - len)) > 0;)
        len += (size_t)got;
    close(ends[0]);
}

static void finish(struct run *run)
{
    int status = 0;
    assert_int_equal(waitpid(run->pid, &status, 0), run->pid);
    run->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void read_exit(const struct run *run, struct launcher_shim_exit *end)
{
    char bytes[SHIM_WIRE_RECORD_MAX];
    size_t len = 0;
    struct error err;
    if (launcher_shim_wire_read(run->dir, "exit", bytes, &len, &err) != STATUS_OK ||
        launcher_shim_wire_exit(bytes, len, end, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void refused(const char *dir, const struct text *request)
{
    struct run run;
    struct launcher_shim_exit end;
    spawn(&run, dir, request);
    finish(&run);
    assert_int_equal(run.code, 1);
    read_exit(&run, &end);
    assert_int_equal(end.stage, SHIM_STAGE_REQUEST);
    assert_int_equal(end.exec_errno, EPROTO);
    assert_true(end.gone);
    assert_int_equal(access(unit_path(dir, "ran"), F_OK), -1);
    assert_int_equal(launcher_shim_wire_exit(run.said, strlen(run.said), &end, NULL), STATUS_OK);
}

static void records_say_what_happened(void **state)
{
    struct run run;
    struct launcher_shim_exit end;
    struct launcher_shim_pid pid;
    struct text request;
    begin(&request, "exit 9");
    launcher_shim_wire_text(&request, SHIM_WIRE_TAG, "tag");
    launcher_shim_wire_text(&request, SHIM_WIRE_BOOT_ID, "boot");
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
    spawn(&run, *state, &request);
    finish(&run);
    text_fini(&request);
    assert_int_equal(launcher_shim_wire_pid(run.said, strlen(run.said), &pid, NULL), STATUS_OK);
    assert_int_equal(pid.shim, run.pid);
    assert_string_equal(pid.tag, "tag");
    assert_string_equal(pid.boot_id, "boot");
    assert_true(pid.shim_start > 0 && pid.worker_start >= pid.shim_start);
    char *kept = NULL;
    size_t len = 0;
    assert_int_equal(file_read(unit_path(*state, "pid"), 4096, &kept, &len, NULL), STATUS_OK);
    assert_string_equal(kept, run.said);
    mem_free(kept);
    read_exit(&run, &end);
    assert_int_equal(end.code, 9);
    assert_int_equal(end.stage, SHIM_STAGE_NONE);
    assert_true(end.gone && end.ended_us >= pid.started_us);
    /* nothing but what is named in the format */
    struct file_list list;
    assert_int_equal(file_list_read(*state, 100, &list, NULL), STATUS_OK);
    assert_int_equal(list.count, 5);
    file_list_fini(&list);
}

static void broken_requests_start_nothing(void **state)
{
    struct text request;
    const char *dir = *state;
    begin(&request, "echo > ran");
    launcher_shim_wire_text(&request, SHIM_WIRE_CWD, dir);
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
    for (size_t len = 0; len < request.len; len += 1 + len / 8) { /* cut */
        struct text cut = {.data = request.data, .len = len};
        refused(dir, &cut);
    }
    for (size_t at = 0; at < 24; at++) { /* a bad header */
        request.data[at] ^= 0x41;
        refused(dir, &request);
        request.data[at] ^= 0x41;
    }
    request.data[24 + 4] ^= 0x7f; /* length of the first field */
    refused(dir, &request);
    text_fini(&request);
}

static void refuse_field(const char *dir, enum shim_wire_type type, const void *bytes, size_t len)
{
    struct text request;
    begin(&request, "echo > ran");
    launcher_shim_wire_bytes(&request, type, bytes, len);
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
    refused(dir, &request);
    text_fini(&request);
}

static void bad_fields_are_refused(void **state)
{
    const char *dir = *state;
    const uint32_t minus_one = UINT32_MAX;
    refuse_field(dir, SHIM_WIRE_OUT, "twice", 5);
    refuse_field(dir, SHIM_WIRE_CWD, "a\0b", 3);
    refuse_field(dir, SHIM_WIRE_CWD, "", 0);
    refuse_field(dir, SHIM_WIRE_UMASK, "abc", 3);
    refuse_field(dir, SHIM_WIRE_UID, &minus_one, 4); /* without group; and "no change" */
    refuse_field(dir, SHIM_WIRE_RLIMITS, "abcdefg", 7);
    refuse_field(dir, SHIM_WIRE_CPUS, "abcde", 5);
    refuse_field(dir, (enum shim_wire_type)999, "x", 1); /* must be known, is not */
}

static void an_unknown_field_that_may_be_skipped_is(void **state)
{
    struct run run;
    struct launcher_shim_exit end;
    struct text request;
    const struct shim_wire_field field = {999, 0, 3};
    struct shim_wire_header header;
    begin(&request, "exit 4");
    text_add_bytes(&request, &field, sizeof(field));
    text_add_bytes(&request, "new", 3);
    memcpy(&header, request.data, sizeof(header));
    header.fields++;
    memcpy(request.data, &header, sizeof(header));
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
    spawn(&run, *state, &request);
    finish(&run);
    text_fini(&request);
    read_exit(&run, &end);
    assert_int_equal(end.code, 4);
}

static void logs_stay_in_their_directory(void **state)
{
    static const char *const names[] = {"../out", "a/b", ".", "..", ".hidden", "/tmp/x"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *const argv[] = {"sh", "-c", "echo > ran", NULL};
        struct text request;
        launcher_shim_wire_begin(&request);
        launcher_shim_wire_strings(&request, SHIM_WIRE_ARGV, argv);
        launcher_shim_wire_text(&request, SHIM_WIRE_OUT, names[i]);
        launcher_shim_wire_text(&request, SHIM_WIRE_ERR, "err");
        assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
        refused(*state, &request);
        text_fini(&request);
    }
}

static void a_log_that_is_a_link_is_not_followed(void **state)
{
    struct run run;
    struct launcher_shim_exit end;
    struct text request;
    const char *dir = *state;
    assert_int_equal(symlink("elsewhere", unit_path(dir, "out")), 0);
    begin(&request, "echo secret");
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
    spawn(&run, dir, &request);
    finish(&run);
    text_fini(&request);
    read_exit(&run, &end);
    assert_int_equal(end.stage, SHIM_STAGE_FILES);
    assert_int_equal(end.exec_errno, ELOOP);
    assert_int_equal(access(unit_path(dir, "elsewhere"), F_OK), -1);
}

static void output_of_an_earlier_start_is_kept(void **state)
{
    struct run run;
    struct text request;
    char *out = NULL;
    size_t len = 0;
    unit_write(unit_path(*state, "out"), "before\n");
    begin(&request, "echo after");
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
    spawn(&run, *state, &request);
    finish(&run);
    text_fini(&request);
    assert_int_equal(file_read(unit_path(*state, "out"), 4096, &out, &len, NULL), STATUS_OK);
    assert_string_equal(out, "before\nafter\n");
    mem_free(out);
}

static bool locked(const char *dir)
{
    int fd = open(unit_path(dir, "request"), O_RDONLY | O_CLOEXEC);
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0;
    close(fd);
    return held;
}

/* The lock is how a later agent knows that a shim lives. The worker does not hold it. */
static void the_lock_is_held_until_the_end(void **state)
{
    struct run run;
    struct text request;
    begin(&request, "while :; do sleep 0.05; done");
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
    spawn(&run, *state, &request);
    text_fini(&request);
    assert_true(locked(*state));
    kill(run.pid, SIGTERM); /* is blocked: only KILL and the format's own signal end it */
    kill(run.pid, SIGINT);
    kill(run.pid, SIGHUP);
    usleep(20000);
    assert_true(locked(*state));
    kill(run.pid, SHIM_WIRE_KILL);
    finish(&run);
    assert_int_equal(run.code, 0);
    assert_false(locked(*state));
}

static void the_worker_dies_with_its_shim(void **state)
{
    struct run run;
    struct launcher_shim_pid pid;
    struct text request;
    begin(&request, "exec sleep 1000");
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
    spawn(&run, *state, &request);
    text_fini(&request);
    assert_int_equal(launcher_shim_wire_pid(run.said, strlen(run.said), &pid, NULL), STATUS_OK);
    assert_true(stray_is_alive(pid.worker, pid.worker_start));
    kill(run.pid, SIGKILL);
    finish(&run);
    for (int i = 0; stray_is_alive(pid.worker, pid.worker_start); i++) {
        assert_true(i < 60000);
        usleep(1000);
    }
}

static void a_worker_and_its_children_gain_no_rights(void **state)
{
    struct run run;
    struct text request;
    char *out = NULL;
    size_t len = 0;
    begin(&request, "sh -c 'grep NoNewPrivs /proc/self/status'");
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
    spawn(&run, *state, &request);
    finish(&run);
    text_fini(&request);
    assert_int_equal(file_read(unit_path(*state, "out"), 4096, &out, &len, NULL), STATUS_OK);
    assert_string_equal(out, "NoNewPrivs:\t1\n");
    mem_free(out);
}

static void a_shim_is_small(void **state)
{
    struct run run;
    struct text request;
    char path[64], *status = NULL;
    size_t len = 0;
    begin(&request, "while :; do sleep 0.05; done");
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
    spawn(&run, *state, &request);
    text_fini(&request);
    snprintf(path, sizeof(path), "/proc/%d/status", (int)run.pid);
    assert_int_equal(file_read(path, 1 << 16, &status, &len, NULL), STATUS_OK);
    const char *rss = strstr(status, "VmRSS:");
    assert_non_null(rss);
    assert_true(strtol(rss + 6, NULL, 10) <= 1536);
    mem_free(status);
    kill(run.pid, SHIM_WIRE_KILL);
    finish(&run);
}

/* A disk that fills up after the start takes no exit status away. */
static void exit_status_needs_no_new_space(void **state)
{
    struct run run;
    struct text request;
    struct stat st;
    begin(&request, "while [ ! -e go ]; do sleep 0.01; done; exit 6");
    launcher_shim_wire_text(&request, SHIM_WIRE_CWD, *state);
    assert_int_equal(launcher_shim_wire_finish(&request, NULL), STATUS_OK);
    spawn(&run, *state, &request);
    text_fini(&request);
    assert_int_equal(stat(unit_path(*state, "exit.tmp"), &st), 0);
    assert_true(st.st_size >= SHIM_WIRE_RESERVE);
    unit_write(unit_path(*state, "go"), "");
    finish(&run);
    struct launcher_shim_exit end;
    read_exit(&run, &end);
    assert_int_equal(end.code, 6);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(records_say_what_happened),
        TEST(broken_requests_start_nothing),
        TEST(bad_fields_are_refused),
        TEST(an_unknown_field_that_may_be_skipped_is),
        TEST(logs_stay_in_their_directory),
        TEST(a_log_that_is_a_link_is_not_followed),
        TEST(output_of_an_earlier_start_is_kept),
        TEST(the_lock_is_held_until_the_end),
        TEST(the_worker_dies_with_its_shim),
        TEST(a_worker_and_its_children_gain_no_rights),
        TEST(a_shim_is_small),
        TEST(exit_status_needs_no_new_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
