/* maker.c - makes a sealed, sharded checkpoint. See maker.h. */
#include "checkpoint/maker.h"
#include "base/file.h"
#include "checkpoint/digest.h"
#include "checkpoint/slot.h"
#include "checkpoint/staging.h"
#include "checkpoint/vault.h"
#include "checkpoint/vault_manifest.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define READ_BYTES ((size_t)1 << 20) /* a multiple of a block */

struct maker {
    struct staging *staging;
    char *part;
    const struct layout_table *storage;
    struct maker_facts facts;
    Pb__Checkpoint *row;
    uint32_t rank; /* that is being made, or the next */
    struct shard_image *image;
    int *fds;
    uint64_t *written; /* bytes of each piece */
};

/* --- beginning and end */

static void rank_fini(struct maker *maker)
{
    for (uint32_t i = 0; maker->image && i < shard_image_files(maker->image); i++) {
        if (maker->fds[i] >= 0)
            (void)close(maker->fds[i]);
    }
    shard_image_destroy(maker->image);
    maker->image = NULL;
    mem_free(maker->fds);
    mem_free(maker->written);
    mem_free(maker->part);
    maker->fds = NULL;
    maker->written = NULL;
    maker->part = NULL;
}

void maker_destroy(struct maker *maker)
{
    if (!maker)
        return;
    rank_fini(maker);
    staging_destroy(maker->staging);
    if (maker->row)
        pb__checkpoint__free_unpacked(maker->row, NULL);
    mem_free(maker);
}

enum status maker_create(const char *target, const struct layout_table *storage,
                         const struct maker_facts *facts, struct maker **out, struct error *err)
{
    SCOPED(maker_destroy) struct maker *maker = NEW(struct maker);

    maker->storage = storage;
    maker->facts = *facts;
    if (!maker->facts.role)
        maker->facts.role = "trainer";
    maker->row = NEW(Pb__Checkpoint);
    pb__checkpoint__init(maker->row);
    enum status st = layout_table_check_storage(storage, err);
    if (st == STATUS_OK)
        st = staging_create(target, &maker->staging, err);
    if (st != STATUS_OK)
        return st;
    *out = TAKE(maker);
    return STATUS_OK;
}

/* --- a rank */

static enum status file_begin(struct maker *maker, uint32_t file, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", maker->part, shard_image_name(maker->image, file));
    size_t len;
    const void *head = shard_image_head(maker->image, file, &len);
    int errnum;

    maker->fds[file] = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (maker->fds[file] < 0)
        return error_set(err, file_status(errno), "make %s: %s", path, strerror(errno));
    errnum = posix_fallocate(maker->fds[file], 0, (off_t)shard_image_bytes(maker->image, file));
    if (errnum)
        return error_set(err, file_status(errnum), "make room for %s: %s", path, strerror(errnum));
    return file_write_at(maker->fds[file], head, len, 0, err);
}

enum status maker_rank_begin(struct maker *maker, const struct shard_image **image,
                             struct error *err)
{
    enum status st = shard_image_create(maker->storage, maker->rank, &maker->image, err);

    if (st != STATUS_OK)
        return st;
    uint32_t files = shard_image_files(maker->image);
    maker->fds = mem_array(files ? files : 1, sizeof(*maker->fds));
    for (uint32_t i = 0; i < files; i++)
        maker->fds[i] = -1;
    maker->written = mem_array(shard_image_count(maker->image) + 1, sizeof(*maker->written));
    maker->part =
        mem_printf("%s/%s-%u", staging_path(maker->staging), maker->facts.role, maker->rank);
    if (mkdir(maker->part, 0777) != 0)
        return error_set(err, file_status(errno), "make %s: %s", maker->part, strerror(errno));
    for (uint32_t i = 0; i < files && st == STATUS_OK; i++)
        st = file_begin(maker, i, err);
    if (st == STATUS_OK)
        *image = maker->image;
    return st;
}

enum status maker_write(struct maker *maker, size_t piece, uint64_t at, const void *bytes,
                        size_t len, struct error *err)
{
    const struct shard_image_piece *to = shard_image_at(maker->image, piece);

    if (at > to->bytes || len > to->bytes - at)
        return error_set(err, STATUS_INTERNAL, "bytes behind the end of a piece");
    maker->written[piece] += len;
    return file_write_at(maker->fds[to->piece], bytes, len, to->at + at, err);
}

/* --- digests */

/* Reads the file back through the page cache, which has it, and syncs it. */
static enum status digest_back(int fd, const char *name, struct block_file *blocks,
                               Pb__CheckpointFile *out, struct error *err)
{
    SCOPED(mem_free) void *buffer = mem_array(READ_BYTES, 1);
    XXH3_state_t *xxh3 = XXH3_createState();
    uint64_t at = 0;
    uint32_t crc = 0, block = 0;
    ssize_t got = 0;

    if (!xxh3)
        return error_set(err, STATUS_EXHAUSTED, "no memory for a digest");
    (void)XXH3_128bits_reset(xxh3);
    while ((got = pread(fd, buffer, READ_BYTES, (off_t)at)) > 0 || (got < 0 && errno == EINTR)) {
        if (got < 0)
            continue;
        (void)XXH3_128bits_update(xxh3, buffer, (size_t)got);
        crc = digest_crc32c(crc, buffer, (size_t)got);
        for (size_t k = 0; blocks && k < (size_t)got && block < blocks->count;
             k += BLOCK_TABLE_BLOCK) {
            size_t left = (size_t)got - k;
            blocks->crcs[block++] = digest_crc32c(
                0, (const char *)buffer + k, left < BLOCK_TABLE_BLOCK ? left : BLOCK_TABLE_BLOCK);
        }
        at += (uint64_t)got;
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(xxh3));
    (void)XXH3_freeState(xxh3);
    if (got < 0 || fdatasync(fd) != 0)
        return error_set(err, file_status(errno), "sync %s: %s", name, strerror(errno));
    out->has_bytes = out->has_crc32c = true;
    out->bytes = at;
    out->crc32c = crc;
    out->xxh3 = mem_alloc(33);
    text_to_hex(canonical.digest, sizeof(canonical.digest), out->xxh3);
    return STATUS_OK;
}

static Pb__CheckpointPart *part_of(struct maker *maker)
{
    Pb__Checkpoint *row = maker->row;

    if (row->n_parts == maker->rank) {
        Pb__CheckpointPart *part = NEW(Pb__CheckpointPart);
        pb__checkpoint_part__init(part);
        part->has_rank = part->has_samples = true;
        part->rank = maker->rank;
        part->samples = maker->facts.samples;
        part->role = mem_strdup(maker->facts.role);
        part->node = mem_strdup("");
        part->layout_digest = mem_strdup(layout_table_digest(maker->storage));
        row->parts = mem_resize(row->parts, row->n_parts + 1, sizeof(*row->parts));
        row->parts[row->n_parts++] = part;
    }
    return row->parts[maker->rank];
}

static Pb__CheckpointFile *file_add(struct maker *maker, const char *name)
{
    Pb__CheckpointPart *part = part_of(maker);
    Pb__CheckpointFile *file = NEW(Pb__CheckpointFile);

    pb__checkpoint_file__init(file);
    file->path = mem_printf("%s-%u/%s", maker->facts.role, maker->rank, name);
    part->files = mem_resize(part->files, part->n_files + 1, sizeof(*part->files));
    part->files[part->n_files++] = file;
    return file;
}

enum status maker_file(struct maker *maker, const char *name, const void *bytes, size_t len,
                       struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", maker->part, name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0)
        return error_set(err, file_status(errno), "make %s: %s", path, strerror(errno));
    enum status st = file_write_at(fd, bytes, len, 0, err);
    if (st == STATUS_OK)
        st = digest_back(fd, name, NULL, file_add(maker, name), err);
    (void)close(fd);
    return st;
}

static enum status check_written(const struct maker *maker, struct error *err)
{
    for (size_t i = 0; i < shard_image_count(maker->image); i++) {
        const struct shard_image_piece *piece = shard_image_at(maker->image, i);
        if (maker->written[i] != piece->bytes)
            return error_set(err, STATUS_DATA_LOSS, "tensor \"%.100s\": %llu of %llu bytes came",
                             layout_table_at(maker->storage, piece->tensor)->name,
                             (unsigned long long)maker->written[i],
                             (unsigned long long)piece->bytes);
    }
    return STATUS_OK;
}

static enum status write_blocks(struct maker *maker, const struct block_table *table,
                                const uint64_t *sizes, struct error *err)
{
    size_t len = block_table_bytes(sizes, table->files_count);
    SCOPED(mem_free) void *bytes = mem_array(len, 1);

    block_table_print(table, bytes);
    return maker_file(maker, SLOT_BLOCKS_NAME, bytes, len, err);
}

static enum status write_layout(struct maker *maker, struct error *err)
{
    struct text json;

    text_init(&json, 0);
    layout_table_print(maker->storage, &json);
    enum status st = json.full ? error_set(err, STATUS_EXHAUSTED, "the layout is too large")
                               : maker_file(maker, SLOT_LAYOUT_NAME, json.data, json.len, err);
    text_fini(&json);
    return st;
}

enum status maker_rank_end(struct maker *maker, struct error *err)
{
    uint32_t files = shard_image_files(maker->image);
    SCOPED(mem_free) void *memory = mem_array(files + 1, sizeof(uint64_t));
    SCOPED(block_table_destroy) struct block_table *table = NULL;
    uint64_t *sizes = memory;
    enum status st = check_written(maker, err);

    for (uint32_t i = 0; i < files; i++)
        sizes[i] = shard_image_bytes(maker->image, i);
    table = block_table_create(sizes, files);
    if (!table)
        return error_set(err, STATUS_EXHAUSTED, "more blocks than a table holds");
    for (uint32_t i = 0; i < files && st == STATUS_OK; i++)
        st = digest_back(maker->fds[i], shard_image_name(maker->image, i), &table->files[i],
                         file_add(maker, shard_image_name(maker->image, i)), err);
    if (st == STATUS_OK)
        st = write_blocks(maker, table, sizes, err);
    if (st == STATUS_OK && maker->rank == 0)
        st = write_layout(maker, err);
    if (st == STATUS_OK)
        st = file_sync_dir(maker->part, err);
    if (st != STATUS_OK)
        return st;
    rank_fini(maker);
    maker->rank++;
    return STATUS_OK;
}

/* --- the seal */

static int64_t wall_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void row_fill(struct maker *maker)
{
    Pb__Checkpoint *row = maker->row;

    row->has_format = row->has_id = row->has_job = row->has_attempt = row->has_step = true;
    row->has_samples = row->has_parent = row->has_world = row->has_created_us = true;
    row->format = PB__CHECKPOINT__FORMAT__SHARDED;
    row->id = maker->facts.id;
    row->job = maker->facts.job;
    row->attempt = maker->facts.attempt;
    row->step = maker->facts.step;
    row->samples = maker->facts.samples;
    row->parent = maker->facts.parent;
    row->world = layout_table_world(maker->storage);
    row->created_us = wall_us();
    row->code = maker->facts.code ? mem_strdup(maker->facts.code) : NULL;
    row->layout = mem_printf("%s-0/" SLOT_LAYOUT_NAME, maker->facts.role);
    row->layout_digest = mem_strdup(layout_table_digest(maker->storage));
}

enum status maker_seal(struct maker *maker, char digest[65], struct error *err)
{
    struct text manifest;
    char sum[65];

    if (maker->rank != layout_table_world(maker->storage))
        return error_set(err, STATUS_INTERNAL, "%u of %u ranks were made", maker->rank,
                         layout_table_world(maker->storage));
    row_fill(maker);
    text_init(&manifest, VAULT_MANIFEST_MAX);
    vault_manifest_build(maker->row, &manifest, sum);
    enum status st = manifest.full ? error_set(err, STATUS_EXHAUSTED, "the manifest is too large")
                                   : staging_file(maker->staging, VAULT_MANIFEST_NAME,
                                                  manifest.data, manifest.len, err);
    text_fini(&manifest);
    if (st == STATUS_OK)
        st = staging_publish(maker->staging, err);
    if (st == STATUS_OK && digest)
        memcpy(digest, sum, sizeof(sum));
    return st;
}
