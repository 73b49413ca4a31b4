/* test_store_pg_lane.c - migrations: by one at a time, each whole or not at all; transactions that
 * the database breaks off. */
#include "tests/unit/daemon/store_rig.h"

static const char *applied(const struct rig *rig, char *out, size_t cap)
{
    SCOPED_TEXT char *numbers =
        test_sql(rig->conninfo, "select coalesce(string_agg(number::text, ',' order by number), '')"
                                " from schema_migration");
    snprintf(out, cap, "%s", numbers ? numbers : "");
    return out;
}

#define ALL_OF_THEM "1,2,3,4" /* numbers of daemon/sql */

/* M42: a start that fails in the middle of a migration leaves nothing of it; the next one does it
 * from its beginning. */
static void m42_a_migration_is_applied_whole_or_not_at_all(void **state)
{
    struct rig rig;
    char numbers[64];

    (void)state;
    rig_make_schema(&rig, "halfway");
    mem_free(test_sql(rig.conninfo, "create table code (in_the_way int)")); /* the last of 0001 */
    rig_create(&rig, "one", 0);
    rig_lead_start(&rig);
    test_wait(&rig.led);
    assert_int_not_equal(rig.lead_st, STATUS_OK);
    assert_non_null(strstr(rig.err.text, "migration"));
    rig_close(&rig);
    SCOPED_TEXT char *tables = test_sql(rig.conninfo, "select count(*) from pg_tables where "
                                                      "schemaname = 'halfway' and tablename in "
                                                      "('job', 'batch', 'attempt')");
    assert_string_equal(tables, "0");
    assert_string_equal(applied(&rig, numbers, sizeof(numbers)), "");
    mem_free(test_sql(rig.conninfo, "drop table code"));
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    assert_string_equal(applied(&rig, numbers, sizeof(numbers)), ALL_OF_THEM);
    rig_close(&rig);
}

/* M42: nor is one applied that is not written down: it would be applied again. */
static void m42_a_migration_and_its_row_are_one(void **state)
{
    struct rig rig;
    char numbers[64];

    (void)state;
    rig_make_schema(&rig, "unwritten");
    mem_free(test_sql(rig.conninfo, "create table schema_migration (number int primary key check "
                                    "(number <> 2), name text not null, applied_at timestamptz "
                                    "not null default now())"));
    rig_create(&rig, "one", 0);
    rig_lead_start(&rig);
    test_wait(&rig.led);
    assert_int_not_equal(rig.lead_st, STATUS_OK);
    rig_close(&rig);
    SCOPED_TEXT char *tables = test_sql(rig.conninfo, "select count(*) from pg_tables where "
                                                      "schemaname = 'unwritten' and tablename in "
                                                      "('job', 'metric_series')");
    assert_string_equal(tables, "1");
    assert_string_equal(applied(&rig, numbers, sizeof(numbers)), "1");
    mem_free(test_sql(rig.conninfo, "alter table schema_migration drop constraint "
                                    "schema_migration_number_check"));
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    assert_string_equal(applied(&rig, numbers, sizeof(numbers)), ALL_OF_THEM);
    rig_close(&rig);
}

/* M42: daemons that start together on an empty database: one migrates, all others wait for it. */
static void m42_one_migrator_at_a_time(void **state)
{
    enum { MANY = 4 };
    struct rig rigs[MANY];
    char numbers[64];
    size_t leaders = 0;

    (void)state;
    rig_make_schema(&rigs[0], "together");
    for (size_t i = 1; i < MANY; i++)
        rigs[i] = rigs[0];
    for (size_t i = 0; i < MANY; i++) {
        char holder[16];
        snprintf(holder, sizeof(holder), "d%zu", i);
        rig_create(&rigs[i], holder, 0);
        rig_lead_start(&rigs[i]);
    }
    for (int i = 0; i < WAIT_S * 100 && leaders == 0; i++) {
        test_sleep(10000);
        for (size_t k = 0; k < MANY; k++)
            leaders += rigs[k].led;
    }
    test_sleep(500000);
    leaders = 0;
    for (size_t k = 0; k < MANY; k++) {
        leaders += rigs[k].led;
        assert_true(!rigs[k].led || rigs[k].lead_st == STATUS_OK);
    }
    assert_int_equal(leaders, 1);
    assert_string_equal(applied(&rigs[0], numbers, sizeof(numbers)), ALL_OF_THEM);
    for (size_t i = 0; i < MANY; i++)
        rig_close(&rigs[i]);
}

/* M42: a deadlock or a serialization failure changes nothing, is told as "try again", and the same
 * rows go in afterwards. */
static void m42_a_transaction_that_was_broken_off_may_be_repeated(void **state)
{
    static const char *const states[] = {"40P01", "40001", "57014", "53100"};
    struct rig rig;
    Pb__ProjectRow project = PB__PROJECT_ROW__INIT;

    (void)state;
    rig_make_schema(&rig, "broken_off");
    rig_create(&rig, "one", 0);
    rig_lead(&rig);
    mem_free(test_sql(rig.conninfo, "create sequence tries"));
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        char name[16];
        SCOPED_TEXT char *sql = mem_printf(
            "create or replace function break_off() returns trigger language plpgsql as $$ begin "
            "if nextval('tries') = 1 then raise exception 'broken off' using errcode = '%s'; "
            "end if; return new; end $$; alter sequence tries restart; "
            "drop trigger if exists break_off on project; create trigger break_off before insert "
            "on project for each row execute function break_off()",
            states[i]);
        mem_free(test_sql(rig.conninfo, sql));
        snprintf(name, sizeof(name), "p%zu", i);
        project.name = name;
        rig_add(&rig, CHANGE_PROJECT, &project);
        assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_UNAVAILABLE);
        assert_true(rig.usable && !rig.fenced); /* the session lives, the lead is kept */
        rig_add(&rig, CHANGE_PROJECT, &project);
        assert_int_equal(rig_commit(&rig, STORE_STATE), STATUS_OK);
    }
    SCOPED_TEXT char *count =
        test_sql(rig.conninfo, "select count(*) from project where name in ('p0','p1','p2','p3')");
    assert_string_equal(count, "4");
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(m42_a_migration_is_applied_whole_or_not_at_all),
        cmocka_unit_test(m42_a_migration_and_its_row_are_one),
        cmocka_unit_test(m42_one_migrator_at_a_time),
        cmocka_unit_test(m42_a_transaction_that_was_broken_off_may_be_repeated),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
