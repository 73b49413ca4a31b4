/* test_store_pg_care.c - what is old or unused goes, in batches; what is needed stays. */
#include "tests/unit/daemon/store_rig.h"

static struct rig rig;

static void make(const char *schema)
{
    rig_make_schema(&rig, schema);
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    rig_close(&rig);
}

static int64_t number(const char *sql)
{
    SCOPED_TEXT char *text = test_sql(rig.conninfo, sql);

    return strtoll(text, NULL, 10);
}

/* Jobs 1 (runs) and 2 (ended long ago) and 3 (ended lately), each with its code a, b, c. */
static void add_jobs(void)
{
    mem_free(test_sql(
        rig.conninfo,
        "insert into job (id, state, ended, version, attempt, ended_at, packed, spec, spec_json) "
        "select id, 'X', id > 1, 1, 1, case id when 2 then now() - interval '50 days' when 3 then "
        "now() end, '', '\\x0a0161', jsonb_build_object('code', jsonb_build_object('digest', "
        "chr(96 + id))) from generate_series(1, 3) id"));
}

static void add_events(void)
{
    mem_free(test_sql(rig.conninfo,
                      "insert into event (seq, at, kind, job) select s, now() - interval '1 day' * "
                      "(100 - s / 100), 'job.state', 1 + s % 3 from generate_series(1, 9000) s"));
}

static void old_events_go_but_not_those_of_jobs_that_run(void **state)
{
    (void)state;
    make("care_events");
    add_jobs();
    add_events();
    struct store_pg_options options = {
        .loop = test_loop, .conninfo = rig.conninfo, .holder = "one", .keep = {.events_days = 40}};
    assert_int_equal(store_pg_create(&options, &rig.store, NULL), STATUS_OK);
    rig_lead(&rig);
    for (int i = 0; i < 600 && number("select count(*) from event where job <> 1 and at < now() - "
                                      "interval '40 days 1 hour'") > 0;
         i++)
        test_sleep(100000);
    assert_int_equal(number("select count(*) from event where job <> 1 and at < now() - interval "
                            "'40 days 1 hour'"),
                     0);
    assert_int_equal(number("select count(*) from event where job = 1"), 3000);
    assert_true(number("select count(*) from event where job <> 1") > 1900);
    Pb__ListEventsRequest request = PB__LIST_EVENTS_REQUEST__INIT;
    request.has_after_seq = request.has_limit = true;
    request.limit = 10;
    const Pb__ListEventsReply *reply = rig_ask(&rig, &request);
    assert_int_equal(rig.st, STATUS_OK);
    assert_true(reply->pruned_through > 5900 && reply->pruned_through < 6200);
    assert_int_equal(reply->events[0]->job, 1);
    rig_close(&rig);
}

static void events_beyond_a_number_go(void **state)
{
    (void)state;
    make("care_count");
    add_jobs();
    add_events();
    assert_int_equal(number("select event_prune(0, 0, 1000)"), 0);
    assert_int_equal(number("select event_prune(0, 3000, 1000)"), 1000); /* a batch at a time */
    assert_int_equal(number("select min(seq) from event where job <> 1"), 1501);
    assert_int_equal(number("select event_prune(0, 3000, 100000)"), 3000);
    assert_int_equal(number("select count(*) from event where seq <= 6000"), 2000);
    assert_int_equal(number("select count(*) from event where seq > 6000"), 3000);
}

static void add_code(const char *digest, const char *age)
{
    SCOPED_TEXT char *sql = mem_printf("insert into code (digest, at, bytes, data) values ('%s', "
                                       "now() - interval '%s', 1, 'x')",
                                       digest, age);
    mem_free(test_sql(rig.conninfo, sql));
}

static bool has(const ProtobufCMessage *request)
{
    return ((const Pb__HaveCodeReply *)rig_ask(&rig, request))->have;
}

static void unused_code_goes_in_two_steps(void **state)
{
    Pb__HaveCodeRequest have = PB__HAVE_CODE_REQUEST__INIT;
    Pb__CodeUse use = PB__CODE_USE__INIT;
    Pb__CodeRow row = PB__CODE_ROW__INIT;

    (void)state;
    make("care_code");
    add_jobs();
    for (const char *digest = "a\0b\0c\0d\0e\0"; *digest; digest += 2)
        add_code(digest, *digest == 'e' ? "1 day" : "100 days");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    assert_int_equal(number("select code_prune(0, 10)"), 0);
    assert_int_equal(number("select code_prune(30, 10)"),
                     2); /* b: its job ended long ago; d: none */
    assert_int_equal(number("select count(*) from code"), 5);
    have.digest = use.digest = (char *)"b";
    assert_false(has(&have.base)); /* whoever asks now uploads anew */
    assert_true(has(&use.base));   /* who asked just before submits now, and that is well */
    row.digest = (char *)"b";
    row.has_data = row.has_at_us = true;
    row.at_us = 1700000000000000;
    row.data = (ProtobufCBinaryData){1, (uint8_t *)"x"};
    rig_add(&rig, CHANGE_CODE, &row);
    assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    assert_true(has(&have.base));
    mem_free(test_sql(rig.conninfo, "update code set doomed_at = now() - interval '2 hours' where "
                                    "digest in ('b', 'd')"));
    assert_false(has(&use.base));
    mem_free(test_sql(rig.conninfo, "update job set ended = false where id = 2"));
    assert_int_equal(number("select code_prune(30, 10)"), 1); /* d; b has a job again */
    assert_true(has(&have.base));
    assert_int_equal(number("select count(*) from code"), 4);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_events_go_but_not_those_of_jobs_that_run),
        cmocka_unit_test(events_beyond_a_number_go),
        cmocka_unit_test(unused_code_goes_in_two_steps),
    };

    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
