/* throughput.c - entry throughput: /bin/true jobs from submit to SUCCEEDED, against the bare shim.
 */
#include "tests/bench/control.h"
#include "tests/bench/figure.h"
#include "tests/bench/process.h"
#include "tests/bench/sample.h"
#include "tests/bench/shim_floor.h"
#include "tests/bench/stand.h"
#include "tests/bench/work.h"
#include <string.h>

#define IN_FLIGHT   64
#define ROUND_JOBS  600
#define FLOOR_JOBS  600
#define ROUND_MS    120000
#define CALL_MS     30000
#define FLOOR_ALIVE 8

struct throughput {
    struct bench *bench;
    struct stand *stand;
    struct work work;
    uint32_t submitted, ended, failed;
    bool done;
    struct error err;
};

static void throughput_next(struct throughput *t);

static void throughput_fail(struct throughput *t, const char *text)
{
    if (t->err.code == STATUS_OK)
        error_set(&t->err, STATUS_UNKNOWN, "%s", text);
    t->done = true;
    bench_wake(t->bench);
}

static void submit_done(void *arg, enum status st, const struct error *err,
                        const ProtobufCMessage *reply)
{
    (void)reply;
    if (st != STATUS_OK)
        throughput_fail(arg, err->text);
}

static void throughput_job(void *arg, int64_t job, const char *to)
{
    struct throughput *t = arg;

    (void)job;
    if (strcmp(to, "FAILED") == 0 || strcmp(to, "CANCELLED") == 0)
        throughput_fail(t, "a job failed");
    if (strcmp(to, "SUCCEEDED") != 0 || t->done)
        return;
    if (++t->ended == ROUND_JOBS) {
        t->done = true;
        bench_wake(t->bench);
    } else {
        throughput_next(t);
    }
}

static void throughput_next(struct throughput *t)
{
    if (t->submitted == ROUND_JOBS)
        return;
    rpc_client_call(control_client(t->stand->control, t->submitted++), &pb__control__descriptor,
                    "Submit", work_next(&t->work), CALL_MS, submit_done, t);
}

static enum status throughput_round(struct throughput *t, double *per_s, struct error *err)
{
    int64_t start_us = process_now_us();

    t->submitted = t->ended = 0;
    t->done = false;
    for (int i = 0; i < IN_FLIGHT; i++)
        throughput_next(t);
    enum status st = bench_wait(t->bench, &t->done, ROUND_MS, "all jobs", err);
    *per_s = ROUND_JOBS * 1e6 / (double)(process_now_us() - start_us);
    if (st == STATUS_OK && t->err.code != STATUS_OK)
        st = error_set(err, t->err.code, "%s", t->err.text);
    return st;
}

static enum status throughput_rounds(struct throughput *t, uint32_t rounds, struct error *err)
{
    struct sample ours = {0}, floor = {0};
    struct stand_cpu before;
    double per_s;
    enum status st = throughput_round(t, &per_s, err); /* warms up */

    stand_cpu(t->stand, &before);
    for (uint32_t i = 0; i < rounds && st == STATUS_OK; i++) {
        bench_rest(t->bench, 300);
        st = shim_floor_run(t->stand, FLOOR_JOBS, FLOOR_ALIVE, &per_s, err);
        sample_add(&floor, per_s);
        if (st == STATUS_OK)
            st = throughput_round(t, &per_s, err);
        sample_add(&ours, per_s);
    }
    if (st == STATUS_OK) {
        stand_note_cpu(t->stand, "throughput", &before, (double)rounds * ROUND_JOBS);
        figure_note("throughput.floor_per_s", sample_quantile(&floor, 0.5), "jobs/s");
        figure_note("throughput.best_per_s", sample_quantile(&ours, 1), "jobs/s");
        figure_report("throughput.jobs_per_s", sample_quantile(&ours, 0.5));
        figure_report("throughput.ratio_to_floor",
                      sample_quantile(&ours, 0.5) / sample_quantile(&floor, 0.5));
    }
    sample_fini(&ours);
    sample_fini(&floor);
    return st;
}

enum status bench_throughput(struct bench *bench, struct error *err)
{
    static const char *const argv[] = {"/bin/true", NULL};
    struct throughput t = {.bench = bench};
    enum status st = stand_start(bench, 3, 32, &t.stand, err);

    work_init(&t.work, "true", argv);
    if (st == STATUS_OK)
        st = control_channels(t.stand->control, 4, err);
    if (st == STATUS_OK)
        st = control_watch(t.stand->control, throughput_job, &t, err);
    if (st == STATUS_OK)
        st = throughput_rounds(&t, bench_runs(bench, 5), err);
    stand_stop(t.stand);
    return st;
}
