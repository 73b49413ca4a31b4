/* test_interrupt.c - Ctrl-C ends a wait with a last word. */
#include "ctl/interrupt.h"
#include "tests/unit/unit.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child said that was interrupted. */
static int interrupted(void (*prepare)(void), char *said, size_t cap)
{
    int pipes[2], status = 0;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        prepare();
        interrupt_say("job 21 goes on; `rondoctl cancel 21` ends it");
        raise(SIGINT);
        _exit(7);
    }
    close(pipes[1]);
    ssize_t got = read(pipes[0], said, cap - 1);
    said[got > 0 ? got : 0] = '\0';
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void by_default(void)
{
    signal(SIGINT, SIG_DFL);
}

static void ignored(void)
{
    signal(SIGINT, SIG_IGN);
}

static void the_word_is_said_and_the_signal_ends_it(void **state)
{
    char said[400];
    (void)state;
    int status = interrupted(by_default, said, sizeof said);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    assert_string_equal(said, "\nrondoctl: job 21 goes on; `rondoctl cancel 21` ends it\n");
}

static void an_ignored_signal_stays_ignored(void **state)
{
    char said[400];
    (void)state;
    int status = interrupted(ignored, said, sizeof said);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    assert_string_equal(said, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_word_is_said_and_the_signal_ends_it),
        cmocka_unit_test(an_ignored_signal_stays_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
