/* shard_write.c - see shard_write.h.
 *
 * Each item is one buffer's worth: filled, digested, written. Filling and writing go on side by
 * side; the whole digest is made in order of the items. */
#include "checkpoint/shard_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/text.h"
#include "checkpoint/digest.h"
#include "checkpoint/io_file.h"

/* So that what was just copied is in the cache when it is digested. */
#define PIECE ((size_t)4 * SHARD_WRITE_BLOCK)

struct shard_write {
    struct io_pool *pool;
    const char *name;
    const struct shard_write_from *from;
    const struct shard_write_options *options;
    struct io_file file;
    XXH3_state_t xxh3;
    uint32_t crc32c;
};

/* Some bytes of the image, in the buffer. */
static enum status fetch(const struct shard_write *write, void *to, size_t len, uint64_t at,
                         struct error *err)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = pread(write->from->fd, (char *)to + done, len - done,
                          (off_t)(write->from->at + at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(err, STATUS_UNAVAILABLE, "read the image of %s: %s", write->name,
                             strerror(errno));
        if (n == 0)
            return error_set(err, STATUS_DATA_LOSS,
                             "the image of %s ends at %" PRIu64 " of %" PRIu64 " bytes",
                             write->name, at + done, write->from->bytes);
        done += (size_t)n;
    }
    return STATUS_OK;
}

static enum status check(const struct shard_write *write, uint64_t block, uint32_t crc,
                         struct error *err)
{
    const struct shard_write_options *options = write->options;

    if (!options || !options->crcs || options->crcs[block] == crc)
        return STATUS_OK;
    return error_set(err, STATUS_DATA_LOSS,
                     "the image of %s, block %" PRIu64 ", is not what was digested", write->name,
                     block);
}

/* Copies the item into the buffer (or finds it in memory that can be written from as it is), checks
 * its blocks, and gives the CRC32C of all. */
static enum status fill(const struct shard_write *write, uint64_t at, size_t len, void *buffer,
                        uint32_t *crc_out, struct error *err)
{
    uint32_t crc_all = 0;
    enum status st = STATUS_OK;

    for (size_t done = 0; done < len && st == STATUS_OK;) {
        size_t piece = len - done < PIECE ? len - done : PIECE;
        unsigned char *to = (unsigned char *)buffer + done;
        if (!write->from->memory)
            st = fetch(write, to, piece, at + done, err);
        for (size_t i = 0; i < piece && st == STATUS_OK; i += SHARD_WRITE_BLOCK) {
            size_t n = piece - i < SHARD_WRITE_BLOCK ? piece - i : SHARD_WRITE_BLOCK;
            uint32_t crc =
                write->from->memory
                    ? digest_crc32c_copy(0, to + i,
                                         (const char *)write->from->memory + at + done + i, n)
                    : digest_crc32c(0, to + i, n);
            crc_all = digest_crc32c_combine(crc_all, crc, n);
            st = check(write, (at + done + i) / SHARD_WRITE_BLOCK, crc, err);
        }
        done += piece;
    }
    *crc_out = crc_all;
    return st;
}

static enum status write_item(void *arg, size_t item, void *buffer, struct error *err)
{
    struct shard_write *write = arg;
    size_t cap = io_pool_buffer_bytes(write->pool);
    uint64_t at = (uint64_t)item * cap;
    size_t len = write->from->bytes - at < cap ? (size_t)(write->from->bytes - at) : cap;
    size_t padded = (len + IO_POOL_ALIGN - 1) & ~(IO_POOL_ALIGN - 1);
    enum io_way way = write->options && write->options->cached ? IO_CACHED : IO_DIRECT;
    uint32_t crc = 0;
    enum status st;
    int errnum;

    if (write->options && write->options->stop && atomic_load(write->options->stop))
        return error_set(err, STATUS_CANCELLED, "%s was not written to its end", write->name);
    st = fill(write, at, len, buffer, &crc, err);
    if (st != STATUS_OK)
        return st;
    if (!io_pool_turn(write->pool, item))
        return STATUS_CANCELLED;
    (void)XXH3_128bits_update(&write->xxh3, buffer, len);
    write->crc32c = digest_crc32c_combine(write->crc32c, crc, len);
    io_pool_turn_over(write->pool);
    memset((char *)buffer + len, 0, padded - len);
    errnum = io_file_write(&write->file, way, buffer, padded, at);
    if (errnum)
        return error_set(err, io_file_status(errnum), "write %s: %s", write->name,
                         strerror(errnum));
    return STATUS_OK;
}

static void give(struct shard_write *write, struct shard_written *out)
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&write->xxh3));
    *out = (struct shard_written){.bytes = write->from->bytes, .crc32c = write->crc32c};
    text_to_hex(canonical.digest, sizeof canonical.digest, out->xxh3);
}

enum status shard_write(struct io_pool *pool, int dir, const char *name,
                        const struct shard_write_from *from,
                        const struct shard_write_options *options, struct shard_written *out,
                        struct error *err)
{
    struct shard_write write = {.pool = pool, .name = name, .from = from, .options = options};
    size_t cap = io_pool_buffer_bytes(pool);
    enum status st = io_file_create(dir, name, from->bytes, &write.file, err);
    int errnum;

    if (st != STATUS_OK)
        return st;
    (void)XXH3_128bits_reset(&write.xxh3);
    st = io_pool_run(pool, (size_t)((from->bytes + cap - 1) / cap), write_item, &write, err);
    if (st == STATUS_OK && (errnum = io_file_finish(&write.file)) != 0)
        st = error_set(err, io_file_status(errnum), "sync %s: %s", name, strerror(errnum));
    io_file_close(&write.file);
    if (st == STATUS_OK)
        give(&write, out);
    else
        (void)unlinkat(dir, name, 0);
    return st;
}
