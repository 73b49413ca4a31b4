/* shard_write.h - writes the image of one file into a vault, digesting it on the way.
 *
 * Blocking; one caller of a pool at a time. The image is memory, or an open file that belongs to
 * somebody else: that is read with pread, never mapped, and may change or shrink meanwhile (then
 * its blocks do not match). The new file is durable on success and gone after a failure; the
 * caller syncs the directory. Used in librondo. */
#pragma once
#include "checkpoint/io_pool.h"
#include <stdatomic.h>

#define SHARD_WRITE_BLOCK 65536u /* BLOCK_TABLE_BLOCK_BYTES: what crcs are of */

struct shard_write_from {
    const void *memory; /* NULL: fd from offset at */
    int fd;
    uint64_t at;
    uint64_t bytes;
};
struct shard_write_options {
    const uint32_t *crcs;    /* what each block must have; NULL: unknown */
    const atomic_bool *stop; /* ends it with STATUS_CANCELLED; NULL: nobody will */
    bool cached;             /* through the page cache: it will be read again soon */
};
struct shard_written {
    uint64_t bytes;
    uint32_t crc32c;
    char xxh3[33];
};

/* Makes dir/name. STATUS_EXHAUSTED: no room; DATA_LOSS: a block of the image is not what crcs say
 * (the text names it); EXISTS. options may be NULL. */
enum status shard_write(struct io_pool *pool, int dir, const char *name,
                        const struct shard_write_from *from,
                        const struct shard_write_options *options, struct shard_written *out,
                        struct error *err) MUST_CHECK;
