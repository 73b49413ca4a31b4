/* test_child.c - children: output, codes, input, bounds, deadline, cancel, what they leave behind.
 */
#include "base/child.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#define SECOND ((int64_t)1000000)

struct seen {
    struct loop *loop;
    struct child *child;
    int calls;
    enum status st;
    int exit_code, signal;
    bool cut;
    char *output, *errors;
    size_t output_len;
    char problem[240];
};

static void done(void *arg, const struct child_result *result)
{
    struct seen *seen = arg;
    seen->calls++;
    seen->st = result->st;
    seen->exit_code = result->exit_code;
    seen->signal = result->signal;
    seen->cut = result->cut;
    seen->output = mem_strdup(result->output);
    seen->errors = mem_strdup(result->errors);
    seen->output_len = result->output_len;
    snprintf(seen->problem, sizeof(seen->problem), "%s", result->err ? result->err->text : "");
}

static int setup(void **state)
{
    struct seen *seen = NEW(struct seen);
    seen->loop = loop_uv_create();
    *state = seen;
    return 0;
}

static int teardown(void **state)
{
    struct seen *seen = *state;
    loop_uv_destroy(seen->loop);
    mem_free(seen->output);
    mem_free(seen->errors);
    mem_free(seen);
    return 0;
}

static void start(struct seen *seen, struct child_options options, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    if (!options.argv)
        options.argv = argv;
    seen->child = child_start(seen->loop, &options, done, seen);
    assert_int_equal(seen->calls, 0); /* never before the call returns */
}

static void run(struct seen *seen, struct child_options options, const char *script)
{
    start(seen, options, script);
    loop_uv_run(seen->loop);
    assert_int_equal(seen->calls, 1);
}

static void output_errors_and_code_come_back(void **state)
{
    struct seen *seen = *state;
    run(seen, (struct child_options){0}, "echo out; echo err >&2; exit 3");
    assert_int_equal(seen->st, STATUS_OK);
    assert_int_equal(seen->exit_code, 3);
    assert_int_equal(seen->signal, 0);
    assert_string_equal(seen->output, "out\n");
    assert_string_equal(seen->errors, "err\n");
    assert_string_equal(seen->problem, "");
}

static void a_signal_is_told(void **state)
{
    struct seen *seen = *state;
    run(seen, (struct child_options){0}, "kill -TERM $$");
    assert_int_equal(seen->st, STATUS_OK);
    assert_int_equal(seen->signal, SIGTERM);
    assert_int_equal(seen->exit_code, -1);
}

static void input_environment_and_directory_are_given(void **state)
{
    static const char *const env[] = {"ONLY=this", "PATH=/usr/bin:/bin", NULL};
    struct seen *seen = *state;
    run(seen, (struct child_options){.env = env, .dir = "/", .input = "words", .input_len = 5},
        "cat; echo \" $ONLY $HOME $PWD\"");
    assert_string_equal(seen->output, "words this  /\n");
}

static void unread_input_does_no_harm(void **state)
{
    struct seen *seen = *state;
    size_t len = (size_t)1 << 20;
    char *input = mem_alloc(len);
    run(seen, (struct child_options){.input = input, .input_len = len}, "exit 0");
    assert_int_equal(seen->st, STATUS_OK);
    assert_int_equal(seen->exit_code, 0);
    mem_free(input);
}

static void output_is_bounded_but_read(void **state)
{
    struct seen *seen = *state;
    run(seen, (struct child_options){.output_max = 1000}, "head -c 300000 /dev/zero | tr '\\0' x");
    assert_int_equal(seen->exit_code, 0); /* it did not block on a full pipe */
    assert_int_equal(seen->output_len, 1000);
    assert_true(seen->cut);
}

static void the_deadline_kills_the_whole_group(void **state)
{
    struct seen *seen = *state;
    run(seen, (struct child_options){.timeout_us = SECOND / 5},
        "sleep 1000 & echo $!; trap '' TERM; wait");
    assert_int_equal(seen->st, STATUS_DEADLINE);
    assert_int_equal(seen->signal, SIGKILL);
    assert_string_equal(seen->problem, "it took too long and was killed");
}

/* Waits until pid is gone or a zombie. */
static bool ends(pid_t pid)
{
    for (int i = 0; i < 3000; i++) {
        char path[64], *bytes;
        size_t len;
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        if (file_read(path, 4096, &bytes, &len, NULL) != STATUS_OK)
            return true;
        const char *name_end = strrchr(bytes, ')');
        bool zombie = name_end && name_end[2] == 'Z';
        mem_free(bytes);
        if (zombie)
            return true;
        usleep(10000);
    }
    return false;
}

static void what_it_leaves_behind_is_killed(void **state)
{
    struct seen *seen = *state;
    run(seen, (struct child_options){0}, "sleep 1000 & echo $!");
    assert_int_equal(seen->exit_code, 0);
    pid_t left = (pid_t)strtol(seen->output, NULL, 10);
    assert_true(left > 1);
    assert_true(ends(left));
}

/* setsid takes it out of the group, and it holds our pipe: we must not wait for it. */
static void a_stranger_with_our_pipe_is_not_waited_for(void **state)
{
    struct seen *seen = *state;
    run(seen, (struct child_options){0}, "setsid sleep 1000 & echo $!; sleep 0.2");
    pid_t stranger = (pid_t)strtol(seen->output, NULL, 10);
    assert_int_equal(seen->st, STATUS_OK);
    assert_int_equal(kill(stranger, SIGKILL), 0);
    assert_true(ends(stranger));
}

static void cancel(void *arg)
{
    struct seen *seen = arg;
    child_cancel(seen->child);
    child_cancel(seen->child);
}

static void cancel_calls_back_once(void **state)
{
    struct seen *seen = *state;
    start(seen, (struct child_options){0}, "sleep 1000");
    assert_true(child_pid(seen->child) > 1);
    loop_defer(seen->loop, cancel, seen);
    loop_uv_run(seen->loop);
    assert_int_equal(seen->calls, 1);
    assert_int_equal(seen->st, STATUS_CANCELLED);
}

static void a_program_that_is_not_there_is_told_later(void **state)
{
    static const char *const argv[] = {"/nonexistent/program", NULL};
    struct seen *seen = *state;
    run(seen, (struct child_options){.argv = argv, .input = "x", .input_len = 1}, NULL);
    assert_int_equal(seen->st, STATUS_NOT_FOUND);
    assert_int_equal(seen->exit_code, -1);
    assert_non_null(strstr(seen->problem, "/nonexistent/program"));
}

static void a_file_that_is_no_program_is_denied(void **state)
{
    static const char *const argv[] = {"/etc/passwd", NULL};
    struct seen *seen = *state;
    start(seen, (struct child_options){.argv = argv}, NULL);
    assert_int_equal(child_pid(seen->child), 0);
    child_cancel(seen->child);
    loop_uv_run(seen->loop);
    assert_int_equal(seen->calls, 1);
    assert_int_equal(seen->st, STATUS_DENIED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(output_errors_and_code_come_back),
        TEST(a_signal_is_told),
        TEST(input_environment_and_directory_are_given),
        TEST(unread_input_does_no_harm),
        TEST(output_is_bounded_but_read),
        TEST(the_deadline_kills_the_whole_group),
        TEST(what_it_leaves_behind_is_killed),
        TEST(a_stranger_with_our_pipe_is_not_waited_for),
        TEST(cancel_calls_back_once),
        TEST(a_program_that_is_not_there_is_told_later),
        TEST(a_file_that_is_no_program_is_denied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
