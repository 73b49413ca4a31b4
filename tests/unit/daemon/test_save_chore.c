/* test_save_chore.c - what agents are asked to do for checkpoints: seal, verify, delete; layouts
 * that agree; damage. */
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

#define STATE(x) PB__CHECKPOINT__STATE__##x
#define DIGEST   "0123456789abcdef0123456789abcdef"

static void policy(Pb__JobSpec *spec)
{
    spec->checkpoint->has_allow_node_vault = true;
    spec->checkpoint->allow_node_vault = true;
    spec->restart->backoff_ms = 0;
}

/* The newest but `back`. */
static const Pb__Checkpoint *row_of(struct rig *rig, int64_t job, size_t back)
{
    const Pb__Checkpoint *rows[16];
    size_t count = core_checkpoints(rig->core, job, rows, 16);
    assert_true(back < count);
    return rows[back];
}

static void commit(struct rig_node *node, int64_t job, uint32_t attempt, int64_t step)
{
    rig_say_part(node, job, 0, attempt, step, DIGEST, "main-0/layout.json");
    rig_say_sealed(node);
    assert_int_equal(row_of(node->rig, job, 0)->state, STATE(COMMITTED));
}

static void a_committed_one_is_read_again(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, policy);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    commit(node, job, 1, 10);
    const Pb__Checkpoint *row = row_of(rig, job, 0);
    assert_int_equal(row->format, PB__CHECKPOINT__FORMAT__SHARDED);
    assert_string_equal(row->layout, "main-0/layout.json");
    assert_int_equal(node->desired->n_verifies, 1);
    assert_string_equal(node->desired->verifies[0]->manifest_digest, row->manifest_digest);
    rig_say_verified(node, 0, 1, NULL);
    row = row_of(rig, job, 0);
    assert_int_equal(row->state, STATE(VERIFIED));
    assert_int_equal(strlen(row->tree_digest), 64);
    assert_int_equal(node->desired->n_verifies, 0);
}

static void only_the_newest_is_read_again(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, policy);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    commit(node, job, 1, 10);
    commit(node, job, 1, 20);
    assert_int_equal(node->desired->n_verifies, 1);
    assert_int_equal(node->desired->verifies[0]->checkpoint, row_of(rig, job, 0)->id);
}

static void bad_bytes_make_it_damaged_and_the_one_before_is_resumed_from(void **state) /* K17 */
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, policy);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    commit(node, job, 1, 10);
    rig_say_verified(node, 0, 1, NULL);
    commit(node, job, 1, 20);
    rig_say_verified(node, 0, 0, "main-0/x.safetensors does not match its digest");
    assert_int_equal(row_of(rig, job, 0)->state, STATE(DAMAGED));
    assert_non_null(strstr(row_of(rig, job, 0)->reason, "x.safetensors"));
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__EXITED, 1);
    rig_run(rig, 2000);
    assert_int_equal(core_attempt(rig->core, job, 2)->resume_checkpoint, row_of(rig, job, 1)->id);
}

static void ranks_that_do_not_agree_on_the_layout_tear_it(void **state) /* M54 */
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 2, policy);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say(node, job, 1, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say_part(node, job, 0, 1, 10, DIGEST, "main-0/layout.json");
    rig_say_part(node, job, 1, 1, 10, "ffffffffffffffffffffffffffffffff", NULL);
    assert_int_equal(row_of(rig, job, 0)->state, STATE(TORN));
    assert_non_null(strstr(row_of(rig, job, 0)->reason, "rank 1"));
    assert_non_null(strstr(row_of(rig, job, 0)->reason, "ffffffff"));
    assert_int_equal(node->desired->n_seals, 0);
    assert_int_equal(node->desired->n_deletes, 1);
    assert_int_equal(rig_state(rig, job), PB__JOB__STATE__RUNNING); /* training goes on */
}

static void one_plain_and_one_sharded_part_are_no_checkpoint(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 2, policy);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say(node, job, 1, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say_part(node, job, 0, 1, 10, DIGEST, "main-0/layout.json");
    rig_say_staged(node, job, 1, 1, 10, 80);
    assert_int_equal(row_of(rig, job, 0)->state, STATE(TORN));
}

static void a_part_that_comes_after_it_was_torn_is_deleted_too(void **state)
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 2, policy);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say(node, job, 1, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say_part(node, job, 0, 1, 10, DIGEST, "main-0/layout.json");
    rig_say_part(node, job, 1, 1, 10, "ffffffffffffffffffffffffffffffff", NULL);
    rig_say_deleted(node);
    assert_int_equal(node->desired->n_deletes, 0);
    rig_say_part(node, job, 1, 1, 20, "ffffffffffffffffffffffffffffffff", NULL);
    rig_say_part(node, job, 0, 1, 20, DIGEST, "main-0/layout.json");
    assert_int_equal(node->desired->n_deletes, 1);
    rig_say_deleted(node);
    assert_int_equal(row_of(rig, job, 0)->state, STATE(TORN));
    assert_int_equal(node->desired->n_deletes, 0);
}

static void say_damaged(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt)
{
    Pb__ActualWorker worker = PB__ACTUAL_WORKER__INIT;
    worker.state = PB__ACTUAL_WORKER__STATE__EXITED;
    worker.has_exit_code = worker.has_class_ = true;
    worker.exit_code = 1;
    worker.class_ = PB__REASON__CODE__CHECKPOINT_ERROR;
    worker.damaged = (char *)"main-0/shard-00001-model-00001-of-00001.safetensors, block 17";
    rig_say_worker(node, job, rank, attempt, &worker);
    rig_run(node->rig, 3000);
}

/* Each attempt finds another one bad: an older one each time, then an end with words. */
static void damage_goes_one_back_and_never_in_a_loop(void **state) /* K17 M49 */
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 1, policy);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    commit(node, job, 1, 10);
    commit(node, job, 1, 20);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__EXITED, 1);
    rig_run(rig, 3000);
    assert_int_equal(core_attempt(rig->core, job, 2)->resume_checkpoint, row_of(rig, job, 0)->id);
    rig_say(node, job, 0, 2, PB__ACTUAL_WORKER__STATE__RUNNING, 0); /* it loads when it runs */
    uint32_t used = core_job(rig->core, job)->restarts_used;
    say_damaged(node, job, 0, 2);
    assert_int_equal(row_of(rig, job, 0)->state, STATE(DAMAGED));
    assert_non_null(strstr(row_of(rig, job, 0)->reason, "block 17"));
    assert_int_equal(core_attempt(rig->core, job, 3)->resume_checkpoint, row_of(rig, job, 1)->id);
    assert_int_equal(core_job(rig->core, job)->restarts_used, used); /* not the program's fault */
    rig_say(node, job, 0, 3, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    say_damaged(node, job, 0, 3);
    assert_int_equal(rig_state(rig, job), PB__JOB__STATE__FAILED);
    assert_non_null(strstr(core_job(rig->core, job)->reason->text, "start_over"));
}

/* The rank that finds it may not be the first that ends. */
static void damage_that_is_told_last_counts(void **state) /* K17 */
{
    struct rig *rig = *state;
    struct rig_node *node = rig_node_join(rig, "n1", 2);
    int64_t job = rig_submit(rig, 2, policy);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say(node, job, 1, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say_part(node, job, 0, 1, 10, DIGEST, "main-0/layout.json");
    rig_say_part(node, job, 1, 1, 10, DIGEST, NULL);
    rig_say_sealed(node);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__EXITED, 1);
    rig_say(node, job, 1, 1, PB__ACTUAL_WORKER__STATE__EXITED, 1);
    rig_run(rig, 3000);
    rig_say(node, job, 0, 2, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say(node, job, 1, 2, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say(node, job, 0, 2, PB__ACTUAL_WORKER__STATE__EXITED, 1);
    say_damaged(node, job, 1, 2);
    assert_int_equal(row_of(rig, job, 0)->state, STATE(DAMAGED));
    assert_int_equal(rig_state(rig, job), PB__JOB__STATE__FAILED); /* not from step 0 */
}

static void nodes_with_vaults_of_their_own_each_seal_and_verify(void **state)
{
    struct rig *rig = *state;
    rig->node_vaults = true;
    struct rig_node *a = rig_node_join(rig, "n1", 1), *b = rig_node_join(rig, "n2", 1);
    int64_t job = rig_submit(rig, 2, policy);
    struct rig_node *first = rig_wants(a, job, 0, PB__DESIRED_WORKER__WANT__RUN) ? a : b;
    struct rig_node *second = first == a ? b : a;
    rig_say(first, job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say(second, job, 1, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say_part(first, job, 0, 1, 10, DIGEST, "main-0/layout.json");
    rig_say_part(second, job, 1, 1, 10, DIGEST, NULL);
    assert_int_equal(first->desired->n_seals, 1);
    assert_int_equal(second->desired->n_seals, 1);
    rig_say_sealed(first);
    assert_int_equal(row_of(rig, job, 0)->state, STATE(STAGED));
    assert_int_equal(first->desired->n_seals, 1); /* till the next set is due */
    rig_say_sealed(second);
    assert_int_equal(row_of(rig, job, 0)->state, STATE(COMMITTED));
    assert_true(second->desired->verifies[0]->own_parts);
    rig_say_verified(first, 0, 1, NULL);
    assert_int_equal(row_of(rig, job, 0)->state, STATE(COMMITTED));
    rig_say_verified(second, 1, 1, NULL);
    assert_int_equal(row_of(rig, job, 0)->state, STATE(VERIFIED));
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(a_committed_one_is_read_again),
        T(only_the_newest_is_read_again),
        T(bad_bytes_make_it_damaged_and_the_one_before_is_resumed_from),
        T(ranks_that_do_not_agree_on_the_layout_tear_it),
        T(one_plain_and_one_sharded_part_are_no_checkpoint),
        T(a_part_that_comes_after_it_was_torn_is_deleted_too),
        T(damage_goes_one_back_and_never_in_a_loop),
        T(damage_that_is_told_last_counts),
        T(nodes_with_vaults_of_their_own_each_seal_and_verify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
