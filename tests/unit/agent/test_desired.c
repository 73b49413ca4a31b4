/* test_desired.c - what the daemon wants, said twice, late, and taken back. */
#include "tests/unit/agent/agent_rig.h"

static void the_same_wish_twice_starts_one_worker(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "wait", NULL);
    rig_until(rig, rig_is_running);
    int pid = rig_worker(rig, 0)->pid;
    for (int i = 0; i < 5; i++)
        rig_say_desired(rig);
    struct agent_counts counts;
    agent_counts(rig->agent, &counts);
    assert_int_equal(counts.workers, 1);
    assert_int_equal(rig_worker(rig, 0)->pid, pid);
}

static void ended_worker_is_not_started_again(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "ok", NULL);
    rig_until(rig, rig_is_exited);
    int pid = rig_worker(rig, 0)->pid;
    rig_say_desired(rig);
    rig_say_desired(rig);
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->pid, pid);
}

static bool new_attempt_runs(struct rig *rig)
{
    const Pb__ActualWorker *worker = map_get_text(rig->actual, "7.2.trainer.0.1");
    return worker && worker->state == PB__ACTUAL_WORKER__STATE__RUNNING && rig->gone > 0;
}

static void next_attempt_replaces_the_one_before(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "wait", NULL);
    rig_until(rig, rig_is_running);
    int pid = rig_worker(rig, 0)->pid;
    rig_unwant(rig);
    rig_want(rig, "wait", NULL)->key->attempt = 2;
    rig_say_desired(rig);
    rig_until(rig, new_attempt_runs);
    assert_int_not_equal(kill(pid, 0), 0);
}

static void stop_before_the_start_never_runs_it(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "ok", NULL)->want = PB__DESIRED_WORKER__WANT__STOP;
    rig_until(rig, rig_is_exited);
    assert_int_equal(rig_worker(rig, 0)->class_, PB__REASON__CODE__ASKED);
    assert_int_equal(rig_worker(rig, 0)->pid, 0);
}

static bool later_rank_runs(struct rig *rig)
{
    const Pb__ActualWorker *worker = rig_worker(rig, 1);
    return worker && worker->state == PB__ACTUAL_WORKER__STATE__RUNNING;
}

static void later_ranks_wait_for_their_delay(void **state)
{
    struct rig *rig = *state;
    int64_t from = loop_now_us(rig->loop);
    rig_want(rig, "wait.py", "  delay_ms: 400\n");
    rig_want(rig, "wait.py", "  delay_ms: 400\n");
    rig_until(rig, rig_is_running);
    rig_until(rig, later_rank_runs);
    assert_true(loop_now_us(rig->loop) - from >= 400000);
}

static void ranks_of_a_binary_start_together(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "wait", "  delay_ms: 86400000\n");
    rig_want(rig, "wait", "  delay_ms: 86400000\n");
    rig_until(rig, rig_is_running);
    rig_until(rig, later_rank_runs);
}

static void bad_keys_are_left_alone(void **state)
{
    struct rig *rig = *state;
    Pb__DesiredWorker *wish = rig_want(rig, "ok", NULL);
    free(wish->key->role);
    wish->key->role = strdup("../../etc");
    rig_want(rig, "ok", NULL)->key->rank = 0;
    rig_until(rig, rig_is_exited);
    struct agent_counts counts;
    agent_counts(rig->agent, &counts);
    assert_int_equal(counts.workers, 1);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return strncmp(argv[2], "wait", 4) == 0 ? pause() : 0;
    }
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(the_same_wish_twice_starts_one_worker),
        T(ended_worker_is_not_started_again),
        T(next_attempt_replaces_the_one_before),
        T(stop_before_the_start_never_runs_it),
        T(later_ranks_wait_for_their_delay),
        T(ranks_of_a_binary_start_together),
        T(bad_keys_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
