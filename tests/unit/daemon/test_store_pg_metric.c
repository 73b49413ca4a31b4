/* test_store_pg_metric.c - points are kept exactly; the effective view; thinning; losses. */
#include "tests/unit/daemon/store_rig.h"
#include <float.h>
#include <math.h>

#define REPORTS_MAX 64

/* Reports of one worker with one double ("loss") and one integer ("tokens") each. */
struct reports {
    Pb__ReportBatch batch;
    Pb__Report reports[REPORTS_MAX], *list[REPORTS_MAX];
    double values[REPORTS_MAX];
    int64_t integers[REPORTS_MAX];
};
static char *names[] = {(char *)"loss", (char *)"tokens"};

static void fill(struct reports *r, uint32_t attempt, uint32_t incarnation, int64_t first, size_t n)
{
    pb__report_batch__init(&r->batch);
    r->batch.job = 7;
    r->batch.attempt = attempt;
    r->batch.incarnation = incarnation;
    r->batch.role = (char *)"trainer";
    r->batch.reports = r->list;
    r->batch.n_reports = n;
    for (size_t i = 0; i < n; i++) {
        Pb__Report *report = r->list[i] = &r->reports[i];
        pb__report__init(report);
        report->step = first + (int64_t)i;
        report->t_us = report->step * 1000;
        report->names = names;
        report->n_names = 2;
        report->values = &r->values[i];
        report->integers = &r->integers[i];
        report->n_values = report->n_integers = 1;
        r->values[i] = attempt + (double)report->step / 1000;
        r->integers[i] = (int64_t)attempt * 1000000 + report->step;
    }
}

static void store_reports(struct rig *rig, struct reports *r)
{
    rig_add(rig, CHANGE_REPORTS, &r->batch);
    assert_int_equal(rig_commit(rig, STORE_BULK), STATUS_OK);
}

static void open_rig(struct rig *rig, const char *schema)
{
    rig_make_schema(rig, schema);
    rig_create(rig, "one", 0);
    rig_lead(rig);
}

static const Pb__MetricsReply *ask(struct rig *rig, const char *name, uint32_t attempt,
                                   uint32_t points_max)
{
    Pb__MetricsRequest request = PB__METRICS_REQUEST__INIT;
    char *wanted[] = {(char *)(uintptr_t)name};

    request.has_job = 1;
    request.job = 7;
    request.names = wanted;
    request.n_names = name ? 1 : 0;
    request.has_attempt = request.has_points_max = 1;
    request.attempt = attempt;
    request.points_max = points_max;
    const Pb__MetricsReply *reply = rig_ask(rig, &request);
    if (rig->st != STATUS_OK)
        print_error("metrics: %s\n", rig->err.text);
    assert_int_equal(rig->st, STATUS_OK);
    return reply;
}

static void numbers_survive_exactly(void **state)
{
    const double doubles[] = {NAN, INFINITY, -INFINITY, -0.0, DBL_MIN / 8, DBL_MAX, 0.1};
    const int64_t integers[] = {INT64_MIN, INT64_MAX, (1LL << 53) + 1, 0, -1, 1, 42};
    struct rig rig;
    struct reports r;

    (void)state;
    open_rig(&rig, "exact");
    fill(&r, 1, 1, 1, 7);
    memcpy(r.values, doubles, sizeof(doubles));
    memcpy(r.integers, integers, sizeof(integers));
    store_reports(&rig, &r);
    const Pb__MetricsReply *reply = ask(&rig, NULL, 0, 0);
    assert_int_equal(reply->n_series, 2);
    assert_string_equal(reply->series[0]->name, "loss");
    assert_string_equal(reply->series[1]->name, "tokens");
    assert_int_equal(reply->series[0]->n_values, 7);
    assert_int_equal(reply->series[0]->n_integers, 0);
    assert_memory_equal(reply->series[0]->values, doubles, sizeof(doubles));
    assert_memory_equal(reply->series[1]->integers, integers, sizeof(integers));
    assert_int_equal(reply->series[0]->t_us[6], 7000);
    assert_int_equal(reply->through_step, 7);
    SCOPED_TEXT char *text =
        test_sql(rig.conninfo, "select string_agg(value::text, ' ') from metric_points(7, 'loss')");
    assert_int_equal(strncmp(text, "NaN Infinity -Infinity -0 ", 26), 0);
    SCOPED_TEXT char *max = test_sql(rig.conninfo, "select max(number) from metric_points(7, "
                                                   "'tokens')");
    assert_string_equal(max, "9223372036854775807");
    rig_close(&rig);
}

static void put_attempt(struct rig *rig, uint32_t number, int64_t resume)
{
    Pb__Attempt attempt = PB__ATTEMPT__INIT;

    attempt.has_job = attempt.has_number = attempt.has_resume_checkpoint = 1;
    attempt.job = 7;
    attempt.number = number;
    attempt.resume_checkpoint = resume;
    rig_add(rig, CHANGE_ATTEMPT, &attempt);
    assert_int_equal(rig_commit(rig, STORE_STATE), STATUS_OK);
}

static void put_checkpoint(struct rig *rig, int64_t id, int64_t step)
{
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;

    checkpoint.has_id = checkpoint.has_job = checkpoint.has_step = 1;
    checkpoint.id = id;
    checkpoint.job = 7;
    checkpoint.step = step;
    rig_add(rig, CHANGE_CHECKPOINT, &checkpoint);
    assert_int_equal(rig_commit(rig, STORE_STATE), STATUS_OK);
}

static void a_superseded_attempt_counts_to_where_its_successor_resumed(void **state)
{
    struct rig rig;
    struct reports r;

    (void)state;
    open_rig(&rig, "effective");
    put_checkpoint(&rig, 1, 20);
    put_checkpoint(&rig, 2, 10);
    put_attempt(&rig, 1, 0);
    put_attempt(&rig, 2, 1);
    put_attempt(&rig, 3, 2); /* checkpoint 1 was damaged: back to an older one */
    fill(&r, 1, 1, 1, 30);
    store_reports(&rig, &r);
    fill(&r, 2, 1, 21, 30);
    store_reports(&rig, &r);
    fill(&r, 3, 1, 11, 30);
    store_reports(&rig, &r);
    const Pb__MetricsReply *reply = ask(&rig, "loss", 0, 0);
    assert_int_equal(reply->n_series, 2);
    assert_int_equal(reply->series[0]->attempt, 1);
    assert_int_equal(reply->series[0]->n_steps, 10);
    assert_int_equal(reply->series[1]->attempt, 3);
    assert_int_equal(reply->series[1]->n_steps, 30);
    assert_int_equal(reply->series[1]->steps[0], 11);
    reply = ask(&rig, "loss", 2, 0);
    assert_int_equal(reply->n_series, 1);
    assert_int_equal(reply->series[0]->n_steps, 30);
    SCOPED_TEXT char *n = test_sql(rig.conninfo, "select count(*) filter (where effective) || '/' "
                                                 "|| count(*) from metric_points(7, 'loss')");
    assert_string_equal(n, "40/90");
    rig_close(&rig);
}

static void a_restart_from_the_beginning_supersedes_everything(void **state)
{
    struct rig rig;
    struct reports r;

    (void)state;
    open_rig(&rig, "over");
    put_attempt(&rig, 1, 0);
    put_attempt(&rig, 2, 0);
    fill(&r, 1, 1, 0, 10);
    store_reports(&rig, &r);
    assert_int_equal(ask(&rig, "loss", 0, 0)->n_series, 0);
    rig_close(&rig);
}

static void an_incarnation_supersedes_the_steps_it_repeats(void **state)
{
    struct rig rig;
    struct reports r;

    (void)state;
    open_rig(&rig, "incarnation");
    put_attempt(&rig, 1, 0);
    fill(&r, 1, 1, 1, 20);
    store_reports(&rig, &r);
    fill(&r, 1, 2, 11, 20);
    store_reports(&rig, &r);
    const Pb__MetricsReply *reply = ask(&rig, "tokens", 0, 0);
    assert_int_equal(reply->n_series, 1);
    assert_int_equal(reply->series[0]->n_steps, 30);
    for (size_t i = 0; i < 30; i++)
        assert_int_equal(reply->series[0]->steps[i], 1 + i);
    rig_close(&rig);
}

static void thinning_is_even_and_keeps_the_newest(void **state)
{
    struct rig rig;
    struct reports r;

    (void)state;
    open_rig(&rig, "thin");
    for (int i = 0; i < 10; i++) {
        fill(&r, 1, 1, 1 + i * 60, 60);
        store_reports(&rig, &r);
    }
    const Pb__MetricsReply *reply = ask(&rig, "loss", 0, 100);
    assert_int_equal(reply->n_series, 1);
    const Pb__Series *series = reply->series[0];
    assert_in_range(series->n_steps, 100, 101);
    assert_int_equal(series->steps[0], 1);
    assert_int_equal(series->steps[1], 7);
    assert_int_equal(series->steps[series->n_steps - 1], 600);
    assert_int_equal(reply->through_step, 600);
    assert_int_equal(ask(&rig, "loss", 0, 1)->series[0]->n_steps, 2);
    rig_close(&rig);
}

static void a_mark_is_stored_with_the_reports_or_not_at_all(void **state)
{
    struct rig rig;
    struct reports r;
    Pb__MarkRow mark = PB__MARK_ROW__INIT;

    (void)state;
    open_rig(&rig, "mark");
    mark.node = (char *)"n1";
    mark.spool_id = (char *)"s";
    mark.bulk_seq = 9;
    fill(&r, 1, 1, 1, 5);
    r.batch.has_dropped = 1;
    r.batch.dropped = 3;
    rig_add(&rig, CHANGE_REPORTS, &r.batch);
    rig_add(&rig, CHANGE_MARK, &mark);
    assert_int_equal(rig_commit(&rig, STORE_BULK), STATUS_OK);
    rig.number[STORE_BULK] = 0; /* refused: the number is taken */
    rig_add(&rig, CHANGE_REPORTS, &r.batch);
    mark.bulk_seq = 10;
    rig_add(&rig, CHANGE_MARK, &mark);
    assert_int_equal(rig_commit(&rig, STORE_BULK), STATUS_INVALID);
    SCOPED_TEXT char *text =
        test_sql(rig.conninfo, "select bulk_seq || ' ' || (select sum(n) from metric_block) || ' ' "
                               "|| (select points from metric_loss) from mark");
    assert_string_equal(text, "9 10 3");
    rig_close(&rig);
}

static void partitions_are_made_ahead_and_dropped(void **state)
{
    struct rig rig;
    struct reports r;

    (void)state;
    open_rig(&rig, "parts");
    fill(&r, 1, 1, 1, 5);
    for (int i = 0; i < WAIT_S * 100; i++) {
        SCOPED_TEXT char *n =
            test_sql(rig.conninfo, "select count(*) from pg_inherits where inhparent = "
                                   "'metric_block'::regclass");
        if (strcmp(n, "9") == 0) /* today, seven days ahead, and the one for all else */
            break;
        test_sleep(10000);
    }
    store_reports(&rig, &r);
    mem_free(test_sql(rig.conninfo, "create table metric_block_20200101 partition of metric_block "
                                    "for values from ('2020-01-01') to ('2020-01-02')"));
    mem_free(test_sql(rig.conninfo, "select metric_partitions(2, 30)"));
    SCOPED_TEXT char *old = test_sql(rig.conninfo, "select to_regclass('metric_block_20200101') is "
                                                   "null and (select count(*) from "
                                                   "metric_block_other) = 0");
    assert_string_equal(old, "t");
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_survive_exactly),
        cmocka_unit_test(a_superseded_attempt_counts_to_where_its_successor_resumed),
        cmocka_unit_test(a_restart_from_the_beginning_supersedes_everything),
        cmocka_unit_test(an_incarnation_supersedes_the_steps_it_repeats),
        cmocka_unit_test(thinning_is_even_and_keeps_the_newest),
        cmocka_unit_test(a_mark_is_stored_with_the_reports_or_not_at_all),
        cmocka_unit_test(partitions_are_made_ahead_and_dropped),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
