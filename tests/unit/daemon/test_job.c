/* test_job.c - what a job's rows say of workers that failed, ended, or never ran. */
#include "daemon/view.h"
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

#define S(x)    PB__JOB__STATE__##x
#define RUNNING PB__ACTUAL_WORKER__STATE__RUNNING
#define EXITED  PB__ACTUAL_WORKER__STATE__EXITED

static void a_start_that_failed_has_no_exit_code(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, NULL);
    Pb__ActualWorker worker = PB__ACTUAL_WORKER__INIT;

    worker.state = EXITED;
    worker.has_class_ = true;
    worker.class_ = PB__REASON__CODE__LAUNCH_FAILED;
    worker.message = (char *)"exec /no/program: No such file or directory";
    rig_say_worker(node, job, 0, 1, &worker);
    assert_string_equal(core_job(rig->core, job)->reason->text,
                        "main rank 0 on n1: did not start: exec /no/program: No such file or "
                        "directory");
    assert_false(core_job(rig->core, job)->first_failure->has_exit_code);
    assert_false(core_job(rig->core, job)->first_failure->has_signal);
}

static void an_ended_rank_keeps_its_last_step(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 2, NULL);
    Pb__ActualWorker worker = PB__ACTUAL_WORKER__INIT;
    Pb__ShowJobReply reply = PB__SHOW_JOB_REPLY__INIT;
    struct arena *arena = arena_create(1 << 20);

    rig_say(node, job, 0, 1, RUNNING, 0);
    rig_say(node, job, 1, 1, RUNNING, 0);
    worker.state = EXITED;
    worker.has_exit_code = worker.has_step = worker.has_samples = true;
    worker.step = 41;
    worker.samples = 328;
    rig_say_worker(node, job, 0, 1, &worker);
    rig_say(node, job, 1, 1, EXITED, 0);
    assert_int_equal(rig_state(rig, job), S(SUCCEEDED));
    rig_crash(rig); /* no agent's word is left: the row has it */
    rig_start(rig);
    view_workers(arena, rig->core, core_attempt(rig->core, job, 1), &reply);
    assert_int_equal(reply.n_workers, 2);
    assert_int_equal(reply.workers[0]->step, 41);
    assert_int_equal(reply.workers[0]->samples, 328);
    assert_true(reply.workers[0]->has_step && reply.workers[0]->has_samples);
    assert_false(reply.workers[1]->has_step || reply.workers[1]->has_samples);
    arena_destroy(arena);
}

static void report_step(struct rig_node *node, int64_t job, int64_t step)
{
    Pb__BulkUp up = PB__BULK_UP__INIT;
    Pb__ReportBatch batch = PB__REPORT_BATCH__INIT, *batches[] = {&batch};
    Pb__Report report = PB__REPORT__INIT, *reports[] = {&report};

    up.has_seq = true;
    up.seq = core_agent_bulk_mark(node->rig->core, &node->link, "spool") + 1;
    up.n_batches = 1;
    up.batches = batches;
    batch.has_job = batch.has_attempt = batch.has_rank = true;
    batch.job = job;
    batch.attempt = 1;
    batch.role = (char *)"main";
    batch.n_reports = 1;
    batch.reports = reports;
    report.has_step = report.has_samples = true;
    report.step = step;
    report.samples = step * 8;
    core_agent_bulk(node->rig->core, &node->link, &up);
    rig_run(node->rig, 100);
}

static void a_new_attempt_begins_at_its_resume_step(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, rig_at_once_again);

    rig_say(node, job, 0, 1, RUNNING, 0);
    rig_say_staged(node, job, 0, 1, 20, 160);
    rig_say_sealed(node);
    report_step(node, job, 30);
    rig_say(node, job, 0, 1, EXITED, 1);
    assert_int_equal(rig_state(rig, job), S(STARTING));
    assert_int_equal(core_job(rig->core, job)->attempt, 2);
    assert_int_equal(core_attempt(rig->core, job, 1)->places[0]->ended, true);
    assert_int_equal(core_job(rig->core, job)->step, 20);
    assert_int_equal(core_job(rig->core, job)->samples, 160);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_start_that_failed_has_no_exit_code, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(an_ended_rank_keeps_its_last_step, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(a_new_attempt_begins_at_its_resume_step, rig_setup,
                                        rig_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
