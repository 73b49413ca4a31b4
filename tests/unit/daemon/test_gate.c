/* test_gate.c - where the daemon places "save at step S": by the pace, near when saves are wanted
 * often, and not ever farther when a rank refuses. */
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

#define RUNNING PB__ACTUAL_WORKER__STATE__RUNNING
#define PREPARE PB__GATE__PHASE__PREPARE
#define ARM     PB__GATE__PHASE__ARM
#define DROP    PB__GATE__PHASE__DROP

enum { PACE = 1000 }; /* steps a second */

static void save_each_second(Pb__JobSpec *spec)
{
    spec->checkpoint->has_every_s = true;
    spec->checkpoint->every_s = 1;
}

static void report_step(struct rig_node *node, int64_t job, int64_t step, int64_t t_us)
{
    Pb__BulkUp up = PB__BULK_UP__INIT;
    Pb__ReportBatch batch = PB__REPORT_BATCH__INIT, *batches[] = {&batch};
    Pb__Report report = PB__REPORT__INIT, *reports[] = {&report};

    up.has_seq = true;
    up.seq = core_agent_bulk_mark(node->rig->core, &node->link, "spool") + 1;
    up.n_batches = 1;
    up.batches = batches;
    batch.has_job = batch.has_attempt = batch.has_rank = batch.has_incarnation = true;
    batch.job = job;
    batch.attempt = 1;
    batch.incarnation = 1;
    batch.role = (char *)"main";
    batch.n_reports = 1;
    batch.reports = reports;
    report.has_step = report.has_t_us = true;
    report.step = step;
    report.t_us = t_us;
    core_agent_bulk(node->rig->core, &node->link, &up);
    rig_run(node->rig, 20);
}

static void say_gate(struct rig_node *node, int64_t job, uint32_t rank, Pb__Gate__Phase phase,
                     int64_t step)
{
    Pb__ActualWorker worker = PB__ACTUAL_WORKER__INIT;
    const Pb__Gate *gate = node->desired->workers[rank]->gate;

    worker.state = RUNNING;
    worker.has_joined = worker.joined = true;
    worker.has_gate_number = worker.has_gate_phase = worker.has_gate_step = gate != NULL;
    worker.gate_number = gate ? gate->number : 0;
    worker.gate_phase = phase;
    worker.gate_step = step;
    rig_say_worker(node, job, rank, 1, &worker);
}

static const Pb__Gate *gate_of(const struct rig_node *node)
{
    return node->desired->workers[0]->gate;
}

/* A running job of two ranks at PACE, and the step at which its first save is asked for. */
static int64_t begin(struct rig *rig, struct rig_node *node, int64_t *job)
{
    *job = rig_submit(rig, 2, save_each_second);
    rig_say(node, *job, 0, 1, RUNNING, 0);
    rig_say(node, *job, 1, 1, RUNNING, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        say_gate(node, *job, rank, DROP, 0);
    int64_t step = 0;
    for (; !gate_of(node) && step < 20 * PACE; step += PACE / 10) {
        report_step(node, *job, step, step * 1000000 / PACE + 1000);
        rig_run(rig, 80);
    }
    return step;
}

static void a_save_wanted_often_is_named_near(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job, step = begin(rig, node, &job);

    assert_non_null(gate_of(node));
    assert_int_equal(gate_of(node)->phase, PREPARE);
    assert_in_range(gate_of(node)->step, step - PACE / 5, step + PACE * 6 / 10);
}

/* Rank 0 is bound, rank 1 is always past the step: the next question is behind where rank 1 is, not
 * behind the last question. */
static void refusals_do_not_drive_it_ahead(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job, step = begin(rig, node, &job);

    for (int i = 0; i < 8; i++) {
        uint64_t number = gate_of(node)->number;
        assert_int_equal(gate_of(node)->phase, PREPARE);
        say_gate(node, job, 0, PREPARE, gate_of(node)->step);
        say_gate(node, job, 1, DROP, step + 5);
        assert_true(gate_of(node)->phase == DROP || gate_of(node)->number > number);
        rig_run(rig, 200); /* soon, not in a second */
        assert_true(gate_of(node)->number > number);
        assert_true(gate_of(node)->step > step + 5);
        assert_true(gate_of(node)->step < step + PACE * 10); /* 0.5 s, doubled four times, and 2 */
    }
    for (uint32_t rank = 0; rank < 2; rank++)
        say_gate(node, job, rank, PREPARE, gate_of(node)->step);
    assert_int_equal(gate_of(node)->phase, ARM);
}

/* A minute of reports that were held up comes at once: that is no speed. */
static void a_rush_of_late_reports_is_no_pace(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 2, save_each_second), step = 0;

    rig_say(node, job, 0, 1, RUNNING, 0);
    rig_say(node, job, 1, 1, RUNNING, 0);
    for (int i = 1; i <= 60; i++) {
        step = (int64_t)i * PACE;
        report_step(node, job, step, (int64_t)i * 1000000);
    }
    for (uint32_t rank = 0; rank < 2; rank++)
        say_gate(node, job, rank, DROP, 0);
    rig_run(rig, 1500);
    assert_non_null(gate_of(node));
    assert_in_range(gate_of(node)->step, step + 1, step + PACE * 6 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_save_wanted_often_is_named_near, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(refusals_do_not_drive_it_ahead, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(a_rush_of_late_reports_is_no_pace, rig_setup, rig_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
