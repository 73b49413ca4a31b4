/* test_store_pg.c - rows come back as they went in; outcomes of commits; history. */
#include "tests/unit/daemon/store_rig.h"

static Pb__Role role = PB__ROLE__INIT;
static Pb__Role *roles[] = {&role};
static char *command[] = {(char *)"/bin/true", (char *)"x y"};
static Pb__JobSpec spec = PB__JOB_SPEC__INIT;

static Pb__Job make_job(int64_t id, Pb__Job__State state, uint64_t version)
{
    Pb__Job job = PB__JOB__INIT;

    role.name = (char *)"trainer";
    role.command = command;
    role.n_command = 2;
    spec.name = (char *)"tiny \"quoted\"";
    spec.project = (char *)"default";
    spec.roles = roles;
    spec.n_roles = 1;
    spec.has_priority = 1;
    spec.priority = 5;
    job.has_id = job.has_state = job.has_version = job.has_attempt = job.has_submitted_us = 1;
    job.id = id;
    job.spec = &spec;
    job.state = state;
    job.version = version;
    job.submitted_us = 1700000000000001;
    job.submitter = (char *)"user/ada";
    return job;
}

static Pb__Event make_event(int64_t seq, int64_t job)
{
    Pb__Event event = PB__EVENT__INIT;

    event.has_seq = event.has_at_us = event.has_job = 1;
    event.seq = seq;
    event.at_us = 1700000000000000 + seq;
    event.job = job;
    event.kind = (char *)"job.state";
    event.to = (char *)"QUEUED";
    return event;
}

static void leads_with_the_next_term_of_the_same_cluster(void **state)
{
    struct rig rig;
    char first[64];

    (void)state;
    rig_make_schema(&rig, "lead");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    assert_int_equal(rig.term, 1);
    assert_true(rig.usable);
    assert_true(strlen(rig.cluster) >= 16);
    snprintf(first, sizeof(first), "%s", rig.cluster);
    rig_restart(&rig);
    assert_int_equal(rig.term, 2);
    assert_string_equal(rig.cluster, first);
    rig_close(&rig);
}

static void loads_every_kind_as_it_was_committed(void **state)
{
    struct rig rig;
    Pb__Job job = make_job(7, PB__JOB__STATE__RUNNING, 3);
    Pb__Attempt attempt = PB__ATTEMPT__INIT;
    Pb__WorkerPlace place = PB__WORKER_PLACE__INIT, *places[] = {&place};
    Pb__Node node = PB__NODE__INIT;
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    Pb__Event event = make_event(11, 7);
    Pb__RequestRow request = PB__REQUEST_ROW__INIT;
    Pb__MarkRow mark = PB__MARK_ROW__INIT;
    Pb__ProjectRow project = PB__PROJECT_ROW__INIT;
    uint8_t bytes[] = {0, 255, 7};

    (void)state;
    attempt.has_job = attempt.has_number = 1;
    attempt.job = 7;
    attempt.number = 1;
    place.role = (char *)"trainer";
    place.node = (char *)"n1";
    attempt.places = places;
    attempt.n_places = 1;
    node.name = (char *)"n1";
    node.has_version = 1;
    node.version = 4;
    checkpoint.has_id = checkpoint.has_job = checkpoint.has_step = checkpoint.has_state = 1;
    checkpoint.id = 3;
    checkpoint.job = 7;
    checkpoint.step = 1LL << 40;
    checkpoint.state = PB__CHECKPOINT__STATE__COMMITTED;
    request.id = (char *)"request-1";
    request.has_at_us = request.has_digest = request.has_reply = 1;
    request.at_us = loop_wall_us(test_loop);
    request.digest = (ProtobufCBinaryData){3, bytes};
    request.reply = (ProtobufCBinaryData){0, NULL};
    mark.node = (char *)"n1";
    mark.spool_id = (char *)"s";
    mark.has_bulk_seq = 1;
    mark.bulk_seq = 1ULL << 63;
    project.name = (char *)"default";
    rig_make_schema(&rig, "kinds");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    rig_add(&rig, CHANGE_JOB, &job);
    rig_add(&rig, CHANGE_ATTEMPT, &attempt);
    rig_add(&rig, CHANGE_NODE, &node);
    rig_add(&rig, CHANGE_CHECKPOINT, &checkpoint);
    rig_add(&rig, CHANGE_EVENT, &event);
    rig_add(&rig, CHANGE_REQUEST, &request);
    rig_add(&rig, CHANGE_MARK, &mark);
    rig_add(&rig, CHANGE_PROJECT, &project);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    rig_restart(&rig);
    assert_int_equal(rig.rows_count, 8);
    assert_same(rig_loaded(&rig, CHANGE_JOB, 0), &job);
    assert_same(rig_loaded(&rig, CHANGE_ATTEMPT, 0), &attempt);
    assert_same(rig_loaded(&rig, CHANGE_NODE, 0), &node);
    assert_same(rig_loaded(&rig, CHANGE_CHECKPOINT, 0), &checkpoint);
    assert_same(rig_loaded(&rig, CHANGE_EVENT, 0), &event);
    assert_same(rig_loaded(&rig, CHANGE_REQUEST, 0), &request);
    assert_same(rig_loaded(&rig, CHANGE_MARK, 0), &mark);
    assert_same(rig_loaded(&rig, CHANGE_PROJECT, 0), &project);
    SCOPED_TEXT char *text =
        test_sql(rig.conninfo, "select state || ' ' || (spec_json->>'name') || "
                               "' ' || priority from job where id = 7");
    assert_string_equal(text, "RUNNING tiny \"quoted\" 5");
    rig_close(&rig);
}

static void an_update_keeps_the_spec_and_a_late_writer_loses(void **state)
{
    struct rig rig;
    Pb__Job job = make_job(1, PB__JOB__STATE__QUEUED, 1);
    Pb__Job bare;

    (void)state;
    rig_make_schema(&rig, "late");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    rig_add(&rig, CHANGE_JOB, &job);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    bare = make_job(1, PB__JOB__STATE__RUNNING, 5);
    bare.attempt = 2;
    bare.spec = NULL; /* not needed, and not looked at */
    rig_add(&rig, CHANGE_JOB, &bare);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    job.version = 4; /* older version */
    job.state = PB__JOB__STATE__FAILED;
    rig_add(&rig, CHANGE_JOB, &job);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    job.version = 9; /* older attempt */
    job.attempt = 1;
    rig_add(&rig, CHANGE_JOB, &job);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    rig_restart(&rig);
    const Pb__Job *loaded = rig_loaded(&rig, CHANGE_JOB, 0);
    assert_int_equal(loaded->state, PB__JOB__STATE__RUNNING);
    assert_int_equal(loaded->version, 5);
    assert_same(&loaded->spec->base, &spec);
    rig_close(&rig);
}

static void a_job_without_a_spec_is_never_inserted(void **state)
{
    struct rig rig;
    Pb__Job job = make_job(5, PB__JOB__STATE__QUEUED, 1), lost = make_job(3, 1, 7);

    (void)state;
    rig_make_schema(&rig, "bare");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    rig_add(&rig, CHANGE_JOB, &job);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    rig_add(&rig, CHANGE_JOB, &lost); /* an update of a row that is not there */
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_INVALID);
    assert_non_null(strstr(rig.err.text, "job 3 has no spec"));
    rig_close(&rig);
}

static void two_changes_of_one_row_in_a_batch_keep_the_later(void **state)
{
    struct rig rig;
    Pb__Job a = make_job(1, PB__JOB__STATE__QUEUED, 1),
            b = make_job(1, PB__JOB__STATE__STARTING, 2);

    (void)state;
    rig_make_schema(&rig, "twice");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    rig_add(&rig, CHANGE_JOB, &a);
    rig_add(&rig, CHANGE_JOB, &b);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    rig_restart(&rig);
    assert_int_equal(((Pb__Job *)rig_loaded(&rig, CHANGE_JOB, 0))->version, 2);
    rig_close(&rig);
}

static void text_that_is_no_utf8_refuses_nothing(void **state)
{
    struct rig rig;
    Pb__Event event = make_event(1, 7);

    (void)state;
    event.text = (char *)"bad \xff byte \xe2\x82\xac";
    rig_make_schema(&rig, "utf");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    rig_add(&rig, CHANGE_EVENT, &event);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    rig_restart(&rig);
    assert_string_equal(((Pb__Event *)rig_loaded(&rig, CHANGE_EVENT, 0))->text,
                        "bad ? byte \xe2\x82\xac");
    rig_close(&rig);
}

static void a_refused_batch_changes_nothing_and_the_next_goes_on(void **state)
{
    struct rig rig;
    Pb__Event event = make_event(1, 7), other = make_event(2, 7);

    (void)state;
    rig_make_schema(&rig, "refused");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    rig.number[STORE_STATE] = 0; /* the same number again */
    rig_add(&rig, CHANGE_EVENT, &event);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_INVALID);
    rig_add(&rig, CHANGE_EVENT, &other);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    SCOPED_TEXT char *n = test_sql(rig.conninfo, "select string_agg(seq::text, ',') from event");
    assert_string_equal(n, "2");
    rig_close(&rig);
}

static void a_batch_is_done_or_not_found(void **state)
{
    struct rig rig;

    (void)state;
    rig_make_schema(&rig, "done");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    assert_int_equal(rig_batch_done(&rig, STORE_STATE, 1), STATUS_OK);
    assert_int_equal(rig_batch_done(&rig, STORE_STATE, 2), STATUS_NOT_FOUND);
    assert_int_equal(rig_batch_done(&rig, STORE_BULK, 1), STATUS_NOT_FOUND);
    rig_close(&rig);
}

static void batch_rows_are_pruned(void **state)
{
    struct rig rig;

    (void)state;
    rig_make_schema(&rig, "prune");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    for (int i = 0; i < 1500; i++)
        assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    SCOPED_TEXT char *n = test_sql(rig.conninfo, "select count(*) from batch");
    assert_string_equal(n, "1000");
    assert_int_equal(rig_batch_done(&rig, STORE_STATE, 1500), STATUS_OK);
    rig_close(&rig);
}

static void comes_back_after_its_sessions_are_ended(void **state)
{
    struct rig rig;
    Pb__Event event = make_event(1, 7);

    (void)state;
    rig_make_schema(&rig, "away");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    mem_free(test_sql(rig.conninfo, "select pg_terminate_backend(pid) from pg_stat_activity where "
                                    "application_name like 'rondod %'"));
    for (int i = 0; i < WAIT_S * 100 && rig.usable; i++)
        test_sleep(1000);
    assert_false(rig.usable);
    assert_false(rig.fenced);
    rig_add(&rig, CHANGE_EVENT, &event);
    enum status st = rig_commit(&rig, STORE_STATE); /* its lane may not have noticed yet */
    assert_true(st == STATUS_UNAVAILABLE || st == STATUS_UNKNOWN);
    for (int i = 0; i < WAIT_S * 100 && !rig.usable; i++)
        test_sleep(10000);
    assert_true(rig.usable);
    assert_int_equal(rig_batch_done(&rig, STORE_STATE, 1), STATUS_NOT_FOUND);
    rig.number[STORE_STATE] = 0;
    rig_add(&rig, CHANGE_EVENT, &event);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    assert_int_equal(rig_batch_done(&rig, STORE_STATE, 1), STATUS_OK);
    rig_close(&rig);
}

/* However the connection dies, batch_done tells the truth about the batch in flight. */
static void an_unknown_outcome_is_settled_by_batch_done(void **state)
{
    struct rig rig;

    (void)state;
    rig_make_schema(&rig, "unknown");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    for (int i = 1; i <= 6; i++) {
        struct batch batch;
        Pb__Event event = make_event(i, 7);
        rig_add(&rig, CHANGE_EVENT, &event);
        rig_commit_start(&rig, &batch, STORE_STATE);
        mem_free(test_sql(rig.conninfo,
                          "select pg_terminate_backend(pid, 5000) from "
                          "pg_stat_activity where application_name = 'rondod state'"));
        test_wait(&rig.committed);
        assert_true(rig.st == STATUS_UNKNOWN || rig.st == STATUS_OK);
        bool was_ok = rig.st == STATUS_OK;
        for (int k = 0; k < WAIT_S * 100 && (rig.state_changes == 0 || !rig.usable); k++)
            test_sleep(10000);
        enum status st;
        while ((st = rig_batch_done(&rig, STORE_STATE, batch.number)) == STATUS_UNAVAILABLE)
            test_sleep(10000);
        SCOPED_TEXT char *sql = mem_printf("select count(*) from event where seq = %d", i);
        SCOPED_TEXT char *n = test_sql(rig.conninfo, sql);
        assert_string_equal(n, st == STATUS_OK ? "1" : "0");
        if (was_ok)
            assert_int_equal(st, STATUS_OK);
    }
    rig_close(&rig);
}

static void survives_a_killed_server(void **state)
{
    struct rig rig;
    Pb__Event event = make_event(1, 7);

    (void)state;
    rig_make_schema(&rig, "killed");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    assert_int_equal(kill(cluster_pid(rig_cluster), SIGKILL), 0);
    for (int i = 0; i < WAIT_S * 1000 && rig.usable; i++)
        test_sleep(1000);
    for (int i = 0; i < WAIT_S * 100 && !rig.usable; i++)
        test_sleep(10000);
    assert_true(rig.usable);
    rig_add(&rig, CHANGE_EVENT, &event);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    rig_close(&rig);
}

static void a_newer_term_fences(void **state)
{
    struct rig rig;
    Pb__Event event = make_event(1, 7);

    (void)state;
    rig_make_schema(&rig, "fence");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    mem_free(test_sql(rig.conninfo, "update leadership set term = term + 1"));
    rig_add(&rig, CHANGE_EVENT, &event);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_ABORTED);
    assert_true(rig.fenced);
    assert_int_equal(rig_commit(&rig, STORE_BULK), STATUS_ABORTED);
    SCOPED_TEXT char *n = test_sql(rig.conninfo, "select count(*) from event");
    assert_string_equal(n, "0");
    rig_close(&rig);
}

static void a_standby_waits_then_takes_over_from_a_closed_leader(void **state)
{
    struct rig a, b;

    (void)state;
    rig_make_schema(&a, "standby");
    b = a;
    rig_create(&a, "one", 0);
    rig_lead(&a);
    rig_create(&b, "two", 0);
    rig_lead_start(&b);
    test_sleep(500000);
    assert_false(b.led);
    rig_close(&a);
    test_wait(&b.led);
    assert_int_equal(b.lead_st, STATUS_OK);
    assert_int_equal(b.term, 2);
    rig_close(&b);
}

static void a_standby_evicts_a_leader_whose_lease_ran_out(void **state)
{
    struct rig a, b;

    (void)state;
    rig_make_schema(&a, "evict");
    b = a;
    rig_create(&a, "one", 3600000); /* renews in a quarter of an hour */
    rig_lead(&a);
    rig_create(&b, "two", 0);
    rig_lead_start(&b);
    SCOPED_TEXT char *name = test_sql(a.conninfo, "select current_database()");
    SCOPED_TEXT char *other = mem_printf("%s dbname=template1", a.conninfo);
    SCOPED_TEXT char *shut = mem_printf("alter database %s allow_connections false", name);
    SCOPED_TEXT char *open = mem_printf("alter database %s allow_connections true", name);
    for (int i = 0; i < WAIT_S && !b.led; i++) {
        mem_free(test_sql(a.conninfo, "update leadership set lease_until = '-infinity'"));
        mem_free(test_sql(other, shut)); /* a leader that lives would win its lock back */
        test_sleep(1000000);
        mem_free(test_sql(other, open));
        test_sleep(300000);
    }
    assert_true(b.led);
    assert_int_equal(b.lead_st, STATUS_OK);
    for (int i = 0; i < WAIT_S * 100 && !a.fenced; i++)
        test_sleep(10000);
    assert_true(a.fenced);
    assert_int_equal(rig_commit(&a, STORE_STATE), STATUS_ABORTED);
    assert_int_equal(rig_commit(&b, STORE_STATE), STATUS_OK);
    rig_close(&a);
    rig_close(&b);
}

static void a_newer_schema_is_refused(void **state)
{
    struct rig rig;

    (void)state;
    rig_make_schema(&rig, "newer");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    mem_free(test_sql(rig.conninfo, "insert into schema_migration values (9999, 'future')"));
    rig_close(&rig);
    rig_create(&rig, "one", 0);
    rig_lead_start(&rig);
    test_wait(&rig.led);
    assert_int_equal(rig.lead_st, STATUS_PRECONDITION);
    rig_close(&rig);
}

static void conninfo_that_would_block_is_refused(void **state)
{
    struct store_pg_options options = {.loop = test_loop, .conninfo = "host=localhost dbname=x"};
    struct store *store;
    struct error err;

    (void)state;
    assert_int_equal(store_pg_create(&options, &store, &err), STATUS_INVALID);
    options.conninfo = "nonsense";
    assert_int_equal(store_pg_create(&options, &store, &err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leads_with_the_next_term_of_the_same_cluster),
        cmocka_unit_test(loads_every_kind_as_it_was_committed),
        cmocka_unit_test(an_update_keeps_the_spec_and_a_late_writer_loses),
        cmocka_unit_test(a_job_without_a_spec_is_never_inserted),
        cmocka_unit_test(two_changes_of_one_row_in_a_batch_keep_the_later),
        cmocka_unit_test(text_that_is_no_utf8_refuses_nothing),
        cmocka_unit_test(a_refused_batch_changes_nothing_and_the_next_goes_on),
        cmocka_unit_test(a_batch_is_done_or_not_found),
        cmocka_unit_test(batch_rows_are_pruned),
        cmocka_unit_test(comes_back_after_its_sessions_are_ended),
        cmocka_unit_test(an_unknown_outcome_is_settled_by_batch_done),
        cmocka_unit_test(survives_a_killed_server),
        cmocka_unit_test(a_newer_term_fences),
        cmocka_unit_test(a_standby_waits_then_takes_over_from_a_closed_leader),
        cmocka_unit_test(a_standby_evicts_a_leader_whose_lease_ran_out),
        cmocka_unit_test(a_newer_schema_is_refused),
        cmocka_unit_test(conninfo_that_would_block_is_refused),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
