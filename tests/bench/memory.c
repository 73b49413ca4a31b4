/* memory.c - entry rss: what agent, shim and daemon hold when nothing happens. */
#include "base/file.h"
#include "tests/bench/control.h"
#include "tests/bench/figure.h"
#include "tests/bench/stamp.h"
#include "tests/bench/stand.h"
#include "tests/bench/work.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_MS 20000

struct memory {
    struct bench *bench;
    struct stamp stamp;
    bool seen;
};

static void memory_stamp(void *arg, const struct stamp *stamp)
{
    struct memory *memory = arg;

    memory->stamp = *stamp;
    memory->seen = true;
    bench_wake(memory->bench);
}

/* Sum of the lines of a file of /proc that begin with the word, KiB to MiB. */
static double memory_of(pid_t pid, const char *name, const char *word)
{
    SCOPED_TEXT char *path = mem_printf("/proc/%d/%s", (int)pid, name);
    SCOPED_TEXT char *text = NULL;
    double sum = 0;
    size_t len;

    if (file_read(path, (size_t)1 << 20, &text, &len, NULL) != STATUS_OK)
        return 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, strlen(word)) == 0)
            sum += strtod(strchr(line, ':') + 1, NULL);
    }
    return sum / 1024;
}

static pid_t parent_of(pid_t pid)
{
    SCOPED_TEXT char *path = mem_printf("/proc/%d/status", (int)pid);
    SCOPED_TEXT char *text = NULL;
    size_t len;

    if (file_read(path, 65536, &text, &len, NULL) != STATUS_OK || !strstr(text, "\nPPid:"))
        return 0;
    return (pid_t)strtol(strstr(text, "\nPPid:") + 6, NULL, 10);
}

static enum status memory_look(struct memory *memory, const struct stand *stand, struct error *err)
{
    const char *argv[] = {stand->probe, stand->fifo, "hold", NULL};
    pid_t agent = stand_agent(stand, "n1");
    struct work work;
    int64_t job;

    if (!agent)
        return error_set(err, STATUS_NOT_FOUND, "no agent runs");
    figure_report("rss.agent_mib", memory_of(agent, "status", "VmRSS"));
    figure_report("rss.agent_private_mib", memory_of(agent, "smaps_rollup", "Private_"));
    figure_report("rss.daemon_mib", memory_of(stand->daemon, "status", "VmRSS"));
    figure_note("rss.daemon_private_mib", memory_of(stand->daemon, "smaps_rollup", "Private_"),
                "MiB");
    work_init(&work, "hold", argv);
    enum status st = control_submit(stand->control, work_next(&work), &job, err);
    if (st == STATUS_OK)
        st = bench_wait(memory->bench, &memory->seen, STEP_MS, "worker", err);
    if (st != STATUS_OK)
        return st;
    bench_rest(memory->bench, 500);
    pid_t shim = parent_of(memory->stamp.pid);
    figure_report("rss.shim_mib", memory_of(shim, "status", "VmRSS"));
    figure_note("rss.shim_private_mib", memory_of(shim, "smaps_rollup", "Private_"), "MiB");
    return STATUS_OK;
}

enum status bench_rss(struct bench *bench, struct error *err)
{
    SCOPED(stand_stop) struct stand *stand = NULL;
    struct memory memory = {.bench = bench};
    struct stamp_reader *reader = NULL;
    enum status st = stand_start(bench, 3, 4, &stand, err);

    if (st == STATUS_OK)
        st = stamp_reader_open(bench->loop, stand->fifo, memory_stamp, &memory, &reader, err);
    if (st == STATUS_OK) {
        bench_rest(bench, 3000); /* start is over, heartbeats have been sent */
        st = memory_look(&memory, stand, err);
    }
    stamp_reader_close(reader);
    return st;
}
