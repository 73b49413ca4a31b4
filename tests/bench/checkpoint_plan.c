/* checkpoint_plan.c - entry checkpoint.plan: 10,000 tensors from 4,096 ranks to 3,072.
 *
 * In a process of its own, so that its memory can be told from the bench's. 40 shapes, 250 tensors
 * each, as a model of some hundred layers has them: cut in rows, in grids of 8 x 512 and 4 x 768,
 * and in boxes by cuts at random places. No daemon, no rival: the numbers are limits. */
#include "checkpoint/layout_build.h"
#include "checkpoint/plan.h"
#include "tests/bench/bench.h"
#include "tests/bench/figure.h"
#include "tests/bench/sample.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHAPES     40
#define TENSORS    10000
#define SOURCE     4096
#define TARGET     3072
#define RANKS_SEEN 64

enum way { WAY_ROWS, WAY_GRID, WAY_BOXES, WAY_COUNT };

/* What the process tells. */
struct measured {
    double rank_ms[WAY_COUNT], global_s[WAY_COUNT];
    double parse_ms, parse_mib, runs_million, rss_mib;
};

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static double rss_mib(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

/* No power of two, so that neither world divides it. */
static void shape_of(uint32_t i, uint64_t shape[2])
{
    shape[0] = 8192 + 129 * (uint64_t)i;
    shape[1] = 4096 + 67 * (uint64_t)(i % 7);
}

static void chunk(uint64_t size, uint32_t parts, uint64_t *cuts)
{
    uint64_t each = (size + parts - 1) / parts;

    for (uint32_t i = 0; i <= parts; i++)
        cuts[i] = i * each < size ? i * each : size;
}

static enum status add_grid(struct layout_build *build, const uint64_t shape[2], uint32_t rows,
                            uint32_t columns, uint32_t *out, struct error *err)
{
    uint64_t cuts[2][SOURCE + 1];
    uint32_t at[SOURCE + 1], ranks[SOURCE];
    struct layout_grid grid = {2, {cuts[0], cuts[1]}, {rows + 1, columns + 1}, at, ranks};

    chunk(shape[0], rows, cuts[0]);
    chunk(shape[1], columns, cuts[1]);
    for (uint32_t i = 0; i < rows * columns; i++)
        at[i] = ranks[i] = i;
    at[rows * columns] = rows * columns;
    return layout_build_grid(build, &grid, out, err);
}

/* --- boxes */

struct cutting {
    uint64_t state;
    uint32_t count;
    uint32_t ranks[SOURCE];
    uint64_t numbers[SOURCE][4];
};

static uint64_t next_number(struct cutting *cutting)
{
    cutting->state = cutting->state * 6364136223846793005u + 1442695040888963407u;
    return cutting->state >> 33;
}

/* Cuts the box between ranks, across its longer side, somewhere in its middle half. */
static void cut_box(struct cutting *cutting, const uint64_t box[4], uint32_t ranks)
{
    uint32_t dim = box[3] > box[2], first = ranks / 2;
    uint64_t half[4] = {box[0], box[1], box[2], box[3]}, size = box[2 + dim];

    if (ranks == 1) {
        cutting->ranks[cutting->count] = cutting->count;
        memcpy(cutting->numbers[cutting->count++], box, sizeof half);
        return;
    }
    half[2 + dim] = size / 4 + next_number(cutting) % (size / 2 + 1);
    cut_box(cutting, half, first);
    half[dim] += half[2 + dim];
    half[2 + dim] = box[dim] + size - half[dim];
    cut_box(cutting, half, ranks - first);
}

static enum status add_boxes(struct layout_build *build, const uint64_t shape[2], uint32_t ranks,
                             uint32_t *out, struct error *err)
{
    SCOPED(mem_free) void *memory = mem_alloc(sizeof(struct cutting));
    struct cutting *cutting = memory;

    cutting->state = shape[0] * 31 + ranks;
    cut_box(cutting, (uint64_t[4]){0, 0, shape[0], shape[1]}, ranks);
    struct layout_boxes boxes = {2, cutting->count, cutting->ranks, cutting->numbers[0]};
    return layout_build_boxes(build, &boxes, out, err);
}

/* --- tables */

static enum status make_table(enum way way, bool target, struct layout_table **out,
                              struct error *err)
{
    uint32_t ranks = target ? TARGET : SOURCE, layouts[SHAPES];
    SCOPED(layout_build_destroy) struct layout_build *build = layout_build_create(ranks);
    enum status st = STATUS_OK;

    for (uint32_t i = 0; i < SHAPES && st == STATUS_OK; i++) {
        uint64_t shape[2];
        uint32_t rows = way == WAY_ROWS ? ranks : target ? 4 : 8;
        shape_of(i, shape);
        st = way == WAY_BOXES ? add_boxes(build, shape, ranks, &layouts[i], err)
                              : add_grid(build, shape, rows, ranks / rows, &layouts[i], err);
    }
    for (uint32_t i = 0; i < TENSORS && st == STATUS_OK; i++) {
        char name[64];
        struct layout_tensor tensor = {
            .name = name, .dtype = DTYPE_BF16, .dims = 2, .layout = layouts[i % SHAPES]};
        shape_of(i % SHAPES, tensor.shape);
        tensor.name_len = (size_t)snprintf(name, sizeof name, "model.layers.%u.part.%u.weight",
                                           i / SHAPES, i % SHAPES);
        st = layout_build_tensor(build, &tensor, err);
    }
    return st == STATUS_OK ? layout_build_finish(build, out, err) : st;
}

static enum status measure_parse(const struct layout_table *table, uint32_t runs,
                                 struct measured *out, struct error *err)
{
    struct sample sample = {0};
    struct text text;
    enum status st = STATUS_OK;

    text_init(&text, 0);
    layout_table_print(table, &text);
    for (uint32_t i = 0; i < runs && st == STATUS_OK; i++) {
        SCOPED(layout_table_destroy) struct layout_table *parsed = NULL;
        double begin = now_ms();
        st = layout_table_parse(text_get(&text), text.len, &parsed, err);
        sample_add(&sample, now_ms() - begin);
    }
    out->parse_ms = sample_quantile(&sample, 0.5);
    out->parse_mib = (double)text.len / 1048576;
    sample_fini(&sample);
    text_fini(&text);
    return st;
}

static enum status measure_ranks(const struct layout_table *source,
                                 const struct layout_table *target, double *out, struct error *err)
{
    struct sample sample = {0};
    enum status st = STATUS_OK;

    for (uint32_t i = 0; i < RANKS_SEEN && st == STATUS_OK; i++) {
        SCOPED(plan_destroy) struct plan *plan = NULL;
        double begin = now_ms();
        st = plan_rank(source, target, i * (TARGET / RANKS_SEEN), NULL, &plan, err);
        sample_add(&sample, now_ms() - begin);
    }
    *out = sample_quantile(&sample, 0.5);
    sample_fini(&sample);
    return st;
}

static enum status measure_way(enum way way, uint32_t runs, struct measured *out, struct error *err)
{
    SCOPED(layout_table_destroy) struct layout_table *source = NULL;
    SCOPED(layout_table_destroy) struct layout_table *target = NULL;
    struct sample sample = {0};
    enum status st = make_table(way, false, &source, err);

    if (st == STATUS_OK)
        st = make_table(way, true, &target, err);
    if (st == STATUS_OK && way == WAY_ROWS)
        st = measure_parse(source, runs, out, err);
    if (st == STATUS_OK)
        st = measure_ranks(source, target, &out->rank_ms[way], err);
    for (uint32_t i = 0; i < runs && st == STATUS_OK; i++) {
        SCOPED(plan_totals_destroy) struct plan_totals *totals = NULL;
        double begin = now_ms();
        st = layout_table_check(source, err); /* what plan_global takes for granted */
        if (st == STATUS_OK)
            st = plan_global(source, target, NULL, &totals, err);
        sample_add(&sample, (now_ms() - begin) / 1e3);
        if (totals && way == WAY_GRID)
            out->runs_million = (double)totals->runs / 1e6;
    }
    out->global_s[way] = sample_quantile(&sample, 0.5);
    sample_fini(&sample);
    return st;
}

/* In the new process; the parent reads what it writes. */
static void measure_all(int fd, uint32_t runs)
{
    struct measured measured = {0};
    struct error err = {0};
    enum status st = STATUS_OK;

    for (enum way way = 0; way < WAY_COUNT && st == STATUS_OK; way++)
        st = measure_way(way, runs, &measured, &err);
    measured.rss_mib = rss_mib();
    if (st != STATUS_OK)
        (void)fprintf(stderr, "rondo-bench: checkpoint.plan: %s\n", err.text);
    _exit(st != STATUS_OK || write(fd, &measured, sizeof measured) != (ssize_t)sizeof measured);
}

enum status bench_checkpoint_plan(struct bench *bench, struct error *err)
{
    struct measured got;
    int fds[2], code = 0;

    if (pipe(fds) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        measure_all(fds[1], bench_runs(bench, 7));
    close(fds[1]);
    ssize_t read_bytes = pid > 0 ? read(fds[0], &got, sizeof got) : -1;
    close(fds[0]);
    if (pid > 0)
        (void)waitpid(pid, &code, 0);
    if (read_bytes != (ssize_t)sizeof got || code != 0)
        return error_set(err, STATUS_INTERNAL, "the process that plans has failed");
    double worst = 0;
    for (enum way way = 0; way < WAY_COUNT; way++)
        worst = got.rank_ms[way] > worst ? got.rank_ms[way] : worst;
    figure_report("checkpoint.plan.rank_ms", worst);
    figure_report("checkpoint.plan.global_s", got.global_s[WAY_ROWS] > got.global_s[WAY_GRID]
                                                  ? got.global_s[WAY_ROWS]
                                                  : got.global_s[WAY_GRID]);
    figure_report("checkpoint.plan.irregular_s", got.global_s[WAY_BOXES]);
    figure_report("checkpoint.plan.parse_ms", got.parse_ms);
    figure_report("checkpoint.plan.rss_mib", got.rss_mib);
    figure_note("checkpoint.plan.parse_mib", got.parse_mib, "MiB");
    figure_note("checkpoint.plan.grid_runs", got.runs_million, "million");
    return STATUS_OK;
}
