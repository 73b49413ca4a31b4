/* test_store_pg_history.c - questions about what memory does not hold. */
#include "tests/unit/daemon/store_rig.h"

static Pb__Role role = PB__ROLE__INIT;
static Pb__Role *roles[] = {&role};
static char *command[] = {(char *)"/bin/true"};
static Pb__JobSpec spec = PB__JOB_SPEC__INIT;
static struct rig rig;

static void add_job(int64_t id)
{
    static Pb__Job jobs[8];
    Pb__Job *job = &jobs[id];

    pb__job__init(job);
    job->id = id;
    job->has_id = job->has_state = job->has_version = 1;
    job->version = 1;
    job->state = id <= 3 ? PB__JOB__STATE__SUCCEEDED : PB__JOB__STATE__QUEUED;
    job->spec = &spec;
    rig_add(&rig, CHANGE_JOB, job);
}

static void add_event(int64_t seq, int64_t job, const char *node)
{
    static Pb__Event events[16];
    Pb__Event *event = &events[seq];

    pb__event__init(event);
    event->has_seq = 1;
    event->seq = seq;
    event->has_job = job != 0;
    event->job = job;
    event->node = (char *)(uintptr_t)node;
    rig_add(&rig, CHANGE_EVENT, event);
}

static int setup(void **state)
{
    static Pb__CodeRow code = PB__CODE_ROW__INIT;
    static Pb__Attempt attempt = PB__ATTEMPT__INIT;
    static Pb__WorkerPlace place = PB__WORKER_PLACE__INIT, *places[] = {&place};
    static Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    static uint8_t bytes[1 << 20];

    rig_setup(state);
    role.name = (char *)"main";
    role.command = command;
    role.n_command = 1;
    spec.name = (char *)"a";
    spec.project = (char *)"p";
    spec.roles = roles;
    spec.n_roles = 1;
    rig_make_schema(&rig, "history");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    for (int64_t id = 1; id <= 5; id++)
        add_job(id);
    for (int64_t seq = 1; seq <= 9; seq++)
        add_event(seq, seq % 2 ? 1 : 2, seq > 6 ? "n1" : NULL);
    code.digest = (char *)"abc";
    code.has_data = 1;
    code.data = (ProtobufCBinaryData){sizeof(bytes), bytes};
    rig_add(&rig, CHANGE_CODE, &code);
    attempt.has_job = attempt.has_number = 1;
    attempt.job = 1;
    attempt.number = 1;
    attempt.places = places;
    attempt.n_places = 1;
    place.role = (char *)"main";
    place.has_ended = place.ended = 1;
    rig_add(&rig, CHANGE_ATTEMPT, &attempt);
    checkpoint.has_id = checkpoint.has_job = 1;
    checkpoint.id = 4;
    checkpoint.job = 1;
    rig_add(&rig, CHANGE_CHECKPOINT, &checkpoint);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    return 0;
}

static int teardown(void **state)
{
    rig_close(&rig);
    return rig_teardown(state);
}

static void lists_jobs_newest_first_by_pages(void **state)
{
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;

    (void)state;
    request.has_limit = 1;
    request.limit = 2;
    const Pb__ListJobsReply *reply = rig_ask(&rig, &request);
    assert_int_equal(rig.st, STATUS_OK);
    assert_int_equal(reply->n_jobs, 2);
    assert_int_equal(reply->jobs[0]->id, 5);
    assert_int_equal(reply->next_before, 4);
    assert_string_equal(reply->jobs[0]->spec->roles[0]->command[0], "/bin/true");
    request.has_before = 1;
    request.before = 2;
    request.brief = request.has_brief = 1;
    reply = rig_ask(&rig, &request);
    assert_int_equal(reply->n_jobs, 1);
    assert_int_equal(reply->jobs[0]->id, 1);
    assert_false(reply->has_next_before);
    assert_int_equal(reply->jobs[0]->spec->roles[0]->n_command, 0);
}

static void filters_jobs(void **state)
{
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    int64_t ids[] = {1, 4, 99};
    Pb__Job__State states[] = {PB__JOB__STATE__SUCCEEDED};

    (void)state;
    request.filter = &filter;
    filter.ids = ids;
    filter.n_ids = 3;
    assert_int_equal(((const Pb__ListJobsReply *)rig_ask(&rig, &request))->n_jobs, 2);
    filter.states = states;
    filter.n_states = 1;
    assert_int_equal(((const Pb__ListJobsReply *)rig_ask(&rig, &request))->n_jobs, 1);
    filter = (Pb__JobFilter)PB__JOB_FILTER__INIT;
    filter.has_active = filter.active = 1;
    assert_int_equal(((const Pb__ListJobsReply *)rig_ask(&rig, &request))->n_jobs, 2);
    filter.project = (char *)"other";
    assert_int_equal(((const Pb__ListJobsReply *)rig_ask(&rig, &request))->n_jobs, 0);
    filter.project = (char *)"p";
    filter.name = (char *)"a";
    assert_int_equal(((const Pb__ListJobsReply *)rig_ask(&rig, &request))->n_jobs, 2);
}

static void lists_events_after_a_seq_or_the_newest(void **state)
{
    Pb__ListEventsRequest request = PB__LIST_EVENTS_REQUEST__INIT;

    (void)state;
    request.has_limit = 1;
    request.limit = 3;
    const Pb__ListEventsReply *reply = rig_ask(&rig, &request);
    assert_int_equal(reply->n_events, 3);
    assert_int_equal(reply->events[0]->seq, 7);
    request.has_after_seq = 1;
    request.after_seq = 2;
    reply = rig_ask(&rig, &request);
    assert_int_equal(reply->events[0]->seq, 3);
    assert_int_equal(reply->events[2]->seq, 5);
    request.has_job = 1;
    request.job = 2;
    reply = rig_ask(&rig, &request);
    assert_int_equal(reply->events[0]->seq, 4);
    request.node = (char *)"n1";
    reply = rig_ask(&rig, &request);
    assert_int_equal(reply->n_events, 1);
    assert_int_equal(reply->events[0]->seq, 8);
}

static void shows_a_job_with_all_that_belongs_to_it(void **state)
{
    Pb__ShowJobRequest request = PB__SHOW_JOB_REQUEST__INIT;

    (void)state;
    request.has_job = 1;
    request.job = 1;
    const Pb__ShowJobReply *reply = rig_ask(&rig, &request);
    assert_int_equal(reply->job->id, 1);
    assert_int_equal(reply->n_attempts, 1);
    assert_int_equal(reply->n_workers, 1);
    assert_int_equal(reply->n_checkpoints, 1);
    assert_int_equal(reply->n_events, 5);
    request.job = 77;
    assert_null(rig_ask(&rig, &request));
    assert_int_equal(rig.st, STATUS_NOT_FOUND);
}

static void finds_code_by_its_digest(void **state)
{
    Pb__CodeQuery request = PB__CODE_QUERY__INIT;
    Pb__HaveCodeRequest have = PB__HAVE_CODE_REQUEST__INIT;

    (void)state;
    request.digest = (char *)"abc";
    const Pb__CodeRow *row = rig_ask(&rig, &request);
    assert_int_equal(row->data.len, 1 << 20);
    request.digest = (char *)"none";
    assert_null(rig_ask(&rig, &request));
    assert_int_equal(rig.st, STATUS_NOT_FOUND);
    have.digest = (char *)"abc";
    assert_true(((const Pb__HaveCodeReply *)rig_ask(&rig, &have))->have);
    have.digest = (char *)"none";
    assert_false(((const Pb__HaveCodeReply *)rig_ask(&rig, &have))->have);
}

static void refuses_what_it_does_not_know(void **state)
{
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;

    (void)state;
    assert_null(rig_ask(&rig, &request));
    assert_int_equal(rig.st, STATUS_UNIMPLEMENTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_jobs_newest_first_by_pages),
        cmocka_unit_test(filters_jobs),
        cmocka_unit_test(lists_events_after_a_seq_or_the_newest),
        cmocka_unit_test(shows_a_job_with_all_that_belongs_to_it),
        cmocka_unit_test(finds_code_by_its_digest),
        cmocka_unit_test(refuses_what_it_does_not_know),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
