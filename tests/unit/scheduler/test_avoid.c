/* test_avoid.c - for how long a job stays away from nodes where it failed to start. */
#include "scheduler/avoid.h"
#include "tests/unit/unit.h"

#define S ((int64_t)1000000)

static void one_failure_counts_for_half_a_minute(void **state)
{
    struct avoid_failure failures[] = {{"n1", 100 * S, "exec"}, {"n1", 100 * S, "exec"}};
    struct snapshot_avoid out[AVOID_MAX];

    (void)state;
    assert_int_equal(avoid_decide(failures, 2, 129 * S, out), 1); /* two ranks of one attempt */
    assert_string_equal(out[0].node, "n1");
    assert_string_equal(out[0].why, "exec");
    assert_int_equal(out[0].until_us, 130 * S);
    assert_int_equal(avoid_decide(failures, 2, 130 * S, out), 0);
    assert_int_equal(avoid_decide(NULL, 0, 130 * S, out), 0);
}

static void each_further_one_counts_twice_as_long_up_to_a_bound(void **state)
{
    struct avoid_failure failures[12];
    struct snapshot_avoid out[AVOID_MAX];

    (void)state;
    for (int i = 0; i < 12; i++)
        failures[i] = (struct avoid_failure){i == 1 ? "n2" : "n1", (100 + i) * S, "x"};
    assert_int_equal(avoid_decide(failures, 3, 103 * S, out), 2);
    assert_string_equal(out[0].node, "n1");
    assert_int_equal(out[0].until_us, 102 * S + 2 * AVOID_US);
    assert_string_equal(out[1].node, "n2");
    assert_int_equal(out[1].until_us, 101 * S + AVOID_US);
    assert_int_equal(avoid_decide(failures, 12, 112 * S, out), 2);
    assert_int_equal(out[0].until_us, 111 * S + AVOID_US_MAX);
}

static void a_clock_set_back_keeps_nobody_away_for_longer(void **state)
{
    struct avoid_failure failures[] = {{"n1", 5000 * S, "exec"}};
    struct snapshot_avoid out[AVOID_MAX];

    (void)state;
    assert_int_equal(avoid_decide(failures, 1, 100 * S, out), 1);
    assert_int_equal(out[0].until_us, 100 * S + AVOID_US);
}

static void more_nodes_than_there_is_room_for_are_cut(void **state)
{
    static struct avoid_failure failures[AVOID_MAX + 9];
    static char names[AVOID_MAX + 9][8];
    struct snapshot_avoid out[AVOID_MAX];

    (void)state;
    for (int i = 0; i < AVOID_MAX + 9; i++) {
        snprintf(names[i], sizeof(names[i]), "n%d", i);
        failures[i] = (struct avoid_failure){names[i], 100 * S, "x"};
    }
    assert_int_equal(avoid_decide(failures, AVOID_MAX + 9, 100 * S, out), AVOID_MAX);
    assert_string_equal(out[0].node, names[AVOID_MAX + 8]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_failure_counts_for_half_a_minute),
        cmocka_unit_test(each_further_one_counts_twice_as_long_up_to_a_bound),
        cmocka_unit_test(a_clock_set_back_keeps_nobody_away_for_longer),
        cmocka_unit_test(more_nodes_than_there_is_room_for_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
