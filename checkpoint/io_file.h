/* io_file.h - one file of a checkpoint, for reading or writing at offsets: past the page cache
 * where the file system can, else through it.
 *
 * Blocking; after open any thread, many at once. Interrupted and short calls go on. Memory and
 * offsets of direct I/O must be multiples of IO_POOL_ALIGN; others go through the cache. Used in
 * librondo. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct io_file {
    int fd;              /* through the page cache; -1: not open */
    int direct;          /* the same file past it; -1: not possible here */
    atomic_bool shunned; /* direct I/O was refused: not tried again */
    bool local;          /* on a disk of this machine, as far as is known */
    uint64_t bytes;      /* when opened; as asked for when created */
};

/* How long a reader waits in all for what another node wrote to become visible (network file
 * systems cache names and sizes). One thread. */
struct io_patience {
    uint32_t left_ms;
    uint32_t next_ms; /* of the next pause */
};

enum io_way { IO_CACHED, IO_DIRECT };

void io_file_init(struct io_file *file); /* so that close is fine */
void io_file_close(struct io_file *file);
SCOPED_DESTRUCTOR(struct io_file *, io_file_close)

/* A regular file below dir ("a/b", no link in any part, no ".."). STATUS_NOT_FOUND once patience
 * (NULL: none) is over. */
enum status io_file_open(int dir, const char *path, struct io_patience *patience,
                         struct io_file *file, struct error *err) MUST_CHECK;
/* A new file with room for that many bytes. STATUS_EXISTS, EXHAUSTED for a full disk or quota. */
enum status io_file_create(int dir, const char *name, uint64_t bytes, struct io_file *file,
                           struct error *err) MUST_CHECK;
/* Exactly len bytes, unless the file ends before: *got. Returns 0 or an errno. */
int io_file_read(struct io_file *file, enum io_way way, void *buffer, size_t len, uint64_t at,
                 size_t *got) MUST_CHECK;
/* With IO_DIRECT, len is a multiple of IO_POOL_ALIGN too. Returns 0 or an errno. */
int io_file_write(struct io_file *file, enum io_way way, const void *bytes, size_t len,
                  uint64_t at) MUST_CHECK;
/* Cuts it to its size (direct writes end at a multiple) and makes it durable. 0 or an errno. */
int io_file_finish(struct io_file *file) MUST_CHECK;
/* Are all of these bytes in the page cache? False also when nobody can tell. */
bool io_file_cached(const struct io_file *file, size_t len, uint64_t at);
/* The page cache's own memory with these bytes, for ranks of a node that read the same: the kernel
 * then copies nothing. All pages are there when it returns, so that an error of the disk is NULL
 * here, and not a signal later. NULL also for files of other machines, of another size than when
 * they were opened, and on old kernels: read them. at is a multiple of IO_POOL_ALIGN; not to be
 * kept longer than it takes to copy. */
const void *io_file_map(const struct io_file *file, size_t len, uint64_t at);
void io_file_unmap(const void *bytes, size_t len);
/* The status of an errno of reading and writing: EXHAUSTED for a full disk or quota. */
enum status io_file_status(int errnum);
/* Sleeps; false: patience is over (or NULL). */
bool io_patience_wait(struct io_patience *patience);
