/* test_curve.c - points of a series, whichever kind they are. */
#include "ctl/curve.h"
#include "tests/unit/unit.h"

static void points_are_counted_by_the_shorter_list(void **state)
{
    int64_t steps[] = {1, 2, 3}, integers[] = {5, 6};
    double values[] = {0.5, 1.5, 2.5};
    Pb__Series series = PB__SERIES__INIT, *list[] = {&series};
    (void)state;
    assert_int_equal(curve_points(&series), 0);
    assert_false(curve_print(list, 1, 10));
    series.steps = steps;
    series.n_steps = 3;
    series.integers = integers;
    series.n_integers = 2;
    assert_int_equal(curve_points(&series), 2);
    assert_true(curve_value(&series, 1) == 6);
    series.values = values;
    series.n_values = 3;
    assert_int_equal(curve_points(&series), 3);
    assert_true(curve_value(&series, 2) == 2.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(points_are_counted_by_the_shorter_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
