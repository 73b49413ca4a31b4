/* metrics.c - entry metrics: from a worker's first report to its last point stored, against COPY of
 * the same points as rows with a primary key. */
#include "base/file.h"
#include "tests/bench/control.h"
#include "tests/bench/database.h"
#include "tests/bench/figure.h"
#include "tests/bench/points.h"
#include "tests/bench/process.h"
#include "tests/bench/sample.h"
#include "tests/bench/stamp.h"
#include "tests/bench/work.h"
#include <stdio.h>
#include <string.h>

#define REPORTS 6000
#define POINTS  (REPORTS * POINTS_A_REPORT)
#define STEP_MS 60000
#define LOOK_MS 10
#define REST_MS 300
#define ROW_SQL                                                                                    \
    "drop table if exists point; create table point (series bigint, attempt int, step bigint, "    \
    "t_us bigint, value float8, primary key (series, attempt, step))"

struct metrics {
    struct bench *bench;
    struct stand *stand;
    struct stamp stamp;
    bool seen, ended;
};

static void metrics_stamp(void *arg, const struct stamp *stamp)
{
    struct metrics *metrics = arg;

    metrics->stamp = *stamp;
    metrics->seen = true;
    bench_wake(metrics->bench);
}

static void metrics_job(void *arg, int64_t job, const char *to)
{
    struct metrics *metrics = arg;

    (void)job;
    if (strcmp(to, "SUCCEEDED") == 0 || strcmp(to, "FAILED") == 0) {
        metrics->ended = true;
        bench_wake(metrics->bench);
    }
}

/* The rows of the rival, in the order in which points arrive. */
static enum status write_rows(const char *path, struct error *err)
{
    FILE *file = fopen(path, "we");

    if (!file)
        return error_set(err, STATUS_UNAVAILABLE, "create %s", path);
    for (int64_t step = 1; step <= REPORTS; step++)
        for (int i = 0; i < POINTS_A_REPORT; i++)
            (void)fprintf(file, "%d\t1\t%lld\t%lld\t%.17g\n", i + 1, (long long)step,
                          (long long)step * 1000, points_value(step, i));
    return fclose(file) == 0 ? STATUS_OK : error_set(err, STATUS_UNAVAILABLE, "write %s", path);
}

/* Polls for the last step until it can be read: then it is committed. */
static enum status await_stored(struct metrics *metrics, int64_t job, struct error *err)
{
    static char name[] = "m63";
    char *names[] = {name};
    Pb__MetricsRequest request = PB__METRICS_REQUEST__INIT;
    int64_t end_us = process_now_us() + STEP_MS * 1000ll;

    request.has_job = request.has_after_step = 1;
    request.job = job;
    request.after_step = REPORTS - 1;
    request.names = names;
    request.n_names = 1;
    while (process_now_us() < end_us && !process_interrupted()) {
        ProtobufCMessage *message;
        enum status st =
            control_call(metrics->stand->control, "Metrics", &request.base, &message, err);
        if (st != STATUS_OK)
            return st;
        const Pb__MetricsReply *reply = (const Pb__MetricsReply *)(const void *)message;
        bool stored = reply->n_series == 1 && reply->series[0]->n_steps > 0;
        protobuf_c_message_free_unpacked(message, NULL);
        if (stored)
            return STATUS_OK;
        bench_rest(metrics->bench, LOOK_MS);
    }
    if (process_interrupted())
        return error_set(err, STATUS_CANCELLED, "interrupted");
    return error_set(err, STATUS_DEADLINE, "the last point is not stored");
}

static enum status metrics_round(struct metrics *metrics, double *per_s, struct error *err)
{
    SCOPED_TEXT char *reports = mem_printf("%d", REPORTS);
    const char *argv[] = {metrics->stand->points, metrics->stand->fifo, reports, NULL};
    SCOPED_TEXT char *sql = NULL;
    struct work work;
    double count = 0;
    int64_t job;

    work_init(&work, "points", argv);
    metrics->seen = metrics->ended = false;
    enum status st = control_submit(metrics->stand->control, work_next(&work), &job, err);
    if (st == STATUS_OK)
        st = bench_wait(metrics->bench, &metrics->seen, STEP_MS, "worker", err);
    if (st == STATUS_OK)
        st = await_stored(metrics, job, err);
    *per_s = POINTS * 1e6 / (double)(process_now_us() - metrics->stamp.at_us);
    if (st == STATUS_OK)
        st = bench_wait(metrics->bench, &metrics->ended, STEP_MS, "end of the job", err);
    if (st != STATUS_OK)
        return st;
    sql = mem_printf("select sum(n) from metric_block b join metric_series s on s.id = b.series_id "
                     "where s.job = %lld",
                     (long long)job);
    st = database_run(metrics->stand, metrics->stand->database, sql, NULL, &count, err);
    if (st == STATUS_OK && count != POINTS)
        return error_set(err, STATUS_DATA_LOSS, "%.0f points are stored, not %d", count, POINTS);
    return st;
}

static enum status metrics_rounds(struct metrics *metrics, uint32_t rounds, struct error *err)
{
    SCOPED_TEXT char *conninfo = NULL;
    SCOPED_TEXT char *rows = mem_printf("%s/rows.tsv", metrics->stand->dir);
    SCOPED_TEXT char *copy = mem_printf("\\copy point from '%s'", rows);
    struct sample ours = {0}, rival = {0};
    struct stand_cpu before;
    double per_s, seconds;
    enum status st = database_create(metrics->stand, &conninfo, err);

    if (st == STATUS_OK)
        st = write_rows(rows, err);
    if (st == STATUS_OK)
        st = metrics_round(metrics, &per_s, err); /* warms up */
    for (uint32_t i = 0; i < rounds && st == STATUS_OK; i++) {
        st = database_run(metrics->stand, conninfo, ROW_SQL, NULL, NULL, err);
        if (st == STATUS_OK)
            st = database_run(metrics->stand, conninfo, copy, &seconds, NULL, err);
        sample_add(&rival, POINTS / seconds);
        bench_rest(metrics->bench, REST_MS); /* its server process ends */
        stand_cpu(metrics->stand, &before);
        if (st == STATUS_OK)
            st = metrics_round(metrics, &per_s, err);
        sample_add(&ours, per_s);
    }
    if (st == STATUS_OK) {
        stand_note_cpu(metrics->stand, "metrics.million", &before, POINTS / 1e6);
        figure_note("metrics.copy_rows_per_s", sample_quantile(&rival, 0.5), "rows/s");
        figure_note("metrics.best_per_s", sample_quantile(&ours, 1), "points/s");
        figure_report("metrics.points_per_s", sample_quantile(&ours, 0.5));
        figure_report("metrics.ratio_to_copy",
                      sample_quantile(&ours, 0.5) / sample_quantile(&rival, 0.5));
    }
    sample_fini(&ours);
    sample_fini(&rival);
    return st;
}

enum status bench_metrics(struct bench *bench, struct error *err)
{
    struct metrics metrics = {.bench = bench};
    struct stamp_reader *reader = NULL;
    enum status st = stand_start(bench, 1, 4, &metrics.stand, err);

    if (st == STATUS_OK)
        st = stamp_reader_open(bench->loop, metrics.stand->fifo, metrics_stamp, &metrics, &reader,
                               err);
    if (st == STATUS_OK)
        st = control_watch(metrics.stand->control, metrics_job, &metrics, err);
    if (st == STATUS_OK)
        st = metrics_rounds(&metrics, bench_runs(bench, 5), err);
    stamp_reader_close(reader);
    stand_stop(metrics.stand);
    return st;
}
