/* test_stream.c - streams of all kinds: order, their one end, cancel, many at once. */
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
    assert_true(stream.drained > 0);
}

static void server_stream_delivers_all_before_closed(void **state)
{
    struct rig *rig = *state;
    struct rig_stream stream = {0};
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;

    request.has_after_seq = 1;
    request.after_seq = 3000;
    rig_stream_open(rig->client, &pb__control__descriptor, "Watch", &stream);
    rpc_stream_send(stream.stream, &request.base);
    rpc_stream_end_sending(stream.stream);
    RIG_UNTIL(rig, stream.closed);
    assert_int_equal(stream.messages, 3000);
    assert_int_equal(stream.st, STATUS_OK);
    RIG_UNTIL(rig, rig->closed == 1);
}

static void stream_that_fails_still_delivers_what_came_before(void **state)
{
    struct rig *rig = *state;
    struct rig_stream stream = {0};
    Pb__CodeAsk ask = PB__CODE_ASK__INIT;

    rig_stream_open(rig->client, &pb__agents__descriptor, "FetchCode", &stream);
    rpc_stream_send(stream.stream, &ask.base);
    rpc_stream_end_sending(stream.stream);
    RIG_UNTIL(rig, stream.closed);
    assert_int_equal(stream.st, STATUS_DATA_LOSS);
    assert_string_equal(stream.text, "digest");
    assert_int_equal(stream.messages, 1);
    RIG_UNTIL(rig, rig->closed == 1);
}

static void client_stream_is_answered_at_its_end(void **state)
{
    struct rig *rig = *state;
    struct rig_stream stream = {0};
    static uint8_t block[100000];
    Pb__PutCodeRequest piece = PB__PUT_CODE_REQUEST__INIT;

    piece.has_data = 1;
    piece.data = (ProtobufCBinaryData){sizeof block, block};
    rig_stream_open(rig->client, &pb__control__descriptor, "PutCode", &stream);
    for (int i = 0; i < 50; i++)
        rpc_stream_send(stream.stream, &piece.base);
    rpc_stream_end_sending(stream.stream);
    RIG_UNTIL(rig, stream.closed);
    assert_int_equal(stream.st, STATUS_OK);
    assert_int_equal(stream.messages, 1);
    assert_int_equal(rig->bytes, 50 * sizeof block);
}

static void cancelled_stream_closes_once_on_both_sides(void **state)
{
    struct rig *rig = *state;
    struct rig_stream stream = {0};

    rig_stream_open(rig->client, &pb__agents__descriptor, "Control", &stream);
    rig_control_send(&stream, 1);
    RIG_UNTIL(rig, stream.ack == 1);
    rpc_stream_cancel(stream.stream);
    assert_int_equal(stream.closed, 0);
    RIG_UNTIL(rig, stream.closed);
    assert_int_equal(stream.st, STATUS_CANCELLED);
    RIG_UNTIL(rig, rig->closed == 1);
    assert_int_equal(rig->half_closed, 0);
}

static void thousand_streams_live_together(void **state)
{
    struct rig *rig = *state;
    struct rig_stream *streams = mem_array(1000, sizeof *streams);

    for (int i = 0; i < 1000; i++) {
        rig_stream_open(rig->client, &pb__agents__descriptor, "Control", &streams[i]);
        rig_control_send(&streams[i], (uint64_t)i + 1);
    }
    for (int i = 0; i < 1000; i++)
        RIG_UNTIL(rig, streams[i].ack == (uint64_t)i + 1);
    assert_int_equal(rig->streams_open, 1000);
    for (int i = 0; i < 1000; i++)
        rpc_stream_cancel(streams[i].stream);
    for (int i = 0; i < 1000; i++) {
        RIG_UNTIL(rig, streams[i].closed);
        assert_int_equal(streams[i].closed, 1);
    }
    RIG_UNTIL(rig, rig->closed == 1000);
    mem_free(streams);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(bidi_stream_echoes_and_closes_once),
        CASE(server_stream_delivers_all_before_closed),
        CASE(stream_that_fails_still_delivers_what_came_before),
        CASE(client_stream_is_answered_at_its_end),
        CASE(cancelled_stream_closes_once_on_both_sides),
        CASE(thousand_streams_live_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
