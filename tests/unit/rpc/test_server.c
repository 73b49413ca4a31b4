/* The server over a unix socket: unary calls, streams, bounds, shutdown, restart. */
#include "rig.h"
#include "rpc/flow.h"
#include <sys/stat.h>

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

static void call_empty(struct rig *rig, const char *method, int64_t timeout_ms,
                       struct rig_answer *answer)
{
    const ProtobufCMethodDescriptor *descriptor =
        protobuf_c_service_descriptor_get_method_by_name(&pb__control__descriptor, method);
    uint8_t memory[1024];
    ProtobufCMessage *request = (ProtobufCMessage *)(void *)memory;

    assert_true(descriptor->input->sizeof_message <= sizeof memory);
    protobuf_c_message_init(descriptor->input, request);
    rpc_client_call(rig->client, &pb__control__descriptor, method, request, timeout_ms,
                    rig_answered, answer);
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

static void many_unary_calls_are_each_answered_once(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answers[1000] = {0};
    unsigned done = 0;

    for (size_t i = 0; i < COUNT_OF(answers); i++)
        rig_submit_id(rig, rig->client, "many", &answers[i]);
    RIG_UNTIL(rig, rig->submits == COUNT_OF(answers));
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        RIG_UNTIL(rig, answers[i].times);
        done += answers[i].times;
        assert_int_equal(answers[i].st, STATUS_OK);
    }
    assert_int_equal(done, COUNT_OF(answers));
}

static void failure_brings_status_and_text(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answer = {0};

    call_empty(rig, "Cancel", 10000, &answer);
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_PRECONDITION);
    assert_string_equal(answer.text, "job 7 has ended \xe2\x80\x94 nothing to cancel");
}

static void deadline_ends_both_sides(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answer = {0};

    call_empty(rig, "Hold", 300, &answer);
    RIG_UNTIL(rig, rig->held);
    assert_in_range(rpc_call_time_left_ms(rig->held), 0, 300);
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_DEADLINE);
    RIG_UNTIL(rig, rig->closed == 1);
    assert_null(rig->held);
}

static void late_answer_is_given_and_closed_does_not_run(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answer = {0};
    Pb__JobReply reply = PB__JOB_REPLY__INIT;

    call_empty(rig, "Hold", 20000, &answer);
    RIG_UNTIL(rig, rig->held);
    assert_memory_equal(rpc_call_peer(rig->held), "unix:", 5);
    rpc_call_reply(rig->held, &reply.base);
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_OK);
    uint64_t calls, refused, open;
    RIG_UNTIL(rig, (rpc_server_counts(rig->server, &calls, &refused, &open), open == 0));
    assert_int_equal(rig->closed, 0);
}

static void destroyed_client_answers_its_calls(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answer = {0};
    struct rig_stream stream = {0};

    call_empty(rig, "Hold", 20000, &answer);
    rig_stream_open(rig->client, &pb__agents__descriptor, "Control", &stream);
    rig_control_send(&stream, 1);
    RIG_UNTIL(rig, rig->held && stream.ack == 1);
    rpc_client_destroy(rig->client);
    rig->client = NULL;
    assert_int_equal(answer.times, 1);
    assert_int_equal(answer.st, STATUS_CANCELLED);
    assert_int_equal(stream.closed, 1);
    assert_int_equal(stream.st, STATUS_CANCELLED);
    RIG_UNTIL(rig, rig->closed == 2);
}

static void big_reply_arrives_whole(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answer = {0};
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;

    request.has_before = 1;
    request.before = 20000;
    rpc_client_call(rig->client, &pb__control__descriptor, "ListJobs", &request.base, 20000,
                    rig_answered, &answer);
    RIG_UNTIL(rig, answer.times);
    assert_string_equal(answer.text, "");
    assert_int_equal(answer.jobs, 20000);
}

static void waiting_call_gives_a_copy(void **state)
{
    struct rig *rig = *state;
    Pb__SubmitRequest request = PB__SUBMIT_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    struct error err = {0};
    char id[] = "waits";

    request.request_id = id;
    assert_int_equal(rpc_client_call_wait(rig->client, &pb__control__descriptor, "Submit",
                                          &request.base, 20000, &reply, &err),
                     STATUS_OK);
    assert_string_equal(((Pb__SubmitReply *)reply)->note, "waits");
    protobuf_c_message_free_unpacked(reply, NULL);
    Pb__CancelRequest cancel = PB__CANCEL_REQUEST__INIT;
    assert_int_equal(rpc_client_call_wait(rig->client, &pb__control__descriptor, "Cancel",
                                          &cancel.base, 20000, &reply, &err),
                     STATUS_PRECONDITION);
    assert_memory_equal(err.text, "job 7", 5);
}

/* --- streams */

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

/* --- flow control */

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

static void flood_open(struct rig *rig, struct rig_stream *stream)
{
    Pb__LogsRequest request = PB__LOGS_REQUEST__INIT;

    rig_stream_open(rig->client, &pb__control__descriptor, "Logs", stream);
    rpc_stream_send(stream->stream, &request.base);
    rpc_stream_end_sending(stream->stream);
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

/* --- life */

static void shutdown_closes_live_streams(void **state)
{
    struct rig *rig = *state;
    struct rig_stream streams[20] = {0};
    struct rig_answer answer = {0};

    for (size_t i = 0; i < COUNT_OF(streams); i++) {
        rig_stream_open(rig->client, &pb__agents__descriptor, "Control", &streams[i]);
        rig_control_send(&streams[i], 1);
    }
    call_empty(rig, "Hold", 20000, &answer);
    for (size_t i = 0; i < COUNT_OF(streams); i++)
        RIG_UNTIL(rig, streams[i].ack == 1);
    RIG_UNTIL(rig, rig->held);
    rpc_server_destroy(rig->server, 5000);
    rig->server = NULL;
    assert_int_equal(rig->closed, COUNT_OF(streams) + 1);
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_UNAVAILABLE);
    for (size_t i = 0; i < COUNT_OF(streams); i++) {
        RIG_UNTIL(rig, streams[i].closed);
        assert_int_equal(streams[i].st, STATUS_UNAVAILABLE);
    }
}

static void client_finds_a_restarted_server(void **state)
{
    struct rig *rig = *state;
    struct rig_answer before = {0}, away = {0}, after = {0};

    rig_submit_id(rig, rig->client, "before", &before);
    RIG_UNTIL(rig, before.times);
    rpc_server_destroy(rig->server, 100);
    rig->server = NULL;
    rig_submit_id(rig, rig->client, "away", &away);
    RIG_UNTIL(rig, away.times);
    assert_int_equal(away.st, STATUS_UNAVAILABLE);
    rig_serve(rig, NULL);
    do {
        after = (struct rig_answer){0};
        rig_submit_id(rig, rig->client, "after", &after);
        RIG_UNTIL(rig, after.times);
    } while (after.st == STATUS_UNAVAILABLE);
    assert_int_equal(after.st, STATUS_OK);
}

static void second_server_cannot_take_the_socket(void **state)
{
    struct rig *rig = *state;
    struct rpc_server *first = rig->server;
    struct rig_answer answer = {0};
    struct error err = {0};
    struct stat st;

    assert_int_equal(rig_serve_on(rig, NULL, &err), STATUS_EXISTS);
    assert_ptr_equal(rig->server, first);
    assert_int_equal(stat(rig->socket_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    rig_submit_id(rig, rig->client, "still", &answer);
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_OK);
}

struct rig_owner {
    struct rig *rig;
    unsigned closed;
};

static void destroy_client(void *arg, enum status st, const char *text)
{
    struct rig_owner *owner = arg;

    (void)st;
    (void)text;
    owner->closed++;
    if (owner->rig->client)
        rpc_client_destroy(TAKE(owner->rig->client));
}

/* Reconnecting from within closed is what an agent does. */
static void client_may_be_destroyed_in_its_own_callback(void **state)
{
    struct rig *rig = *state;
    struct rpc_stream_events events = {NULL, destroy_client, NULL};
    struct rig_owner owner = {rig, 0};
    struct rpc_stream *streams[5];

    for (size_t i = 0; i < COUNT_OF(streams); i++)
        streams[i] =
            rpc_client_stream(rig->client, &pb__agents__descriptor, "Control", 0, &events, &owner);
    for (size_t i = 0; i < COUNT_OF(streams); i++)
        rpc_stream_cancel(streams[i]);
    RIG_UNTIL(rig, owner.closed == COUNT_OF(streams));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(unary_call_is_answered),
        CASE(many_unary_calls_are_each_answered_once),
        CASE(failure_brings_status_and_text),
        CASE(deadline_ends_both_sides),
        CASE(late_answer_is_given_and_closed_does_not_run),
        CASE(destroyed_client_answers_its_calls),
        CASE(big_reply_arrives_whole),
        CASE(waiting_call_gives_a_copy),
        CASE(bidi_stream_echoes_and_closes_once),
        CASE(server_stream_delivers_all_before_closed),
        CASE(stream_that_fails_still_delivers_what_came_before),
        CASE(client_stream_is_answered_at_its_end),
        CASE(cancelled_stream_closes_once_on_both_sides),
        CASE(thousand_streams_live_together),
        CASE(paused_call_holds_the_sender_back),
        CASE(writer_that_waits_for_drained_stays_bounded),
        CASE(writer_without_measure_is_cancelled),
        CASE(shutdown_closes_live_streams),
        CASE(client_finds_a_restarted_server),
        CASE(second_server_cannot_take_the_socket),
        CASE(client_may_be_destroyed_in_its_own_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
