/* test_client.c - the client: waiting calls, its own end, a server that comes back. */
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

static void destroyed_client_answers_its_calls(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answer = {0};
    struct rig_stream stream = {0};

    rig_call_empty(rig->client, "Hold", 20000, &answer);
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

struct owner {
    struct rig *rig;
    unsigned closed;
};

static void destroy_client(void *arg, enum status st, const char *text)
{
    struct owner *owner = arg;

    (void)st;
    (void)text;
    owner->closed++;
    if (owner->rig->client)
        rpc_client_destroy(TAKE(owner->rig->client));
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

/* Reconnecting from within closed is what an agent does. */
static void client_may_be_destroyed_in_its_own_callback(void **state)
{
    struct rig *rig = *state;
    struct rpc_stream_events events = {NULL, destroy_client, NULL};
    struct owner owner = {rig, 0};
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
        CASE(waiting_call_gives_a_copy),
        CASE(destroyed_client_answers_its_calls),
        CASE(client_finds_a_restarted_server),
        CASE(client_may_be_destroyed_in_its_own_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
