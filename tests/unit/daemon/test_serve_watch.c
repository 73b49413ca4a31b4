/* test_serve_watch.c - Watch over gRPC: established, live, resumed. */
#include "tests/support/daemon_rig.h"
#include "tests/unit/unit.h"

#define REPLY(stream, i) ((Pb__WatchReply *)(void *)(stream)->messages[i])

static struct daemon_rig_stream *watch(struct rpc_client *client, int64_t after, int64_t job,
                                       bool jobs)
{
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;

    request.has_after_seq = request.has_job = request.has_jobs = true;
    request.after_seq = after;
    request.job = job;
    request.jobs = jobs;
    return daemon_rig_stream_open(client, &pb__control__descriptor, "Watch", &request.base);
}

static bool caught_up(const struct daemon_rig_stream *stream)
{
    if (stream->closed)
        fail_msg("the watch ended: %s %s", status_name(stream->st), stream->text);
    for (size_t i = 0; i < stream->count; i++)
        if (REPLY(stream, i)->caught_up)
            return true;
    return false;
}

static void a_watch_says_when_it_is_live_and_shows_jobs(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    struct daemon_rig_stream *stream = watch(admin, 0, 0, true);

    DAEMON_RIG_UNTIL(rig, caught_up(stream));
    assert_int_equal(stream->count, 1);
    int64_t job = daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    DAEMON_RIG_UNTIL(rig, stream->count > 1);
    assert_int_equal(REPLY(stream, 1)->event->job, job);
    assert_string_equal(REPLY(stream, 1)->event->actor, "user/root");
    assert_string_equal(REPLY(stream, 1)->job->spec->name, "a");
    daemon_rig_stream_close(rig, stream);
}

static void a_watch_resumes_behind_its_token(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    struct daemon_rig_stream *stream;

    daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    daemon_rig_submit(admin, "request-2", daemon_rig_spec("b", "default"));
    stream = watch(admin, -1, 0, false);
    DAEMON_RIG_UNTIL(rig, caught_up(stream));
    size_t all = stream->count - 1;
    int64_t token = REPLY(stream, 0)->event->seq;
    daemon_rig_stream_close(rig, stream);
    stream = watch(admin, token, 0, false);
    DAEMON_RIG_UNTIL(rig, caught_up(stream));
    assert_int_equal(stream->count - 1, all - 1);
    daemon_rig_stream_close(rig, stream);
    stream = watch(admin, -1, 2, false);
    DAEMON_RIG_UNTIL(rig, caught_up(stream));
    for (size_t i = 0; i < stream->count; i++)
        if (REPLY(stream, i)->event)
            assert_int_equal(REPLY(stream, i)->event->job, 2);
    daemon_rig_stream_close(rig, stream);
}

static void a_watch_that_is_left_is_forgotten(void **state)
{
    struct daemon_rig *rig = *state;
    struct daemon_rig_stream *stream = watch(daemon_rig_admin(rig), 0, 0, false);
    struct serve_counts counts;

    DAEMON_RIG_UNTIL(rig, caught_up(stream));
    daemon_rig_stream_close(rig, stream);
    DAEMON_RIG_UNTIL(rig, (serve_counts(rig->serve, &counts), counts.watches == 0));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, daemon_rig_setup, daemon_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_watch_says_when_it_is_live_and_shows_jobs),
        TEST(a_watch_resumes_behind_its_token),
        TEST(a_watch_that_is_left_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
