/* test_diff_values.c - differences of numbers of every width. */
#include "tests/unit/unit.h"
#include <math.h>

#include "checkpoint/diff_values.h"

static double gap(enum dtype dtype, const void *a, const void *b, size_t len, uint64_t *differing)
{
    double max = 0;

    *differing = 0;
    diff_values(dtype, a, b, len, differing, &max);
    return max;
}

static void numbers_differ_by_what_they_are_worth(void **state)
{
    static const float f[] = {1, -2, 0, 5}, g[] = {1, 2, -0.0F, 5};
    static const int64_t i[] = {-5}, k[] = {7};
    static const uint16_t one = 0x3c00, two = 0x4000, small = 0x0001, zero = 0, inf = 0x7c00;
    static const uint16_t bf_one = 0x3f80, bf_two = 0x4000;
    uint64_t differing;

    (void)state;
    assert_true(gap(DTYPE_F32, f, g, sizeof(f), &differing) == 4);
    assert_int_equal(differing, 2); /* 0 and -0 differ in a bit */
    assert_true(gap(DTYPE_I64, i, k, sizeof(i), &differing) == 12);
    assert_true(gap(DTYPE_F16, &one, &two, 2, &differing) == 1);
    assert_true(gap(DTYPE_F16, &small, &zero, 2, &differing) == ldexp(1, -24));
    assert_true(isinf(gap(DTYPE_F16, &inf, &one, 2, &differing)));
    assert_true(gap(DTYPE_BF16, &bf_one, &bf_two, 2, &differing) == 1);
}

static void what_is_no_number_is_counted(void **state)
{
    static const float nan_value = NAN, one = 1;
    static const char a[] = "abcd", b[] = "abxy";
    uint64_t differing;

    (void)state;
    assert_true(isinf(gap(DTYPE_F32, &nan_value, &one, 4, &differing)));
    assert_true(gap(DTYPE_BOOL, a, b, 4, &differing) == 0);
    assert_int_equal(differing, 2);
    assert_false(diff_values_measured(DTYPE_BOOL));
    assert_true(diff_values_measured(DTYPE_BF16));
    assert_true(gap(DTYPE_F32, &one, &one, 4, &differing) == 0);
    assert_int_equal(differing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_differ_by_what_they_are_worth),
        cmocka_unit_test(what_is_no_number_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
