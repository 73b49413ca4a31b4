/* test_restart.c - restarts that an agent made by itself: counted once, told once, never beyond
 * what was granted. */
#include "daemon/restart.h"
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

#define S(x)      PB__JOB__STATE__##x
#define RUNNING   PB__ACTUAL_WORKER__STATE__RUNNING
#define EXITED    PB__ACTUAL_WORKER__STATE__EXITED
#define WANT_RUN  PB__DESIRED_WORKER__WANT__RUN
#define WANT_STOP PB__DESIRED_WORKER__WANT__STOP
#define CRASHED   PB__REASON__CODE__WORKER_SIGNALLED

static void budget_of_two(Pb__JobSpec *spec)
{
    spec->restart->has_backoff_ms = spec->restart->has_budget = true;
    spec->restart->backoff_ms = 0;
    spec->restart->budget = 2;
}

static void budget_of_none(Pb__JobSpec *spec)
{
    spec->restart->has_budget = true;
    spec->restart->budget = 0;
}

static void stop_when_unreachable(Pb__JobSpec *spec)
{
    spec->has_on_unreachable = true;
    spec->on_unreachable = PB__JOB_SPEC__ON_UNREACHABLE__STOP;
}

/* --- what the agent says */
struct word { /* what a report says of the gang of attempt 1 of a job with two ranks */
    int64_t job;
    bool whole;
    uint32_t gang;        /* incarnation; the ones before ended by a signal of rank 0; 0: nothing */
    bool twice;           /* each restart of it is said two times */
    uint32_t incarnation; /* of the workers */
    Pb__ActualWorker__State state[2]; /* of each rank; 0: nothing */
    Pb__Reason__Code class[2];
};

static void fill_gang(Pb__ActualGang *gang, Pb__RestartInPlace *restarts, Pb__RestartInPlace **list,
                      const struct word *word)
{
    pb__actual_gang__init(gang);
    gang->has_job = gang->has_attempt = gang->has_incarnation = true;
    gang->job = word->job;
    gang->attempt = 1;
    gang->incarnation = word->gang;
    const uint32_t times = word->twice ? 2 : 1;
    gang->n_restarts = (word->gang - 1) * times;
    gang->restarts = list;
    for (uint32_t i = 0; i < gang->n_restarts; i++) {
        list[i] = &restarts[i];
        pb__restart_in_place__init(list[i]);
        list[i]->role = (char *)"main";
        list[i]->has_incarnation = list[i]->has_signal = list[i]->has_class_ = true;
        list[i]->incarnation = i / times + 1;
        list[i]->signal = 9;
        list[i]->class_ = CRASHED;
    }
}

static void fill_worker(Pb__ActualWorker *worker, Pb__WorkerKey *key, uint32_t rank,
                        const struct word *word)
{
    pb__actual_worker__init(worker);
    pb__worker_key__init(key);
    key->has_job = key->has_rank = key->has_attempt = key->has_incarnation = true;
    key->job = word->job;
    key->role = (char *)"main";
    key->rank = rank;
    key->attempt = 1;
    key->incarnation = word->incarnation;
    worker->key = key;
    worker->has_state = true;
    worker->state = word->state[rank];
    worker->has_class_ = word->class[rank] != PB__REASON__CODE__CODE_UNSPECIFIED;
    worker->class_ = word->class[rank];
}

static void say_word(struct rig_node *node, const struct word *word)
{
    Pb__AgentUp up = PB__AGENT_UP__INIT;
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    Pb__ActualGang gang, *gangs[] = {&gang};
    Pb__RestartInPlace restarts[8], *list[8];
    Pb__ActualWorker said[2], *workers[2];
    Pb__WorkerKey keys[2];

    report.has_whole = true;
    report.whole = word->whole;
    report.gangs = gangs;
    report.workers = workers;
    if (word->gang) {
        fill_gang(&gang, restarts, list, word);
        report.n_gangs = 1;
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        if (!word->state[rank])
            continue;
        fill_worker(&said[rank], &keys[rank], rank, word);
        workers[report.n_workers++] = &said[rank];
    }
    up.has_seq = true;
    up.seq = ++node->seq;
    up.report = &report;
    core_agent_up(node->rig->core, &node->link, &up);
    rig_run(node->rig, 20);
}

static void say(struct rig_node *node, int64_t job, uint32_t rank, uint32_t incarnation,
                Pb__ActualWorker__State state, Pb__Reason__Code class)
{
    struct word word = {.job = job, .incarnation = incarnation};

    word.state[rank] = state;
    word.class[rank] = class;
    say_word(node, &word);
}

static size_t count_events(struct rig *rig, const char *kind)
{
    const Pb__Event *events[256];
    int64_t oldest;
    size_t count = core_events(rig->core, 0, events, 256, &oldest), found = 0;

    for (size_t i = 0; i < count; i++)
        found += !strcmp(events[i]->kind, kind);
    return found;
}

/* Two ranks run on one node; the daemon dies and comes back to an agent that has gone on. */
static struct rig_node *run_two(struct rig *rig, int64_t *job)
{
    struct rig_node *node = rig_node_join(rig, "n1", 2);

    *job = rig_submit(rig, 2, budget_of_two);
    rig_say(node, *job, 0, 1, RUNNING, 0);
    rig_say(node, *job, 1, 1, RUNNING, 0);
    assert_int_equal(rig_state(rig, *job), S(RUNNING));
    return node;
}

static void rejoin(struct rig_node *node, int64_t job, uint32_t incarnation)
{
    struct word word = {.job = job,
                        .whole = true,
                        .gang = incarnation,
                        .incarnation = incarnation,
                        .state = {RUNNING, RUNNING}};

    rig_node_hello(node);
    say_word(node, &word);
}

static void come_back(struct rig *rig, struct rig_node *node, int64_t job, uint32_t incarnation)
{
    rig_crash(rig);
    rig_start(rig);
    rejoin(node, job, incarnation);
}

/* --- */
static void a_gang_on_one_node_is_granted_what_the_budget_has_left(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);

    (void)rig_submit(rig, 2, budget_of_two);
    assert_non_null(node->launch->allowance);
    assert_int_equal(node->launch->allowance->incarnation_max, 3);
    assert_int_equal(node->launch->allowance->failures, 0);
}

static void nothing_is_granted_over_two_nodes_without_budget_or_to_who_stops(void **state)
{
    struct rig *rig = *state;
    struct rig_node *one = rig_node_join(rig, "n1", 1), *two = rig_node_join(rig, "n2", 1);
    int64_t job = rig_submit(rig, 2, budget_of_two);

    assert_null(one->launch->allowance);
    assert_null(two->launch->allowance);
    rig_cancel(rig, job);
    say(one, job, 0, 1, EXITED, PB__REASON__CODE__ASKED);
    say(two, job, 1, 1, EXITED, PB__REASON__CODE__ASKED);
    (void)rig_submit(rig, 1, budget_of_none);
    (void)rig_submit(rig, 1, stop_when_unreachable);
    assert_int_equal(one->desired->n_workers + two->desired->n_workers, 2);
    assert_null(one->launch->allowance);
    assert_null(two->launch->allowance);
}

static void restarts_in_place_are_counted_and_told_once(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = run_two(rig, &job);

    for (int i = 0; i < 3; i++) { /* said again on each connection, by each daemon heard anew */
        come_back(rig, node, job, 2);
        assert_int_equal(rig_state(rig, job), S(RUNNING));
        assert_int_equal(core_job(rig->core, job)->restarts_used, 1);
        assert_int_equal(count_events(rig, "job.restarted"), 1);
    }
    const Pb__Attempt *attempt = core_attempt(rig->core, job, 1);
    assert_int_equal(attempt->incarnation, 2);
    assert_int_equal(attempt->n_restarts, 1);
    assert_int_equal(attempt->places[1]->incarnation, 2);
    assert_int_equal(core_job(rig->core, job)->first_failure->signal, 9);
    assert_non_null(strstr(core_job(rig->core, job)->reason->text, "incarnation 2"));
    come_back(rig, node, job, 3);
    assert_int_equal(core_job(rig->core, job)->restarts_used, 2);
    assert_int_equal(count_events(rig, "job.restarted"), 2);
    say(node, job, 0, 3, EXITED, PB__REASON__CODE__CODE_UNSPECIFIED);
    say(node, job, 1, 3, EXITED, PB__REASON__CODE__CODE_UNSPECIFIED);
    assert_int_equal(rig_state(rig, job), S(SUCCEEDED));
}

static void what_one_report_says_twice_is_kept_once(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = run_two(rig, &job);
    struct word word = {.job = job, .gang = 3, .twice = true};

    say_word(node, &word);
    assert_int_equal(core_attempt(rig->core, job, 1)->n_restarts, 2);
    assert_int_equal(count_events(rig, "job.restarted"), 2);
}

static void the_next_failure_finds_the_budget_used_up(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = run_two(rig, &job);

    come_back(rig, node, job, 3);
    say(node, job, 0, 3, EXITED, CRASHED);
    say(node, job, 1, 3, EXITED, PB__REASON__CODE__ASKED);
    assert_int_equal(rig_state(rig, job), S(FAILED));
    assert_int_equal(core_job(rig->core, job)->restarts_used, 2);
}

static void late_news_of_an_incarnation_before_end_nothing(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = run_two(rig, &job);

    come_back(rig, node, job, 2);
    say(node, job, 0, 1, EXITED, CRASHED);
    assert_int_equal(rig_state(rig, job), S(RUNNING));
    assert_int_equal(core_job(rig->core, job)->restarts_used, 1);
}

static void a_cancel_given_meanwhile_wins(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = run_two(rig, &job);

    rig_crash(rig);
    rig_start(rig);
    assert_int_equal(rig_cancel(rig, job), STATUS_OK);
    rejoin(node, job, 2);
    assert_int_equal(rig_state(rig, job), S(STOPPING));
    assert_true(rig_wants(node, job, 0, WANT_STOP) && rig_wants(node, job, 1, WANT_STOP));
    say(node, job, 0, 2, EXITED, PB__REASON__CODE__ASKED);
    say(node, job, 1, 2, EXITED, PB__REASON__CODE__ASKED);
    assert_int_equal(rig_state(rig, job), S(CANCELLED));
    assert_int_equal(core_attempt(rig->core, job, 1)->incarnation, 2);
}

/* The leader had decided on a failure, and its agent had not heard of it. */
static void a_failure_that_was_decided_on_is_not_charged_again(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = run_two(rig, &job);

    say(node, job, 0, 1, EXITED, CRASHED);
    assert_int_equal(rig_state(rig, job), S(STOPPING));
    assert_int_equal(core_job(rig->core, job)->restarts_used, 1);
    come_back(rig, node, job, 2);
    assert_int_equal(rig_state(rig, job), S(STOPPING));
    assert_true(rig_wants(node, job, 0, WANT_STOP)); /* its place is not that of an ended one */
    assert_int_equal(core_job(rig->core, job)->restarts_used, 1);
    say(node, job, 0, 2, EXITED, PB__REASON__CODE__ASKED);
    say(node, job, 1, 2, EXITED, PB__REASON__CODE__ASKED);
    assert_int_equal(core_job(rig->core, job)->attempt, 2);
    assert_int_equal(core_job(rig->core, job)->restarts_used, 1);
}

static void more_than_was_granted_breaks_the_attempt(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = run_two(rig, &job);
    struct word word = {.job = job, .gang = 4};

    say_word(node, &word);
    assert_int_equal(rig_state(rig, job), S(STOPPING));
    assert_int_equal(core_job(rig->core, job)->restarts_used, 0);
}

static void saves_of_the_incarnation_before_are_torn(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = run_two(rig, &job);
    const Pb__Checkpoint *saves[4];

    for (uint32_t rank = 0; rank < 2; rank++)
        rig_say_staged(node, job, rank, 1, 10, 100);
    rig_say_sealed(node);
    assert_non_null(node->desired->workers[0]->newest); /* what a restart in place begins from */
    assert_int_equal(node->desired->workers[0]->newest->step, 10);
    rig_say_staged(node, job, 0, 1, 20, 200);
    come_back(rig, node, job, 2);
    assert_int_equal(core_checkpoints(rig->core, job, saves, 4), 2);
    assert_int_equal(saves[0]->state, PB__CHECKPOINT__STATE__TORN);
    assert_int_equal(saves[1]->state, PB__CHECKPOINT__STATE__COMMITTED);
    rig_say_staged(node, job, 1, 1, 30, 300); /* told late */
    assert_int_equal(core_checkpoints(rig->core, job, saves, 4), 3);
    assert_int_equal(saves[0]->state, PB__CHECKPOINT__STATE__TORN);
}

static void what_is_charged_is_a_table(void **state)
{
    (void)state;
    assert_true(restart_is_charged(PB__REASON__CODE__USER_ERROR));
    assert_true(restart_is_charged(CRASHED));
    assert_false(restart_is_charged(PB__REASON__CODE__NODE_LOST));
    assert_false(restart_is_charged(PB__REASON__CODE__PORT_CLASH));
    assert_false(restart_is_charged(PB__REASON__CODE__PREEMPTED));
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(a_gang_on_one_node_is_granted_what_the_budget_has_left),
        T(nothing_is_granted_over_two_nodes_without_budget_or_to_who_stops),
        T(restarts_in_place_are_counted_and_told_once),
        T(what_one_report_says_twice_is_kept_once),
        T(the_next_failure_finds_the_budget_used_up),
        T(late_news_of_an_incarnation_before_end_nothing),
        T(a_cancel_given_meanwhile_wins),
        T(a_failure_that_was_decided_on_is_not_charged_again),
        T(more_than_was_granted_breaks_the_attempt),
        T(saves_of_the_incarnation_before_are_torn),
        cmocka_unit_test(what_is_charged_is_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
