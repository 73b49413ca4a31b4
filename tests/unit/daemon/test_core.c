/* test_core.c - the daemon core: life of a job, gangs, restarts, checkpoints, the store's faults.
 */
#include "base/log.h"
#include "tests/support/rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define S(x)      PB__JOB__STATE__##x
#define RUNNING   PB__ACTUAL_WORKER__STATE__RUNNING
#define EXITED    PB__ACTUAL_WORKER__STATE__EXITED
#define WANT_RUN  PB__DESIRED_WORKER__WANT__RUN
#define WANT_STOP PB__DESIRED_WORKER__WANT__STOP

static int setup(void **state)
{
    static struct rig rig;

    log_setup("test", LOG_ERROR, -1);
    rig_init(&rig, 1);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    rig_fini(*state);
    return 0;
}

static void no_backoff(Pb__JobSpec *spec)
{
    spec->restart->has_backoff_ms = true;
    spec->restart->backoff_ms = 0;
    spec->restart->has_budget = true;
    spec->restart->budget = 1;
}

static void job_runs_and_succeeds(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, NULL);

    assert_int_equal(job, 1);
    assert_int_equal(rig_state(rig, job), S(STARTING));
    assert_true(rig_wants(node, job, 0, WANT_RUN));
    assert_non_null(node->launch);
    assert_int_equal(node->launch->world, 1);
    rig_say(node, job, 0, 1, RUNNING, 0);
    assert_int_equal(rig_state(rig, job), S(RUNNING));
    rig_say(node, job, 0, 1, EXITED, 0);
    assert_int_equal(rig_state(rig, job), S(SUCCEEDED));
    assert_int_equal(node->desired->n_workers, 0);
    assert_true(node->acked == node->seq);
    Pb__Job *row = (Pb__Job *)sim_db_row(rig->db, CHANGE_JOB, "1");
    assert_int_equal(row->state, S(SUCCEEDED));
    pb__job__free_unpacked(row, NULL);
}

static void job_that_ends_at_once_succeeds(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, NULL);

    rig_say(node, job, 0, 1, EXITED, 0);
    assert_int_equal(rig_state(rig, job), S(SUCCEEDED));
}

static void gang_starts_whole_or_not_at_all(void **state) /* M27 S1 S3 */
{
    struct rig *rig = *state;
    struct rig_node *one = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 4, NULL);

    assert_int_equal(rig_state(rig, job), S(QUEUED));
    assert_non_null(core_job_wait(rig->core, job));
    assert_int_equal(core_job_wait(rig->core, job)->code, PB__REASON__CODE__UNSATISFIABLE);
    struct rig_node *two = rig_node_join(rig, "n2", 2);
    rig_run(rig, 100);
    assert_int_equal(rig_state(rig, job), S(STARTING));
    assert_int_equal(one->desired->n_workers, 2);
    assert_int_equal(two->desired->n_workers, 2);
    int64_t second = rig_submit(rig, 1, NULL);
    assert_int_equal(rig_state(rig, second), S(QUEUED));
    for (uint32_t rank = 0; rank < 4; rank++)
        rig_say(rank < 2 ? one : two, job, rank, 1, RUNNING, 0);
    assert_int_equal(rig_state(rig, job), S(RUNNING));
    for (uint32_t rank = 0; rank < 4; rank++)
        rig_say(rank < 2 ? one : two, job, rank, 1, EXITED, 0);
    assert_int_equal(rig_state(rig, job), S(SUCCEEDED));
    rig_run(rig, 50);
    assert_int_equal(rig_state(rig, second), S(STARTING));
}

static void failed_worker_ends_attempt_and_budget_ends_job(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 2, no_backoff);

    rig_say(node, job, 0, 1, RUNNING, 0);
    rig_say(node, job, 1, 1, RUNNING, 0);
    rig_say(node, job, 1, 1, EXITED, 3);
    assert_int_equal(rig_state(rig, job), S(STOPPING));
    assert_true(rig_wants(node, job, 0, WANT_STOP));
    rig_say(node, job, 0, 1, EXITED, 143);
    assert_int_equal(rig_state(rig, job), S(STARTING)); /* back-off 0: at once */
    assert_int_equal(core_job(rig->core, job)->attempt, 2);
    assert_int_equal(core_job(rig->core, job)->restarts_used, 1);
    assert_int_equal(core_job(rig->core, job)->first_failure->rank, 1);
    rig_say(node, job, 0, 1, EXITED, 9); /* late, of the old attempt: M20 */
    assert_int_equal(rig_state(rig, job), S(STARTING));
    rig_say(node, job, 0, 2, RUNNING, 0);
    rig_say(node, job, 1, 2, RUNNING, 0);
    rig_say(node, job, 0, 2, EXITED, 1);
    rig_say(node, job, 1, 2, EXITED, 1);
    assert_int_equal(rig_state(rig, job), S(FAILED));
    assert_int_equal(node->desired->n_workers, 0);
}

static void cancel_works_in_every_state(void **state)
{
    struct rig *rig = *state;
    int64_t queued = rig_submit(rig, 1, NULL);

    assert_int_equal(rig_cancel(rig, queued), STATUS_OK);
    assert_int_equal(rig_state(rig, queued), S(CANCELLED));
    assert_int_equal(rig_cancel(rig, queued), STATUS_PRECONDITION);
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t starting = rig_submit(rig, 1, NULL);
    assert_int_equal(rig_cancel(rig, starting), STATUS_OK);
    assert_int_equal(rig_state(rig, starting), S(STOPPING));
    assert_int_equal(rig_cancel(rig, starting), STATUS_OK);
    rig_say(node, starting, 0, 1, EXITED, 143);
    assert_int_equal(rig_state(rig, starting), S(CANCELLED));
    int64_t running = rig_submit(rig, 1, NULL);
    rig_say(node, running, 0, 1, RUNNING, 0);
    assert_int_equal(rig_cancel(rig, running), STATUS_OK);
    assert_true(rig_wants(node, running, 0, WANT_STOP));
    rig_say(node, running, 0, 1, EXITED, 0);
    assert_int_equal(rig_state(rig, running), S(CANCELLED));
    assert_int_equal(rig_cancel(rig, 99), STATUS_NOT_FOUND);
}

static void silent_node_is_lost_after_its_lease(void **state) /* M15 M39 */
{
    struct rig *rig = *state;
    struct rig_node *one = rig_node_join(rig, "n1", 1);
    int64_t job = rig_submit(rig, 1, no_backoff);

    rig_say(one, job, 0, 1, RUNNING, 0);
    rig_node_leave(one);
    assert_int_equal(rig_state(rig, job), S(RUNNING)); /* unreachable is not dead */
    rig_run(rig, 4000);
    assert_int_equal(rig_state(rig, job), S(RUNNING));
    struct rig_node *two = rig_node_join(rig, "n2", 1);
    rig_run(rig, 2000);
    assert_int_equal(rig_state(rig, job), S(STARTING));
    assert_true(rig_wants(two, job, 0, WANT_RUN));
    assert_int_equal(core_job(rig->core, job)->restarts_used, 0);
    rig_node_rejoin(one);
    assert_false(rig_wants(one, job, 0, WANT_RUN));
}

static void same_request_id_is_answered_once(void **state)
{
    struct rig *rig = *state;
    int64_t first = rig_submit(rig, 1, NULL);

    rig->calls--; /* the same id again */
    assert_int_equal(rig_submit(rig, 1, NULL), first);
    rig->calls--;
    assert_int_equal(rig_submit(rig, 2, NULL), -STATUS_EXISTS); /* another content */
    rig_crash(rig);
    rig_start(rig);
    rig->calls--;
    assert_int_equal(rig_submit(rig, 1, NULL), first); /* also after a restart */
    assert_null(core_job(rig->core, first + 1));
}

static void restart_of_daemon_keeps_running_job(void **state) /* M10 M26 */
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, NULL);

    rig_say(node, job, 0, 1, RUNNING, 0);
    rig_crash(rig);
    rig_start(rig);
    assert_int_equal(rig_state(rig, job), S(RUNNING));
    rig_run(rig, 1000);
    node->link.node = NULL;
    node->seq = 0;
    /* the agent comes back with the worker in its set: whole, then changed */
    rig_node_rejoin(node);
    rig_run(rig, 100);
    /* the empty whole report said that the worker is gone: that is a lost shim */
    assert_int_not_equal(rig_state(rig, job), S(RUNNING));
}

static void commit_of_unknown_outcome_is_settled(void **state)
{
    struct rig *rig = *state;
    rig_node_join(rig, "n1", 4);
    int64_t jobs[40];

    sim_db_faults(rig->db, 400);
    for (int i = 0; i < 40; i++)
        jobs[i] = rig_submit(rig, 1, NULL);
    sim_db_faults(rig->db, 0);
    rig_run(rig, 5000);
    for (int i = 0; i < 40; i++) {
        if (jobs[i] > 0)
            assert_non_null(core_job(rig->core, jobs[i])); /* acknowledged is there */
        for (int k = 0; k < i; k++)
            assert_true(jobs[i] < 0 || jobs[i] != jobs[k]);
    }
    rig_crash(rig);
    rig_start(rig);
    for (int i = 0; i < 40; i++)
        if (jobs[i] > 0)
            assert_non_null(core_job(rig->core, jobs[i]));
}

static void database_away_refuses_writes_and_keeps_leases(void **state) /* M41 */
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, NULL);

    rig_say(node, job, 0, 1, RUNNING, 0);
    sim_db_away(rig->db, true);
    rig_run(rig, 60000);
    assert_int_equal(rig_submit(rig, 1, NULL), -STATUS_UNAVAILABLE);
    assert_int_equal(rig_state(rig, job), S(RUNNING)); /* reads go on, leases are frozen */
    sim_db_away(rig->db, false);
    rig_run(rig, 1000);
    rig->calls--;
    assert_true(rig_submit(rig, 1, NULL) > 0); /* the same request id succeeds once */
    assert_int_equal(rig_state(rig, job), S(RUNNING));
}

static void with_checkpoints(Pb__JobSpec *spec)
{
    no_backoff(spec);
    spec->restart->budget = 5;
}

static void checkpoint_commits_when_whole_and_is_resumed_from(void **state) /* M47 M53 M54 */
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 2, with_checkpoints);
    const Pb__Checkpoint *saves[4];

    rig_say(node, job, 0, 1, RUNNING, 0);
    rig_say(node, job, 1, 1, RUNNING, 0);
    rig_say_staged(node, job, 0, 1, 100, 6400);
    assert_int_equal(core_checkpoints(rig->core, job, saves, 4), 1);
    assert_int_equal(saves[0]->state, PB__CHECKPOINT__STATE__STAGED);
    assert_int_equal(node->desired->n_seals, 0);
    rig_say_staged(node, job, 0, 1, 100, 6400); /* twice changes nothing */
    rig_say_staged(node, job, 1, 1, 100, 6400);
    assert_int_equal(node->desired->n_seals, 1);
    rig_say_sealed(node);
    assert_int_equal(core_checkpoints(rig->core, job, saves, 4), 1);
    assert_int_equal(saves[0]->state, PB__CHECKPOINT__STATE__COMMITTED);
    rig_say_staged(node, job, 0, 1, 200, 12800); /* torn: rank 1 never reports */
    rig_say(node, job, 0, 1, EXITED, 1);
    rig_say(node, job, 1, 1, EXITED, 1);
    assert_int_equal(rig_state(rig, job), S(STARTING));
    assert_int_equal(node->launch->resume->step, 100);
    assert_int_equal(node->launch->resume->samples, 6400);
    assert_int_equal(core_checkpoints(rig->core, job, saves, 4), 2);
    assert_int_equal(saves[0]->state, PB__CHECKPOINT__STATE__TORN);
    assert_int_equal(node->desired->n_deletes, 1);
}

static void stage_and_seal(struct rig_node *node, int64_t job, int64_t step)
{
    rig_say_staged(node, job, 0, 1, step, step * 8);
    rig_say_sealed(node);
}

/* A program without reports: torchrun and the like. */
static void a_committed_checkpoint_raises_the_step(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, with_checkpoints), step, samples;

    rig_say(node, job, 0, 1, RUNNING, 0);
    stage_and_seal(node, job, 300);
    core_progress(rig->core, job, &step, &samples);
    assert_int_equal(step, 300);
    assert_int_equal(samples, 2400);
    assert_int_equal(core_job(rig->core, job)->step, 300);
    stage_and_seal(node, job, 200); /* sealed late: what was reached stays */
    assert_int_equal(core_job(rig->core, job)->step, 300);
    assert_int_equal(core_job(rig->core, job)->samples, 2400);
}

/* Two committed ones, then the newest and the one before cannot be loaded. */
static int64_t all_damaged(struct rig *rig, struct rig_node *node, void (*fn)(Pb__JobSpec *spec))
{
    int64_t job = rig_submit(rig, 1, fn);

    rig_say(node, job, 0, 1, RUNNING, 0);
    stage_and_seal(node, job, 10);
    stage_and_seal(node, job, 20);
    rig_say(node, job, 0, 1, EXITED, 1);
    assert_int_equal(node->launch->resume->step, 20);
    rig_say_class(node, job, 0, 2, PB__REASON__CODE__CHECKPOINT_ERROR);
    assert_int_equal(core_attempt(rig->core, job, 2)->has_running_us, false);
    assert_int_equal(rig_state(rig, job), S(STARTING));
    assert_int_equal(node->launch->resume->step, 10);
    rig_say_class(node, job, 0, 3, PB__REASON__CODE__CHECKPOINT_ERROR);
    return job;
}

static void step_0_is_refused_when_work_was_committed(void **state) /* M49 M59 */
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = all_damaged(rig, node, with_checkpoints);

    assert_int_equal(rig_state(rig, job), S(FAILED));
    assert_int_equal(core_job(rig->core, job)->reason->code, PB__REASON__CODE__CHECKPOINT_ERROR);
    assert_non_null(strstr(core_job(rig->core, job)->reason->text, "start_over"));
}

static void start_over(Pb__JobSpec *spec)
{
    with_checkpoints(spec);
    spec->checkpoint->has_start_over = true;
    spec->checkpoint->start_over = true;
}

static void step_0_is_taken_when_asked_for(void **state) /* M49 */
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = all_damaged(rig, node, start_over);

    assert_int_equal(rig_state(rig, job), S(STARTING));
    assert_null(node->launch->resume);
}

static void run_with_heartbeats(struct rig *rig, struct rig_node *node, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        Pb__AgentUp up = PB__AGENT_UP__INIT;
        core_agent_up(rig->core, &node->link, &up);
        rig_run(rig, 1000);
    }
}

static void free_relaunches_back_off(void **state) /* M11 M32 */
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, NULL);
    uint32_t ports[3];

    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        assert_int_equal(rig_state(rig, job), S(STARTING));
        ports[attempt - 1] = node->launch->master_port;
        rig_say(node, job, 0, attempt, RUNNING, 0); /* up, and still no success */
        rig_say_class(node, job, 0, attempt, PB__REASON__CODE__PORT_CLASH);
    }
    assert_int_equal(rig_state(rig, job), S(QUEUED));
    assert_true(ports[0] != ports[1] && ports[1] != ports[2]);
    assert_int_equal(core_job(rig->core, job)->restarts_used, 0);
    run_with_heartbeats(rig, node, 5);
    assert_int_equal(rig_state(rig, job), S(STARTING));
}

static void second_claimant_is_refused(void **state) /* M9 */
{
    struct rig *rig = *state;
    struct rig_node *first = rig_node_join(rig, "n1", 2);
    struct rig_node *second = rig_node_join(rig, "n1x", 2);

    snprintf(second->name, sizeof(second->name), "n1");
    second->link.node = NULL;
    Pb__Hello hello = PB__HELLO__INIT;
    Pb__NodeInventory inventory = PB__NODE_INVENTORY__INIT;
    hello.protocol = 1;
    hello.node = second->name;
    hello.boot_id = (char *)"b";
    hello.spool_id = (char *)"other";
    hello.instance = (char *)"other";
    hello.inventory = &inventory;
    core_agent_hello(rig->core, &second->link, "n1", &hello);
    rig_run(rig, 10);
    assert_true(second->closed);
    assert_true(strlen(second->refused) > 0);
    assert_false(first->closed);
}

static void start_timeout_releases_and_requeues(void **state) /* M21 */
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 2, NULL);

    rig_say(node, job, 0, 1, RUNNING, 0);
    for (int i = 0; i < 70 && rig_state(rig, job) == S(STARTING); i++) { /* heartbeats */
        Pb__AgentUp up = PB__AGENT_UP__INIT;
        core_agent_up(rig->core, &node->link, &up);
        rig_run(rig, 1000);
    }
    assert_int_equal(rig_state(rig, job), S(STOPPING));
    rig_say(node, job, 0, 1, EXITED, 143);
    rig_say(node, job, 1, 1, EXITED, 143);
    assert_int_equal(rig_state(rig, job), S(QUEUED));
    assert_int_equal(core_job(rig->core, job)->restarts_used, 0);
    rig_run(rig, 1500);
    assert_int_equal(rig_state(rig, job), S(STARTING));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(job_runs_and_succeeds, setup, teardown),
        cmocka_unit_test_setup_teardown(job_that_ends_at_once_succeeds, setup, teardown),
        cmocka_unit_test_setup_teardown(gang_starts_whole_or_not_at_all, setup, teardown),
        cmocka_unit_test_setup_teardown(failed_worker_ends_attempt_and_budget_ends_job, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(cancel_works_in_every_state, setup, teardown),
        cmocka_unit_test_setup_teardown(silent_node_is_lost_after_its_lease, setup, teardown),
        cmocka_unit_test_setup_teardown(same_request_id_is_answered_once, setup, teardown),
        cmocka_unit_test_setup_teardown(restart_of_daemon_keeps_running_job, setup, teardown),
        cmocka_unit_test_setup_teardown(commit_of_unknown_outcome_is_settled, setup, teardown),
        cmocka_unit_test_setup_teardown(database_away_refuses_writes_and_keeps_leases, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_committed_checkpoint_raises_the_step, setup, teardown),
        cmocka_unit_test_setup_teardown(checkpoint_commits_when_whole_and_is_resumed_from, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(step_0_is_refused_when_work_was_committed, setup, teardown),
        cmocka_unit_test_setup_teardown(step_0_is_taken_when_asked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(free_relaunches_back_off, setup, teardown),
        cmocka_unit_test_setup_teardown(second_claimant_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(start_timeout_releases_and_requeues, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
