/* test_server.c - the server over a unix socket: unary calls, their end, shutdown, its socket. */
#include "rig.h"
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

    rig_call_empty(rig->client, "Cancel", 10000, &answer);
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_PRECONDITION);
    assert_string_equal(answer.text, "job 7 has ended \xe2\x80\x94 nothing to cancel");
}

static void deadline_ends_both_sides(void **state)
{
    struct rig *rig = *state;
    struct rig_answer answer = {0};

    rig_call_empty(rig->client, "Hold", 300, &answer);
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

    rig_call_empty(rig->client, "Hold", 20000, &answer);
    RIG_UNTIL(rig, rig->held);
    assert_memory_equal(rpc_call_peer(rig->held), "unix:", 5);
    rpc_call_reply(rig->held, &reply.base);
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_OK);
    uint64_t calls, refused, open;
    RIG_UNTIL(rig, (rpc_server_counts(rig->server, &calls, &refused, &open), open == 0));
    assert_int_equal(rig->closed, 0);
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

static void shutdown_closes_live_streams(void **state)
{
    struct rig *rig = *state;
    struct rig_stream streams[20] = {0};
    struct rig_answer answer = {0};

    for (size_t i = 0; i < COUNT_OF(streams); i++) {
        rig_stream_open(rig->client, &pb__agents__descriptor, "Control", &streams[i]);
        rig_control_send(&streams[i], 1);
    }
    rig_call_empty(rig->client, "Hold", 20000, &answer);
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

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(unary_call_is_answered),
        CASE(many_unary_calls_are_each_answered_once),
        CASE(failure_brings_status_and_text),
        CASE(deadline_ends_both_sides),
        CASE(late_answer_is_given_and_closed_does_not_run),
        CASE(big_reply_arrives_whole),
        CASE(shutdown_closes_live_streams),
        CASE(second_server_cannot_take_the_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
