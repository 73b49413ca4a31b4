/* test_dtype.c - names and widths of element types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "checkpoint/dtype.h"

static void every_name_is_found_again(void **state)
{
    (void)state;
    for (unsigned i = 0; i < DTYPE_COUNT; i++) {
        enum dtype found = DTYPE_COUNT;
        const char *name = dtype_name((enum dtype)i);
        assert_true(dtype_find(name, strlen(name), &found));
        assert_int_equal(found, i);
    }
    enum dtype kept = DTYPE_F32;
    assert_false(dtype_find("F3", 2, &kept));
    assert_false(dtype_find("f32", 3, &kept));
    assert_int_equal(kept, DTYPE_F32);
}

static void bytes_are_whole_and_checked(void **state)
{
    uint64_t bytes = 7;

    (void)state;
    assert_true(dtype_bytes(DTYPE_F4, 6, &bytes));
    assert_int_equal(bytes, 3);
    assert_false(dtype_bytes(DTYPE_F4, 3, &bytes));
    assert_false(dtype_bytes(DTYPE_F6_E2M3, 2, &bytes));
    assert_true(dtype_bytes(DTYPE_F6_E2M3, 4, &bytes));
    assert_int_equal(bytes, 3);
    assert_false(dtype_bytes(DTYPE_U64, UINT64_MAX / 8, &bytes));
    assert_true(dtype_bytes(DTYPE_C64, UINT64_C(1) << 40, &bytes));
    assert_int_equal(bytes, UINT64_C(8) << 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_is_found_again),
        cmocka_unit_test(bytes_are_whole_and_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
