/* torch.c - entry torch: two gloo ranks from submit to their first all-reduce, against torchrun.
 *
 * Both run torch_worker.py with the same Python; processes are cold, the page cache is warm. */
#include "base/file.h"
#include "tests/bench/control.h"
#include "tests/bench/figure.h"
#include "tests/bench/process.h"
#include "tests/bench/sample.h"
#include "tests/bench/stand.h"
#include "tests/bench/work.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PYTHON    "/usr/bin/python3"
#define RANKS     2
#define LAUNCH_MS 90000

struct torch {
    struct bench *bench;
    struct stand *stand;
    char *worker, *launcher; /* scripts, where any user may read them */
    bool ended, failed;
};

static void torch_job(void *arg, int64_t job, const char *to)
{
    struct torch *torch = arg;

    (void)job;
    torch->failed |= strcmp(to, "FAILED") == 0;
    if (torch->failed || strcmp(to, "SUCCEEDED") == 0) {
        torch->ended = true;
        bench_wake(torch->bench);
    }
}

/* The latest of the ranks' times in the marks file; 0: not all are there. */
static int64_t latest_mark_us(const char *path)
{
    SCOPED_TEXT char *text = NULL;
    long long latest = 0, at;
    size_t len;
    int count = 0;

    if (file_read(path, 65536, &text, &len, NULL) != STATUS_OK)
        return 0;
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        if (!strchr(line, '\n'))
            break;
        at = strtoll(line, NULL, 10);
        latest = at > latest ? at : latest;
        count++;
    }
    return count >= RANKS ? latest / 1000 : 0;
}

static enum status make_marks(struct torch *torch, char **out, struct error *err)
{
    static int number;
    char *path = mem_printf("%s/marks.%d", torch->stand->dir, ++number);
    FILE *file = fopen(path, "we");

    *out = path;
    if (!file || fclose(file) != 0 || chmod(path, 0666) != 0)
        return error_set(err, file_status(errno), "create %s: %s", path, strerror(errno));
    return STATUS_OK;
}

static enum status run_ours(struct torch *torch, double *seconds, struct error *err)
{
    SCOPED_TEXT char *marks = NULL;
    enum status st = make_marks(torch, &marks, err);
    const char *argv[] = {PYTHON, torch->worker, marks, NULL};
    Pb__StringPair pair = PB__STRING_PAIR__INIT, *pairs[] = {&pair};
    static char name[] = "GLOO_SOCKET_IFNAME", value[] = "lo";
    struct work work;
    int64_t job;

    work_init(&work, "torch", argv);
    work.role.has_workers = 1;
    work.role.workers = RANKS;
    pair.name = name;
    pair.value = value;
    work.role.env = pairs;
    work.role.n_env = 1;
    torch->ended = torch->failed = false;
    int64_t start_us = process_now_us();
    if (st == STATUS_OK)
        st = control_submit(torch->stand->control, work_next(&work), &job, err);
    if (st == STATUS_OK)
        st = bench_wait(torch->bench, &torch->ended, LAUNCH_MS, "job with torch", err);
    if (st != STATUS_OK)
        return st;
    int64_t end_us = latest_mark_us(marks);
    if (torch->failed || !end_us)
        return error_set(err, STATUS_UNKNOWN, "the job with torch failed");
    *seconds = (double)(end_us - start_us) / 1e6;
    return STATUS_OK;
}

static enum status run_rival(struct torch *torch, double *seconds, struct error *err)
{
    SCOPED_TEXT char *marks = NULL;
    SCOPED_TEXT char *logs = mem_printf("%s/torchrun", torch->stand->dir);
    SCOPED_TEXT char *log_flag = mem_printf("--log_dir=%s", logs);
    SCOPED_TEXT char *out = mem_printf("%s/torchrun.out", torch->stand->dir);
    SCOPED_TEXT char *port = mem_printf("--master_port=%u", 21000 + (unsigned)getpid() % 8000);
    enum status st = make_marks(torch, &marks, err);
    const char *argv[] = {PYTHON,
                          torch->launcher,
                          "--nproc_per_node=2",
                          "--nnodes=1",
                          "-r",
                          "1",
                          "-t",
                          "2",
                          log_flag,
                          "--master_addr=127.0.0.1",
                          port,
                          torch->worker,
                          marks,
                          NULL};
    struct process_result result;

    int64_t start_us = process_now_us();
    if (st == STATUS_OK)
        st = process_must(argv, torch->stand->dir, out, LAUNCH_MS, &result, err);
    if (st != STATUS_OK)
        return st;
    int64_t end_us = latest_mark_us(marks);
    if (!end_us)
        return error_set(err, STATUS_UNKNOWN, "torchrun's ranks left no mark");
    *seconds = (double)(end_us - start_us) / 1e6;
    return STATUS_OK;
}

static enum status torch_rounds(struct torch *torch, uint32_t rounds, struct error *err)
{
    struct sample ours = {0}, rival = {0};
    double seconds;
    enum status st = run_ours(torch, &seconds, err); /* warms the page cache */

    for (uint32_t i = 0; i < rounds && st == STATUS_OK; i++) {
        st = run_rival(torch, &seconds, err);
        sample_add(&rival, seconds);
        if (st == STATUS_OK)
            st = run_ours(torch, &seconds, err);
        sample_add(&ours, seconds);
    }
    if (st == STATUS_OK) {
        figure_note("torch.torchrun_s", sample_quantile(&rival, 0.5), "s");
        figure_note("torch.torchrun_min_s", sample_quantile(&rival, 0), "s");
        figure_note("torch.ours_s", sample_quantile(&ours, 0.5), "s");
        figure_note("torch.ours_min_s", sample_quantile(&ours, 0), "s");
        figure_report("torch.ratio_to_torchrun",
                      sample_quantile(&ours, 0.5) / sample_quantile(&rival, 0.5));
    }
    sample_fini(&ours);
    sample_fini(&rival);
    return st;
}

static enum status copy_script(struct torch *torch, const char *name, char **out, struct error *err)
{
    SCOPED_TEXT char *from = mem_printf("%s/bench/%s", torch->bench->bin, name);
    SCOPED_TEXT char *to = mem_printf("%s/%s", torch->stand->dir, name);
    SCOPED_TEXT char *bytes = NULL;
    size_t len;
    enum status st = file_read(from, 65536, &bytes, &len, err);

    if (st == STATUS_OK)
        st = file_write_atomic(to, bytes, len, 0644, err);
    if (st == STATUS_OK)
        *out = TAKE(to);
    return st;
}

enum status bench_torch(struct bench *bench, struct error *err)
{
    struct torch torch = {.bench = bench};
    enum status st = stand_start(bench, 1, 4, &torch.stand, err);

    setenv("OMP_NUM_THREADS", "1", 1); /* for the rival: workers of ours get it anyway */
    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
    setenv("TP_SOCKET_IFNAME", "lo", 1);
    if (st == STATUS_OK)
        st = copy_script(&torch, "torch_worker.py", &torch.worker, err);
    if (st == STATUS_OK)
        st = copy_script(&torch, "torchrun_launch.py", &torch.launcher, err);
    if (st == STATUS_OK)
        st = control_watch(torch.stand->control, torch_job, &torch, err);
    if (st == STATUS_OK)
        st = torch_rounds(&torch, bench_runs(bench, 5), err);
    stand_stop(torch.stand);
    mem_free(torch.worker);
    mem_free(torch.launcher);
    return st;
}
