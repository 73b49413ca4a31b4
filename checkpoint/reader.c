/* reader.c - see reader.h; loading is in reader_load.c. */
#include "checkpoint/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/text.h"
#include "checkpoint/digest.h"
#include "checkpoint/reader_table.h"
#include "checkpoint/slot.h"
#include "checkpoint/vault_tree.h"

#define PATIENCE_MS    2000
#define SLOT_NAMES_MAX 64 /* looked at in a directory of slots */

/* --- small files */

/* A file of at most max bytes, whole, with a NUL behind it. */
static enum status read_small(struct reader *reader, const char *path, size_t max, char **bytes,
                              size_t *len, struct error *err)
{
    SCOPED(io_file_close) struct io_file *file = NULL;
    SCOPED_TEXT char *memory = NULL;
    struct io_file opened;
    size_t got = 0;
    int errnum;
    enum status st = io_file_open(reader->dir, path, &reader->patience, &opened, err);

    if (st != STATUS_OK)
        return st;
    file = &opened;
    if (file->bytes > max)
        return error_set(err, STATUS_DATA_LOSS, "%s: %" PRIu64 " bytes are too many", path,
                         file->bytes);
    memory = mem_alloc((size_t)file->bytes + 1);
    errnum = io_file_read(file, IO_CACHED, memory, (size_t)file->bytes, 0, &got);
    if (errnum)
        return error_set(err, STATUS_UNAVAILABLE, "read %s: %s", path, strerror(errnum));
    memory[got] = '\0';
    *len = got;
    *bytes = TAKE(memory);
    return STATUS_OK;
}

static bool matches(const struct manifest_file *want, const char *bytes, size_t len)
{
    XXH128_canonical_t canonical;
    char xxh3[33];

    if (len != want->bytes || digest_crc32c(0, bytes, len) != want->crc32c)
        return false;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, len));
    text_to_hex(canonical.digest, sizeof canonical.digest, xxh3);
    return strcmp(xxh3, want->xxh3) == 0;
}

static enum status read_checked(struct reader *reader, const struct manifest_file *want, size_t max,
                                char **bytes, size_t *len, struct error *err)
{
    for (;;) {
        SCOPED_TEXT char *memory = NULL;
        enum status st = read_small(reader, want->path, max, &memory, len, err);
        if (st == STATUS_OK && matches(want, memory, *len)) {
            *bytes = TAKE(memory);
            return STATUS_OK;
        }
        if (st != STATUS_OK && st != STATUS_UNAVAILABLE && st != STATUS_NOT_FOUND)
            return st;
        if (io_patience_wait(&reader->patience))
            continue;
        (void)snprintf(reader->damaged, sizeof reader->damaged, "%s", want->path);
        return st == STATUS_UNAVAILABLE
                   ? st
                   : error_set(err, STATUS_DATA_LOSS, "%s %s", want->path,
                               st == STATUS_OK ? "does not match its digest" : "is missing");
    }
}

enum status reader_file(struct reader *reader, const char *path, size_t max, char **bytes,
                        size_t *len, struct error *err)
{
    const struct manifest_file *want = manifest_find(reader->manifest, path);

    if (!want)
        return error_set(err, STATUS_NOT_FOUND, "the checkpoint has no file %s", path);
    return read_checked(reader, want, max, bytes, len, err);
}

static const struct manifest_file *part_file(const struct manifest_part *part, const char *name)
{
    for (size_t i = 0; i < part->files_count; i++) {
        const char *slash = strchr(part->files[i].path, '/');
        if (slash && strcmp(slash + 1, name) == 0)
            return &part->files[i];
    }
    return NULL;
}

enum status reader_state(struct reader *reader, uint32_t rank, size_t max, char **bytes,
                         size_t *len, struct error *err)
{
    const struct manifest_part *part = manifest_part_of(reader->manifest, rank);
    const struct manifest_file *file = part ? part_file(part, SLOT_STATE_NAME) : NULL;

    if (!file)
        return error_set(err, STATUS_NOT_FOUND, "rank %" PRIu32 " saved no state", rank);
    return read_checked(reader, file, max, bytes, len, err);
}

enum status reader_blocks(struct reader *reader, const struct manifest_part *part,
                          struct block_table **out, struct error *err)
{
    const struct manifest_file *file = part_file(part, SLOT_BLOCKS_NAME);
    SCOPED_TEXT char *bytes = NULL;
    size_t len;
    enum status st;

    if (!file)
        return error_set(err, STATUS_DATA_LOSS, "%s-%" PRIu32 " has no " SLOT_BLOCKS_NAME,
                         part->role, part->rank);
    st = read_checked(reader, file, BLOCK_TABLE_BYTES_MAX, &bytes, &len, err);
    if (st == STATUS_OK)
        st = block_table_parse(bytes, len, out, err);
    return st;
}

const struct manifest_file *reader_shard(const struct manifest_part *part, uint32_t index)
{
    char middle[32];

    (void)snprintf(middle, sizeof middle, "-model-%05" PRIu32 "-of-", index + 1);
    for (size_t i = 0; i < part->files_count; i++) {
        const char *slash = strchr(part->files[i].path, '/');
        if (slash && strncmp(slash + 1, "shard-", 6) == 0 && strstr(slash, middle))
            return &part->files[i];
    }
    return NULL;
}

/* --- copies in shared memory */

/* In this slot: the file with the very name and size, of this step and layout. */
static bool copy_in_slot(const struct reader *reader, int dir, const char *slot, const char *name,
                         struct shard_read *read)
{
    const struct manifest *manifest = reader->manifest;
    const struct slot_file *found;
    struct slot_head head;
    int fd = openat(dir, slot, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return false;
    if (slot_read(fd, &head, NULL) == STATUS_OK && head.step == manifest->step &&
        strcmp(head.layout_digest, manifest->layout_digest) == 0 &&
        (found = slot_find(&head, name)) && found->bytes == read->blocks.bytes) {
        read->copy.fd = fd;
        read->copy.bytes = found->offset + found->bytes;
        read->copy_at = found->offset;
        return true;
    }
    (void)close(fd);
    return false;
}

/* In <dir>/<part>: the agent's directory, whose slots have other names when they change in size. */
static bool copy_in_part(const struct reader *reader, const char *path, struct shard_read *read)
{
    SCOPED(vault_tree_names_close) DIR *names = NULL;
    SCOPED_FD int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const char *name = strrchr(read->path, '/') + 1, *slot;

    names = dir < 0 ? NULL : vault_tree_names(dir);
    for (uint32_t seen = 0; names && seen < SLOT_NAMES_MAX; seen++) {
        slot = vault_tree_names_next(names);
        if (!slot)
            break;
        if (slot_place(slot) >= 0 && copy_in_slot(reader, dir, slot, name, read))
            return true;
    }
    return false;
}

void reader_find_copy(const struct reader *reader, const struct manifest_part *part,
                      struct shard_read *read)
{
    for (size_t i = 0; i < reader->options.shm_dirs_count; i++) {
        char path[4096];
        int len = snprintf(path, sizeof path, "%s/%s-%" PRIu32, reader->options.shm_dirs[i],
                           part->role, part->rank);
        if (len > 0 && (size_t)len < sizeof path && copy_in_part(reader, path, read))
            return;
    }
}

/* --- open */

static enum status open_manifest(struct reader *reader, struct error *err)
{
    const struct reader_options *options = &reader->options;
    SCOPED_TEXT char *bytes = NULL;
    size_t len;
    enum status st = read_small(reader, MANIFEST_NAME, MANIFEST_BYTES_MAX, &bytes, &len, err);

    if (st != STATUS_OK)
        return st;
    if (options->manifest_ok && !options->manifest_ok(options->arg, bytes, len))
        return error_set(err, STATUS_DATA_LOSS, MANIFEST_NAME " does not match its digest");
    st = manifest_parse(bytes, len, &reader->manifest, err);
    if (st == STATUS_OK && !reader->manifest->sharded)
        st = error_set(err, STATUS_INVALID, "a plain checkpoint: its files are the program's own");
    return st;
}

static enum status open_layout(struct reader *reader, struct error *err)
{
    const struct manifest *manifest = reader->manifest;
    SCOPED_TEXT char *bytes = NULL;
    size_t len;
    enum status st = reader_file(reader, manifest->layout, LAYOUT_BYTES_MAX, &bytes, &len, err);

    if (st == STATUS_OK)
        st = layout_table_parse(bytes, len, &reader->layout, err);
    if (st == STATUS_OK &&
        strcmp(manifest_find(manifest, manifest->layout)->xxh3, manifest->layout_digest) != 0)
        st = error_set(err, STATUS_DATA_LOSS, "%s is not the layout that the parts were made by",
                       manifest->layout);
    return st;
}

enum status reader_open(const char *dir, const char *path, const struct reader_options *options,
                        struct reader **out, struct error *err)
{
    SCOPED(reader_close) struct reader *reader = NEW(struct reader);
    enum status st;

    reader->dir = -1;
    if (options)
        reader->options = *options;
    reader->patience.left_ms =
        reader->options.patience_ms ? reader->options.patience_ms : PATIENCE_MS;
    st = vault_tree_open(dir, path, false, &reader->dir, err);
    if (st == STATUS_OK)
        st = open_manifest(reader, err);
    if (st == STATUS_OK)
        st = open_layout(reader, err);
    if (st == STATUS_OK)
        *out = TAKE(reader);
    else
        (void)error_wrap(err, "checkpoint %s", *path ? path : dir);
    return st;
}

void reader_close(struct reader *reader)
{
    if (!reader)
        return;
    io_pool_destroy(reader->pool);
    vault_tree_close(reader->dir);
    manifest_destroy(reader->manifest);
    layout_table_destroy(reader->layout);
    mem_free(reader);
}

const struct manifest *reader_manifest(const struct reader *reader)
{
    return reader->manifest;
}

const struct layout_table *reader_layout(const struct reader *reader)
{
    return reader->layout;
}

const char *reader_damaged(const struct reader *reader)
{
    return reader->damaged;
}
