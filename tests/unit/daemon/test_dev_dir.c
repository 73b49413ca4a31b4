/* test_dev_dir.c - the directory of rondod dev: made once, locked, never mixed with other things.
 */
#include "daemon/dev_dir.h"
#include "tests/unit/unit.h"
#include <sys/stat.h>
#include <unistd.h>

static enum status open_dir(const char *path, struct dev_dir **dir, struct error *err)
{
    return dev_dir_open(path, NULL, dir, err);
}

static void it_is_made_private_and_found_again(void **state)
{
    SCOPED_TEXT char *path = mem_printf("%s/dev", (char *)*state);
    SCOPED_TEXT char *cert = mem_printf("%s/daemon/daemon.pem", path);
    SCOPED_TEXT char *key = mem_printf("%s/ctl/ctl.key", path);
    struct dev_dir *dir;
    struct stat first, again;

    assert_int_equal(open_dir(path, &dir, NULL), STATUS_OK);
    assert_int_equal(stat(key, &first), 0);
    assert_int_equal(first.st_mode & 077, 0);
    assert_int_equal(stat(path, &first), 0);
    assert_int_equal(first.st_mode & 066, 0); /* root lets others through, nobody reads */
    assert_int_equal(stat(cert, &first), 0);
    dev_dir_close(dir);
    assert_int_equal(open_dir(path, &dir, NULL), STATUS_OK);
    assert_int_equal(stat(cert, &again), 0);
    assert_int_equal(first.st_ino, again.st_ino); /* the certificate was kept */
    dev_dir_close(dir);
}

static void a_second_daemon_is_refused(void **state)
{
    SCOPED_TEXT char *path = mem_printf("%s/dev", (char *)*state);
    struct dev_dir *dir, *second;
    struct error err;

    assert_int_equal(open_dir(path, &dir, NULL), STATUS_OK);
    assert_int_equal(open_dir(path, &second, &err), STATUS_EXISTS);
    assert_non_null(strstr(err.text, "another rondod"));
    dev_dir_close(dir);
}

static void a_directory_of_other_things_is_left_alone(void **state)
{
    SCOPED_TEXT char *file = mem_printf("%s/thesis.tex", (char *)*state);
    struct dev_dir *dir;
    struct error err;

    assert_int_equal(file_write_atomic(file, "x", 1, 0600, NULL), STATUS_OK);
    assert_int_equal(open_dir(*state, &dir, &err), STATUS_PRECONDITION);
    assert_non_null(strstr(err.text, "not empty"));
}

static void a_directory_that_others_may_write_is_refused(void **state)
{
    struct dev_dir *dir;

    assert_int_equal(chmod(*state, 0777), 0);
    assert_int_equal(open_dir(*state, &dir, NULL), STATUS_DENIED);
    assert_int_equal(chmod(*state, 0700), 0);
}

static void agents_get_their_certificates(void **state)
{
    SCOPED_TEXT char *path = mem_printf("%s/dev", (char *)*state);
    SCOPED_TEXT char *agent = NULL;
    struct dev_dir *dir;

    assert_int_equal(open_dir(path, &dir, NULL), STATUS_OK);
    assert_int_equal(dev_dir_agent(dir, "n1", "127.0.0.1:7411", &agent, NULL), STATUS_OK);
    SCOPED_TEXT char *cert = mem_printf("%s/agent.pem", agent);
    SCOPED_TEXT char *ca = mem_printf("%s/ca.pem", agent);
    assert_int_equal(access(cert, R_OK), 0);
    assert_int_equal(access(ca, R_OK), 0);
    dev_dir_close(dir);
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
        TEST(it_is_made_private_and_found_again),
        TEST(a_second_daemon_is_refused),
        TEST(a_directory_of_other_things_is_left_alone),
        TEST(a_directory_that_others_may_write_is_refused),
        TEST(agents_get_their_certificates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
