/* test_staging.c - a directory that appears whole: what is in its way, and what is left. */
#include "tests/unit/unit.h"
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/staging.h"

static void it_appears_at_once(void **state)
{
    SCOPED_TEXT char *target = mem_printf("%s/a//", (char *)*state);
    SCOPED_TEXT char *file = mem_printf("%s/a/x", (char *)*state);
    SCOPED(staging_destroy) struct staging *staging = NULL;

    assert_int_equal(staging_create(target, &staging, NULL), STATUS_OK);
    assert_int_not_equal(access(target, F_OK), 0);
    SCOPED_TEXT char *inside = mem_printf("%s/x", staging_path(staging));
    assert_int_equal(file_write_atomic(inside, "1", 1, 0644, NULL), STATUS_OK);
    assert_int_equal(staging_publish(staging, NULL), STATUS_OK);
    assert_int_equal(access(file, F_OK), 0);
}

static void what_is_there_is_not_touched(void **state)
{
    SCOPED_TEXT char *empty = mem_printf("%s/empty", (char *)*state);
    SCOPED_TEXT char *full = mem_printf("%s/full", (char *)*state);
    SCOPED_TEXT char *inside = mem_printf("%s/full/x", (char *)*state);
    struct staging *staging = NULL;
    struct error err;

    assert_int_equal(mkdir(empty, 0755), 0);
    assert_int_equal(mkdir(full, 0755), 0);
    assert_int_equal(file_write_atomic(inside, "1", 1, 0644, NULL), STATUS_OK);
    assert_int_equal(staging_create(full, &staging, &err), STATUS_EXISTS);
    assert_non_null(strstr(err.text, "not empty"));
    assert_int_equal(staging_create(inside, &staging, &err), STATUS_EXISTS);
    assert_null(staging);
    assert_int_equal(staging_create(empty, &staging, &err), STATUS_OK);
    assert_int_equal(staging_publish(staging, &err), STATUS_OK);
    staging_destroy(staging);
}

static void nothing_is_left_of_one_that_is_given_up(void **state)
{
    SCOPED_TEXT char *target = mem_printf("%s/a", (char *)*state);
    struct staging *staging = NULL;
    struct error err;

    assert_int_equal(staging_create(target, &staging, NULL), STATUS_OK);
    SCOPED_TEXT char *path = mem_strdup(staging_path(staging));
    staging_destroy(staging);
    assert_int_not_equal(access(path, F_OK), 0);
    SCOPED_TEXT char *nowhere = mem_printf("%s/no/such", (char *)*state);
    assert_int_equal(staging_create(nowhere, &staging, &err), STATUS_NOT_FOUND);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(it_appears_at_once),
        T(what_is_there_is_not_touched),
        T(nothing_is_left_of_one_that_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
