/* start.c - entries launch, gang and detect: how long until a worker's first instruction.
 *
 * Workers are rondo-bench-probe, which tells its first look at the clock through a FIFO. */
#include "tests/bench/control.h"
#include "tests/bench/figure.h"
#include "tests/bench/process.h"
#include "tests/bench/sample.h"
#include "tests/bench/stamp.h"
#include "tests/bench/stand.h"
#include "tests/bench/work.h"
#include <signal.h>
#include <string.h>

#define STEP_MS   20000
#define WARM_UP   5
#define REST_MS   50   /* what the last one left is away: a start is measured on an idle cluster */
#define LINGER_MS "30" /* of a started worker, so that no end runs beside another's start */

struct start {
    struct bench *bench;
    struct stand *stand;
    struct stamp_reader *reader;
    uint32_t wanted; /* stamps */
    uint32_t seen;
    struct stamp last; /* the latest by its own time */
    bool all_seen, ended;
    int64_t job; /* 0: any */
};

static void start_stamp(void *arg, const struct stamp *stamp)
{
    struct start *start = arg;

    if (start->seen == 0 || stamp->at_us > start->last.at_us)
        start->last = *stamp;
    if (++start->seen >= start->wanted) {
        start->all_seen = true;
        bench_wake(start->bench);
    }
}

static void start_job(void *arg, int64_t job, const char *to)
{
    struct start *start = arg;

    (void)job;
    if (strcmp(to, "SUCCEEDED") == 0 || strcmp(to, "FAILED") == 0 || strcmp(to, "CANCELLED") == 0) {
        start->ended = true;
        bench_wake(start->bench);
    }
}

static void start_close(struct start *start)
{
    stamp_reader_close(start->reader);
    stand_stop(start->stand);
}

static enum status start_open(struct start *start, uint32_t agents, uint32_t slots,
                              struct error *err)
{
    enum status st = stand_start(start->bench, agents, slots, &start->stand, err);

    if (st == STATUS_OK)
        st = stamp_reader_open(start->bench->loop, start->stand->fifo, start_stamp, start,
                               &start->reader, err);
    if (st == STATUS_OK)
        st = control_watch(start->stand->control, start_job, start, err);
    return st;
}

static void start_expect(struct start *start, uint32_t stamps)
{
    start->wanted = stamps;
    start->seen = 0;
    start->all_seen = start->ended = false;
}

/* One job from submit to its end. */
static enum status start_once(struct start *start, struct work *work, uint32_t workers, double *ms,
                              struct error *err)
{
    int64_t job;

    start_expect(start, workers);
    int64_t from_us = process_now_us();
    enum status st = control_submit(start->stand->control, work_next(work), &job, err);
    if (st == STATUS_OK)
        st = bench_wait(start->bench, &start->all_seen, STEP_MS, "first instruction", err);
    *ms = (double)(start->last.at_us - from_us) / 1000;
    if (st == STATUS_OK)
        st = bench_wait(start->bench, &start->ended, STEP_MS, "end of the job", err);
    bench_rest(start->bench, REST_MS);
    return st;
}

static enum status start_many(struct start *start, const char *name, uint32_t workers,
                              uint32_t runs, struct sample *sample, struct error *err)
{
    const char *argv[] = {start->stand->probe, start->stand->fifo, LINGER_MS, NULL};
    struct stand_cpu before = {0};
    struct work work;
    enum status st = STATUS_OK;
    double ms;

    work_init(&work, name, argv);
    work.role.has_workers = 1;
    work.role.workers = workers;
    for (uint32_t i = 0; i < runs + WARM_UP && st == STATUS_OK; i++) {
        if (i == WARM_UP)
            stand_cpu(start->stand, &before);
        st = start_once(start, &work, workers, &ms, err);
        if (st == STATUS_OK && i >= WARM_UP)
            sample_add(sample, ms);
    }
    if (st == STATUS_OK)
        stand_note_cpu(start->stand, name, &before, runs);
    return st;
}

enum status bench_launch(struct bench *bench, struct error *err)
{
    struct start start = {.bench = bench};
    struct sample sample = {0};
    enum status st = start_open(&start, 1, 4, err);

    if (st == STATUS_OK)
        st = start_many(&start, "launch", 1, bench_runs(bench, 200), &sample, err);
    if (st == STATUS_OK) {
        figure_report("launch.p50_ms", sample_quantile(&sample, 0.5));
        figure_report("launch.p95_ms", sample_quantile(&sample, 0.95));
        figure_note("launch.min_ms", sample_quantile(&sample, 0), "ms");
    }
    sample_fini(&sample);
    start_close(&start);
    return st;
}

enum status bench_gang(struct bench *bench, struct error *err)
{
    struct start start = {.bench = bench};
    struct sample sample = {0};
    enum status st = start_open(&start, 2, 4, err);

    if (st == STATUS_OK)
        st = start_many(&start, "gang", 8, bench_runs(bench, 60), &sample, err);
    if (st == STATUS_OK) {
        figure_report("gang.p50_ms", sample_quantile(&sample, 0.5));
        figure_note("gang.min_ms", sample_quantile(&sample, 0), "ms");
    }
    sample_fini(&sample);
    start_close(&start);
    return st;
}

/* --- detect */

static enum status detect_many(struct start *start, uint32_t runs, struct sample *sample,
                               struct error *err)
{
    const char *argv[] = {start->stand->probe, start->stand->fifo, "hold", NULL};
    struct stand_cpu before = {0};
    struct work work;
    int64_t job;

    work_init(&work, "detect", argv);
    work.restart.budget = runs + WARM_UP + 1;
    start_expect(start, 1);
    enum status st = control_submit(start->stand->control, work_next(&work), &job, err);
    if (st == STATUS_OK)
        st = bench_wait(start->bench, &start->all_seen, STEP_MS, "first attempt", err);
    for (uint32_t i = 0; i < runs + WARM_UP && st == STATUS_OK; i++) {
        pid_t victim = start->last.pid;
        if (i == WARM_UP)
            stand_cpu(start->stand, &before);
        bench_rest(start->bench, REST_MS);
        start_expect(start, 1);
        int64_t from_us = process_now_us();
        kill(victim, SIGKILL);
        st = bench_wait(start->bench, &start->all_seen, STEP_MS, "next attempt", err);
        if (st == STATUS_OK && i >= WARM_UP)
            sample_add(sample, (double)(start->last.at_us - from_us) / 1000);
    }
    if (st == STATUS_OK)
        stand_note_cpu(start->stand, "detect", &before, runs);
    return st;
}

enum status bench_detect(struct bench *bench, struct error *err)
{
    struct start start = {.bench = bench};
    struct sample sample = {0};
    enum status st = start_open(&start, 1, 4, err);

    if (st == STATUS_OK)
        st = detect_many(&start, bench_runs(bench, 50), &sample, err);
    if (st == STATUS_OK) {
        figure_report("detect.p50_ms", sample_quantile(&sample, 0.5));
        figure_note("detect.min_ms", sample_quantile(&sample, 0), "ms");
    }
    sample_fini(&sample);
    start_close(&start);
    return st;
}
