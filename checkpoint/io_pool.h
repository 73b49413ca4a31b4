/* io_pool.h - threads that read and write blocks of files, each with an aligned buffer of its own.
 *
 * create, run and destroy are for one thread at a time, which waits in run. Bytes in flight are at
 * most threads * buffer_bytes. Functions that run on the pool's threads must not allocate (librondo
 * leaves a function by a jump when there is no memory) and should block only in reads, writes and
 * io_pool_turn. The threads take no signals. Used in librondo: no libuv. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IO_POOL_ALIGN   ((size_t)4096) /* of buffers; what direct I/O asks of memory and offsets */
#define IO_POOL_THREADS 8              /* as many 4 MiB requests keep a disk busy */
#define IO_POOL_BUFFER  ((size_t)4 << 20)

struct io_pool;
struct io_pool_options {
    uint32_t threads;    /* 0: IO_POOL_THREADS */
    size_t buffer_bytes; /* a multiple of IO_POOL_ALIGN; 0: IO_POOL_BUFFER */
    bool background;     /* the threads give way to others on the processors (nice 10) */
};
/* One item; buffer is the thread's. */
typedef enum status (*io_pool_fn)(void *arg, size_t item, void *buffer, struct error *err);

/* Fewer threads than asked for, even none (run then works on the caller's), are a success. options
 * may be NULL. STATUS_EXHAUSTED: no memory for the buffers. */
enum status io_pool_create(const struct io_pool_options *options, struct io_pool **out,
                           struct error *err) MUST_CHECK;
void io_pool_destroy(struct io_pool *pool); /* NULL is fine */
SCOPED_DESTRUCTOR(struct io_pool *, io_pool_destroy)
size_t io_pool_buffer_bytes(const struct io_pool *pool);

/* Calls fn for items 0..count - 1, begun in that order, and waits for all that began. After a
 * failure no more begin; of several failures the lowest item's is given. */
enum status io_pool_run(struct io_pool *pool, size_t count, io_pool_fn fn, void *arg,
                        struct error *err) MUST_CHECK;
/* From within fn: waits until all lower items have called io_pool_turn_over, for what must be done
 * in order. False: one has failed, give up with STATUS_CANCELLED. */
bool io_pool_turn(struct io_pool *pool, size_t item);
void io_pool_turn_over(struct io_pool *pool);
