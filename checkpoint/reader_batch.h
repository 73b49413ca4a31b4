/* reader_batch.h - some shard files of one load: opened together, their headers checked, then read
 * span by span. For reader_load.c only.
 *
 * One thread; the work is done on the pool's. */
#pragma once
#include "checkpoint/plan.h"
#include "checkpoint/reader_table.h"

#define READER_BATCH_FILES 64u

/* One run of the plan: which bytes of a file it spans, in order of begin within a file. */
struct reader_run {
    uint64_t key;        /* source rank << 32 | source piece: which file */
    uint64_t begin, end; /* until placed: in the source's piece; then in the file */
    uint64_t base;       /* where that piece begins in the file */
    uint64_t reach;      /* highest end up to this run */
    struct plan_cursor cursor;
};
struct reader_load {
    struct reader *reader;
    struct io_pool *pool;
    const struct plan *plan;
    void *const *pieces;   /* of the target */
    const uint32_t *first; /* of them, of each tensor */
    struct reader_run *runs;
    struct shard_read_counts counts;
    uint64_t reads, files;
};

/* runs [from, to) are of at most READER_BATCH_FILES files. STATUS_UNAVAILABLE may pass. */
enum status reader_batch_read(struct reader_load *load, size_t from, size_t to,
                              struct error *err) MUST_CHECK;
