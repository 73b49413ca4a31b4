/* test_peer.c - who is behind a call: identity, role, and revocation while connected. */
#include "rig.h"

static int setup(void **state)
{
    struct rig *rig = rig_create();

    rig_make_ca(rig);
    rig_serve(rig, "127.0.0.1:0");
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

/* One Submit by a fresh client of that name. */
static struct rig_answer submit_as(struct rig *rig, const char *who)
{
    struct rig_answer answer = {0};
    struct rpc_client *client = rig_client(rig, who);

    rig_submit_id(rig, client, "tls", &answer);
    RIG_UNTIL(rig, answer.times);
    rpc_client_destroy(client);
    return answer;
}

static void caller_is_known_by_its_certificate(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answer = submit_as(rig, "ada");

    assert_string_equal(answer.text, "");
    assert_int_equal(answer.st, STATUS_OK);
    assert_string_equal(rig->identity, "user/ada");
    assert_int_equal(submit_as(rig, "node-7").st, STATUS_OK);
    assert_string_equal(rig->identity, "agent/node-7");
}

static void role_that_the_row_does_not_list_is_denied(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answer = {0};
    Pb__ShowJobRequest request = PB__SHOW_JOB_REQUEST__INIT;

    rig->client = rig_client(rig, "vera");
    rpc_client_call(rig->client, &pb__control__descriptor, "ShowJob", &request.base, 20000,
                    rig_answered, &answer);
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_DENIED);
    assert_non_null(strstr(answer.text, "user/vera"));
    uint64_t calls, refused, open;
    rpc_server_counts(rig->server, &calls, &refused, &open);
    assert_int_equal(refused, 1);
}

static void revoked_certificate_is_refused_at_the_handshake(void **state)
{
    struct rig *rig = *state;
    char cert[160];

    assert_int_equal(ca_revoke(rig->ca_dir, rig_path(rig, "ada", ".pem", cert), NULL), STATUS_OK);
    rpc_server_destroy(rig->server, 0);
    rig_serve(rig, "127.0.0.1:0");
    assert_int_equal(submit_as(rig, "ada").st, STATUS_UNAVAILABLE);
    assert_int_equal(submit_as(rig, "vera").st, STATUS_OK);
    assert_int_equal(rig->submits, 1);
}

static void revocation_cuts_live_streams_and_calls(void **state)
{
    struct rig *rig = *state;
    struct rig_stream stream = {0};
    struct rig_answer answer = {0};
    char cert[160];

    rig->client = rig_client(rig, "node-7");
    rig_stream_open(rig->client, &pb__agents__descriptor, "Control", &stream);
    rig_control_send(&stream, 1);
    RIG_UNTIL(rig, stream.ack == 1);
    assert_int_equal(ca_revoke(rig->ca_dir, rig_path(rig, "node-7", ".pem", cert), NULL),
                     STATUS_OK);
    RIG_UNTIL(rig, stream.closed);
    assert_int_equal(stream.st, STATUS_UNAUTHENTICATED);
    RIG_UNTIL(rig, rig->closed == 1);
    rig_submit_id(rig, rig->client, "x", &answer);
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_UNAUTHENTICATED);
    assert_int_equal(submit_as(rig, "ada").st, STATUS_OK);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(caller_is_known_by_its_certificate),
        CASE(role_that_the_row_does_not_list_is_denied),
        CASE(revoked_certificate_is_refused_at_the_handshake),
        CASE(revocation_cuts_live_streams_and_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
