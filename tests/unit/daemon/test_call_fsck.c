/* test_call_fsck.c - repairs of rows: of the row that was compared, once, with an event. */
#include "proto/text/text_format.h"
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

#define R(x) PB__DIFFERENCE__REPAIR__##x
#define S(x) PB__CHECKPOINT__STATE__##x

static struct rig_node *with_checkpoint(struct rig *rig, int64_t *job)
{
    struct rig_node *node = rig_node_join(rig, "n1", 1);
    *job = rig_submit(rig, 1, NULL);
    rig_say(node, *job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say_part(node, *job, 0, 1, 10, "0123456789abcdef0123456789abcdef", "main-0/layout.json");
    rig_say_sealed(node);
    return node;
}

static enum status repair(struct rig *rig, Pb__Difference__Repair what, uint64_t version,
                          Pb__Checkpoint *row)
{
    Pb__FsckRepair request = PB__FSCK_REPAIR__INIT;
    Pb__Difference difference = PB__DIFFERENCE__INIT;
    struct rig_answer answer;

    difference.has_kind = difference.has_repair = difference.has_checkpoint = true;
    difference.kind = PB__DIFFERENCE__KIND__MISSING;
    difference.repair = what;
    difference.checkpoint = row ? row->id : 1;
    difference.has_job = true;
    difference.job = row ? row->job : 1;
    difference.node = (char *)"n1";
    difference.role = (char *)"main";
    difference.text = (char *)"its directory is not there";
    request.difference = &difference;
    request.has_version = true;
    request.version = version;
    request.row = row;
    rig_call(rig, &request.base, &answer);
    if (answer.reply)
        protobuf_c_message_free_unpacked(answer.reply, NULL);
    return answer.st;
}

static const Pb__Checkpoint *now(const struct rig *rig)
{
    return core_checkpoint(rig->core, 1);
}

static bool has_event(const struct rig *rig, const char *text)
{
    const Pb__Event *events[200];
    int64_t oldest;
    size_t count = core_events(rig->core, 0, events, COUNT_OF(events), &oldest);

    for (size_t i = 0; i < count; i++)
        if (!strcmp(events[i]->kind, "checkpoint.fsck") && strstr(events[i]->text, text))
            return true;
    return false;
}

static void the_row_that_was_compared_or_none(void **state)
{
    struct rig *rig = *state;
    int64_t job;

    (void)with_checkpoint(rig, &job);
    uint64_t version = now(rig)->version;
    assert_int_equal(repair(rig, R(MARK_DAMAGED), version + 1, NULL), STATUS_ABORTED);
    assert_int_equal(now(rig)->state, S(COMMITTED));
    assert_false(has_event(rig, "MISSING"));
    assert_int_equal(repair(rig, R(MARK_DAMAGED), version, NULL), STATUS_OK);
    assert_int_equal(now(rig)->state, S(DAMAGED));
    assert_string_equal(now(rig)->reason, "its directory is not there");
    assert_true(has_event(rig, "checkpoint 1: MISSING: its directory is not there; fsck: mark it"));
    assert_int_equal(repair(rig, R(MARK_DAMAGED), now(rig)->version, NULL), STATUS_PRECONDITION);
    assert_int_equal(repair(rig, R(MARK_TORN), now(rig)->version, NULL), STATUS_PRECONDITION);
    assert_int_equal(repair(rig, R(NOTHING), now(rig)->version, NULL), STATUS_INVALID);
}

static void small_repairs_change_what_they_say(void **state)
{
    struct rig *rig = *state;
    int64_t job;

    (void)with_checkpoint(rig, &job);
    uint64_t version = now(rig)->version;
    assert_int_equal(repair(rig, R(WRITE_ROW), version, NULL), STATUS_OK);
    assert_int_equal(now(rig)->version, version + 1);
    assert_int_equal(repair(rig, R(CUT_PARENT), version + 1, NULL), STATUS_OK);
    assert_int_equal(now(rig)->parent, 0);
    assert_int_equal(repair(rig, R(UNPIN), version + 2, NULL), STATUS_OK);
    assert_false(now(rig)->pinned);
    assert_int_equal(repair(rig, R(VERIFY), version + 3, NULL), STATUS_OK);
    assert_true(now(rig)->verify_asked);
}

static void copies_are_lost_and_found(void **state)
{
    struct rig *rig = *state;
    int64_t job;

    rig->node_vaults = true;
    (void)with_checkpoint(rig, &job);
    assert_int_equal(now(rig)->n_copies, 1);
    assert_int_equal(repair(rig, R(LOSE_COPY), now(rig)->version, NULL), STATUS_OK);
    assert_true(now(rig)->copies[0]->lost);
    assert_int_equal(repair(rig, R(ADD_COPY), now(rig)->version, NULL), STATUS_OK);
    assert_int_equal(now(rig)->n_copies, 1);
    assert_false(now(rig)->copies[0]->lost);
}

/* A checkpoint of a job that memory does not hold is the row that came along. */
static void rows_that_memory_does_not_hold(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    Pb__Checkpoint row = PB__CHECKPOINT__INIT;

    (void)with_checkpoint(rig, &job);
    row.has_id = row.has_job = row.has_state = row.has_version = true;
    row.id = 900;
    row.job = 800;
    row.state = S(COMMITTED);
    row.version = 4;
    assert_int_equal(repair(rig, R(MARK_DAMAGED), 4, &row), STATUS_OK);
    assert_true(has_event(rig, "checkpoint 900: MISSING"));
    assert_null(core_checkpoint(rig->core, 900));
    row.job = job; /* of a known job, and not known: it went */
    assert_int_equal(repair(rig, R(MARK_DAMAGED), 4, &row), STATUS_NOT_FOUND);
}

static void what_was_forgotten_is_registered_once_its_job_is_over(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = with_checkpoint(rig, &job);
    Pb__Checkpoint *row = (Pb__Checkpoint *)message_copy(&now(rig)->base);

    row->id = 77;
    row->step = 15;
    mem_free(row->path);
    row->path = mem_strdup("job-1/step-15.1");
    assert_int_equal(repair(rig, R(REGISTER), 0, row), STATUS_PRECONDITION);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__EXITED, 0);
    rig_run(rig, 200);
    assert_int_equal(core_job_open(rig->core, job), 0);
    assert_int_equal(repair(rig, R(REGISTER), 0, row), STATUS_OK);
    const Pb__Checkpoint *there = core_checkpoint(rig->core, 77);
    assert_non_null(there);
    assert_int_equal(there->state, S(COMMITTED));
    assert_int_equal(core_job(rig->core, job)->last_checkpoint, 77);
    assert_int_equal(repair(rig, R(REGISTER), 0, row), STATUS_ABORTED); /* it has a row */
    pb__checkpoint__free_unpacked(row, NULL);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(the_row_that_was_compared_or_none),
        T(small_repairs_change_what_they_say),
        T(copies_are_lost_and_found),
        T(rows_that_memory_does_not_hold),
        T(what_was_forgotten_is_registered_once_its_job_is_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
