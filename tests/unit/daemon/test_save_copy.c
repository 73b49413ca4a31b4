/* test_save_copy.c - where the parts of a checkpoint live, and who is told to fetch them. */
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

#define DIGEST "0123456789abcdef0123456789abcdef"

static void policy(Pb__JobSpec *spec)
{
    spec->checkpoint->has_allow_node_vault = spec->checkpoint->has_verify = true;
    spec->checkpoint->allow_node_vault = true;
    spec->checkpoint->verify = false;
    spec->restart->backoff_ms = 0;
}

static const Pb__Checkpoint *newest(struct rig *rig, int64_t job)
{
    const Pb__Checkpoint *row = NULL;
    assert_true(core_checkpoints(rig->core, job, &row, 1) > 0);
    return row;
}

/* One worker on the first node, committed at step 10. */
static struct rig_node *committed(struct rig *rig, struct rig_node *a, struct rig_node *b,
                                  int64_t *job)
{
    *job = rig_submit(rig, 1, policy);
    struct rig_node *node = rig_wants(a, *job, 0, PB__DESIRED_WORKER__WANT__RUN) ? a : b;
    rig_say(node, *job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say_part(node, *job, 0, 1, 10, DIGEST, "main-0/layout.json");
    rig_say_sealed(node);
    return node;
}

static void a_part_of_a_shared_vault_outlives_its_node(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = rig_node_join(rig, "n1", 1);
    (void)committed(rig, node, node, &job);
    const Pb__Checkpoint *row = newest(rig, job);
    assert_int_equal(row->n_copies, 1);
    assert_int_equal(row->copies[0]->durability, PB__SHARD_COPY__DURABILITY__SHARED);
    assert_string_equal(row->copies[0]->node, "n1");
}

/* Its node is away: nobody else has it, so the job waits for that node. */
static void bytes_of_a_node_that_does_not_serve_them_bind_the_job(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    rig->node_vaults = true;
    struct rig_node *a = rig_node_join(rig, "n1", 1), *b = rig_node_join(rig, "n2", 1);
    struct rig_node *node = committed(rig, a, b, &job);
    assert_int_equal(newest(rig, job)->copies[0]->durability, PB__SHARD_COPY__DURABILITY__NODE);
    Pb__SetNodeRequest cordon = PB__SET_NODE_REQUEST__INIT;
    struct rig_answer answer;
    cordon.request_id = (char *)"cordon-0001";
    cordon.node = node->name;
    cordon.has_admin = true;
    cordon.admin = PB__NODE__ADMIN__CORDONED;
    rig_call(rig, &cordon.base, &answer);
    protobuf_c_message_free_unpacked(answer.reply, NULL);
    rig_say(node, job, 0, 1, PB__ACTUAL_WORKER__STATE__EXITED, 1);
    rig_live(rig, 3000);
    assert_int_equal(rig_state(rig, job), PB__JOB__STATE__QUEUED);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(a_part_of_a_shared_vault_outlives_its_node),
        T(bytes_of_a_node_that_does_not_serve_them_bind_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
