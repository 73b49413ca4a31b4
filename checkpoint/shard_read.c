/* shard_read.c - see shard_read.h. */
#include "checkpoint/shard_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/text.h"
#include "checkpoint/digest.h"

void shard_read_init(struct shard_read *read)
{
    *read = (struct shard_read){0};
    io_file_init(&read->file);
    io_file_init(&read->copy);
}

void shard_read_close(struct shard_read *read)
{
    io_file_close(&read->file);
    io_file_close(&read->copy);
}

enum status shard_read_open(int dir, const char *path, const struct block_file *blocks,
                            struct io_patience *patience, struct shard_read *out, struct error *err)
{
    struct io_file file;
    enum status st = io_file_open(dir, path, patience, &file, err);

    while (st == STATUS_OK && file.bytes != blocks->bytes) {
        st = error_set(err, STATUS_DATA_LOSS, "%s has %" PRIu64 " bytes, not %" PRIu64, path,
                       file.bytes, blocks->bytes);
        io_file_close(&file);
        if (!io_patience_wait(patience))
            return st;
        st = io_file_open(dir, path, patience, &file, err);
    }
    if (st != STATUS_OK)
        return st;
    shard_read_init(out);
    out->path = path;
    out->file = file;
    out->blocks = *blocks;
    return STATUS_OK;
}

/* --- blocks */

struct range {
    uint64_t at;
    size_t len;
};

static struct range range_of(const struct shard_read *read, uint64_t first, uint64_t count)
{
    uint64_t at = first * BLOCK_TABLE_BLOCK, end = (first + count) * BLOCK_TABLE_BLOCK;

    end = end < read->blocks.bytes ? end : read->blocks.bytes;
    return (struct range){at, (size_t)(end - at)};
}

/* The first block of the range that is not what the table says; UINT64_MAX: all are. */
static uint64_t mismatch(const struct shard_read *read, struct range range,
                         const unsigned char *bytes)
{
    for (size_t done = 0; done < range.len; done += BLOCK_TABLE_BLOCK) {
        size_t n = range.len - done < BLOCK_TABLE_BLOCK ? range.len - done : BLOCK_TABLE_BLOCK;
        uint64_t block = (range.at + done) / BLOCK_TABLE_BLOCK;
        if (digest_crc32c(0, bytes + done, n) != read->blocks.crcs[block])
            return block;
    }
    return UINT64_MAX;
}

static void add(atomic_uint_least64_t *count, uint64_t bytes)
{
    (void)atomic_fetch_add_explicit(count, bytes, memory_order_relaxed);
}

/* Direct reads take whole sectors; at its end the file gives what there is. */
static enum status get(struct shard_read *read, enum io_way way, struct range range, void *buffer,
                       struct shard_read_counts *counts, struct error *err)
{
    size_t asked = (range.len + IO_POOL_ALIGN - 1) & ~(IO_POOL_ALIGN - 1), got = 0;
    int errnum = io_file_read(&read->file, way, buffer, way == IO_DIRECT ? asked : range.len,
                              range.at, &got);

    if (errnum)
        return error_set(err, STATUS_UNAVAILABLE, "read %s at %" PRIu64 ": %s", read->path,
                         range.at, strerror(errnum));
    if (got < range.len) {
        atomic_store(&read->damaged, (range.at + got) / BLOCK_TABLE_BLOCK + 1);
        return error_set(err, STATUS_DATA_LOSS, "%s ends at %" PRIu64 " of %" PRIu64 " bytes",
                         read->path, range.at + got, read->blocks.bytes);
    }
    add(way == IO_DIRECT ? &counts->direct : &counts->cached, range.len);
    return STATUS_OK;
}

/* Some blocks that have been read did not match: read once more by the other way, which also tells
 * a lying cache from a damaged file. */
static enum status again(struct shard_read *read, enum io_way way, struct range range,
                         unsigned char *buffer, struct shard_read_counts *counts, struct error *err)
{
    uint64_t block;
    enum status st =
        get(read, way == IO_DIRECT ? IO_CACHED : IO_DIRECT, range, buffer, counts, err);

    if (st != STATUS_OK)
        return st;
    block = mismatch(read, range, buffer);
    if (block == UINT64_MAX)
        return STATUS_OK;
    atomic_store(&read->damaged, block + 1);
    return error_set(err, STATUS_DATA_LOSS, "%s, block %" PRIu64 ": does not match its digest",
                     read->path, block);
}

static size_t block_len(struct range range, size_t done)
{
    return range.len - done < BLOCK_TABLE_BLOCK ? range.len - done : BLOCK_TABLE_BLOCK;
}

/* Checks the block and gives it away: one pass where it has one place to go. False: it does not
 * match. */
static bool give_block(const struct shard_read *read, struct range block,
                       const unsigned char *bytes, unsigned char *to,
                       const struct shard_read_sink *sink)
{
    uint32_t want = read->blocks.crcs[block.at / BLOCK_TABLE_BLOCK];

    if (!to && sink->place)
        to = sink->place(sink->arg, block.at, block.len);
    if (to)
        return digest_crc32c_copy(0, to, bytes, block.len) == want;
    if (digest_crc32c(0, bytes, block.len) != want)
        return false;
    sink->take(sink->arg, block.at, bytes, block.len);
    return true;
}

/* A chunk that has been read, block by block; a damaged block is read again. */
static enum status give(struct shard_read *read, enum io_way way, struct range chunk,
                        unsigned char *bytes, const struct shard_read_sink *sink,
                        struct shard_read_counts *counts, struct error *err)
{
    unsigned char *to = sink->place ? sink->place(sink->arg, chunk.at, chunk.len) : NULL;

    for (size_t done = 0; done < chunk.len; done += BLOCK_TABLE_BLOCK) {
        struct range block = {chunk.at + done, block_len(chunk, done)};
        if (give_block(read, block, bytes + done, to ? to + done : NULL, sink))
            continue;
        enum status st = again(read, way, block, bytes + done, counts, err);
        if (st != STATUS_OK)
            return st;
        sink->take(sink->arg, block.at, bytes + done, block.len);
    }
    return STATUS_OK;
}

/* What the copy holds rightly; the rest comes from the vault. */
static bool get_copy(struct shard_read *read, struct range range, unsigned char *buffer,
                     struct shard_read_counts *counts)
{
    size_t got = 0;

    if (read->copy.fd < 0)
        return false;
    if (io_file_read(&read->copy, IO_CACHED, buffer, range.len, read->copy_at + range.at, &got) !=
            0 ||
        got != range.len || mismatch(read, range, buffer) != UINT64_MAX)
        return false;
    add(&counts->copied, range.len);
    return true;
}

static struct range chunk_of(struct range all, size_t done)
{
    return (struct range){all.at + done,
                          all.len - done < SHARD_READ_CHUNK ? all.len - done : SHARD_READ_CHUNK};
}

/* Chunk after chunk through the same near memory. */
static enum status blocks_cached(struct shard_read *read, struct range all, unsigned char *buffer,
                                 const struct shard_read_sink *sink,
                                 struct shard_read_counts *counts, struct error *err)
{
    enum status st = STATUS_OK;

    for (size_t done = 0; done < all.len && st == STATUS_OK; done += SHARD_READ_CHUNK) {
        struct range chunk = chunk_of(all, done);
        if (!get_copy(read, chunk, buffer, counts))
            st = get(read, IO_CACHED, chunk, buffer, counts, err);
        if (st == STATUS_OK)
            st = give(read, IO_CACHED, chunk, buffer, sink, counts, err);
    }
    return st;
}

/* Out of the page cache's own pages. What is given away was copied out of them before it was
 * checked, or while it was: a page may change. */
static enum status blocks_mapped(struct shard_read *read, struct range all,
                                 const unsigned char *bytes, unsigned char *buffer,
                                 const struct shard_read_sink *sink,
                                 struct shard_read_counts *counts, struct error *err)
{
    enum status st = STATUS_OK;

    for (size_t done = 0; done < all.len && st == STATUS_OK; done += BLOCK_TABLE_BLOCK) {
        struct range block = {all.at + done, block_len(all, done)};
        unsigned char *to = sink->place ? sink->place(sink->arg, block.at, block.len) : NULL;
        const unsigned char *from = bytes + done;
        if (!to)
            from = memcpy(buffer, from, block.len);
        if (give_block(read, block, from, to, sink))
            continue;
        st = again(read, IO_CACHED, block, buffer, counts, err);
        if (st == STATUS_OK)
            sink->take(sink->arg, block.at, buffer, block.len);
    }
    add(&counts->cached, all.len);
    return st;
}

static enum status blocks_direct(struct shard_read *read, struct range all, unsigned char *buffer,
                                 const struct shard_read_sink *sink,
                                 struct shard_read_counts *counts, struct error *err)
{
    enum status st = get(read, IO_DIRECT, all, buffer, counts, err);

    for (size_t done = 0; done < all.len && st == STATUS_OK; done += SHARD_READ_CHUNK)
        st = give(read, IO_DIRECT, chunk_of(all, done), buffer + done, sink, counts, err);
    return st;
}

enum status shard_read_blocks(struct shard_read *read, const struct shard_read_span *span,
                              void *buffer, const struct shard_read_sink *sink,
                              struct shard_read_counts *counts, struct error *err)
{
    struct range all = range_of(read, span->first, span->count);
    bool copy = read->copy.fd >= 0, cached = !copy && io_file_cached(&read->file, all.len, all.at);
    const void *bytes = cached ? io_file_map(&read->file, all.len, all.at) : NULL;

    if (bytes) {
        enum status st = blocks_mapped(read, all, bytes, buffer, sink, counts, err);
        io_file_unmap(bytes, all.len);
        return st;
    }
    if (!cached && !copy && !span->shared)
        return blocks_direct(read, all, buffer, sink, counts, err);
    if (!copy && !cached) /* a larger request than read-ahead would make */
        (void)posix_fadvise(read->file.fd, (off_t)all.at, (off_t)all.len, POSIX_FADV_WILLNEED);
    return blocks_cached(read, all, buffer, sink, counts, err);
}

/* --- the whole file */

struct verify {
    struct io_pool *pool;
    struct shard_read *read;
    const atomic_bool *stop;
    XXH3_state_t xxh3;
    uint32_t crc32c;
    struct shard_read_counts counts;
    atomic_uint_least64_t *done;
};

struct verify_item {
    struct verify *verify;
    size_t item;
    uint32_t crc32c;
    bool mine; /* the turn has come */
};

static void verify_bytes(void *arg, uint64_t at, const unsigned char *bytes, size_t len)
{
    struct verify_item *item = arg;

    if (!item->mine)
        item->mine = io_pool_turn(item->verify->pool, item->item);
    if (!item->mine)
        return;
    (void)XXH3_128bits_update(&item->verify->xxh3, bytes, len);
    for (size_t done = 0; done < len; done += BLOCK_TABLE_BLOCK) { /* those were compared */
        size_t n = len - done < BLOCK_TABLE_BLOCK ? len - done : BLOCK_TABLE_BLOCK;
        uint32_t crc = item->verify->read->blocks.crcs[(at + done) / BLOCK_TABLE_BLOCK];
        item->verify->crc32c = digest_crc32c_combine(item->verify->crc32c, crc, n);
    }
}

static uint64_t bytes_of(const struct shard_read *read, const struct shard_read_span *span)
{
    uint64_t from = span->first * BLOCK_TABLE_BLOCK;
    uint64_t to = (span->first + span->count) * BLOCK_TABLE_BLOCK;

    return (to < read->blocks.bytes ? to : read->blocks.bytes) - from;
}

static enum status verify_item(void *arg, size_t index, void *buffer, struct error *err)
{
    struct verify *verify = arg;
    struct verify_item item = {.verify = verify, .item = index};
    const struct shard_read_sink sink = {.take = verify_bytes, .arg = &item};
    uint32_t most = (uint32_t)(io_pool_buffer_bytes(verify->pool) / BLOCK_TABLE_BLOCK);
    uint64_t first = (uint64_t)index * most, left = verify->read->blocks.count - first;
    const struct shard_read_span span = {.first = first,
                                         .count = left < most ? (uint32_t)left : most};
    enum status st;

    if (verify->stop && atomic_load(verify->stop))
        return error_set(err, STATUS_CANCELLED, "%s was not read to its end", verify->read->path);
    st = shard_read_blocks(verify->read, &span, buffer, &sink, &verify->counts, err);
    if (st == STATUS_OK && verify->done)
        (void)atomic_fetch_add(verify->done, bytes_of(verify->read, &span));
    if (st == STATUS_OK && !item.mine)
        st = STATUS_CANCELLED;
    if (st == STATUS_OK)
        io_pool_turn_over(verify->pool);
    return st;
}

enum status shard_read_verify(struct io_pool *pool, struct shard_read *read,
                              const struct shard_read_whole *want, const atomic_bool *stop,
                              struct error *err)
{
    struct verify verify = {.pool = pool, .read = read, .stop = stop, .done = want->done};
    uint32_t most = (uint32_t)(io_pool_buffer_bytes(pool) / BLOCK_TABLE_BLOCK);
    XXH128_canonical_t canonical;
    char xxh3[33];
    enum status st;

    (void)XXH3_128bits_reset(&verify.xxh3);
    st = io_pool_run(pool, ((size_t)read->blocks.count + most - 1) / most, verify_item, &verify,
                     err);
    if (st != STATUS_OK)
        return st;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&verify.xxh3));
    text_to_hex(canonical.digest, sizeof canonical.digest, xxh3);
    if (verify.crc32c != want->crc32c || strcmp(xxh3, want->xxh3) != 0)
        return error_set(err, STATUS_DATA_LOSS, "%s does not match its digest", read->path);
    return STATUS_OK;
}
