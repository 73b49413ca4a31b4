/* main_bench.c - rondo-bench: every number we claim, measured here and now beside its rival. */
#include "base/mem.h"
#include "base/text.h"
#include "tests/bench/bench.h"
#include "tests/bench/calibrate.h"
#include "tests/bench/figure.h"
#include "tests/bench/process.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    bench_entry run;
} entries[] = {
    {"launch", bench_launch},
    {"torch", bench_torch},
    {"gang", bench_gang},
    {"throughput", bench_throughput},
    {"submit", bench_submit},
    {"detect", bench_detect},
    {"metrics", bench_metrics},
    {"rss", bench_rss},
    {"checkpoint.plan", bench_checkpoint_plan},
    {"checkpoint.stall", bench_checkpoint_stall},
    {"checkpoint.persist", bench_checkpoint_persist},
    {"checkpoint.save", bench_checkpoint_save},
    {"checkpoint.save_small", bench_checkpoint_save_small},
    {"checkpoint.load", bench_checkpoint_load},
    {"checkpoint.load_warm", bench_checkpoint_load_warm},
    {"checkpoint.reshard", bench_checkpoint_reshard},
    {"checkpoint.reshard_columns", bench_checkpoint_reshard_columns},
    {"checkpoint.replicated", bench_checkpoint_replicated},
    {"checkpoint.verify", bench_checkpoint_verify},
    {"checkpoint.export", bench_checkpoint_export},
    {"checkpoint.naive", bench_checkpoint_naive},
    {"checkpoint.peer", bench_checkpoint_peer},
    {"checkpoint.slowdown", bench_checkpoint_slowdown},
};

static const char usage[] =
    "rondo-bench: measures Rondo, and what a user would take instead, in one run.\n"
    "\n"
    "usage: rondo-bench list | all | NAME... [--runs N] [--json] [--dir DIR]\n"
    "  list       what each figure means: unit, target, rival\n"
    "  NAME       launch torch gang throughput submit detect metrics rss\n"
    "             checkpoint.plan .stall .persist .save .save_small .load .load_warm .reshard\n"
    "             .reshard_columns .replicated .verify .export .naive .peer .slowdown (each with "
    "its prefix)\n"
    "  --runs N   repetitions instead of the entry's own number\n"
    "  --json     one JSON document at the end instead of lines\n"
    "  --dir DIR  where private directories are made and removed (default /var/tmp); on the disk\n"
    "             that you ask about\n"
    "\n"
    "Each entry starts a daemon, a database with fsync on and agents of its own, and stops them.\n"
    "Other work on the machine spoils the figures: look at calibrate.* and at the minima.\n";

struct asked {
    bool all, json, list, wrong;
    bool entry[COUNT_OF(entries)];
    uint64_t runs;
    const char *dir;
};

static bool ask_entry(struct asked *asked, const char *name)
{
    for (size_t i = 0; i < COUNT_OF(entries); i++)
        if (strcmp(name, entries[i].name) == 0)
            return asked->entry[i] = true;
    return false;
}

static struct asked read_arguments(int argc, char **argv)
{
    struct asked asked = {.dir = "/var/tmp", .wrong = argc < 2};

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "list") == 0)
            asked.list = true;
        else if (strcmp(argv[i], "all") == 0)
            asked.all = true;
        else if (strcmp(argv[i], "--json") == 0)
            asked.json = true;
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            asked.wrong |= !text_to_u64(argv[++i], 1, 10000, &asked.runs);
        else if (strcmp(argv[i], "--dir") == 0 && i + 1 < argc)
            asked.dir = argv[++i];
        else if (!ask_entry(&asked, argv[i]))
            asked.wrong = true;
    }
    return asked;
}

static char *own_dir(void)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    return mem_strdup(self);
}

static int run_entries(struct bench *bench, const struct asked *asked)
{
    struct error err = {0};
    int failed = 0;

    if (calibrate(bench, &err) != STATUS_OK) {
        (void)fprintf(stderr, "rondo-bench: %s\n", err.text);
        return 1;
    }
    for (size_t i = 0; i < COUNT_OF(entries) && !process_interrupted(); i++) {
        if (!asked->all && !asked->entry[i])
            continue;
        if (entries[i].run(bench, &err) != STATUS_OK) {
            (void)fprintf(stderr, "rondo-bench: %s: %s\n", entries[i].name, err.text);
            failed = 1;
        }
    }
    return failed || process_interrupted();
}

int main(int argc, char **argv)
{
    struct asked asked = read_arguments(argc, argv);
    SCOPED_TEXT char *dir = NULL;

    if (asked.list && !asked.wrong) {
        figure_list();
        return 0;
    }
    if (asked.wrong || !(dir = realpath(asked.dir, NULL))) {
        (void)fputs(usage, stderr);
        return 2;
    }
    struct bench bench = {.base_dir = dir, .bin = own_dir(), .runs = (uint32_t)asked.runs};
    process_watch_signals();
    bench.loop = loop_uv_create();
    figure_quiet(asked.json);
    int code = run_entries(&bench, &asked);
    if (asked.json)
        figure_json();
    figure_fini();
    loop_uv_destroy(bench.loop);
    mem_free(bench.bin);
    return code;
}
