/* test_gang.c - a gang that lives here goes on without a leader: within its allowance, once, and
 * never against a word of the daemon. */
#include "tests/unit/agent/agent_rig.h"

#define QUIET_US 1600000 /* longer than half of the rig's lease */

static void want_gang(struct rig *rig, const char *mode, unsigned incarnation_max)
{
    for (int rank = 0; rank < 2; rank++) {
        SCOPED_TEXT char *more =
            mem_printf("  whole_gang_here: true\n  global_world: 2\n  global_rank: %d\n"
                       "  allowance: {incarnation_max: %u, backoff_ms: 20, backoff_ms_max: 50}\n",
                       rank, incarnation_max);
        (void)rig_want(rig, mode, more);
    }
}

static bool is_in(struct rig *rig, unsigned rank, unsigned incarnation,
                  Pb__ActualWorker__State state)
{
    char tag[64];
    snprintf(tag, sizeof(tag), "7.1.trainer.%u.%u", rank, incarnation);
    const Pb__ActualWorker *worker = map_get_text(rig->actual, tag);
    return worker && worker->state == state;
}

static bool both_run(struct rig *rig)
{
    return is_in(rig, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING) &&
           is_in(rig, 1, 1, PB__ACTUAL_WORKER__STATE__RUNNING);
}
static bool both_run_again(struct rig *rig)
{
    return is_in(rig, 0, 2, PB__ACTUAL_WORKER__STATE__RUNNING) &&
           is_in(rig, 1, 2, PB__ACTUAL_WORKER__STATE__RUNNING);
}
static bool third_has_ended(struct rig *rig)
{
    return is_in(rig, 0, 3, PB__ACTUAL_WORKER__STATE__EXITED) &&
           is_in(rig, 1, 3, PB__ACTUAL_WORKER__STATE__EXITED);
}

static bool has_dir(struct rig *rig, unsigned rank, unsigned incarnation)
{
    char path[64];
    snprintf(path, sizeof(path), "state/work/7.1.trainer.%u.%u", rank, incarnation);
    return access(unit_path(rig->dir, path), F_OK) == 0;
}
static bool second_is_made(struct rig *rig)
{
    return has_dir(rig, 0, 2) && has_dir(rig, 1, 2);
}
static bool second_is_written(struct rig *rig)
{
    return access(unit_path(rig->dir, "state/gang/7.1"), F_OK) == 0;
}

static bool nothing_is_written(struct rig *rig)
{
    return !second_is_written(rig);
}

/* Whatever has become of it: one that was being launched when its agent died has no shim. */
static bool both_are_second(struct rig *rig)
{
    return map_get_text(rig->actual, "7.1.trainer.0.2") &&
           map_get_text(rig->actual, "7.1.trainer.1.2") && rig->gang;
}

static int64_t quiet_until;
static bool quiet_is_over(struct rig *rig)
{
    return loop_now_us(rig->loop) >= quiet_until;
}
static void wait_quietly(struct rig *rig)
{
    quiet_until = loop_now_us(rig->loop) + QUIET_US;
    rig_until(rig, quiet_is_over);
}

static bool is_down(struct rig *rig)
{
    return !rig->open[UPLINK_CONTROL];
}
static void go_away(struct rig *rig)
{
    rig->away = true;
    rig->uplink.ops->close(&rig->uplink, UPLINK_CONTROL);
    rig_until(rig, is_down);
}

/* Both run; the daemon is gone; rank 0 is killed. */
static void fail_alone(struct rig *rig)
{
    rig_until(rig, both_run);
    int pid = rig_worker(rig, 0)->pid;
    go_away(rig);
    assert_int_equal(kill(pid, SIGKILL), 0);
}

static void without_a_leader_the_whole_gang_goes_on(void **state)
{
    struct rig *rig = *state;
    want_gang(rig, "wait", 3);
    rig_until(rig, both_run);
    int other = rig_worker(rig, 1)->pid;
    fail_alone(rig);
    rig_until(rig, second_is_made);
    assert_int_not_equal(kill(other, 0), 0);
    rig->away = false;
    rig_until(rig, both_run_again);
    assert_non_null(rig->gang);
    assert_int_equal(rig->gang->incarnation, 2);
    assert_int_equal(rig->gang->n_restarts, 1);
    assert_int_equal(rig->gang->restarts[0]->incarnation, 1);
    assert_int_equal(rig->gang->restarts[0]->rank, 0);
    assert_int_equal(rig->gang->restarts[0]->signal, SIGKILL);
    assert_int_equal(rig->gang->restarts[0]->class_, PB__REASON__CODE__WORKER_SIGNALLED);
    rig_unwant(rig); /* and its end is that of any worker: nothing of it stays on the disk */
    rig_say_desired(rig);
    rig_until(rig, rig_is_empty);
    rig_until(rig, nothing_is_written);
}

static void a_leader_that_is_there_decides(void **state)
{
    struct rig *rig = *state;
    want_gang(rig, "wait", 3);
    rig_until(rig, both_run);
    kill(rig_worker(rig, 0)->pid, SIGKILL);
    rig_until(rig, rig_is_exited);
    wait_quietly(rig);
    assert_false(second_is_written(rig));
    assert_true(is_in(rig, 1, 1, PB__ACTUAL_WORKER__STATE__RUNNING));
}

static void one_that_acknowledges_nothing_does_not_lead_and_the_allowance_is_the_end(void **state)
{
    struct rig *rig = *state;
    rig->deaf = true;
    want_gang(rig, "fail", 3);
    rig_until(rig, third_has_ended);
    assert_int_equal(rig->gang->incarnation, 3);
    assert_int_equal(rig->gang->n_restarts, 2);
    assert_int_equal(rig->gang->restarts[1]->exit_code, 1);
    wait_quietly(rig);
    assert_false(has_dir(rig, 0, 4));
}

static void a_stop_that_was_heard_wins(void **state)
{
    struct rig *rig = *state;
    want_gang(rig, "wait", 3);
    rig_until(rig, both_run);
    rig->wanted[1]->want = PB__DESIRED_WORKER__WANT__STOP;
    rig_say_desired(rig);
    int pid = rig_worker(rig, 0)->pid;
    while (!is_in(rig, 1, 1, PB__ACTUAL_WORKER__STATE__EXITED))
        wait_quietly(rig);
    go_away(rig);
    kill(pid, SIGKILL);
    wait_quietly(rig);
    assert_false(second_is_written(rig));
}

static void a_gang_without_allowance_waits_for_the_leader(void **state)
{
    struct rig *rig = *state;
    want_gang(rig, "wait", 1);
    fail_alone(rig);
    wait_quietly(rig);
    assert_false(second_is_written(rig));
    rig->away = false;
    rig_until(rig, rig_is_exited);
    assert_true(is_in(rig, 1, 1, PB__ACTUAL_WORKER__STATE__RUNNING));
}

static void the_next_agent_knows_what_was_begun(void **state)
{
    struct rig *rig = *state;
    want_gang(rig, "wait", 3);
    fail_alone(rig);
    rig_until(rig, second_is_written); /* its workers may be there, or not */
    rig_stop_agent(rig);
    rig_start_agent(rig);
    rig_until(rig, second_is_made);
    rig->away = false;
    rig_until(rig, both_are_second);
    assert_int_equal(rig->gang->incarnation, 2);
    assert_int_equal(rig->gang->n_restarts, 1);
    assert_null(map_get_text(rig->actual, "7.1.trainer.0.1"));
    assert_false(has_dir(rig, 0, 3));
}

static void refused(void *arg, const struct error *err)
{
    (void)err;
    *(bool *)arg = true;
}
static bool has_refused(struct rig *rig)
{
    return *(bool *)rig->options.arg;
}

/* Whoever does not know which incarnation lives here may not begin. */
static void what_cannot_be_read_keeps_an_agent_from_starting(void **state)
{
    struct rig *rig = *state;
    bool told = false;
    struct agent_counts counts;
    rig_until(rig, rig_is_up);
    rig_stop_agent(rig);
    assert_int_equal(mkdir(unit_path(rig->dir, "state/gang/9.1"), 0700), 0); /* no file */
    rig->options.failed = refused;
    rig->options.arg = &told;
    rig_start_agent(rig);
    rig_until(rig, has_refused);
    agent_counts(rig->agent, &counts);
    assert_false(counts.loaded);
    rig->options.failed = NULL;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return strcmp(argv[2], "wait") == 0 ? pause() : 1;
    }
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(without_a_leader_the_whole_gang_goes_on),
        T(a_leader_that_is_there_decides),
        T(one_that_acknowledges_nothing_does_not_lead_and_the_allowance_is_the_end),
        T(a_stop_that_was_heard_wins),
        T(a_gang_without_allowance_waits_for_the_leader),
        T(the_next_agent_knows_what_was_begun),
        T(what_cannot_be_read_keeps_an_agent_from_starting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
