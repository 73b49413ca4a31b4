/* test_reader.c - pages of jobs, one job, events: from memory, from the store, and without it. */
#include "tests/support/daemon_rig.h"
#include "tests/unit/unit.h"

#define AS(type, message) ((type *)(void *)(message))

static size_t page(struct rpc_client *client, int64_t before, int64_t *next, int64_t *first)
{
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;

    request.has_limit = request.has_before = true;
    request.limit = 2;
    request.before = before;
    assert_int_equal(daemon_rig_call(client, "ListJobs", &request.base, &reply, NULL), STATUS_OK);
    size_t count = AS(Pb__ListJobsReply, reply)->n_jobs;
    *next = AS(Pb__ListJobsReply, reply)->next_before;
    *first = count > 0 ? AS(Pb__ListJobsReply, reply)->jobs[0]->id : 0;
    protobuf_c_message_free_unpacked(reply, NULL);
    return count;
}

static void pages_of_jobs_join_without_gap(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    char id[32];
    int64_t next, first;

    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof(id), "request-%d", i);
        daemon_rig_submit(admin, id, daemon_rig_spec("a", "default"));
    }
    assert_int_equal(page(admin, 0, &next, &first), 2);
    assert_int_equal(first, 5);
    assert_int_equal(page(admin, next, &next, &first), 2);
    assert_int_equal(first, 3);
    assert_int_equal(page(admin, next, &next, &first), 1);
    assert_int_equal(first, 1);
    assert_int_equal(next, 0);
}

static void jobs_that_memory_has_dropped_come_from_the_store(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    Pb__Job old = PB__JOB__INIT;
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;

    daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    daemon_rig_submit(admin, "request-2", daemon_rig_spec("a", "default"));
    old.has_id = old.has_state = true; /* what a daemon before us ran and memory does not hold */
    old.id = 40;
    old.state = PB__JOB__STATE__SUCCEEDED;
    old.spec = daemon_rig_spec("old", "default");
    fake_store_put(rig->store, CHANGE_JOB, &old.base);
    request.has_before = true;
    request.before = 50;
    assert_int_equal(daemon_rig_call(admin, "ListJobs", &request.base, &reply, NULL), STATUS_OK);
    assert_int_equal(AS(Pb__ListJobsReply, reply)->n_jobs, 3);
    assert_int_equal(AS(Pb__ListJobsReply, reply)->jobs[0]->id, 40);
    assert_int_equal(AS(Pb__ListJobsReply, reply)->jobs[2]->id, 1);
    protobuf_c_message_free_unpacked(reply, NULL);
    pb__job_spec__free_unpacked(old.spec, NULL);
}

static void an_old_job_is_shown_from_the_store(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *eve = daemon_rig_client(rig, "user", "eve", "role=viewer,project=*");
    Pb__Job old = PB__JOB__INIT;
    Pb__Event event = PB__EVENT__INIT;
    Pb__ShowJobRequest show = PB__SHOW_JOB_REQUEST__INIT;
    Pb__ListCheckpointsRequest checkpoints = PB__LIST_CHECKPOINTS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;

    old.has_id = event.has_seq = event.has_job = true;
    old.id = event.job = 40;
    event.seq = 1;
    old.spec = daemon_rig_spec("old", "default");
    fake_store_put(rig->store, CHANGE_JOB, &old.base);
    fake_store_put(rig->store, CHANGE_EVENT, &event.base);
    show.has_job = checkpoints.has_job = true;
    show.job = checkpoints.job = 40;
    assert_int_equal(daemon_rig_call(eve, "ShowJob", &show.base, &reply, NULL), STATUS_OK);
    assert_string_equal(AS(Pb__ShowJobReply, reply)->job->spec->name, "old");
    assert_null(AS(Pb__ShowJobReply, reply)->job->spec->roles[0]->env[0]->value);
    assert_int_equal(AS(Pb__ShowJobReply, reply)->n_events, 1);
    protobuf_c_message_free_unpacked(reply, NULL);
    assert_int_equal(daemon_rig_call(eve, "ListCheckpoints", &checkpoints.base, NULL, NULL),
                     STATUS_OK);
    fake_store_set_usable(rig->store, false);
    assert_int_equal(daemon_rig_call(eve, "ShowJob", &show.base, NULL, NULL), STATUS_UNAVAILABLE);
    pb__job_spec__free_unpacked(old.spec, NULL);
}

static void events_are_filtered_and_bounded(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    Pb__ListEventsRequest request = PB__LIST_EVENTS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;

    daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    daemon_rig_submit(admin, "request-2", daemon_rig_spec("b", "default"));
    request.has_job = true;
    request.job = 2;
    assert_int_equal(daemon_rig_call(admin, "ListEvents", &request.base, &reply, NULL), STATUS_OK);
    assert_true(AS(Pb__ListEventsReply, reply)->n_events > 0);
    for (size_t i = 0; i < AS(Pb__ListEventsReply, reply)->n_events; i++)
        assert_int_equal(AS(Pb__ListEventsReply, reply)->events[i]->job, 2);
    protobuf_c_message_free_unpacked(reply, NULL);
    request.has_job = false;
    request.has_limit = true;
    request.limit = 1; /* no place to begin behind: the newest */
    assert_int_equal(daemon_rig_call(admin, "ListEvents", &request.base, &reply, NULL), STATUS_OK);
    assert_int_equal(AS(Pb__ListEventsReply, reply)->n_events, 1);
    assert_int_equal(AS(Pb__ListEventsReply, reply)->events[0]->job, 2);
    protobuf_c_message_free_unpacked(reply, NULL);
    request.has_after_seq = true; /* behind the beginning: the oldest */
    request.after_seq = -1;
    assert_int_equal(daemon_rig_call(admin, "ListEvents", &request.base, &reply, NULL), STATUS_OK);
    assert_int_equal(AS(Pb__ListEventsReply, reply)->events[0]->job, 1);
    protobuf_c_message_free_unpacked(reply, NULL);
    request.limit = 0;
    assert_int_equal(daemon_rig_call(admin, "ListEvents", &request.base, NULL, NULL),
                     STATUS_INVALID);
    request.limit = 1000000;
    assert_int_equal(daemon_rig_call(admin, "ListEvents", &request.base, NULL, NULL),
                     STATUS_INVALID);
}

static void named_jobs_come_from_both(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    Pb__Job old = PB__JOB__INIT;
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    int64_t ids[] = {1, 40, 99};
    ProtobufCMessage *reply = NULL;

    daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    old.has_id = true;
    old.id = 40;
    old.spec = daemon_rig_spec("old", "default");
    fake_store_put(rig->store, CHANGE_JOB, &old.base);
    filter.ids = ids;
    filter.n_ids = 3;
    request.filter = &filter;
    assert_int_equal(daemon_rig_call(admin, "ListJobs", &request.base, &reply, NULL), STATUS_OK);
    assert_int_equal(AS(Pb__ListJobsReply, reply)->n_jobs, 2);
    protobuf_c_message_free_unpacked(reply, NULL);
    pb__job_spec__free_unpacked(old.spec, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, daemon_rig_setup, daemon_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pages_of_jobs_join_without_gap),
        TEST(jobs_that_memory_has_dropped_come_from_the_store),
        TEST(an_old_job_is_shown_from_the_store),
        TEST(events_are_filtered_and_bounded),
        TEST(named_jobs_come_from_both),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
