/* test_save_keep.c - retention in the daemon: what is let go, what is held, what a call may say. */
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

#define STATE(x) PB__CHECKPOINT__STATE__##x

static uint32_t keep;
static uint64_t ttl_s;
static uint32_t best;

static void policy(Pb__JobSpec *spec)
{
    spec->checkpoint->has_keep = spec->checkpoint->has_keep_ttl_s = true;
    spec->checkpoint->has_verify = spec->checkpoint->has_keep_best = true;
    spec->checkpoint->keep = keep;
    spec->checkpoint->keep_ttl_s = ttl_s;
    spec->checkpoint->verify = false;
    spec->checkpoint->keep_metric = mem_strdup("loss");
    spec->checkpoint->keep_best = best;
    spec->restart->backoff_ms = 0;
}

/* Ids by age of those in that state, newest first: "3 1". */
static void expect(struct rig *rig, int64_t job, Pb__Checkpoint__State state, const char *ids)
{
    const Pb__Checkpoint *rows[16];
    char text[128] = "";
    size_t len = 0, count = core_checkpoints(rig->core, job, rows, 16);
    for (size_t i = 0; i < count; i++)
        if (rows[i]->state == state)
            len += (size_t)snprintf(text + len, sizeof(text) - len, len ? " %lld" : "%lld",
                                    (long long)rows[i]->id);
    assert_string_equal(text, ids);
}

static struct rig_node *begin(struct rig *rig, uint32_t to_keep, uint64_t ttl, int64_t *job)
{
    keep = to_keep;
    ttl_s = ttl;
    struct rig_node *node = rig_node_join(rig, "n1", 1);
    *job = rig_submit(rig, 1, policy);
    rig_say(node, *job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    return node;
}

static void commit(struct rig_node *node, int64_t job, uint32_t attempt, int64_t step)
{
    rig_say_staged(node, job, 0, attempt, step, step * 8);
    rig_say_sealed(node);
}

static void call(struct rig *rig, const ProtobufCMessage *request, enum status want)
{
    struct rig_answer answer;
    rig_call(rig, request, &answer);
    assert_int_equal(answer.st, want);
    if (answer.reply)
        protobuf_c_message_free_unpacked(answer.reply, NULL);
    rig_run(rig, 50);
}

static void pin(struct rig *rig, int64_t checkpoint, bool unpin, enum status want)
{
    Pb__PinCheckpointRequest request = PB__PIN_CHECKPOINT_REQUEST__INIT;
    static unsigned number;
    char id[32];
    snprintf(id, sizeof(id), "pin-%08u", ++number);
    request.request_id = id;
    request.has_checkpoint = true;
    request.checkpoint = checkpoint;
    request.has_unpin = true;
    request.unpin = unpin;
    call(rig, &request.base, want);
}

static void hold(struct rig *rig, int64_t checkpoint, uint32_t seconds, enum status want)
{
    Pb__HoldCheckpointRequest request = PB__HOLD_CHECKPOINT_REQUEST__INIT;
    static unsigned number;
    char id[32];
    snprintf(id, sizeof(id), "hold-%08u", ++number);
    request.request_id = id;
    request.has_checkpoint = request.has_lease_s = true;
    request.checkpoint = checkpoint;
    request.holder = (char *)"export";
    request.lease_s = seconds;
    call(rig, &request.base, want);
}

static void pinned_ones_stay_until_they_are_not(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = begin(rig, 1, 0, &job);
    commit(node, job, 1, 10);
    pin(rig, 1, false, STATUS_OK);
    commit(node, job, 1, 20);
    commit(node, job, 1, 30);
    expect(rig, job, STATE(COMMITTED), "3 1");
    expect(rig, job, STATE(EXPIRED), "2");
    pin(rig, 2, false, STATUS_PRECONDITION); /* too late */
    pin(rig, 99, false, STATUS_NOT_FOUND);
    pin(rig, 1, true, STATUS_OK);
    expect(rig, job, STATE(COMMITTED), "3");
}

/* Both slots of a rank are written at once: the later step may be known first. What a job would go
 * on from is what stays. */
static void the_highest_step_stays_whichever_came_first(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = begin(rig, 1, 0, &job);
    commit(node, job, 1, 20);
    commit(node, job, 1, 10);
    expect(rig, job, STATE(COMMITTED), "1");
    expect(rig, job, STATE(EXPIRED), "2");
    commit(node, job, 1, 30);
    expect(rig, job, STATE(COMMITTED), "3");
}

static void what_a_reader_has_a_lease_on_stays(void **state) /* K8 */
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = begin(rig, 1, 0, &job);
    commit(node, job, 1, 10);
    hold(rig, 1, 60, STATUS_OK);
    commit(node, job, 1, 20);
    expect(rig, job, STATE(COMMITTED), "2 1");
    rig_live(rig, 70000); /* the reader died and never said so */
    expect(rig, job, STATE(COMMITTED), "2");
    hold(rig, 1, 60, STATUS_PRECONDITION);
    hold(rig, 2, 86401, STATUS_INVALID);
}

static void a_lease_that_is_given_back_ends(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = begin(rig, 1, 0, &job);
    commit(node, job, 1, 10);
    hold(rig, 1, 3600, STATUS_OK);
    commit(node, job, 1, 20);
    hold(rig, 1, 0, STATUS_OK);
    expect(rig, job, STATE(COMMITTED), "2");
}

/* Loaders read after the start: what they begin from stays until something newer is there. */
static void what_an_attempt_begins_from_stays(void **state) /* M51 */
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = begin(rig, 1, 5, &job);
    commit(node, job, 1, 10);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__EXITED, 1);
    rig_live(rig, 1000);
    rig_say(node, job, 0, 2, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_live(rig, 20000); /* older than its time, and being read */
    expect(rig, job, STATE(COMMITTED), "1");
    commit(node, job, 2, 20);
    expect(rig, job, STATE(COMMITTED), "2");
}

static void old_ones_go_but_the_newest_never(void **state) /* M50 */
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = begin(rig, 10, 30, &job);
    commit(node, job, 1, 10);
    commit(node, job, 1, 20);
    expect(rig, job, STATE(COMMITTED), "2 1");
    rig_live(rig, 60000);
    expect(rig, job, STATE(COMMITTED), "2");
}

static void report(struct rig_node *node, int64_t job, uint64_t seq, int64_t step, double loss)
{
    Pb__BulkUp up = PB__BULK_UP__INIT;
    Pb__ReportBatch batch = PB__REPORT_BATCH__INIT, *batches[] = {&batch};
    Pb__Report one = PB__REPORT__INIT, *reports[] = {&one};
    char *names[] = {(char *)"loss"};

    if (seq == 1)
        (void)core_agent_bulk_mark(node->rig->core, &node->link, "spool-n1");
    up.has_seq = true;
    up.seq = seq;
    up.n_batches = batch.n_reports = 1;
    up.batches = batches;
    batch.reports = reports;
    batch.has_job = batch.has_attempt = batch.has_rank = batch.has_incarnation = true;
    batch.job = job;
    batch.attempt = batch.incarnation = 1;
    batch.role = (char *)"main";
    one.has_step = one.has_t_us = true;
    one.step = step;
    one.n_names = one.n_values = 1;
    one.names = names;
    one.values = &loss;
    core_agent_bulk(node->rig->core, &node->link, &up);
    rig_run(node->rig, 200);
}

static void the_best_are_kept_by_what_was_reported(void **state)
{
    struct rig *rig = *state;
    const double losses[] = {3.0, 1.0, 2.0, 4.0};
    int64_t job;
    best = 1;
    struct rig_node *node = begin(rig, 1, 0, &job);
    best = 0;
    for (int i = 0; i < 4; i++) {
        report(node, job, (uint64_t)i + 1, 10 * (i + 1), losses[i]);
        commit(node, job, 1, 10 * (i + 1));
    }
    expect(rig, job, STATE(COMMITTED), "4 2");
}

static void the_plan_says_why(void **state)
{
    struct rig *rig = *state;
    const Pb__Checkpoint *rows[8];
    bool kept[8];
    const char *why[8];
    int64_t job;
    struct rig_node *node = begin(rig, 2, 0, &job);
    commit(node, job, 1, 10);
    commit(node, job, 1, 20);
    pin(rig, 1, false, STATUS_OK);
    assert_int_equal(core_retention(rig->core, job, rows, kept, why, 8), 2);
    assert_true(kept[0] && kept[1]);
    assert_string_equal(why[0], "pinned");
    assert_string_equal(why[1], "the newest");
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(pinned_ones_stay_until_they_are_not),    T(the_highest_step_stays_whichever_came_first),
        T(what_a_reader_has_a_lease_on_stays),     T(a_lease_that_is_given_back_ends),
        T(what_an_attempt_begins_from_stays),      T(old_ones_go_but_the_newest_never),
        T(the_best_are_kept_by_what_was_reported), T(the_plan_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
