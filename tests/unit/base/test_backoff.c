/* test_backoff.c - waits that double and stop growing. */
#include "base/backoff.h"
#include "tests/unit/unit.h"

static void waits_double_up_to_the_longest(void **state)
{
    (void)state;
    assert_int_equal(backoff_ms(100, 1000, 1), 100);
    assert_int_equal(backoff_ms(100, 1000, 2), 200);
    assert_int_equal(backoff_ms(100, 1000, 4), 800);
    assert_int_equal(backoff_ms(100, 1000, 5), 1000);
    assert_int_equal(backoff_ms(100, 1000, UINT32_MAX), 1000);
}

static void nothing_stays_nothing_and_nothing_wraps(void **state)
{
    (void)state;
    assert_int_equal(backoff_ms(0, 1000, UINT32_MAX), 0);
    assert_int_equal(backoff_ms(5000, 1000, 1), 1000);
    assert_true(backoff_ms(UINT64_MAX / 2 + 1, UINT64_MAX, 3) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_double_up_to_the_longest),
        cmocka_unit_test(nothing_stays_nothing_and_nothing_wraps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
