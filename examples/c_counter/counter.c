/* counter.c - the smallest program that uses all of librondo: counts steps, reports, saves,
 * resumes.
 *
 * counter [--steps N] [--step-us U] [--samples-per-step N] [--report-every N] [--fail-at STEP]
 * The sum of all sample numbers so far is its "model": after any number of crashes and restarts it
 * must be what an undisturbed run gives. --fail-at: the first attempt aborts there. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/rondo.h"

struct counter {
    int64_t step, steps, step_us, samples_per_step, report_every, fail_at;
    int64_t samples; /* the data cursor */
    uint64_t sum;
    struct rondo_job job;
};

static int64_t number_after(int argc, char **argv, const char *name, int64_t otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtoll(argv[i + 1], NULL, 10);
    return otherwise;
}

static int complain(const char *what)
{
    (void)fprintf(stderr, "counter: %s: %s\n", what, rondo_error());
    return 1;
}

static int load(struct counter *c)
{
    char path[4200];
    FILE *file;
    int fields;

    if (!c->job.resume_dir)
        return 0;
    (void)snprintf(path, sizeof path, "%s/%s-0/count", c->job.resume_dir, c->job.role);
    file = fopen(path, "r");
    if (!file) {
        (void)fprintf(stderr, "counter: open %s: %s\n", path, strerror(errno));
        return -1;
    }
    fields = fscanf(file, "%" SCNd64 " %" SCNd64 " %" SCNu64, &c->step, &c->samples, &c->sum);
    (void)fclose(file);
    if (fields != 3 || c->step != c->job.resume_step || c->samples != c->job.resume_samples) {
        (void)fprintf(stderr, "counter: %s is not of step %" PRId64 "\n", path, c->job.resume_step);
        return -1;
    }
    (void)printf("resumed at step %" PRId64 ", sample %" PRId64 "\n", c->step, c->samples);
    return 0;
}

static int write_count(const struct counter *c, const char *dir)
{
    char path[4200];
    FILE *file;

    if (c->job.rank != 0)
        return 0; /* rank 0 has it all; the others commit an empty part */
    (void)snprintf(path, sizeof path, "%s/count", dir);
    file = fopen(path, "w");
    if (!file)
        return -1;
    (void)fprintf(file, "%" PRId64 " %" PRId64 " %" PRIu64 "\n", c->step, c->samples, c->sum);
    return fclose(file);
}

/* A save that fails is said, and counting goes on: the next one may succeed. */
static void save(const struct counter *c)
{
    char dir[4096];
    int result = rondo_save_dir(c->step, dir, sizeof dir, 0);

    if (result == -RONDO_EXISTS)
        return;
    if (result != 0) {
        (void)complain("save");
        return;
    }
    if (write_count(c, dir) != 0) {
        (void)fprintf(stderr, "counter: write in %s: %s\n", dir, strerror(errno));
        (void)rondo_abort_save(c->step, 0);
        return;
    }
    if (rondo_commit(c->step, c->samples, 0) != 0)
        (void)complain("commit");
}

static void count(struct counter *c)
{
    int64_t all = c->samples_per_step * c->job.world;
    struct timespec pause = {c->step_us / 1000000, c->step_us % 1000000 * 1000};

    if (c->step_us > 0)
        (void)nanosleep(&pause, NULL);
    for (int64_t i = 0; i < all; i++)
        c->sum += (uint64_t)(c->samples + i);
    c->step++;
    c->samples += all;
}

static int report(const struct counter *c)
{
    const struct rondo_value values[] = {
        {.name = "loss", .number = 1.0 / (double)c->step},
        {.name = "sum", .is_integer = 1, .integer = (int64_t)(c->sum >> 1)},
    };

    if (c->step % c->report_every != 0 && c->step != c->steps)
        return 0;
    return rondo_report(c->step, c->samples, values, 2) < 0 ? complain("report") : 0;
}

/* A SIGTERM (cancel, the end of a broken attempt) reaches each rank at another step, and ranks that
 * exchange nothing cannot agree on one: leave at once, what was committed is what counts. The end
 * is that of a program that SIGTERM ended, since its work is not done. A world of one has nobody to
 * agree with, so should_stop says it and there is a save. */
static int leave_at_once(const struct counter *c)
{
    (void)printf("terminated at step %" PRId64 "\n", c->step);
    return 128 + SIGTERM;
}

static int run(struct counter *c)
{
    int stop = 0;

    while (c->step < c->steps && !stop) {
        int yes;
        if (c->job.world > 1 && rondo_stopping())
            return leave_at_once(c);
        count(c);
        if (report(c) != 0)
            return 1;
        yes = rondo_should_save(c->step);
        stop = rondo_should_stop(c->step) == 1;
        if (yes == 1 || stop || c->step == c->steps)
            save(c);
        if (c->step == c->fail_at && c->job.attempt <= 1) {
            (void)rondo_failure("asked to fail", NULL);
            abort();
        }
    }
    (void)printf("%s at step %" PRId64 ", sample %" PRId64 ", sum %" PRIu64 "\n",
                 stop ? "stopped" : "done", c->step, c->samples, c->sum);
    return !stop && rondo_finish() != 0 ? complain("finish") : 0;
}

int main(int argc, char **argv)
{
    struct counter c = {
        .steps = number_after(argc, argv, "--steps", 1000),
        .step_us = number_after(argc, argv, "--step-us", 1000),
        .samples_per_step = number_after(argc, argv, "--samples-per-step", 8),
        .report_every = number_after(argc, argv, "--report-every", 1),
        .fail_at = number_after(argc, argv, "--fail-at", -1),
        .job.size = sizeof c.job,
    };

    if (c.steps < 0 || c.step_us < 0 || c.samples_per_step < 1 || c.report_every < 1) {
        (void)fprintf(stderr, "counter: numbers must be positive\n");
        return 2;
    }
    if (rondo_join(NULL, &c.job) != 0)
        return complain("join");
    (void)rondo_catch_sigterm();
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)printf("rank %" PRIu32 " of %" PRIu32 ", attempt %" PRIu32 "\n", c.job.rank, c.job.world,
                 c.job.attempt);
    return load(&c) == 0 ? run(&c) : 1;
}
