/* maker.c - makes a sealed, sharded checkpoint. See maker.h. */
#include "checkpoint/maker.h"
#include "base/file.h"
#include "checkpoint/block_table.h"
#include "checkpoint/making.h"
#include "checkpoint/slot.h"
#include "checkpoint/staging.h"
#include "checkpoint/vault.h"
#include "checkpoint/vault_manifest.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Files of a rank that are being synced by a thread, while the next one is made. */
struct behind {
    pthread_t thread;
    bool runs; /* the thread does */
    struct making *files;
    uint32_t count;
    enum status st;
    struct error err;
};

struct maker {
    struct staging *staging;
    char *part;
    const struct layout_table *storage;
    struct maker_facts facts;
    Pb__Checkpoint *row;
    uint32_t rank; /* that is being made, or the next */
    struct shard_image *image;
    struct making *files;
    int dir; /* of the part; -1: none is made */
    struct making_stage *stage;
    struct block_table *blocks;
    uint64_t *written; /* bytes of each piece */
    struct behind behind;
};

/* --- beginning and end */

static void rank_fini(struct maker *maker)
{
    for (uint32_t i = 0; maker->files && i < shard_image_files(maker->image); i++)
        making_fini(&maker->files[i]);
    shard_image_destroy(maker->image);
    maker->image = NULL;
    block_table_destroy(maker->blocks);
    mem_free(maker->files);
    mem_free(maker->written);
    mem_free(maker->part);
    if (maker->dir >= 0)
        (void)close(maker->dir);
    maker->dir = -1;
    maker->blocks = NULL;
    maker->files = NULL;
    maker->written = NULL;
    maker->part = NULL;
}

static void *behind_main(void *arg)
{
    struct behind *behind = arg;

    for (uint32_t i = 0; i < behind->count && behind->st == STATUS_OK; i++)
        behind->st = making_sync(&behind->files[i], &behind->err);
    return NULL;
}

/* What was being synced is durable, or never will be. */
static enum status behind_join(struct behind *behind, struct error *err)
{
    if (behind->runs)
        (void)pthread_join(behind->thread, NULL);
    for (uint32_t i = 0; i < behind->count; i++)
        making_fini(&behind->files[i]);
    mem_free(behind->files);
    behind->runs = false;
    behind->files = NULL;
    behind->count = 0;
    if (behind->st != STATUS_OK && err)
        *err = behind->err;
    return behind->st;
}

void maker_destroy(struct maker *maker)
{
    if (!maker)
        return;
    (void)behind_join(&maker->behind, NULL);
    rank_fini(maker);
    making_stage_destroy(maker->stage);
    staging_destroy(maker->staging);
    if (maker->row)
        pb__checkpoint__free_unpacked(maker->row, NULL);
    mem_free(maker);
}

enum status maker_create(const char *target, const struct layout_table *storage,
                         const struct maker_facts *facts, struct maker **out, struct error *err)
{
    SCOPED(maker_destroy) struct maker *maker = NEW(struct maker);

    maker->dir = -1;
    maker->storage = storage;
    maker->facts = *facts;
    if (!maker->facts.role)
        maker->facts.role = "trainer";
    maker->row = NEW(Pb__Checkpoint);
    pb__checkpoint__init(maker->row);
    enum status st = layout_table_check_storage(storage, err);
    if (st == STATUS_OK)
        st = making_stage_create(&maker->stage, err);
    if (st == STATUS_OK)
        st = staging_create(target, &maker->staging, err);
    if (st != STATUS_OK)
        return st;
    *out = TAKE(maker);
    return STATUS_OK;
}

/* --- a rank */

static enum status file_begin(struct maker *maker, uint32_t index, struct error *err)
{
    struct making *file = &maker->files[index];
    size_t len;
    const void *head = shard_image_head(maker->image, index, &len);
    enum status st =
        making_begin(file, maker->stage, maker->dir, shard_image_name(maker->image, index),
                     shard_image_bytes(maker->image, index), maker->blocks->files[index].crcs, err);

    return st == STATUS_OK ? making_write(file, head, len, 0, err) : st;
}

static enum status files_prepare(struct maker *maker, struct error *err)
{
    uint32_t files = shard_image_files(maker->image);
    SCOPED(mem_free) void *memory = mem_array(files + 1, sizeof(uint64_t));
    uint64_t *sizes = memory;

    maker->files = mem_array(files + 1, sizeof(*maker->files));
    for (uint32_t i = 0; i < files; i++) {
        making_init(&maker->files[i]);
        sizes[i] = shard_image_bytes(maker->image, i);
    }
    maker->blocks = block_table_create(sizes, files);
    return maker->blocks ? STATUS_OK
                         : error_set(err, STATUS_EXHAUSTED, "more blocks than a table holds");
}

enum status maker_rank_begin(struct maker *maker, const struct shard_image **image,
                             struct error *err)
{
    enum status st = shard_image_create(maker->storage, maker->rank, &maker->image, err);

    if (st != STATUS_OK)
        return st;
    st = files_prepare(maker, err);
    if (st != STATUS_OK)
        return st;
    maker->written = mem_array(shard_image_count(maker->image) + 1, sizeof(*maker->written));
    maker->part =
        mem_printf("%s/%s-%u", staging_path(maker->staging), maker->facts.role, maker->rank);
    if (mkdir(maker->part, 0777) != 0)
        return error_set(err, file_status(errno), "make %s: %s", maker->part, strerror(errno));
    maker->dir = open(maker->part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (maker->dir < 0)
        return error_set(err, file_status(errno), "open %s: %s", maker->part, strerror(errno));
    for (uint32_t i = 0; i < shard_image_files(maker->image) && st == STATUS_OK; i++)
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
    return making_write(&maker->files[to->piece], bytes, len, to->at + at, err);
}

/* --- digests */

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
    SCOPED(mem_free) void *crcs = mem_array((size_t)block_table_count(len) + 1, sizeof(uint32_t));
    struct making file;
    enum status st = making_begin(&file, maker->stage, maker->dir, name, len, crcs, err);

    if (st == STATUS_OK)
        st = making_write(&file, bytes, len, 0, err);
    if (st == STATUS_OK)
        st = making_end(&file, file_add(maker, name), err);
    if (st == STATUS_OK)
        st = making_sync(&file, err);
    making_fini(&file);
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

static enum status write_blocks(struct maker *maker, struct error *err)
{
    uint32_t files = shard_image_files(maker->image);
    SCOPED(mem_free) void *memory = mem_array(files + 1, sizeof(uint64_t));
    uint64_t *sizes = memory;

    for (uint32_t i = 0; i < files; i++)
        sizes[i] = shard_image_bytes(maker->image, i);
    size_t len = block_table_bytes(sizes, files);
    SCOPED(mem_free) void *bytes = mem_array(len, 1);
    block_table_print(maker->blocks, bytes);
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

static void behind_begin(struct maker *maker)
{
    struct behind *behind = &maker->behind;

    behind->files = TAKE(maker->files);
    behind->count = shard_image_files(maker->image);
    behind->runs = pthread_create(&behind->thread, NULL, behind_main, behind) == 0;
    if (!behind->runs)
        (void)behind_main(behind);
}

enum status maker_rank_end(struct maker *maker, struct error *err)
{
    enum status st = check_written(maker, err);

    for (uint32_t i = 0; i < shard_image_files(maker->image) && st == STATUS_OK; i++) {
        const char *name = shard_image_name(maker->image, i);
        st = making_end(&maker->files[i], file_add(maker, name), err);
    }
    if (st == STATUS_OK)
        st = write_blocks(maker, err);
    if (st == STATUS_OK && maker->rank == 0)
        st = write_layout(maker, err);
    if (st == STATUS_OK)
        st = file_sync_dir(maker->part, err);
    if (st == STATUS_OK)
        st = behind_join(&maker->behind, err); /* of the rank before */
    if (st != STATUS_OK)
        return st;
    behind_begin(maker);
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
    enum status st = behind_join(&maker->behind, err);
    if (st != STATUS_OK)
        return st;
    row_fill(maker);
    text_init(&manifest, VAULT_MANIFEST_MAX);
    vault_manifest_build(maker->row, &manifest, sum);
    st = manifest.full
             ? error_set(err, STATUS_EXHAUSTED, "the manifest is too large")
             : staging_file(maker->staging, VAULT_MANIFEST_NAME, manifest.data, manifest.len, err);
    text_fini(&manifest);
    if (st == STATUS_OK)
        st = staging_publish(maker->staging, err);
    if (st == STATUS_OK && digest)
        memcpy(digest, sum, sizeof(sum));
    return st;
}
