/* The server over a unix socket: unary calls, streams, refusals, limits, shutdown. */
#include "rig.h"

static int setup(void **state)
{
    struct rig *rig = rig_create();

    rig_serve(rig, NULL);
    rig->client = rig_client(rig, NULL);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

static void unary_call_is_answered(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answer = {0};

    rig_submit_id(rig, rig->client, "request-1", &answer);
    assert_int_equal(answer.times, 0); /* never before the call returns */
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_OK);
    assert_string_equal(answer.note, "request-1");
    assert_string_equal(rig->identity, "user/local");
}

static void bidi_stream_echoes_and_closes_once(void **state)
{
    struct rig *rig = *state;
    struct rig_stream stream = {0};

    rig_stream_open(rig->client, &pb__agents__descriptor, "Control", &stream);
    for (uint64_t seq = 1; seq <= 500; seq++)
        rig_control_send(&stream, seq);
    RIG_UNTIL(rig, stream.ack == 500);
    rpc_stream_end_sending(stream.stream);
    RIG_UNTIL(rig, stream.closed);
    assert_int_equal(stream.messages, 500);
    assert_int_equal(stream.st, STATUS_OK);
    assert_string_equal(stream.text, "bye");
    RIG_UNTIL(rig, rig->closed == 1);
    assert_int_equal(rig->half_closed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(unary_call_is_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(bidi_stream_echoes_and_closes_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
