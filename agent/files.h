/* files.h - the seam to the disk: small batches of steps, run off the loop, answered on it.
 *
 * Two implementations: files_uv.c (libuv's pool, steps by files_disk.c) and the simulator's. Loop
 * thread only. The loop never waits for a disk: a stalled one delays metrics and launches, never a
 * heartbeat. Steps of a batch run in order; the first failure ends it. Batches run beside each
 * other: who needs order keeps one in flight. `done` (NULL: nobody asks) runs exactly once, later;
 * after the seam's destroy it does not run at all. Batches own their texts and results. */
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct files;
struct page;

enum files_kind {
    FILES_READ,   /* up to `max` bytes from `offset` (negative: from the end) */
    FILES_WRITE,  /* the whole file, by a temporary and a rename */
    FILES_APPEND, /* at the end; made when missing */
    FILES_DIR,    /* makes one directory; an existing one is fine */
    FILES_REMOVE, /* a file or a whole tree; missing is fine */
    FILES_RENAME,
    FILES_LIST,   /* names in a directory, sorted */
    FILES_PUNCH,  /* gives back the blocks of `max` bytes from `offset`; the size stays */
    FILES_PAGE,   /* maps the page of worker/page.h; len > 0: makes and initialises it first */
    FILES_USER,   /* looks up user `path`: uid, gid, home directory */
    FILES_UNPACK, /* checks archive `path` against SHA-256 `hex`, unpacks it into new directory `to`
                   */
    FILES_FSYNC,  /* a directory */
};
struct files_step {
    enum files_kind kind;
    char *path, *to;
    char hex[65];
    void *bytes; /* WRITE, APPEND: what to write. READ: what was read, NUL behind it */
    size_t len;
    int64_t offset; /* READ: where it began, when done */
    size_t max;
    uint32_t mode;
    int64_t uid, gid; /* -1: leave. USER: the result */
    bool sync;        /* WRITE, APPEND: durable before the step counts as done */
    bool missing_ok; /* READ, LIST, RENAME, PUNCH: no such file is no failure (`missing` says so) */
    bool optional;   /* RENAME: no failure is one: the steps that follow do without */
    bool claim;      /* DIR: one that exists gets owner and mode, too */
    /* results */
    bool missing;
    uint64_t size; /* READ, LIST: of the whole file; of the tree's files */
    int64_t head;  /* READ: first offset that still has blocks */
    int64_t mtime_us;
    char **names; /* LIST */
    size_t names_count;
    char *home; /* USER */
    struct page *page;
};
struct files_batch {
    struct files_step *steps;
    size_t count;
    size_t ran; /* steps that succeeded */
};
typedef void (*files_done)(void *arg, enum status st, const struct error *err,
                           struct files_batch *batch); /* batch: a loan */
struct files_ops {
    void (*run)(struct files *files, struct files_batch *batch_take, files_done done, void *arg);
    void (*unmap)(struct files *files, struct page *page);
    void (*destroy)(struct files *files);
};
struct files {
    const struct files_ops *ops;
};

struct files_batch *files_batch_create(void);
void files_batch_destroy(struct files_batch *batch); /* NULL is fine */
void files_names_destroy(char **names, size_t count);
/* These add a step; the loan ends with the next step. Paths are copied, bytes too. */
struct files_step *files_read(struct files_batch *batch, const char *path, int64_t offset,
                              size_t max);
struct files_step *files_write(struct files_batch *batch, const char *path, const void *bytes,
                               size_t len, uint32_t mode);
struct files_step *files_append(struct files_batch *batch, const char *path, const void *bytes,
                                size_t len);
struct files_step *files_dir(struct files_batch *batch, const char *path, uint32_t mode);
struct files_step *files_step_add(struct files_batch *batch, enum files_kind kind,
                                  const char *path);
static inline void files_run(struct files *files, struct files_batch *batch_take, files_done done,
                             void *arg)
{
    files->ops->run(files, batch_take, done, arg);
}
/* Runs the steps here and now. Any thread; blocks. */
enum status files_disk_run(struct files_batch *batch, struct error *err) MUST_CHECK;

/* Real one. threads_max: how many batches run at once; the rest wait in order. */
struct loop;
struct files *files_uv_create(struct loop *loop, uint32_t threads_max);
