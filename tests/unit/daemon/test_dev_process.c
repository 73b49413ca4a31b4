/* test_dev_process.c - a process is found again by its record, and never another one. */
#include "daemon/dev_process.h"
#include "tests/unit/unit.h"
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_process_is_found_by_its_record_until_it_ends(void **state)
{
    SCOPED_TEXT char *record = mem_printf("%s/record", (char *)*state);
    SCOPED_TEXT char *log = mem_printf("%s/log", (char *)*state);
    char *argv[] = {"/bin/sleep", "300", NULL};
    struct pollfd ended = {.events = POLLIN};
    pid_t pid, found;
    int pidfd;

    assert_int_equal(dev_process_find(record, &found, &pidfd), STATUS_NOT_FOUND);
    assert_int_equal(
        dev_process_start(&(struct dev_process_options){record, log, argv}, &pid, &ended.fd, NULL),
        STATUS_OK);
    assert_int_equal(dev_process_find(record, &found, &pidfd), STATUS_OK);
    assert_int_equal(found, pid);
    close(pidfd);
    kill(pid, SIGKILL);
    assert_int_equal(poll(&ended, 1, 60000), 1);
    assert_int_equal(dev_process_find(record, &found, &pidfd), STATUS_NOT_FOUND); /* a zombie */
    waitpid(pid, NULL, 0);
    assert_int_equal(dev_process_find(record, &found, &pidfd), STATUS_NOT_FOUND);
    close(ended.fd);
}

static void a_recycled_pid_is_not_taken_for_ours(void **state)
{
    SCOPED_TEXT char *record = mem_printf("%s/record", (char *)*state);
    SCOPED_TEXT char *text = mem_printf("%ld 1 some-other-boot\n", (long)getpid());
    pid_t found;
    int pidfd;

    assert_int_equal(file_write_atomic(record, text, strlen(text), 0600, NULL), STATUS_OK);
    assert_int_equal(dev_process_find(record, &found, &pidfd), STATUS_NOT_FOUND);
}

static void a_missing_program_is_told(void **state)
{
    SCOPED_TEXT char *record = mem_printf("%s/record", (char *)*state);
    SCOPED_TEXT char *log = mem_printf("%s/log", (char *)*state);
    char *argv[] = {"/no/such/program", NULL};
    struct error err;
    pid_t pid;
    int pidfd;

    assert_int_equal(
        dev_process_start(&(struct dev_process_options){record, log, argv}, &pid, &pidfd, &err),
        STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "/no/such/program"));
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
        TEST(a_process_is_found_by_its_record_until_it_ends),
        TEST(a_recycled_pid_is_not_taken_for_ours),
        TEST(a_missing_program_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
