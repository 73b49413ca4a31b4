/* test_node_use.c - what is used on nodes is what the rows say: drift is found, counted and mended;
 * nothing wraps. */
#include "daemon/hub.h"
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

static struct core_health health(const struct rig *rig)
{
    struct core_health found = {0};

    core_health(rig->core, &found);
    return found;
}

/* Memory and rows are made to differ, by hand, in every way: no restart is needed. */
static void m33_drift_is_found_counted_and_mended(void **state)
{
    struct rig *rig = *state;

    rig_node_join(rig, "n1", 4);
    rig_live(rig, 61000);
    assert_true(health(rig).audits >= 1);
    assert_int_equal(health(rig).drifts, 0);
    struct node *node = map_get_text(((struct hub *)rig->core)->nodes, "n1");
    node->slots[0].owner = 77; /* a job that nobody knows holds it all */
    node->memory_used_mib += 1024;
    map_put(node->ports, 20000, node);
    int64_t job = rig_submit(rig, 4, NULL);
    assert_int_equal(rig_state(rig, job), PB__JOB__STATE__QUEUED);
    rig_live(rig, 35000);
    assert_int_equal(health(rig).drifts, 1);
    assert_int_equal(rig_state(rig, job), PB__JOB__STATE__STARTING);
    rig_live(rig, 35000);
    assert_int_equal(health(rig).drifts, 1); /* mended, and counted once */
}

static void all_memory(Pb__JobSpec *spec)
{
    spec->roles[0]->resources->has_memory_mib = true;
    spec->roles[0]->resources->memory_mib = 512;
}

/* M34: used twice, given back twice, lost with its node and told of late: the count is the rows'.
 */
static void m34_use_is_given_back_exactly_once(void **state)
{
    struct rig *rig = *state;
    struct rig_node *nodes[] = {rig_node_join(rig, "n1", 2), rig_node_join(rig, "n2", 2)};
    uint32_t devices, workers;
    int64_t job = rig_submit(rig, 4, all_memory);

    for (int round = 1; round <= 3; round++) {
        for (size_t i = 0; i < 2; i++)
            for (uint32_t rank = 2 * (uint32_t)i; rank < 2 * i + 2; rank++)
                rig_say(nodes[i], job, rank, (uint32_t)round, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
        rig_node_leave(nodes[0]); /* beyond its lease, then back */
        rig_live(rig, 7000);
        rig_say(nodes[1], job, 2, (uint32_t)round, PB__ACTUAL_WORKER__STATE__EXITED, 1);
        rig_say(nodes[1], job, 3, (uint32_t)round, PB__ACTUAL_WORKER__STATE__EXITED, 1);
        rig_say(nodes[1], job, 3, (uint32_t)round, PB__ACTUAL_WORKER__STATE__EXITED, 1);
        for (size_t i = 0; i < 2; i++) {
            core_node_use(rig->core, nodes[i]->name, &devices, &workers);
            assert_int_equal(devices, 0);
            struct node *node = map_get_text(((struct hub *)rig->core)->nodes, nodes[i]->name);
            assert_true(node->memory_used_mib == 0);
            assert_int_equal(map_count(node->ports), 0);
        }
        rig_node_rejoin(nodes[0]);
        rig_live(rig, 33000); /* back-off, and an audit */
        assert_int_equal(health(rig).drifts, 0);
        assert_int_equal(rig_state(rig, job), PB__JOB__STATE__STARTING);
    }
}

static void more_than_there_is(Pb__JobSpec *spec)
{
    spec->roles[0]->resources->has_memory_mib = true;
    spec->roles[0]->resources->memory_mib = UINT64_MAX / 2 + 1; /* twice that is nothing */
}

static void m34_sums_do_not_wrap(void **state)
{
    struct rig *rig = *state;

    rig_node_join(rig, "n1", 4);
    int64_t job = rig_submit(rig, 2, more_than_there_is);
    rig_run(rig, 1000);
    assert_true(job < 0 || rig_state(rig, job) == PB__JOB__STATE__QUEUED);
    int64_t other = rig_submit(rig, 4, NULL);
    assert_int_equal(rig_state(rig, other), PB__JOB__STATE__STARTING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(m33_drift_is_found_counted_and_mended, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(m34_use_is_given_back_exactly_once, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(m34_sums_do_not_wrap, rig_setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
