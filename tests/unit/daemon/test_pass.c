/* test_pass.c - what a pass makes of the history of a job. */
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

#define S(x) PB__JOB__STATE__##x

static void a_job_goes_elsewhere_after_a_start_that_failed(void **state)
{
    struct rig *rig = *state;
    struct rig_node *nodes[] = {rig_node_join(rig, "n1", 2), rig_node_join(rig, "n2", 2)};
    int64_t job = rig_submit(rig, 1, rig_at_once_again);
    const char *first = core_attempt(rig->core, job, 1)->places[0]->node;
    struct rig_node *broken = strcmp(first, "n1") ? nodes[1] : nodes[0];

    rig_say_class(broken, job, 0, 1, PB__REASON__CODE__LAUNCH_FAILED);
    assert_int_equal(rig_state(rig, job), S(STARTING));
    assert_int_equal(core_job(rig->core, job)->attempt, 2);
    assert_string_not_equal(core_attempt(rig->core, job, 2)->places[0]->node, broken->name);
    int64_t other = rig_submit(rig, 2, NULL); /* that of another job is no matter of this one */
    assert_int_equal(rig_state(rig, other), S(STARTING));
    assert_string_equal(core_attempt(rig->core, other, 1)->places[0]->node, broken->name);
}

static struct rig_node *node_of(struct rig *rig, int64_t job, uint32_t attempt)
{
    const char *name = core_attempt(rig->core, job, attempt)->places[0]->node;

    for (size_t i = 0; i < rig->nodes_count; i++)
        if (!strcmp(rig->nodes[i]->name, name))
            return rig->nodes[i];
    fail_msg("no node %s", name);
    return NULL;
}

/* More ranks have failed than failures are looked at: those of the last attempt are among them. */
static void the_newest_failures_of_a_large_gang_count(void **state)
{
    enum { RANKS = 64, BROKEN = 5 };
    static const char *const names[BROKEN + 1] = {"n1", "n2", "n3", "n4", "n5", "n6"};
    struct rig *rig = *state;
    struct rig_node *broken[BROKEN];

    for (int i = 0; i <= BROKEN; i++)
        rig_node_join(rig, names[i], RANKS);
    int64_t job = rig_submit(rig, RANKS, rig_at_once_again);
    for (uint32_t i = 0; i < BROKEN; i++) {
        broken[i] = node_of(rig, job, i + 1);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            rig_say_class(broken[i], job, rank, i + 1, PB__REASON__CODE__NODE_EXHAUSTED);
        rig_live(rig, 20);
        assert_int_equal(core_job(rig->core, job)->attempt, i + 2);
    }
    for (uint32_t i = 0; i < BROKEN; i++)
        assert_ptr_not_equal(node_of(rig, job, BROKEN + 1), broken[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_job_goes_elsewhere_after_a_start_that_failed, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(the_newest_failures_of_a_large_gang_count, rig_setup,
                                        rig_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
