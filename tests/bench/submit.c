/* submit.c - entry submit: durable submits over 64 channels against pgbench; rondoctl with 1,000
 * files; one rondoctl a job. Jobs are HELD, so that nothing else runs. */
#include "base/file.h"
#include "tests/bench/control.h"
#include "tests/bench/database.h"
#include "tests/bench/figure.h"
#include "tests/bench/process.h"
#include "tests/bench/sample.h"
#include "tests/bench/work.h"
#include <stdio.h>
#include <string.h>

#define CLIENTS    64
#define SEGMENT_S  2
#define RIVAL_S    6 /* connecting 64 clients is part of it, and is not counted */
#define CALL_MS    30000
#define REST_MS    300
#define BULK_FILES 1000
#define PROCESSES  40

struct submit {
    struct bench *bench;
    struct stand *stand;
    struct work work;
    uint32_t open, accepted;
    int64_t end_us;
    bool done;
    struct error err;
};
struct submit_client {
    struct submit *submit;
    size_t channel;
};

static void client_next(struct submit_client *client);

static void client_done(void *arg, enum status st, const struct error *err,
                        const ProtobufCMessage *reply)
{
    struct submit_client *client = arg;
    struct submit *submit = client->submit;

    (void)reply;
    submit->open--;
    if (st == STATUS_OK)
        submit->accepted++;
    else
        submit->err = *err;
    if (st == STATUS_OK && process_now_us() < submit->end_us) {
        client_next(client);
    } else if (submit->open == 0) {
        submit->done = true;
        bench_wake(submit->bench);
    }
}

static void client_next(struct submit_client *client)
{
    client->submit->open++;
    rpc_client_call(control_client(client->submit->stand->control, client->channel),
                    &pb__control__descriptor, "Submit", work_next(&client->submit->work), CALL_MS,
                    client_done, client);
}

static enum status submit_segment(struct submit *submit, double *per_s, struct error *err)
{
    struct submit_client clients[CLIENTS];
    int64_t start_us = process_now_us();

    submit->accepted = 0;
    submit->done = false;
    submit->end_us = start_us + SEGMENT_S * 1000000ll;
    for (size_t i = 0; i < CLIENTS; i++) {
        clients[i] = (struct submit_client){submit, i};
        client_next(&clients[i]);
    }
    while (!submit->done) /* every call has a deadline */
        loop_uv_run(submit->bench->loop);
    *per_s = submit->accepted * 1e6 / (double)(process_now_us() - start_us);
    if (submit->err.code != STATUS_OK)
        return error_set(err, submit->err.code, "%s", submit->err.text);
    return process_interrupted() ? error_set(err, STATUS_CANCELLED, "interrupted") : STATUS_OK;
}

static enum status submit_against_pgbench(struct submit *submit, uint32_t rounds, struct error *err)
{
    SCOPED_TEXT char *conninfo = NULL;
    struct sample ours = {0}, rival = {0};
    struct stand_cpu before;
    double per_s, accepted = 0;
    enum status st = database_create(submit->stand, &conninfo, err);

    if (st == STATUS_OK)
        st = submit_segment(submit, &per_s, err); /* warms up */
    for (uint32_t i = 0; i < rounds && st == STATUS_OK; i++) {
        st = database_pgbench(submit->stand, conninfo, CLIENTS, RIVAL_S, &per_s, err);
        sample_add(&rival, per_s);
        bench_rest(submit->bench, REST_MS); /* its server processes end */
        stand_cpu(submit->stand, &before);
        if (st == STATUS_OK)
            st = submit_segment(submit, &per_s, err);
        sample_add(&ours, per_s);
        accepted = submit->accepted;
    }
    if (st == STATUS_OK) {
        stand_note_cpu(submit->stand, "submit", &before, accepted);
        figure_note("calibrate.pgbench_per_s", sample_quantile(&rival, 0.5), "1/s");
        figure_report("submit.per_s", sample_quantile(&ours, 0.5));
        figure_report("submit.ratio_to_pgbench",
                      sample_quantile(&ours, 0.5) / sample_quantile(&rival, 0.5));
    }
    sample_fini(&ours);
    sample_fini(&rival);
    return st;
}

/* --- rondoctl */

static enum status write_job(const char *dir, unsigned number, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/%u.yaml", dir, number);
    SCOPED_TEXT char *text = mem_printf("name: bench-%u\nhold: true\nroles:\n  - name: main\n"
                                        "    command: [/bin/true]\n",
                                        number);
    FILE *file = fopen(path, "we");

    if (!file || fputs(text, file) < 0)
        return error_set(err, STATUS_UNAVAILABLE, "write %s", path);
    return fclose(file) == 0 ? STATUS_OK : error_set(err, STATUS_UNAVAILABLE, "write %s", path);
}

static enum status submit_bulk(struct submit *submit, const char *program, const char *dir,
                               uint32_t rounds, struct error *err)
{
    SCOPED_TEXT char *out = mem_printf("%s/ctl.out", submit->stand->dir);
    SCOPED_TEXT char *names = mem_array(BULK_FILES, 32);
    const char *argv[BULK_FILES + 8] = {program, "submit", "--quiet", "--context",
                                        submit->stand->ctl};
    struct sample sample = {0}, cpu = {0};
    struct process_result result;
    enum status st = STATUS_OK;

    for (unsigned i = 0; i < BULK_FILES; i++) {
        snprintf(names + i * 32, 32, "%u.yaml", i);
        argv[5 + i] = names + i * 32;
    }
    for (uint32_t i = 0; i < rounds && st == STATUS_OK; i++) {
        st = process_must(argv, dir, out, 60000, &result, err);
        sample_add(&sample, BULK_FILES * 1e6 / (double)result.wall_us);
        sample_add(&cpu, (double)result.cpu_us / 1000);
    }
    if (st == STATUS_OK) {
        figure_report("submit.bulk_per_s", sample_quantile(&sample, 0.5));
        figure_note("submit.bulk_ctl_cpu_ms", sample_quantile(&cpu, 0.5), "ms");
    }
    sample_fini(&sample);
    sample_fini(&cpu);
    return st;
}

static enum status submit_processes(struct submit *submit, const char *program, const char *dir,
                                    struct error *err)
{
    SCOPED_TEXT char *out = mem_printf("%s/ctl.out", submit->stand->dir);
    const char *argv[] = {program,  "submit", "--quiet", "--context", submit->stand->ctl,
                          "0.yaml", NULL};
    struct sample wall = {0}, cpu = {0};
    struct process_result result;
    enum status st = STATUS_OK;

    for (int i = 0; i < PROCESSES && st == STATUS_OK; i++) {
        st = process_must(argv, dir, out, 30000, &result, err);
        sample_add(&wall, (double)result.wall_us / 1000);
        sample_add(&cpu, (double)result.cpu_us / 1000);
    }
    if (st == STATUS_OK) {
        figure_report("submit.process_ms", sample_quantile(&wall, 0.5));
        figure_note("submit.process_min_ms", sample_quantile(&wall, 0), "ms");
        figure_note("submit.process_cpu_ms", sample_quantile(&cpu, 0.5), "ms");
    }
    sample_fini(&wall);
    sample_fini(&cpu);
    return st;
}

static enum status submit_by_ctl(struct submit *submit, uint32_t rounds, struct error *err)
{
    SCOPED_TEXT char *program = mem_printf("%s/rondoctl", submit->bench->bin);
    SCOPED_TEXT char *dir = mem_printf("%s/jobs", submit->stand->dir);
    enum status st = file_make_dirs(dir, 0700, err);

    for (unsigned i = 0; i < BULK_FILES && st == STATUS_OK; i++)
        st = write_job(dir, i, err);
    if (st == STATUS_OK)
        st = submit_bulk(submit, program, dir, rounds, err);
    return st == STATUS_OK ? submit_processes(submit, program, dir, err) : st;
}

enum status bench_submit(struct bench *bench, struct error *err)
{
    static const char *const argv[] = {"/bin/true", NULL};
    struct submit submit = {.bench = bench};
    enum status st = stand_start(bench, 0, 1, &submit.stand, err);

    work_init(&submit.work, "held", argv);
    submit.work.spec.has_hold = submit.work.spec.hold = 1;
    if (st == STATUS_OK)
        st = control_channels(submit.stand->control, CLIENTS, err);
    if (st == STATUS_OK)
        st = submit_against_pgbench(&submit, bench_runs(bench, 5), err);
    if (st == STATUS_OK)
        st = submit_by_ctl(&submit, bench_runs(bench, 5), err);
    stand_stop(submit.stand);
    return st;
}
