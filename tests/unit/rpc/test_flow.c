/* test_flow.c - slow readers and fast writers: pause, drained, the bound. */
#include "rig.h"
#include "rpc/flow.h"

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

static void flood_open(struct rig *rig, struct rig_stream *stream)
{
    Pb__LogsRequest request = PB__LOGS_REQUEST__INIT;

    rig_stream_open(rig->client, &pb__control__descriptor, "Logs", stream);
    rpc_stream_send(stream->stream, &request.base);
    rpc_stream_end_sending(stream->stream);
}

static void paused_call_holds_the_sender_back(void **state)
{
    struct rig *rig = *state;
    struct rig_stream stream = {0};
    static char name[30000];
    Pb__BulkUp up = PB__BULK_UP__INIT;
    Pb__BulkHello hello = PB__BULK_HELLO__INIT;
    size_t queued = 0;

    memset(name, 'n', sizeof name - 1);
    hello.node = name;
    up.hello = &hello;
    up.has_seq = 1;
    rig_stream_open(rig->client, &pb__agents__descriptor, "Bulk", &stream);
    for (up.seq = 1; up.seq <= 300; up.seq++)
        queued = rpc_stream_send(stream.stream, &up.base);
    RIG_UNTIL(rig, rig->bulk);
    assert_true(queued > 1000000);
    for (int turn = 0; turn < 20; turn++)
        uv_run(loop_uv_handle(rig->loop), UV_RUN_ONCE);
    assert_int_equal(rig->messages, 0);
    rpc_call_resume(rig->bulk);
    rpc_stream_end_sending(stream.stream);
    RIG_UNTIL(rig, stream.closed);
    assert_int_equal(rig->messages, 300);
    assert_int_equal(rig->last_seq, 300);
    assert_int_equal(rig->half_closed, 1);
}

static void writer_that_waits_for_drained_stays_bounded(void **state)
{
    struct rig *rig = *state;
    struct rig_stream stream = {0};

    rig->flood_limited = true;
    rig->flood_left = 500;
    flood_open(rig, &stream);
    RIG_UNTIL(rig, stream.closed);
    assert_int_equal(stream.st, STATUS_OK);
    assert_int_equal(stream.bytes, 500 * 65536);
    assert_in_range(rig->flood_queued_max, 1, 2 << 20);
}

static void writer_without_measure_is_cancelled(void **state)
{
    struct rig *rig = *state;
    struct rig_stream stream = {0};

    rig->flood_left = 2000; /* 125 MiB at once */
    flood_open(rig, &stream);
    RIG_UNTIL(rig, stream.closed);
    assert_int_not_equal(stream.st, STATUS_OK);
    assert_in_range(rig->flood_queued_max, 1, RPC_FLOW_QUEUED_BYTES_MAX + 100000);
    RIG_UNTIL(rig, rig->closed == 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(paused_call_holds_the_sender_back),
        CASE(writer_that_waits_for_drained_stays_bounded),
        CASE(writer_without_measure_is_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
