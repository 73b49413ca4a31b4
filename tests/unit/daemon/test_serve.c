/* test_serve.c - submit, cancel, hold, nodes, reads and who may do what, through real gRPC.
 */
#include "tests/support/daemon_rig.h"
#include "tests/unit/unit.h"

#define AS(type, message) ((type *)(void *)(message))

static enum status submit(struct rpc_client *client, const char *id, Pb__JobSpec *spec,
                          int64_t *job, struct error *err)
{
    Pb__SubmitRequest request = PB__SUBMIT_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;

    request.request_id = (char *)id;
    request.spec = spec;
    enum status st = daemon_rig_call(client, "Submit", &request.base, &reply, err);
    if (reply && job)
        *job = AS(Pb__SubmitReply, reply)->job;
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

static void a_retry_with_the_same_id_gets_the_same_job(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    int64_t first = daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    int64_t again = daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    int64_t other = daemon_rig_submit(admin, "request-2", daemon_rig_spec("a", "default"));

    assert_int_equal(first, again);
    assert_int_not_equal(first, other);
    assert_int_equal(fake_store_count(rig->store, CHANGE_JOB), 2);
}

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static Pb__JobSpec *spec_with_code(const char *digest)
{
    Pb__JobSpec *spec = daemon_rig_spec("a", "default");

    if (!spec->code) {
        spec->code = calloc(1, sizeof(*spec->code));
        pb__code__init(spec->code);
    }
    free(spec->code->digest);
    spec->code->digest = strdup(digest);
    return spec;
}

static void put_code(struct daemon_rig *rig, const char *digest)
{
    Pb__CodeRow row = PB__CODE_ROW__INIT;

    row.digest = (char *)digest;
    row.has_data = true;
    row.data = (ProtobufCBinaryData){1, (uint8_t *)(uintptr_t) "x"};
    fake_store_put(rig->store, CHANGE_CODE, &row.base);
}

static void a_job_without_its_code_is_refused(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    Pb__JobSpec *spec = spec_with_code(DIGEST);
    struct error err = {0};
    int64_t job = 0;

    assert_int_equal(submit(admin, "request-1", spec, NULL, &err), STATUS_PRECONDITION);
    assert_non_null(strstr(err.text, "code.digest: no code is stored under " DIGEST));
    fake_store_set_usable(rig->store, false);
    assert_int_equal(submit(admin, "request-1", spec, NULL, &err), STATUS_UNAVAILABLE);
    fake_store_set_usable(rig->store, true);
    put_code(rig, DIGEST);
    assert_int_equal(submit(admin, "request-1", spec, &job, &err), STATUS_OK);
    assert_true(job > 0);
    free(spec->code->digest);
    spec->code->digest = strdup("no digest");
    assert_int_equal(submit(admin, "request-2", spec, NULL, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "code.digest: 'no digest' is no SHA-256"));
    pb__job_spec__free_unpacked(spec, NULL);
}

static void of_many_only_those_without_code_are_refused(void **state)
{
    struct daemon_rig *rig = *state;
    Pb__SubmitManyRequest many = PB__SUBMIT_MANY_REQUEST__INIT;
    Pb__SubmitRequest entries[3], *list[3];
    Pb__JobSpec *specs[] = {spec_with_code(DIGEST), daemon_rig_spec("b", "default"),
                            spec_with_code(DIGEST)};
    static const char *const ids[] = {"request-1", "request-2", "request-3"};
    ProtobufCMessage *reply = NULL;

    specs[2]->code->digest[0] = 'f';
    put_code(rig, specs[2]->code->digest);
    for (size_t i = 0; i < 3; i++) {
        pb__submit_request__init(&entries[i]);
        entries[i].request_id = (char *)(uintptr_t)ids[i];
        entries[i].spec = specs[i];
        list[i] = &entries[i];
    }
    many.n_requests = 3;
    many.requests = list;
    assert_int_equal(daemon_rig_call(daemon_rig_admin(rig), "SubmitMany", &many.base, &reply, NULL),
                     STATUS_OK);
    Pb__SubmitResult **results = AS(Pb__SubmitManyReply, reply)->results;
    assert_int_equal(results[0]->status, STATUS_PRECONDITION);
    assert_non_null(strstr(results[0]->error, "code.digest"));
    assert_int_equal(results[1]->status, STATUS_OK);
    assert_int_equal(results[2]->status, STATUS_OK);
    assert_true(results[2]->job > results[1]->job);
    protobuf_c_message_free_unpacked(reply, NULL);
    for (size_t i = 0; i < 3; i++)
        pb__job_spec__free_unpacked(specs[i], NULL);
}

static void a_short_request_id_is_refused(void **state)
{
    struct daemon_rig *rig = *state;
    Pb__JobSpec *spec = daemon_rig_spec("a", "default");
    struct error err = {0};

    assert_int_equal(submit(daemon_rig_admin(rig), "short", spec, NULL, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "request_id"));
    pb__job_spec__free_unpacked(spec, NULL);
}

static void a_bad_spec_names_every_problem(void **state)
{
    struct daemon_rig *rig = *state;
    Pb__JobSpec *spec = daemon_rig_spec("a", "default");
    struct error err = {0};

    spec->has_priority = true;
    spec->priority = 5000;
    spec->roles[0]->has_workers = true;
    spec->roles[0]->workers = 0;
    assert_int_equal(submit(daemon_rig_admin(rig), "request-1", spec, NULL, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "priority"));
    assert_non_null(strstr(err.text, "workers"));
    assert_int_equal(fake_store_count(rig->store, CHANGE_JOB), 0);
    pb__job_spec__free_unpacked(spec, NULL);
}

static void a_dry_run_stores_nothing(void **state)
{
    struct daemon_rig *rig = *state;
    Pb__SubmitRequest request = PB__SUBMIT_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;

    request.request_id = "request-1";
    request.spec = daemon_rig_spec("a", "default");
    request.has_dry_run = request.dry_run = true;
    assert_int_equal(daemon_rig_call(daemon_rig_admin(rig), "Submit", &request.base, &reply, NULL),
                     STATUS_OK);
    assert_non_null(strstr(((Pb__SubmitReply *)reply)->note, "fits nowhere: role ")); /* no node */
    protobuf_c_message_free_unpacked(reply, NULL);
    assert_int_equal(fake_store_count(rig->store, CHANGE_JOB), 0);
    pb__job_spec__free_unpacked(request.spec, NULL);
}

static void roles_and_projects_hold(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *ada = daemon_rig_client(rig, "user", "ada", "role=submitter,project=nlp");
    struct rpc_client *eve = daemon_rig_client(rig, "user", "eve", "role=viewer,project=*");
    struct rpc_client *admin = daemon_rig_admin(rig);
    Pb__JobSpec *foreign = daemon_rig_spec("a", "vision");
    Pb__CancelRequest cancel = PB__CANCEL_REQUEST__INIT;
    Pb__SetNodeRequest node = PB__SET_NODE_REQUEST__INIT;

    assert_int_equal(submit(ada, "request-1", foreign, NULL, NULL), STATUS_DENIED);
    assert_int_equal(submit(eve, "request-2", foreign, NULL, NULL), STATUS_DENIED);
    assert_true(daemon_rig_submit(ada, "request-3", daemon_rig_spec("b", "nlp")) > 0);
    cancel.request_id = "request-4";
    cancel.has_job = true;
    cancel.job = daemon_rig_submit(admin, "request-5", daemon_rig_spec("c", "vision"));
    assert_int_equal(daemon_rig_call(ada, "Cancel", &cancel.base, NULL, NULL), STATUS_DENIED);
    assert_int_equal(daemon_rig_call(admin, "Cancel", &cancel.base, NULL, NULL), STATUS_OK);
    node.request_id = "request-6";
    node.node = "n1";
    assert_int_equal(daemon_rig_call(ada, "SetNode", &node.base, NULL, NULL), STATUS_DENIED);
    assert_int_equal(daemon_rig_call(admin, "SetNode", &node.base, NULL, NULL), STATUS_NOT_FOUND);
    pb__job_spec__free_unpacked(foreign, NULL);
}

static void one_bad_entry_of_many_harms_no_other(void **state)
{
    struct daemon_rig *rig = *state;
    Pb__SubmitManyRequest many = PB__SUBMIT_MANY_REQUEST__INIT;
    Pb__SubmitRequest requests[3];
    Pb__SubmitRequest *list[3];
    static char *const ids[] = {"request-1", "bad", "request-3"};
    ProtobufCMessage *reply = NULL;

    for (size_t i = 0; i < 3; i++) {
        pb__submit_request__init(&requests[i]);
        requests[i].request_id = ids[i];
        requests[i].spec = daemon_rig_spec("a", "default");
        list[i] = &requests[i];
    }
    many.requests = list;
    many.n_requests = 3;
    assert_int_equal(daemon_rig_call(daemon_rig_admin(rig), "SubmitMany", &many.base, &reply, NULL),
                     STATUS_OK);
    Pb__SubmitManyReply *results = AS(Pb__SubmitManyReply, reply);
    assert_int_equal(results->n_results, 3);
    assert_true(results->results[0]->job > 0 && results->results[2]->job > 0);
    assert_int_equal(results->results[1]->status, STATUS_INVALID);
    assert_non_null(results->results[1]->error);
    protobuf_c_message_free_unpacked(reply, NULL);
    for (size_t i = 0; i < 3; i++)
        pb__job_spec__free_unpacked(requests[i].spec, NULL);
}

static void while_the_store_is_away_writes_say_try_again_and_reads_go_on(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    Pb__JobSpec *spec = daemon_rig_spec("b", "default");
    Pb__ListJobsRequest jobs = PB__LIST_JOBS_REQUEST__INIT;
    Pb__StatusRequest status = PB__STATUS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    struct error err = {0};
    struct core_health health;
    int64_t job = 0;

    daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    fake_store_set_usable(rig->store, false);
    DAEMON_RIG_UNTIL(rig, (core_health(rig->core, &health), !health.store_usable));
    assert_int_equal(submit(admin, "request-2", spec, NULL, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "same request id"));
    assert_int_equal(daemon_rig_call(admin, "ListJobs", &jobs.base, &reply, NULL), STATUS_OK);
    assert_int_equal(AS(Pb__ListJobsReply, reply)->n_jobs, 1);
    protobuf_c_message_free_unpacked(reply, NULL);
    assert_int_equal(daemon_rig_call(admin, "Status", &status.base, &reply, NULL), STATUS_OK);
    assert_false(AS(Pb__StatusReply, reply)->ready);
    protobuf_c_message_free_unpacked(reply, NULL);
    fake_store_set_usable(rig->store, true);
    DAEMON_RIG_UNTIL(rig, submit(admin, "request-2", spec, &job, NULL) == STATUS_OK);
    assert_int_equal(job, 2);
    pb__job_spec__free_unpacked(spec, NULL);
}

static void only_those_of_the_project_see_values_of_variables(void **state)
{
    struct daemon_rig *rig = *state;
    struct rpc_client *admin = daemon_rig_admin(rig);
    struct rpc_client *eve = daemon_rig_client(rig, "user", "eve", "role=viewer,project=*");
    Pb__ShowJobRequest show = PB__SHOW_JOB_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;

    show.has_job = true;
    show.job = daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    assert_int_equal(daemon_rig_call(admin, "ShowJob", &show.base, &reply, NULL), STATUS_OK);
    assert_string_equal(AS(Pb__ShowJobReply, reply)->job->spec->roles[0]->env[0]->value, "secret");
    assert_true(AS(Pb__ShowJobReply, reply)->n_events > 0);
    protobuf_c_message_free_unpacked(reply, NULL);
    assert_int_equal(daemon_rig_call(eve, "ShowJob", &show.base, &reply, NULL), STATUS_OK);
    assert_string_equal(AS(Pb__ShowJobReply, reply)->job->spec->roles[0]->env[0]->name, "TOKEN");
    assert_null(AS(Pb__ShowJobReply, reply)->job->spec->roles[0]->env[0]->value);
    protobuf_c_message_free_unpacked(reply, NULL);
    show.job = 99;
    assert_int_equal(daemon_rig_call(eve, "ShowJob", &show.base, NULL, NULL), STATUS_NOT_FOUND);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, daemon_rig_setup, daemon_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_retry_with_the_same_id_gets_the_same_job),
        TEST(a_job_without_its_code_is_refused),
        TEST(of_many_only_those_without_code_are_refused),
        TEST(a_short_request_id_is_refused),
        TEST(a_bad_spec_names_every_problem),
        TEST(a_dry_run_stores_nothing),
        TEST(roles_and_projects_hold),
        TEST(one_bad_entry_of_many_harms_no_other),
        TEST(while_the_store_is_away_writes_say_try_again_and_reads_go_on),
        TEST(only_those_of_the_project_see_values_of_variables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
