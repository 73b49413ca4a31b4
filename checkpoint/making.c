#include "checkpoint/making.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/block_table.h"
#include "checkpoint/io_pool.h"
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define STAGE_BYTES   ((size_t)32 << 20)
#define REQUEST_BYTES ((size_t)4 << 20)
#define READ_BYTES    ((size_t)1 << 20)

struct making_stage {
    struct io_pool *pool;
    unsigned char *bytes; /* aligned */
    size_t len;
    uint64_t at;         /* of the first byte, in the file */
    struct making *file; /* whose bytes wait; NULL: none do */
};

/* --- the stage */

enum status making_stage_create(struct making_stage **out, struct error *err)
{
    static const struct io_pool_options options = {.buffer_bytes = IO_POOL_ALIGN};
    struct making_stage *stage = NEW(struct making_stage);
    enum status st = io_pool_create(&options, &stage->pool, err);

    stage->bytes = aligned_alloc(IO_POOL_ALIGN, STAGE_BYTES);
    if (st == STATUS_OK && !stage->bytes)
        st = error_set(err, STATUS_EXHAUSTED, "no memory for what is to be written");
    if (st == STATUS_OK)
        *out = stage;
    else
        making_stage_destroy(stage);
    return st;
}

void making_stage_destroy(struct making_stage *stage)
{
    if (!stage)
        return;
    io_pool_destroy(stage->pool);
    free(stage->bytes);
    mem_free(stage);
}

static enum status write_failed(const struct making *file, int errnum, struct error *err)
{
    return error_set(err, io_file_status(errnum), "write %s: %s", file->name, strerror(errnum));
}

static enum status write_request(void *arg, size_t item, void *buffer, struct error *err)
{
    struct making_stage *stage = arg;
    size_t from = item * REQUEST_BYTES, left = (stage->len & ~(IO_POOL_ALIGN - 1)) - from;
    int errnum = io_file_write(&stage->file->file, IO_DIRECT, stage->bytes + from,
                               left < REQUEST_BYTES ? left : REQUEST_BYTES, stage->at + from);

    (void)buffer;
    return errnum ? write_failed(stage->file, errnum, err) : STATUS_OK;
}

/* All that waits is written; a file whose last byte is in the middle of a sector goes on through
 * the cache. */
static enum status stage_empty(struct making_stage *stage, struct error *err)
{
    struct making *file = stage->file;
    size_t whole = stage->len & ~(IO_POOL_ALIGN - 1), rest = stage->len - whole;
    enum status st = STATUS_OK;

    if (whole)
        st = io_pool_run(stage->pool, (whole + REQUEST_BYTES - 1) / REQUEST_BYTES, write_request,
                         stage, err);
    if (st == STATUS_OK && rest) {
        int errnum =
            io_file_write(&file->file, IO_CACHED, stage->bytes + whole, rest, stage->at + whole);
        file->cached = true;
        st = errnum ? write_failed(file, errnum, err) : STATUS_OK;
    }
    stage->file = NULL;
    stage->len = 0;
    return st;
}

static enum status stage_add(struct making *file, const unsigned char *bytes, size_t len,
                             uint64_t at, struct error *err)
{
    struct making_stage *stage = file->stage;
    enum status st = stage->file && stage->file != file ? stage_empty(stage, err) : STATUS_OK;

    while (len && st == STATUS_OK) {
        size_t room = STAGE_BYTES - stage->len, take = len < room ? len : room;
        if (!stage->file) {
            stage->file = file;
            stage->at = at;
        }
        memcpy(stage->bytes + stage->len, bytes, take);
        stage->len += take;
        at += take;
        bytes += take;
        len -= take;
        if (stage->len == STAGE_BYTES)
            st = stage_empty(stage, err);
    }
    return st;
}

/* --- a file */

void making_init(struct making *file)
{
    *file = (struct making){0};
    io_file_init(&file->file);
}

enum status making_begin(struct making *file, struct making_stage *stage, int dir, const char *name,
                         uint64_t bytes, uint32_t *crcs, struct error *err)
{
    making_init(file);
    file->stage = stage;
    file->name = mem_strdup(name);
    file->crcs = crcs;
    file->xxh3 = XXH3_createState();
    if (!file->xxh3)
        return error_set(err, STATUS_EXHAUSTED, "no memory for a digest");
    (void)XXH3_128bits_reset(file->xxh3);
    enum status st = io_file_create(dir, name, bytes, &file->file, err);
    file->cached = file->file.direct < 0;
    return st;
}

void making_fini(struct making *file)
{
    if (file->stage && file->stage->file == file) {
        file->stage->file = NULL;
        file->stage->len = 0;
    }
    io_file_close(&file->file);
    (void)XXH3_freeState(file->xxh3);
    mem_free(file->name);
    file->xxh3 = NULL;
    file->name = NULL;
}

static void take_in(struct making *file, const void *bytes, size_t len)
{
    (void)XXH3_128bits_update(file->xxh3, bytes, len);
    block_sum_add(&file->sum, bytes, len, file->crcs);
}

enum status making_write(struct making *file, const void *bytes, size_t len, uint64_t at,
                         struct error *err)
{
    if (at != file->sum.at && !file->apart) {
        enum status st = file->stage->file == file ? stage_empty(file->stage, err) : STATUS_OK;
        file->apart = true;
        if (st != STATUS_OK)
            return st;
    }
    if (!file->apart)
        take_in(file, bytes, len);
    if (!file->apart && !file->cached)
        return stage_add(file, bytes, len, at, err);
    int errnum = io_file_write(&file->file, IO_CACHED, bytes, len, at);
    return errnum ? write_failed(file, errnum, err) : STATUS_OK;
}

static enum status read_back(struct making *file, struct error *err)
{
    SCOPED(mem_free) void *buffer = mem_array(READ_BYTES, 1);
    size_t got = 0;
    int errnum = 0;

    file->sum = (struct block_sum){0};
    (void)XXH3_128bits_reset(file->xxh3);
    do {
        errnum = io_file_read(&file->file, IO_CACHED, buffer, READ_BYTES, file->sum.at, &got);
        take_in(file, buffer, errnum ? 0 : got);
    } while (!errnum && got);
    return errnum
               ? error_set(err, io_file_status(errnum), "read %s: %s", file->name, strerror(errnum))
               : STATUS_OK;
}

enum status making_end(struct making *file, Pb__CheckpointFile *out, struct error *err)
{
    XXH128_canonical_t canonical;
    enum status st = file->stage->file == file ? stage_empty(file->stage, err) : STATUS_OK;

    if (st == STATUS_OK && file->apart)
        st = read_back(file, err);
    if (st != STATUS_OK)
        return st;
    block_sum_end(&file->sum, file->crcs);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(file->xxh3));
    out->has_bytes = out->has_crc32c = true;
    out->bytes = file->sum.at;
    out->crc32c = file->sum.crc32c;
    out->xxh3 = mem_alloc(33);
    text_to_hex(canonical.digest, sizeof(canonical.digest), out->xxh3);
    return STATUS_OK;
}

enum status making_sync(struct making *file, struct error *err)
{
    int errnum = io_file_finish(&file->file);

    return errnum
               ? error_set(err, io_file_status(errnum), "sync %s: %s", file->name, strerror(errnum))
               : STATUS_OK;
}
