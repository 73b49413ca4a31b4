/* figure.c - see figure.h. */
#include "tests/bench/figure.h"
#include "base/mem.h"
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct figure_row rows[] = {
    {"launch.p50_ms", "ms", 10, false,
     "gRPC submit to the first instruction of its one worker, a C program; median"},
    {"launch.p95_ms", "ms", 25, false, "the same, 95th percentile"},
    {"torch.ratio_to_torchrun", "ratio", 0.7, false,
     "submit of a 2-rank gloo job to its first all-reduce, cold / torchrun's start of the same "
     "script; medians, alternating"},
    {"gang.p50_ms", "ms", 20, false,
     "submit to the last first instruction of 8 workers on 2 agents; median"},
    {"throughput.jobs_per_s", "jobs/s", 0, true,
     "/bin/true jobs, 64 in flight, submit to SUCCEEDED durable, 3 agents; the aim is 500"},
    {"throughput.ratio_to_floor", "ratio", 0.4, true,
     "the same / bare rondo-shim + /bin/true started and reaped, alternating"},
    {"submit.per_s", "jobs/s", 0, true, "durable submits from 64 clients, a channel each"},
    {"submit.ratio_to_pgbench", "ratio", 0.3, true,
     "the same / commits of pgbench on the same server, 64 clients, one small INSERT each, "
     "alternating"},
    {"submit.bulk_per_s", "jobs/s", 1000, true, "one rondoctl submit with 1,000 files"},
    {"submit.process_ms", "ms", 40, false, "one rondoctl submit process for one job; median"},
    {"detect.p50_ms", "ms", 60, false,
     "SIGKILL of a worker to the next attempt's first instruction, back-off 0; median"},
    {"metrics.points_per_s", "points/s", 0, true,
     "first report of a worker to all its points stored, 64 points a report"},
    {"metrics.ratio_to_copy", "ratio", 1, true,
     "the same / COPY of the same points as rows with a primary key, alternating"},
    {"rss.agent_mib", "MiB", 30, false, "agent, idle: resident"},
    {"rss.agent_private_mib", "MiB", 8, false, "agent, idle: private pages"},
    {"rss.shim_mib", "MiB", 1.5, false, "shim of a running worker: resident"},
    {"rss.daemon_mib", "MiB", 48, false, "rondod with 3 agents: resident"},
    {"checkpoint.plan.rank_ms", "ms", 5, false,
     "10,000 tensors, 4,096 ranks to one of 3,072: rows, grids, boxes; median, the slowest of "
     "them"},
    {"checkpoint.plan.global_s", "s", 1, false,
     "cover check, and bytes of all ranks counted: rows, grids; median, the slower"},
    {"checkpoint.plan.irregular_s", "s", 5, false, "the same with boxes cut at random places"},
    {"checkpoint.plan.parse_ms", "ms", 50, false, "layout.json of those rows, read; median"},
    {"checkpoint.plan.rss_mib", "MiB", 200, false, "most memory of the process that does all this"},
    {"checkpoint.stall.ratio_to_memcpy", "ratio", 0.7, true,
     "memcpy of 2 GiB / the copy of a save with its block CRC32Cs, into touched shared memory"},
    {"checkpoint.persist.ratio_to_dd", "ratio", 0.9, true,
     "2 GiB from shared memory to a durable, digested file / dd oflag=direct conv=fdatasync"},
    {"checkpoint.persist.ratio_to_fio", "ratio", 0.8, true,
     "the same / fio libaio write, 4 MiB x 8, direct"},
    {"checkpoint.save.ratio_to_torch", "ratio", 2, true,
     "torch.save + fsync of 2 GiB / from 4 ranks' memory to a sealed checkpoint"},
    {"checkpoint.save_small.ratio_to_torch", "ratio", 4, true,
     "the same with 8,192 tensors of 256 KiB"},
    {"checkpoint.load.ratio_to_fio", "ratio", 0.9, true,
     "2 GiB, cold, into touched memory, each byte checked / fio libaio read, 4 MiB x 8, direct"},
    {"checkpoint.load.ratio_to_torch", "ratio", 1.25, true, "torch.load, cold / the same"},
    {"checkpoint.load_warm.ratio_to_memcpy", "ratio", 0.65, true,
     "memcpy / load of what is in the page cache, each byte checked"},
    {"checkpoint.reshard.ratio_to_load", "ratio", 0.85, true,
     "cold load by all ranks of its own layout / by 8 to 6, 8 to 3, 3 to 8 by rows; the least"},
    {"checkpoint.reshard_columns.ratio_to_load", "ratio", 0.5, true,
     "the same, 8 by rows to 6 by columns"},
    {"checkpoint.reshard_columns.over_read", "ratio", 1.5, false,
     "bytes from disk for it / bytes of the state"},
    {"checkpoint.replicated.bytes_ratio", "ratio", 1.02, false,
     "4 ranks of a node load all: bytes from disk / bytes of the state"},
    {"checkpoint.replicated.time_ratio", "ratio", 1.3, false,
     "the same: time / that of one rank alone"},
    {"checkpoint.verify.ratio_to_limit", "ratio", 0.9, true,
     "slower of a cold read of 2 GiB and their CRC32C / verification of every byte"},
    {"checkpoint.export.ratio_to_cp", "ratio", 0.8, true,
     "cp + sync of 8 shards / export of them as whole tensors, cold, durable"},
    {"checkpoint.reshard.ratio_to_naive", "ratio", 5, true,
     "torch: load 8 shards, concatenate, split, save 6, fsync / the same by reshard"},
    {"checkpoint.reshard.peak_to_naive", "ratio", 0.25, false, "the same: extra peak memory"},
    {"checkpoint.peer.ratio_to_openssl", "ratio", 0.7, true,
     "1 GiB over loopback TLS: s_server to s_client, thrown away / agent to agent, checked, "
     "synced"},
    {"checkpoint.slowdown.pct", "%", 5, false,
     "work that 2 busy processes lose while 2 GiB are persisted, beyond the CPU that it takes"},
};

#define REPORTED_MAX 256

static struct {
    char *name, *unit;
    double value;
    const struct figure_row *row;
} reported[REPORTED_MAX];
static size_t reported_count;
static bool is_quiet;

static void keep(const char *name, double value, const char *unit, const struct figure_row *row)
{
    if (!is_quiet) {
        printf("%s %.4g %s\n", name, value, unit);
        fflush(stdout);
    }
    if (reported_count == REPORTED_MAX)
        return;
    reported[reported_count].name = mem_strdup(name);
    reported[reported_count].unit = mem_strdup(unit);
    reported[reported_count].value = value;
    reported[reported_count++].row = row;
}

void figure_quiet(bool quiet)
{
    is_quiet = quiet;
}

void figure_report(const char *name, double value)
{
    const struct figure_row *row = NULL;

    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            row = &rows[i];
    assert(row);
    keep(name, value, row->unit, row);
}

void figure_note(const char *name, double value, const char *unit)
{
    keep(name, value, unit, NULL);
}

void figure_list(void)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        printf("%-26s %-9s ", rows[i].name, rows[i].unit);
        if (rows[i].target > 0)
            printf("%s %-5g ", rows[i].at_least ? ">=" : "<=", rows[i].target);
        else
            printf("%-8s ", "");
        printf("%s\n", rows[i].means);
    }
}

void figure_markdown(struct text *out)
{
    text_add(out, "| figure | unit | target | what |\n|---|---|---|---|\n");
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        text_addf(out, "| `%s` | %s | ", rows[i].name, rows[i].unit);
        if (rows[i].target > 0)
            text_addf(out, "%s %g", rows[i].at_least ? "at least" : "at most", rows[i].target);
        text_addf(out, " | %s |\n", rows[i].means);
    }
}

static bool is_met(const struct figure_row *row, double value)
{
    return row->at_least ? value >= row->target : value <= row->target;
}

void figure_json(void)
{
    printf("{\"figures\": [");
    for (size_t i = 0; i < reported_count; i++) {
        const struct figure_row *row = reported[i].row;
        printf("%s\n  {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"", i ? "," : "",
               reported[i].name, reported[i].value, reported[i].unit);
        if (row && row->target > 0)
            printf(", \"target\": %g, \"at_least\": %s, \"met\": %s", row->target,
                   row->at_least ? "true" : "false",
                   is_met(row, reported[i].value) ? "true" : "false");
        printf("}");
    }
    printf("\n]}\n");
}

void figure_fini(void)
{
    while (reported_count > 0) {
        reported_count--;
        mem_free(reported[reported_count].name);
        mem_free(reported[reported_count].unit);
    }
}
