/* vault_persist.c - see vault_persist.h. */
#include "agent/vault_persist.h"
#include "base/mem.h"
#include "checkpoint/block_table.h"
#include "checkpoint/digest.h"
#include "checkpoint/io_pool.h"
#include "checkpoint/layout.h"
#include "checkpoint/seal_check.h"
#include "checkpoint/shard_write.h"
#include "checkpoint/slot.h"
#include "checkpoint/vault_part.h"
#include "checkpoint/vault_tree.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL_BYTES_MAX ((size_t)64 << 20) /* of the files that are no shards */
#define SHARD_SUFFIX    ".safetensors"
#define WRITE_THREADS   4 /* beside workers that compute */

struct persist { /* one slot on its way */
    struct vault_job *job;
    int fd;
    struct slot_head *head;
    struct layout_table *layout;
    struct block_table *blocks;
    struct io_pool *pool;
    struct vault_part part;
    Pb__CheckpointPart *out;
};

static void persist_fini(struct persist *self)
{
    vault_tree_close(self->fd);
    mem_free(self->head);
    layout_table_destroy(self->layout);
    block_table_destroy(self->blocks);
    io_pool_destroy(self->pool);
    vault_part_end(&self->part);
    if (self->out)
        protobuf_c_message_free_unpacked(&self->out->base, NULL);
}

static bool is_shard(const char *name)
{
    const size_t len = strlen(name), end = strlen(SHARD_SUFFIX);
    return len > end && strcmp(name + len - end, SHARD_SUFFIX) == 0;
}

/* --- the slot */

static enum status open_slot(struct persist *self, struct error *err)
{
    const struct vault_job *job = self->job;
    struct stat st;
    self->head = NEW(struct slot_head);
    self->fd = open(job->source, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (self->fd < 0)
        return error_set(err, vault_tree_status(errno), "open slot: %s", strerror(errno));
    if (fstat(self->fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        (job->uid >= 0 && (int64_t)st.st_uid != job->uid))
        return error_set(err, STATUS_DENIED, "the slot is not the worker's own file");
    enum status status = slot_read(self->fd, self->head, err);
    self->job->nothing = status == STATUS_PRECONDITION;
    if (status != STATUS_OK)
        return status;
    if (job->step >= 0 && self->head->step != job->step)
        return error_set(err, STATUS_DATA_LOSS, "the slot holds step %" PRId64 ", not %" PRId64,
                         self->head->step, job->step);
    self->job->step = self->head->step;
    return STATUS_OK;
}

/* One of the small files, whole; NUL behind it. */
static enum status read_small(const struct persist *self, const char *name, void **out, size_t *len,
                              struct error *err)
{
    const struct slot_file *file = slot_find(self->head, name);
    size_t have = 0;
    if (!file || file->bytes > SMALL_BYTES_MAX)
        return error_set(err, STATUS_DATA_LOSS, "the slot has no %s, or it is too large", name);
    SCOPED(mem_free) void *bytes = mem_alloc((size_t)file->bytes + 1);
    while (have < file->bytes) {
        ssize_t got = pread(self->fd, (char *)bytes + have, (size_t)file->bytes - have,
                            (off_t)(file->offset + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return error_set(err, STATUS_DATA_LOSS, "read %s of the slot: %s", name,
                             got < 0 ? strerror(errno) : "its worker cut it");
        have += (size_t)got;
    }
    *out = TAKE(bytes);
    *len = have;
    return STATUS_OK;
}

static enum status read_layout(struct persist *self, struct error *err)
{
    SCOPED(mem_free) void *bytes = NULL;
    size_t len = 0;
    enum status status = read_small(self, SLOT_LAYOUT_NAME, &bytes, &len, err);
    if (status == STATUS_OK)
        status = layout_table_parse(bytes, len, &self->layout, err);
    if (status != STATUS_OK)
        return status;
    if (strcmp(layout_table_digest(self->layout), self->head->layout_digest) != 0)
        return error_set(err, STATUS_DATA_LOSS, SLOT_LAYOUT_NAME " does not match its digest");
    if (self->job->rank >= layout_table_world(self->layout))
        return error_set(err, STATUS_DATA_LOSS, "the layout is of %" PRIu32 " ranks",
                         layout_table_world(self->layout));
    /* Of all ranks the first one's agent looks whether everything is covered. */
    return self->job->rank == 0 ? layout_table_check_storage(self->layout, err) : STATUS_OK;
}

static size_t count_shards(const struct slot_head *head)
{
    size_t count = 0;
    for (uint32_t i = 0; i < head->files_count; i++)
        count += is_shard(head->files[i].name);
    return count;
}

static enum status read_blocks(struct persist *self, struct error *err)
{
    SCOPED(mem_free) void *bytes = NULL;
    size_t len = 0, shard = 0;
    enum status status = read_small(self, SLOT_BLOCKS_NAME, &bytes, &len, err);
    if (status == STATUS_OK)
        status = block_table_parse(bytes, len, &self->blocks, err);
    if (status != STATUS_OK)
        return status;
    bool same = self->blocks->files_count == count_shards(self->head);
    for (uint32_t i = 0; same && i < self->head->files_count; i++)
        if (is_shard(self->head->files[i].name))
            same = self->blocks->files[shard++].bytes == self->head->files[i].bytes;
    return same ? STATUS_OK
                : error_set(err, STATUS_DATA_LOSS,
                            SLOT_BLOCKS_NAME " is not of the shards that are there");
}

static enum status check_names(const struct slot_head *head, struct error *err)
{
    for (uint32_t i = 0; i < head->files_count; i++) {
        const char *name = head->files[i].name;
        if (!is_shard(name) && strcmp(name, SLOT_BLOCKS_NAME) != 0 &&
            strcmp(name, SLOT_STATE_NAME) != 0 && strcmp(name, SLOT_LAYOUT_NAME) != 0)
            return error_set(err, STATUS_DATA_LOSS, "the slot has a file '%.90s'", name);
    }
    return STATUS_OK;
}

/* --- the part */

static void add_file(struct persist *self, const char *name, const struct shard_written *written)
{
    Pb__CheckpointPart *part = self->out;
    Pb__CheckpointFile *file = NEW(Pb__CheckpointFile);
    pb__checkpoint_file__init(file);
    file->path = mem_printf("%s/%s", self->part.name, name);
    file->has_bytes = file->has_crc32c = true;
    file->bytes = written->bytes;
    file->crc32c = written->crc32c;
    file->xxh3 = mem_strdup(written->xxh3);
    part->files = mem_resize(part->files, part->n_files + 1, sizeof(void *));
    part->files[part->n_files++] = file;
}

static enum status write_file(struct persist *self, const struct slot_file *file,
                              const uint32_t *crcs, struct error *err)
{
    struct shard_written written;
    const struct shard_write_from from = {.fd = self->fd, .at = file->offset, .bytes = file->bytes};
    const struct shard_write_options options = {.crcs = crcs, .stop = &self->job->stop};
    enum status status =
        shard_write(self->pool, self->part.dir, file->name, &from, &options, &written, err);
    if (status != STATUS_OK)
        return status;
    add_file(self, file->name, &written);
    atomic_fetch_add(&self->job->done_bytes, file->bytes);
    return STATUS_OK;
}

static enum status write_files(struct persist *self, struct error *err)
{
    enum status status = STATUS_OK;
    size_t shard = 0;
    for (uint32_t i = 0; status == STATUS_OK && i < self->head->files_count; i++) {
        const struct slot_file *file = &self->head->files[i];
        const uint32_t *crcs = is_shard(file->name) ? self->blocks->files[shard++].crcs : NULL;
        if (self->job->rank == 0 || strcmp(file->name, SLOT_LAYOUT_NAME) != 0)
            status = write_file(self, file, crcs, err);
    }
    return status;
}

static int file_order(const void *a, const void *b)
{
    return strcmp((*(Pb__CheckpointFile *const *)a)->path, (*(Pb__CheckpointFile *const *)b)->path);
}

static void describe(struct persist *self)
{
    Pb__CheckpointPart *part = self->out;
    qsort(part->files, part->n_files, sizeof(*part->files), file_order);
    part->role = mem_strdup(self->job->role);
    part->has_rank = true;
    part->rank = self->job->rank;
    part->has_samples = self->head->samples >= 0;
    part->samples = self->head->samples;
    part->layout_digest = mem_strdup(self->head->layout_digest);
    if (self->job->rank == 0)
        part->layout = mem_printf("%s/%s", self->part.name, SLOT_LAYOUT_NAME);
}

static enum status check_part(const struct persist *self, struct error *err)
{
    const char *names[SLOT_FILES_MAX];
    for (uint32_t i = 0; i < self->head->files_count; i++)
        names[i] = self->head->files[i].name;
    return seal_check_part(self->part.dir, names, self->head->files_count, self->layout,
                           self->job->rank, err);
}

static enum status write_part(struct persist *self, struct error *err)
{
    const struct vault_job *job = self->job;
    const struct io_pool_options options = {.threads = WRITE_THREADS, .background = true};
    self->out = NEW(Pb__CheckpointPart);
    pb__checkpoint_part__init(self->out);
    enum status status = io_pool_create(&options, &self->pool, err);
    if (status == STATUS_OK)
        status = vault_part_begin(job->vault, job->path, job->role, job->rank, &self->part, err);
    if (status == STATUS_OK)
        status = write_files(self, err);
    if (status == STATUS_OK)
        status = check_part(self, err);
    if (status == STATUS_OK)
        status = vault_part_publish(&self->part, job->uid, job->gid, err);
    if (status == STATUS_OK)
        describe(self);
    return status;
}

enum status vault_persist_run(struct vault_job *job, struct error *err)
{
    struct persist self = {.job = job, .fd = -1, .part = {.parent = -1, .dir = -1}};
    enum status status = open_slot(&self, err);
    if (status == STATUS_OK)
        status = check_names(self.head, err);
    if (status == STATUS_OK)
        status = read_layout(&self, err);
    if (status == STATUS_OK)
        status = read_blocks(&self, err);
    if (status == STATUS_OK)
        status = write_part(&self, err);
    if (status == STATUS_OK)
        job->part = TAKE(self.out);
    else if (!job->nothing)
        (void)error_wrap(err, "write %s, %s-%" PRIu32, job->path, job->role, job->rank);
    persist_fini(&self);
    return status;
}
