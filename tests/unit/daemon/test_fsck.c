/* test_fsck.c - the comparison: nothing where all say the same, and every kind of difference. */
#include "daemon/fsck.h"
#include "proto/text/enum.h"
#include "tests/unit/unit.h"

#define K(x) PB__DIFFERENCE__KIND__##x
#define R(x) PB__DIFFERENCE__REPAIR__##x

enum { ROWS = 8, JOBS = 4, LISTINGS = 4, FOUND = 8, PARTS = 2 };

/* Two ranks saved checkpoint 1 of job 7, step 20, attempt 1; the job has ended. */
struct world {
    Pb__Checkpoint rows[ROWS];
    Pb__ShardCopy copies[ROWS][4];
    Pb__ShardCopy *copies_of[ROWS][4];
    Pb__CheckpointPart parts[PARTS];
    Pb__CheckpointPart *parts_of[PARTS];
    struct fsck_row fsck_rows[ROWS];
    struct fsck_job jobs[JOBS];
    struct fsck_listing listings[LISTINGS];
    Pb__VaultFound found[LISTINGS][FOUND];
    Pb__Checkpoint manifests[LISTINGS][FOUND];
    Pb__VaultFound__Part found_parts[LISTINGS][FOUND][PARTS];
    Pb__VaultFound__Part *found_parts_of[LISTINGS][FOUND][PARTS];
    const Pb__VaultFound *found_of[LISTINGS][FOUND];
    struct fsck_input input;
    Pb__FsckSummary summary;
    struct {
        Pb__Difference__Kind kind;
        Pb__Difference__Repair repair;
        char node[16], path[64], text[200];
        int64_t checkpoint;
        uint32_t rank;
    } told[16];
    size_t told_count;
};

static char *text(const char *value)
{
    return (char *)(uintptr_t)value;
}

static Pb__Checkpoint *add_row(struct world *w, int64_t id, const char *path, uint32_t attempt)
{
    size_t i = w->input.rows_count++;
    Pb__Checkpoint *row = &w->rows[i];

    pb__checkpoint__init(row);
    row->has_id = row->has_job = row->has_attempt = row->has_state = true;
    row->id = id;
    row->job = 7;
    row->attempt = attempt;
    row->step = 20;
    row->state = PB__CHECKPOINT__STATE__COMMITTED;
    row->vault = text("main");
    row->path = text(path);
    row->manifest_digest = text("aa");
    row->parts = w->parts_of;
    row->n_parts = PARTS;
    row->copies = w->copies_of[i];
    w->fsck_rows[i] = (struct fsck_row){.row = row, .stored = true};
    return row;
}

static Pb__ShardCopy *add_copy(struct world *w, Pb__Checkpoint *row, uint32_t rank,
                               const char *node, Pb__ShardCopy__Durability durability)
{
    size_t i = (size_t)(row - w->rows), k = row->n_copies++;
    Pb__ShardCopy *copy = &w->copies[i][k];

    pb__shard_copy__init(copy);
    copy->role = text("w");
    copy->rank = rank;
    copy->node = text(node);
    copy->durability = durability;
    w->copies_of[i][k] = copy;
    return copy;
}

static struct fsck_listing *add_listing(struct world *w, const char *node, const char *vault,
                                        bool shared)
{
    size_t i = w->input.listings_count++;

    w->listings[i] = (struct fsck_listing){
        .node = node, .vault = vault, .shared = shared, .slots = !*vault, .found = w->found_of[i]};
    return &w->listings[i];
}

static Pb__VaultFound *add_found(struct world *w, struct fsck_listing *listing, const char *path,
                                 Pb__VaultFound__Kind kind)
{
    size_t i = (size_t)(listing - w->listings), k = listing->count++;
    Pb__VaultFound *found = &w->found[i][k];

    pb__vault_found__init(found);
    found->kind = kind;
    found->path = text(path);
    w->found_of[i][k] = found;
    if (kind != PB__VAULT_FOUND__KIND__SEALED)
        return found;
    pb__checkpoint__init(&w->manifests[i][k]);
    w->manifests[i][k].job = 7;
    w->manifests[i][k].step = 20;
    w->manifests[i][k].attempt = 1;
    w->manifests[i][k].created_us = 1000;
    found->manifest = &w->manifests[i][k];
    found->manifest_digest = text("aa");
    found->parts = w->found_parts_of[i][k];
    found->n_parts = PARTS;
    for (uint32_t rank = 0; rank < PARTS; rank++) {
        Pb__VaultFound__Part *part = &w->found_parts[i][k][rank];
        pb__vault_found__part__init(part);
        part->role = text("w");
        part->rank = rank;
        part->node = text(rank ? "n2" : "n1");
        part->state = PB__VAULT_FOUND__PART_STATE__WHOLE;
        w->found_parts_of[i][k][rank] = part;
    }
    return found;
}

#define PATH "job-7/step-20.1"

static void begin(struct world *w)
{
    memset(w, 0, sizeof(*w));
    for (uint32_t rank = 0; rank < PARTS; rank++) {
        pb__checkpoint_part__init(&w->parts[rank]);
        w->parts[rank].role = text("w");
        w->parts[rank].rank = rank;
        w->parts[rank].node = text(rank ? "n2" : "n1");
        w->parts_of[rank] = &w->parts[rank];
    }
    w->jobs[0] =
        (struct fsck_job){.id = 7, .ended = true, .live_from = FSCK_NOBODY, .submitted_us = 500};
    w->input.jobs_count = 1;
}

/* Everything in one vault that all share. */
static struct world *shared_world(struct world *w)
{
    begin(w);
    Pb__Checkpoint *row = add_row(w, 1, PATH, 1);
    add_copy(w, row, 0, "n1", PB__SHARD_COPY__DURABILITY__SHARED);
    add_copy(w, row, 1, "n2", PB__SHARD_COPY__DURABILITY__SHARED);
    add_found(w, add_listing(w, "n1", "main", true), PATH, PB__VAULT_FOUND__KIND__SEALED);
    return w;
}

/* Each node has its part; the manifest both. */
static struct world *node_world(struct world *w)
{
    begin(w);
    Pb__Checkpoint *row = add_row(w, 1, PATH, 1);
    add_copy(w, row, 0, "n1", PB__SHARD_COPY__DURABILITY__NODE);
    add_copy(w, row, 1, "n2", PB__SHARD_COPY__DURABILITY__NODE);
    add_found(w, add_listing(w, "n1", "main", false), PATH, PB__VAULT_FOUND__KIND__SEALED);
    add_found(w, add_listing(w, "n2", "main", false), PATH, PB__VAULT_FOUND__KIND__SEALED);
    w->found_parts[0][0][1].state = PB__VAULT_FOUND__PART_STATE__MISSING;
    w->found_parts[1][0][0].state = PB__VAULT_FOUND__PART_STATE__MISSING;
    return w;
}

static void take(void *arg, const Pb__Difference *difference)
{
    struct world *w = arg;

    assert_true(w->told_count < COUNT_OF(w->told));
    assert_int_equal(difference->outcome, PB__DIFFERENCE__OUTCOME__FOUND);
    assert_true(difference->text && *difference->text);
    assert_true(difference->note && *difference->note);
    w->told[w->told_count].kind = difference->kind;
    w->told[w->told_count].repair = difference->repair;
    w->told[w->told_count].checkpoint = difference->checkpoint;
    w->told[w->told_count].rank = difference->rank;
    snprintf(w->told[w->told_count].node, 16, "%s", difference->node ? difference->node : "");
    snprintf(w->told[w->told_count].path, 64, "%s", difference->path ? difference->path : "");
    snprintf(w->told[w->told_count++].text, 200, "%s", difference->text);
}

static void compare(struct world *w)
{
    w->input.rows = w->fsck_rows;
    w->input.jobs = w->jobs;
    w->input.listings = w->listings;
    w->told_count = 0;
    pb__fsck_summary__init(&w->summary);
    fsck_compare(&w->input, take, w, &w->summary);
    assert_int_equal(w->summary.differences, w->told_count);
}

static void expect(struct world *w, size_t count, Pb__Difference__Kind kind,
                   Pb__Difference__Repair repair)
{
    compare(w);
    for (size_t i = 0; i < w->told_count; i++)
        if (w->told[i].kind != kind || w->told[i].repair != repair)
            fail_msg("unexpected %s: %s",
                     enum_name(&pb__difference__kind__descriptor, (int)w->told[i].kind),
                     w->told[i].text);
    assert_int_equal(w->told_count, count);
}

static void expect_none(struct world *w)
{
    expect(w, 0, K(KIND_UNSPECIFIED), R(REPAIR_UNSPECIFIED));
}

/* --- */

static void nothing_differs_where_all_say_the_same(void **state)
{
    struct world w;
    (void)state;
    expect_none(shared_world(&w));
    assert_int_equal(w.summary.checkpoints, 1);
    assert_int_equal(w.summary.directories, 1);
    expect_none(node_world(&w));
    shared_world(&w); /* rows of a time without copies */
    w.rows[0].n_copies = 0;
    expect_none(&w);
    node_world(&w);
    w.rows[0].n_copies = 0;
    expect_none(&w);
}

static void names_of_others_are_theirs(void **state)
{
    struct world w;
    (void)state;
    shared_world(&w);
    add_found(&w, &w.listings[0], "mine/step-1", PB__VAULT_FOUND__KIND__SEALED);
    add_found(&w, &w.listings[0], "job-7/step-020.1", PB__VAULT_FOUND__KIND__UNSEALED);
    add_found(&w, &w.listings[0], "job-7/out.making-3", PB__VAULT_FOUND__KIND__STAGING);
    add_found(&w, &w.listings[0], "lost+found/job-7.step-5.1", PB__VAULT_FOUND__KIND__SEALED);
    expect_none(&w);
    assert_int_equal(w.summary.set_aside, 1);
}

static void a_row_by_itself(void **state)
{
    struct world w;
    (void)state;
    shared_world(&w);
    w.fsck_rows[0].stored = false;
    expect(&w, 1, K(ROW_LOST), R(WRITE_ROW));
    shared_world(&w);
    w.fsck_rows[0].stale = true;
    expect(&w, 1, K(ROW_STALE), R(WRITE_ROW));
    shared_world(&w);
    w.rows[0].parent = 5;
    expect(&w, 1, K(PARENT_UNKNOWN), R(CUT_PARENT));
    w.input.some = true; /* the parent may be of a job that was not asked for */
    expect_none(&w);
    shared_world(&w);
    w.jobs[0].last_checkpoint = 5;
    expect(&w, 1, K(LAST_UNKNOWN), R(SET_LAST));
    w.jobs[0].last_checkpoint = 1;
    expect_none(&w);
    shared_world(&w);
    w.listings[0].count = 0;
    w.rows[0].state = PB__CHECKPOINT__STATE__DELETED;
    w.rows[0].pinned = true;
    expect(&w, 1, K(PIN_WITHOUT_BYTES), R(UNPIN));
}

static void a_save_whose_attempt_is_over(void **state)
{
    struct world w;
    (void)state;
    shared_world(&w);
    w.rows[0].state = PB__CHECKPOINT__STATE__STAGED;
    w.found[0][0].kind = PB__VAULT_FOUND__KIND__UNSEALED;
    expect(&w, 1, K(STAGED_OVER), R(MARK_TORN));
    w.fsck_rows[0].due = true; /* an agent is sealing it */
    expect_none(&w);
    w.fsck_rows[0].due = false;
    w.jobs[0].live_from = 1;
    expect_none(&w);
}

static void what_changes_is_not_compared(void **state)
{
    struct world w;
    (void)state;
    shared_world(&w);
    w.fsck_rows[0].changing = true;
    w.fsck_rows[0].stored = false;
    w.listings[0].count = 0;
    expect_none(&w);
    assert_int_equal(w.summary.changing, 1);
}

static void bytes_that_are_not_there(void **state)
{
    struct world w;
    (void)state;
    shared_world(&w);
    add_row(&w, 2, "job-7/step-30.1", 1);
    expect(&w, 1, K(MISSING), R(MARK_DAMAGED));
    assert_int_equal(w.told[0].checkpoint, 2);
    add_found(&w, &w.listings[0], "job-7/step-30.1", PB__VAULT_FOUND__KIND__TOMBSTONE);
    expect(&w, 1, K(MISSING), R(MARK_DAMAGED)); /* and the row keeps it from being removed */
    w.found[0][1].kind = PB__VAULT_FOUND__KIND__UNSEALED;
    expect(&w, 1, K(MANIFEST_MISSING), R(SEAL));
    w.found[0][1].kind = PB__VAULT_FOUND__KIND__BAD;
    expect(&w, 1, K(MANIFEST_BAD), R(MARK_DAMAGED));
    shared_world(&w);
    w.found[0][0].manifest_digest = text("bb");
    expect(&w, 1, K(MANIFEST_DIFFERS), R(MARK_DAMAGED));
}

static void parts_that_are_not_whole(void **state)
{
    struct world w;
    (void)state;
    shared_world(&w);
    w.found_parts[0][0][1].state = PB__VAULT_FOUND__PART_STATE__MISSING;
    expect(&w, 1, K(PART_MISSING), R(MARK_DAMAGED));
    assert_int_equal(w.told[0].rank, 1);
    w.found_parts[0][0][1].state = PB__VAULT_FOUND__PART_STATE__DAMAGED;
    w.found_parts[0][0][1].text = text("w-1/model does not match its digest");
    expect(&w, 1, K(PART_DAMAGED), R(MARK_DAMAGED));
    assert_string_equal(w.told[0].text, "w-1/model does not match its digest");
    w.rows[0].state = PB__CHECKPOINT__STATE__DAMAGED;
    expect_none(&w);
}

static void damaged_and_whole_again(void **state)
{
    struct world w;
    (void)state;
    shared_world(&w);
    w.rows[0].state = PB__CHECKPOINT__STATE__DAMAGED;
    expect_none(&w); /* sizes prove nothing */
    w.found[0][0].read = true;
    expect(&w, 1, K(WHOLE_AGAIN), R(VERIFY));
    w.rows[0].verify_asked = true;
    expect_none(&w);
}

static void an_empty_vault_damages_nothing(void **state)
{
    struct world w;
    const char *gone[] = {"main"};
    (void)state;
    shared_world(&w);
    w.listings[0].count = 0;
    expect(&w, 1, K(VAULT_EMPTY), R(NOTHING));
    w.listings[0].others = true; /* of jobs that were not asked for */
    expect(&w, 1, K(MISSING), R(MARK_DAMAGED));
    w.listings[0].others = false;
    w.input.gone_vaults = gone;
    w.input.gone_count = 1;
    expect(&w, 1, K(MISSING), R(MARK_DAMAGED));
}

static void what_cannot_be_looked_at_is_told_and_left(void **state)
{
    struct world w;
    (void)state;
    shared_world(&w);
    w.listings[0].count = 0;
    w.listings[0].error = "no agent is connected that has it";
    expect(&w, 1, K(NOT_LOOKED_AT), R(NOTHING));
    node_world(&w);
    w.listings[1].count = 0;
    w.listings[1].error = "n2: its agent does not answer";
    expect(&w, 1, K(NOT_LOOKED_AT), R(NOTHING));
    node_world(&w);
    w.input.listings_count = 1; /* nobody knows n2 */
    expect(&w, 1, K(NOT_LOOKED_AT), R(NOTHING));
    assert_string_equal(w.told[0].node, "n2");
}

static void a_copy_on_a_node(void **state)
{
    struct world w;
    (void)state;
    node_world(&w); /* the only one */
    w.found_parts[1][0][1].state = PB__VAULT_FOUND__PART_STATE__MISSING;
    expect(&w, 1, K(PART_MISSING), R(MARK_DAMAGED));
    assert_string_equal(w.told[0].node, "n2");
    node_world(&w); /* one of two */
    add_copy(&w, &w.rows[0], 1, "n1", PB__SHARD_COPY__DURABILITY__NODE);
    w.found_parts[0][0][1].state = PB__VAULT_FOUND__PART_STATE__WHOLE;
    expect_none(&w);
    w.found_parts[1][0][1].state = PB__VAULT_FOUND__PART_STATE__DAMAGED;
    expect(&w, 1, K(COPY_LOST), R(LOSE_COPY));
    w.listings[1].count = 0; /* the whole directory of n2 is gone, and others are there */
    add_found(&w, &w.listings[1], "job-7/step-10.1", PB__VAULT_FOUND__KIND__TOMBSTONE);
    w.listings[1].found = w.found_of[1];
    add_row(&w, 3, "job-7/step-10.1", 1)->state = PB__CHECKPOINT__STATE__EXPIRED;
    w.rows[1].n_copies = 0;
    expect(&w, 1, K(COPY_LOST), R(LOSE_COPY));
    assert_int_equal(w.told[0].rank, 1);
    w.copies[0][2].lost = true; /* the other one is gone as well */
    w.found_parts[0][0][1].state = PB__VAULT_FOUND__PART_STATE__MISSING;
    expect(&w, 1, K(MISSING), R(MARK_DAMAGED));
}

static void a_copy_that_no_row_knows(void **state)
{
    struct world w;
    (void)state;
    node_world(&w);
    w.found_parts[0][0][1].state = PB__VAULT_FOUND__PART_STATE__WHOLE;
    expect(&w, 1, K(COPY_UNKNOWN), R(ADD_COPY));
    assert_string_equal(w.told[0].node, "n1");
    assert_int_equal(w.told[0].rank, 1);
    add_copy(&w, &w.rows[0], 1, "n1", PB__SHARD_COPY__DURABILITY__NODE)->lost = true;
    expect_none(&w); /* its sizes are right: that proves nothing */
    node_world(&w);
    w.copies[0][0].lost = true; /* n1's own, read and good */
    w.found[0][0].read = true;
    expect(&w, 1, K(COPY_UNKNOWN), R(ADD_COPY));
}

static void left_of_a_row(void **state)
{
    struct world w;
    (void)state;
    shared_world(&w);
    w.rows[0].state = PB__CHECKPOINT__STATE__DELETED;
    expect(&w, 1, K(DELETED_LEFT), R(REMOVE));
    w.found[0][0].kind = PB__VAULT_FOUND__KIND__TOMBSTONE;
    expect(&w, 1, K(TOMBSTONE_LEFT), R(REMOVE));
    w.rows[0].state = PB__CHECKPOINT__STATE__TORN;
    w.found[0][0].kind = PB__VAULT_FOUND__KIND__UNSEALED;
    expect(&w, 1, K(TORN_LEFT), R(REMOVE));
    w.fsck_rows[0].due = true; /* an agent is at it */
    expect_none(&w);
    w.fsck_rows[0].due = false;
    w.jobs[0].live_from = 1; /* a worker may still write there */
    expect_none(&w);
    w.jobs[0].live_from = FSCK_NOBODY;
    w.rows[0].state = PB__CHECKPOINT__STATE__EXPIRED; /* the daemon deletes it */
    expect_none(&w);
}

/* A world whose row is gone. */
static struct world *forgotten(struct world *w)
{
    shared_world(w);
    w->input.rows_count = 0;
    return w;
}

static void a_checkpoint_without_a_row(void **state)
{
    struct world w;
    (void)state;
    expect(forgotten(&w), 1, K(UNREGISTERED), R(REGISTER));
    assert_string_equal(w.told[0].path, PATH);
    w.jobs[0].live_from = 2; /* its job runs: what it goes on from is decided already */
    expect(&w, 1, K(UNREGISTERED), R(NOTHING));
    w.jobs[0].live_from = 1; /* it is being saved right now */
    expect_none(&w);
    forgotten(&w)->jobs[0].submitted_us = 2000; /* another job had that number */
    expect(&w, 1, K(UNKNOWN_JOB), R(SET_ASIDE));
    forgotten(&w)->input.jobs_count = 0;
    expect(&w, 1, K(UNKNOWN_JOB), R(SET_ASIDE));
    w.input.some = true; /* of a job that was not asked for */
    expect_none(&w);
    forgotten(&w)->manifests[0][0].step = 21;
    expect(&w, 1, K(BAD_STRAY), R(SET_ASIDE));
    forgotten(&w)->found_parts[0][0][0].state = PB__VAULT_FOUND__PART_STATE__DAMAGED;
    expect(&w, 1, K(BAD_STRAY), R(SET_ASIDE));
    forgotten(&w)->found[0][0].kind = PB__VAULT_FOUND__KIND__BAD;
    expect(&w, 1, K(BAD_STRAY), R(SET_ASIDE));
    node_world(&w)->input.rows_count = 0; /* spread over nodes, whole in all: one */
    expect(&w, 1, K(UNREGISTERED), R(REGISTER));
}

static void leftovers_without_a_row(void **state)
{
    struct world w;
    (void)state;
    forgotten(&w)->found[0][0].kind = PB__VAULT_FOUND__KIND__UNSEALED;
    expect(&w, 1, K(STAGING_LEFT), R(REMOVE));
    w.jobs[0].live_from = 1;
    expect_none(&w);
    w.input.jobs_count = 0;
    expect(&w, 1, K(UNKNOWN_JOB), R(SET_ASIDE));
    forgotten(&w)->found[0][0].kind = PB__VAULT_FOUND__KIND__TOMBSTONE;
    expect(&w, 1, K(TOMBSTONE_LEFT), R(REMOVE));
    forgotten(&w)->found[0][0].kind = PB__VAULT_FOUND__KIND__STAGING;
    expect_none(&w);
    w.found[0][0].age_us = 25 * 3600 * 1000000ll;
    expect(&w, 1, K(MAKING_LEFT), R(REMOVE));
}

static void slots_in_memory(void **state)
{
    struct world w;
    (void)state;
    shared_world(&w);
    struct fsck_listing *slots = add_listing(&w, "n1", "", false);
    Pb__VaultFound *found = add_found(&w, slots, "job-7/1.1", PB__VAULT_FOUND__KIND__SLOT);
    expect(&w, 1, K(SLOT_LEFT), R(REMOVE));
    found->kept = true;
    expect_none(&w);
    found->kept = false;
    w.jobs[0].ended = false;
    expect_none(&w);
    found->path = text("job-8/1.1");
    expect(&w, 1, K(SLOT_LEFT), R(REMOVE));
}

static void every_kind_is_reached_above(void **state)
{
    (void)state;
    assert_int_equal(pb__difference__kind__descriptor.n_values, 26 + 1);
    for (unsigned i = 0; i < pb__difference__repair__descriptor.n_values; i++) {
        int value = pb__difference__repair__descriptor.values[i].value;
        assert_true(value == 0 || *fsck_repair_text((Pb__Difference__Repair)value));
    }
}

static void paths_are_ours_or_not(void **state)
{
    int64_t job, step;
    uint32_t attempt, incarnation;
    (void)state;
    assert_true(fsck_path_parse("job-7/step-120.3.2", &job, &step, &attempt, &incarnation));
    assert_true(job == 7 && step == 120 && attempt == 3 && incarnation == 2);
    assert_true(fsck_path_parse("job-7/step-120.3", &job, &step, &attempt, &incarnation));
    assert_int_equal(incarnation, 1);
    static const char *const others[] = {
        "job-7/step-120", "job-7/step-120.3.1", "job-07/step-1.1",     "job-7/step-1.1/w-0",
        "job-7/step-1.0", "job-0/step-1.1",     "job-7/step-1.1.junk", "",
        "job--7/step-1.1"};
    for (size_t i = 0; i < COUNT_OF(others); i++)
        assert_false(fsck_path_parse(others[i], &job, &step, &attempt, &incarnation));
}

static void columns_beside_a_row(void **state)
{
    struct world w;
    Pb__CheckpointRow stored = PB__CHECKPOINT_ROW__INIT;
    (void)state;
    shared_world(&w);
    stored.row = &w.rows[0];
    stored.state = text("COMMITTED");
    stored.path = text(PATH);
    stored.manifest_digest = text("aa");
    stored.copies = 2;
    assert_false(fsck_row_is_stale(&stored));
    stored.copies = 1;
    assert_true(fsck_row_is_stale(&stored));
    stored.copies = 2;
    stored.state = text("TORN");
    assert_true(fsck_row_is_stale(&stored));
    stored.state = text("COMMITTED");
    stored.manifest_digest = NULL;
    assert_true(fsck_row_is_stale(&stored));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_differs_where_all_say_the_same),
        cmocka_unit_test(names_of_others_are_theirs),
        cmocka_unit_test(a_row_by_itself),
        cmocka_unit_test(a_save_whose_attempt_is_over),
        cmocka_unit_test(what_changes_is_not_compared),
        cmocka_unit_test(bytes_that_are_not_there),
        cmocka_unit_test(parts_that_are_not_whole),
        cmocka_unit_test(damaged_and_whole_again),
        cmocka_unit_test(an_empty_vault_damages_nothing),
        cmocka_unit_test(what_cannot_be_looked_at_is_told_and_left),
        cmocka_unit_test(a_copy_on_a_node),
        cmocka_unit_test(a_copy_that_no_row_knows),
        cmocka_unit_test(left_of_a_row),
        cmocka_unit_test(a_checkpoint_without_a_row),
        cmocka_unit_test(leftovers_without_a_row),
        cmocka_unit_test(slots_in_memory),
        cmocka_unit_test(every_kind_is_reached_above),
        cmocka_unit_test(paths_are_ours_or_not),
        cmocka_unit_test(columns_beside_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
