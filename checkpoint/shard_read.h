/* shard_read.h - reads ranges of a shard file, every block checked before anyone sees it.
 *
 * Blocks are those of the block table. A copy of the file in shared memory is read first, where
 * there is one; what does not match there comes from the vault. What does not match in the vault is
 * read once more by another way (a cache may lie) before it is called damaged. open and close
 * belong to one thread; reading to any, many at once, without allocation. Used in librondo. */
#pragma once
#include "checkpoint/block_table.h"
#include "checkpoint/io_file.h"
#include "checkpoint/io_pool.h"

/* So much is read, checked and used at a time while it is in a near cache. */
#define SHARD_READ_CHUNK ((size_t)4 * BLOCK_TABLE_BLOCK)

struct shard_read {
    const char *path;              /* in the checkpoint; borrowed */
    struct io_file file;           /* in the vault */
    struct io_file copy;           /* a file that holds a copy ... */
    uint64_t copy_at;              /* ... from here */
    struct block_file blocks;      /* borrowed */
    atomic_uint_least64_t damaged; /* a block that was found damaged, + 1; 0: none was */
};
struct shard_read_counts { /* bytes */
    atomic_uint_least64_t direct, cached, copied;
};
/* Who takes the bytes; each byte is given to one of the two, once, in any order within a span. */
struct shard_read_sink {
    /* Checked bytes of the file from `at`. */
    void (*take)(void *arg, uint64_t at, const unsigned char *bytes, size_t len);
    /* Where these bytes go when they all go to one place and nowhere else; NULL: take them. They
     * are copied there while they are checked; what does not match is given to take when it does,
     * or the span fails. The callback may be NULL. */
    unsigned char *(*place)(void *arg, uint64_t at, size_t len);
    void *arg;
};

void shard_read_init(struct shard_read *read);
/* Of exactly blocks->bytes bytes. STATUS_NOT_FOUND, DATA_LOSS (another size: once patience is over,
 * other nodes' writes may come late). */
enum status shard_read_open(int dir, const char *path, const struct block_file *blocks,
                            struct io_patience *patience, struct shard_read *out,
                            struct error *err) MUST_CHECK;
void shard_read_close(struct shard_read *read);
/* Blocks [first, first + count), which fit into the buffer (aligned). shared: others read the same
 * now, use the page cache. */
struct shard_read_span {
    uint64_t first;
    uint32_t count;
    bool shared;
};
enum status shard_read_blocks(struct shard_read *read, const struct shard_read_span *span,
                              void *buffer, const struct shard_read_sink *sink,
                              struct shard_read_counts *counts, struct error *err) MUST_CHECK;
/* The whole file: each block, and the digest of all. */
struct shard_read_whole {
    uint32_t crc32c;
    char xxh3[33];
    atomic_uint_least64_t *done; /* grows by the bytes that were read; NULL: nobody looks on */
};
enum status shard_read_verify(struct io_pool *pool, struct shard_read *read,
                              const struct shard_read_whole *want, const atomic_bool *stop,
                              struct error *err) MUST_CHECK;
