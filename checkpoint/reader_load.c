/* reader_load.c - loads one rank's pieces: the plan says which bytes, file after file they are read
 * in few large requests, and each goes to its place. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/reader_batch.h"
#include "checkpoint/reader_scatter.h"

#define SMALL_BYTES ((uint64_t)1 << 20)

static int key_order(const void *a, const void *b)
{
    const struct reader_run *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->cursor.tensor != y->cursor.tensor)
        return x->cursor.tensor < y->cursor.tensor ? -1 : 1;
    return x->cursor.run < y->cursor.run ? -1 : x->cursor.run > y->cursor.run;
}

/* Sorted by file. */
static size_t list_runs(const struct plan *plan, struct reader_run *runs)
{
    struct plan_cursor cursor = {0}, here = cursor;
    struct plan_run run;
    size_t count = 0;

    while (plan_next(plan, &cursor, &run)) {
        runs[count++] = (struct reader_run){
            .key = (uint64_t)run.source_rank << 32 | run.source_piece, .cursor = here};
        here = cursor;
    }
    if (count)
        qsort(runs, count, sizeof *runs, key_order);
    return count;
}

static uint32_t *first_pieces(const struct layout_table *target, uint32_t rank)
{
    size_t tensors = layout_table_count(target);
    uint32_t *first = mem_array(tensors + 1, sizeof *first);

    for (size_t i = 0; i < tensors; i++)
        first[i + 1] = first[i] + (uint32_t)layout_table_pieces(target, i, rank, NULL, 0);
    return first;
}

/* The end of the batch that begins at `from`. */
static size_t batch_end(const struct reader_run *runs, size_t from, size_t count)
{
    uint32_t files = 0;
    size_t end = from;

    while (end < count) {
        if ((end == from || runs[end].key != runs[end - 1].key) && files++ == READER_BATCH_FILES)
            break;
        end++;
    }
    return end;
}

/* What is not available may come back: a file server that restarts, a handle that is stale. */
static enum status load_all(struct reader_load *load, size_t count, struct error *err)
{
    for (size_t from = 0, end; from < count; from = end) {
        enum status st;
        end = batch_end(load->runs, from, count);
        do
            st = reader_batch_read(load, from, end, err);
        while (st == STATUS_UNAVAILABLE && io_patience_wait(&load->reader->patience));
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

static void tell(const struct reader_load *load, struct reader_stats *stats)
{
    *stats = (struct reader_stats){
        .bytes = plan_bytes(load->plan),
        .direct = atomic_load(&load->counts.direct),
        .cached = atomic_load(&load->counts.cached),
        .copied = atomic_load(&load->counts.copied),
        .reads = load->reads,
        .files = load->files,
    };
}

/* Little data needs neither many threads nor large buffers. A pool stays for the next load: its
 * buffers have their pages. */
static enum status need_pool(struct reader *reader, const struct plan *plan, struct error *err)
{
    const struct io_pool_options little = {.threads = 1, .buffer_bytes = SHARD_READ_CHUNK};
    bool small = plan_bytes(plan) <= SMALL_BYTES;

    if (reader->pool && (small || !reader->pool_is_small))
        return STATUS_OK;
    io_pool_destroy(reader->pool);
    reader->pool = NULL;
    reader->pool_is_small = small;
    return io_pool_create(small ? &little : NULL, &reader->pool, err);
}

enum status reader_load(struct reader *reader, const struct layout_table *target, uint32_t rank,
                        void *const *pieces, struct reader_stats *stats, struct error *err)
{
    const struct plan_options options = {.partial = reader->options.partial};
    SCOPED(plan_destroy) struct plan *plan = NULL;
    enum status st = plan_rank(reader->layout, target, rank, &options, &plan, err);

    if (st != STATUS_OK)
        return st;
    SCOPED(mem_free) void *first = first_pieces(target, rank);
    SCOPED(mem_free) void *runs = mem_array(plan_count(plan) + 1, sizeof(struct reader_run));
    struct reader_load load = {
        .reader = reader, .plan = plan, .pieces = pieces, .first = first, .runs = runs};
    size_t count = list_runs(plan, runs);
    st = need_pool(reader, plan, err);
    load.pool = reader->pool;
    if (st == STATUS_OK)
        st = load_all(&load, count, err);
    if (st == STATUS_OK && stats)
        tell(&load, stats);
    return st;
}
