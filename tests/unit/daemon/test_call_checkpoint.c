/* test_call_checkpoint.c - pin, verify and hold as calls: a retry is answered, not repeated. */
#include "proto/text/text_format.h"
#include "tests/support/rig.h"
#include "tests/unit/unit.h"

static struct rig_node *with_checkpoint(struct rig *rig, int64_t *job)
{
    struct rig_node *node = rig_node_join(rig, "n1", 1);
    *job = rig_submit(rig, 1, NULL);
    rig_say(node, *job, 0, 1, PB__ACTUAL_WORKER__STATE__RUNNING, 0);
    rig_say_part(node, *job, 0, 1, 10, "0123456789abcdef0123456789abcdef", "main-0/layout.json");
    rig_say_sealed(node);
    return node;
}

static Pb__Checkpoint *call(struct rig *rig, const ProtobufCMessage *request, enum status want)
{
    struct rig_answer answer;
    Pb__Checkpoint *copy = NULL;

    rig_call(rig, request, &answer);
    assert_int_equal(answer.st, want);
    if (!answer.reply)
        return NULL;
    copy = (Pb__Checkpoint *)message_copy(&((Pb__CheckpointReply *)answer.reply)->checkpoint->base);
    protobuf_c_message_free_unpacked(answer.reply, NULL);
    return copy;
}

static void a_retry_is_answered_and_not_repeated(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    Pb__PinCheckpointRequest request = PB__PIN_CHECKPOINT_REQUEST__INIT;

    (void)with_checkpoint(rig, &job);
    request.request_id = (char *)"pin-request-1";
    request.has_checkpoint = true;
    request.checkpoint = 1;
    request.note = (char *)"the paper's";
    Pb__Checkpoint *first = call(rig, &request.base, STATUS_OK);
    Pb__Checkpoint *again = call(rig, &request.base, STATUS_OK);
    assert_true(first->pinned);
    assert_string_equal(first->pin_note, "the paper's");
    assert_int_equal(first->version, again->version);
    assert_int_equal(core_checkpoint(rig->core, 1)->version, first->version);
    request.note = (char *)"another";
    assert_null(call(rig, &request.base, STATUS_EXISTS));
    pb__checkpoint__free_unpacked(first, NULL);
    pb__checkpoint__free_unpacked(again, NULL);
}

static void a_verified_one_can_be_read_again(void **state)
{
    struct rig *rig = *state;
    int64_t job;
    struct rig_node *node = with_checkpoint(rig, &job);
    Pb__VerifyCheckpointRequest request = PB__VERIFY_CHECKPOINT_REQUEST__INIT;

    rig_say_verified(node, 0, 1, NULL);
    assert_int_equal(core_checkpoint(rig->core, 1)->state, PB__CHECKPOINT__STATE__VERIFIED);
    request.request_id = (char *)"verify-request-1";
    request.has_checkpoint = true;
    request.checkpoint = 1;
    pb__checkpoint__free_unpacked(call(rig, &request.base, STATUS_OK), NULL);
    rig_run(rig, 50);
    assert_int_equal(node->desired->n_verifies, 1);
    rig_say_verified(node, 0, 0, "main-0/w is missing");
    assert_int_equal(core_checkpoint(rig->core, 1)->state, PB__CHECKPOINT__STATE__DAMAGED);
    request.request_id = (char *)"verify-request-2"; /* the disk was away, and is back */
    pb__checkpoint__free_unpacked(call(rig, &request.base, STATUS_OK), NULL);
    rig_run(rig, 50);
    rig_say_verified(node, 0, 1, NULL);
    assert_int_equal(core_checkpoint(rig->core, 1)->state, PB__CHECKPOINT__STATE__VERIFIED);
    request.request_id = (char *)"verify-request-3";
    request.checkpoint = 7;
    assert_null(call(rig, &request.base, STATUS_NOT_FOUND));
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(a_retry_is_answered_and_not_repeated),
        T(a_verified_one_can_be_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
