/* test_socket_lock.c - one holder a socket path, also after the file has vanished. */
#include "rpc/socket_lock.h"
#include "tests/unit/unit.h"
#include <unistd.h>

static void second_holder_is_refused_until_release(void **state)
{
    char *dir = unit_dir_create();
    SCOPED_TEXT char *path = mem_printf("%s/s", dir);
    SCOPED_TEXT char *lock_path = mem_printf("%s.lock", path);
    struct rpc_socket_lock *first = NULL, *second = NULL;

    (void)state;
    assert_int_equal(rpc_socket_lock_take(path, &first, NULL), STATUS_OK);
    assert_int_equal(rpc_socket_lock_take(path, &second, NULL), STATUS_EXISTS);
    assert_null(second);
    rpc_socket_lock_release(first);
    assert_int_equal(access(lock_path, F_OK), -1);
    assert_int_equal(rpc_socket_lock_take(path, &second, NULL), STATUS_OK);
    rpc_socket_lock_release(second);
    rpc_socket_lock_release(NULL);
    unit_dir_destroy(dir);
}

static void left_over_file_is_no_holder(void **state)
{
    char *dir = unit_dir_create();
    SCOPED_TEXT char *path = mem_printf("%s/s", dir);
    SCOPED_TEXT char *lock_path = mem_printf("%s.lock", path);
    struct rpc_socket_lock *lock = NULL;

    (void)state;
    assert_int_equal(file_write_atomic(lock_path, "", 0, 0600, NULL), STATUS_OK);
    assert_int_equal(rpc_socket_lock_take(path, &lock, NULL), STATUS_OK);
    rpc_socket_lock_release(lock);
    unit_dir_destroy(dir);
}

static void bad_paths_are_refused(void **state)
{
    struct rpc_socket_lock *lock = NULL;
    char path[200] = "/tmp/";

    (void)state;
    memset(path + 5, 'x', 150);
    assert_int_equal(rpc_socket_lock_take(path, &lock, NULL), STATUS_INVALID);
    assert_int_equal(rpc_socket_lock_take("/no/such/folder/s", &lock, NULL), STATUS_UNAVAILABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_holder_is_refused_until_release),
        cmocka_unit_test(left_over_file_is_no_holder),
        cmocka_unit_test(bad_paths_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
