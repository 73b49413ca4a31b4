/* checkpoint_load.c - entries checkpoint.load, load_warm, reshard, reshard_columns, replicated:
 * from the disk, or from memory, into any layout. */
#include "tests/bench/checkpoint_stand.h"
#include "tests/bench/figure.h"
#include "tests/bench/process.h"
#include "tests/bench/sample.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A checkpoint of 2 GiB, of `world` ranks. */
static enum status made(const struct bench *bench, uint32_t world, enum checkpoint_split split,
                        char **dir, char **path, struct layout_table **layout, struct error *err)
{
    enum status st = checkpoint_stand_begin(bench, dir, err);

    *layout = checkpoint_stand_layout(&checkpoint_stand_large, world, split);
    if (st != STATUS_OK)
        return st;
    *path = checkpoint_stand_path(*dir, "checkpoint");
    return checkpoint_stand_save(*path, *layout, err);
}

static double total(void)
{
    return (double)checkpoint_stand_bytes(&checkpoint_stand_large);
}

/* --- cold, the same layout */

static enum status load_fio(const char *path, double *rate, struct error *err)
{
    SCOPED_TEXT char *shard =
        checkpoint_stand_path(path, "trainer-0/shard-00001-model-00001-of-00001.safetensors");
    enum status st = checkpoint_stand_cold_file(shard, err);

    return st == STATUS_OK ? checkpoint_stand_fio(shard, false, (uint64_t)total(), rate, err) : st;
}

static enum status load_ours(const char *path, const struct layout_table *layout,
                             const struct checkpoint_memory *memory, double *seconds,
                             struct error *err)
{
    enum status st = checkpoint_stand_cold(path, err);

    return st == STATUS_OK ? checkpoint_stand_load(path, layout, 0, 0, memory->pieces, seconds, err)
                           : st;
}

struct load_samples {
    struct sample fio, torch, rate, fio_rate;
};

static enum status load_run(const struct bench *bench, const char *dir, const char *path,
                            const struct layout_table *layout,
                            const struct checkpoint_memory *memory, bool first,
                            struct load_samples *samples, struct error *err)
{
    SCOPED_TEXT char *theirs = checkpoint_stand_path(dir, "torch");
    const char *args[] = {"load", theirs, NULL};
    double ours = 0, fio = 0, torch = 0, peak;
    enum status st = first ? load_ours(path, layout, memory, &ours, err) : STATUS_OK;

    if (st == STATUS_OK)
        st = load_fio(path, &fio, err);
    if (st == STATUS_OK && !first)
        st = load_ours(path, layout, memory, &ours, err);
    if (st != STATUS_OK)
        return st;
    if (access(theirs, F_OK) == 0 && checkpoint_stand_cold_file(theirs, err) == STATUS_OK &&
        checkpoint_stand_torch(bench, args, &torch, &peak))
        sample_add(&samples->torch, torch / ours);
    if (fio > 0) {
        sample_add(&samples->fio, total() / ours / fio);
        sample_add(&samples->fio_rate, fio / 1e9);
    }
    sample_add(&samples->rate, total() / ours / 1e9);
    return STATUS_OK;
}

static void load_tell(struct load_samples *samples)
{
    if (samples->fio.count) {
        figure_report("checkpoint.load.ratio_to_fio", sample_quantile(&samples->fio, 0.5));
        figure_note("checkpoint.load.fio_gb_per_s", sample_quantile(&samples->fio_rate, 0.5),
                    "GB/s");
    }
    if (samples->torch.count)
        figure_report("checkpoint.load.ratio_to_torch", sample_quantile(&samples->torch, 0.5));
    figure_note("checkpoint.load.gb_per_s", sample_quantile(&samples->rate, 0.5), "GB/s");
}

enum status bench_checkpoint_load(struct bench *bench, struct error *err)
{
    SCOPED(layout_table_destroy) struct layout_table *layout = NULL;
    SCOPED_TEXT char *path = NULL;
    struct load_samples samples = {0};
    struct checkpoint_memory memory = {0};
    char *dir = NULL;
    double seconds, peak;
    enum status st = made(bench, 1, CHECKPOINT_ROWS, &dir, &path, &layout, err);

    if (st == STATUS_OK) {
        SCOPED_TEXT char *theirs = checkpoint_stand_path(dir, "torch");
        const char *args[] = {"save", theirs, "32", "4096", "4096", NULL};
        (void)checkpoint_stand_torch(bench, args, &seconds, &peak);
        memory = checkpoint_stand_memory(layout, 0, false);
    }
    for (uint32_t i = 0; i < bench_runs(bench, CHECKPOINT_STAND_RUNS) && st == STATUS_OK; i++)
        st = load_run(bench, dir, path, layout, &memory, i % 2, &samples, err);
    if (st == STATUS_OK)
        load_tell(&samples);
    sample_fini(&samples.fio);
    sample_fini(&samples.fio_rate);
    sample_fini(&samples.torch);
    sample_fini(&samples.rate);
    checkpoint_stand_free(&memory);
    checkpoint_stand_end(dir);
    return st;
}

/* --- warm */

enum status bench_checkpoint_load_warm(struct bench *bench, struct error *err)
{
    SCOPED(layout_table_destroy) struct layout_table *layout = NULL;
    SCOPED_TEXT char *path = NULL;
    struct sample ratio = {0}, rate = {0};
    struct checkpoint_memory memory = {0}, from = {0};
    char *dir = NULL;
    enum status st = made(bench, 1, CHECKPOINT_ROWS, &dir, &path, &layout, err);

    if (st == STATUS_OK)
        st = checkpoint_stand_warm(path, err);
    if (st == STATUS_OK) {
        memory = checkpoint_stand_memory(layout, 0, false);
        from = checkpoint_stand_memory(layout, 0, false);
    }
    for (uint32_t i = 0; i < bench_runs(bench, CHECKPOINT_STAND_RUNS) && st == STATUS_OK; i++) {
        double ours = 0, begin = checkpoint_stand_now(), copy;
        memcpy(memory.bytes, from.bytes, memory.len);
        copy = checkpoint_stand_now() - begin;
        st = checkpoint_stand_load(path, layout, 0, 0, memory.pieces, &ours, err);
        sample_add(&ratio, copy / ours);
        sample_add(&rate, total() / ours / 1e9);
    }
    if (st == STATUS_OK) {
        figure_report("checkpoint.load_warm.ratio_to_memcpy", sample_quantile(&ratio, 0.5));
        figure_note("checkpoint.load_warm.gb_per_s", sample_quantile(&rate, 0.5), "GB/s");
    }
    sample_fini(&ratio);
    sample_fini(&rate);
    checkpoint_stand_free(&memory);
    checkpoint_stand_free(&from);
    checkpoint_stand_end(dir);
    return st;
}

/* --- other layouts, all ranks of a node */

struct ranks {
    const char *path;
    const struct layout_table *target;
    uint32_t ranks_here;
};

static void *rank_prepare(void *arg, uint32_t rank)
{
    const struct ranks *ranks = arg;
    struct checkpoint_memory *memory = NEW(struct checkpoint_memory);

    *memory = checkpoint_stand_memory(ranks->target, rank, false);
    return memory;
}

static bool rank_load(void *arg, uint32_t rank, void *prepared)
{
    const struct ranks *ranks = arg;
    const struct checkpoint_memory *memory = prepared;
    struct error err = {0};
    double seconds;

    if (checkpoint_stand_load(ranks->path, ranks->target, rank, ranks->ranks_here, memory->pieces,
                              &seconds, &err) == STATUS_OK)
        return true;
    (void)fprintf(stderr, "rondo-bench: rank %" PRIu32 ": %s\n", rank, err.text);
    return false;
}

static enum status load_ranks(const char *path, const struct layout_table *target,
                              uint32_t ranks_here, double *seconds, uint64_t *read_bytes,
                              struct error *err)
{
    struct ranks ranks = {path, target, ranks_here};
    const struct checkpoint_rank what = {rank_prepare, rank_load, &ranks};
    enum status st = checkpoint_stand_cold(path, err);

    return st == STATUS_OK
               ? checkpoint_stand_ranks(&what, layout_table_world(target), seconds, read_bytes, err)
               : st;
}

struct way {
    uint32_t from, to;
    enum checkpoint_split split;
    uint32_t ranks_here; /* 0: their bytes are apart, each reads its own past the cache */
};

/* Median of (the same bytes in their own layout) / (in the other), alternating. */
static enum status reshard(const struct bench *bench, const struct way *way, double *out,
                           double *over_read, struct error *err)
{
    SCOPED(layout_table_destroy) struct layout_table *layout = NULL;
    SCOPED(layout_table_destroy)
    struct layout_table *target =
        checkpoint_stand_layout(&checkpoint_stand_large, way->to, way->split);
    SCOPED_TEXT char *path = NULL;
    struct sample ratio = {0}, over = {0};
    char *dir = NULL;
    enum status st = made(bench, way->from, CHECKPOINT_ROWS, &dir, &path, &layout, err);

    for (uint32_t i = 0; i < bench_runs(bench, 5) && st == STATUS_OK; i++) {
        double same = 0, other = 0;
        uint64_t read_bytes = 0;
        st = load_ranks(path, layout, 0, &same, &read_bytes, err);
        if (st == STATUS_OK)
            st = load_ranks(path, target, way->ranks_here, &other, &read_bytes, err);
        sample_add(&ratio, same / other);
        sample_add(&over, (double)read_bytes / total());
    }
    *out = sample_quantile(&ratio, 0.5);
    *over_read = sample_quantile(&over, 0.5);
    sample_fini(&ratio);
    sample_fini(&over);
    checkpoint_stand_end(dir);
    return st;
}

enum status bench_checkpoint_reshard(struct bench *bench, struct error *err)
{
    static const struct way ways[] = {
        {8, 6, CHECKPOINT_ROWS, 0}, {8, 3, CHECKPOINT_ROWS, 0}, {3, 8, CHECKPOINT_ROWS, 0}};
    double least = 1e9;
    enum status st = STATUS_OK;

    for (size_t i = 0; i < COUNT_OF(ways) && st == STATUS_OK; i++) {
        SCOPED_TEXT char *name =
            mem_printf("checkpoint.reshard.%" PRIu32 "_to_%" PRIu32, ways[i].from, ways[i].to);
        double ratio = 0, over = 0;
        st = reshard(bench, &ways[i], &ratio, &over, err);
        if (st != STATUS_OK)
            return st;
        figure_note(name, ratio, "ratio");
        least = ratio < least ? ratio : least;
    }
    figure_report("checkpoint.reshard.ratio_to_load", least);
    return STATUS_OK;
}

enum status bench_checkpoint_reshard_columns(struct bench *bench, struct error *err)
{
    static const struct way way = {8, 6, CHECKPOINT_COLUMNS, 6};
    double ratio = 0, over = 0;
    enum status st = reshard(bench, &way, &ratio, &over, err);

    if (st == STATUS_OK) {
        figure_report("checkpoint.reshard_columns.ratio_to_load", ratio);
        figure_report("checkpoint.reshard_columns.over_read", over);
    }
    return st;
}

/* --- replicas */

/* What any way needs that hands the same bytes to all ranks: each copies them to itself, at once.
 */
struct copies {
    const struct ranks *ranks;
    const void *shared;
};

static void *copies_prepare(void *arg, uint32_t rank)
{
    const struct copies *copies = arg;

    return rank_prepare((void *)(uintptr_t)copies->ranks, rank);
}

static bool copies_run(void *arg, uint32_t rank, void *prepared)
{
    const struct copies *copies = arg;
    struct checkpoint_memory *memory = prepared;

    (void)rank;
    memcpy(memory->bytes, copies->shared, memory->len);
    return true;
}

static enum status copies_once(const struct layout_table *layout, const void *shared,
                               double *seconds, struct error *err)
{
    const struct ranks ranks = {NULL, layout, 0};
    struct copies copies = {&ranks, shared};
    const struct checkpoint_rank what = {copies_prepare, copies_run, &copies};
    uint64_t read_bytes;

    return checkpoint_stand_ranks(&what, layout_table_world(layout), seconds, &read_bytes, err);
}

enum status bench_checkpoint_replicated(struct bench *bench, struct error *err)
{
    SCOPED(layout_table_destroy) struct layout_table *layout = NULL;
    SCOPED(layout_table_destroy)
    struct layout_table *one =
        checkpoint_stand_layout(&checkpoint_stand_large, 1, CHECKPOINT_WHOLE);
    SCOPED_TEXT char *path = NULL;
    struct sample bytes = {0}, slower = {0}, copied = {0};
    void *shared = checkpoint_stand_map((size_t)total(), true);
    char *dir = NULL;
    enum status st = made(bench, 4, CHECKPOINT_WHOLE, &dir, &path, &layout, err);

    for (uint32_t i = 0; i < bench_runs(bench, 5) && st == STATUS_OK; i++) {
        double alone = 0, all = 0, copy = 0;
        uint64_t read_bytes = 0;
        st = load_ranks(path, one, 0, &alone, &read_bytes, err);
        if (st == STATUS_OK)
            st = load_ranks(path, layout, 4, &all, &read_bytes, err);
        if (st == STATUS_OK)
            st = copies_once(layout, shared, &copy, err);
        sample_add(&copied, copy / alone);
        sample_add(&bytes, (double)read_bytes / total());
        sample_add(&slower, all / alone);
    }
    if (st == STATUS_OK) {
        figure_report("checkpoint.replicated.bytes_ratio", sample_quantile(&bytes, 0.5));
        figure_report("checkpoint.replicated.time_ratio", sample_quantile(&slower, 0.5));
        figure_note("checkpoint.replicated.memcpy_ratio", sample_quantile(&copied, 0.5), "ratio");
    }
    (void)munmap(shared, (size_t)total() + 64);
    sample_fini(&copied);
    sample_fini(&bytes);
    sample_fini(&slower);
    checkpoint_stand_end(dir);
    return st;
}
