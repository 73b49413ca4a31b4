/* seal_check.c - see seal_check.h. */
#include "checkpoint/seal_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_dcp.h"
#include "checkpoint/shard_image.h"
#include "checkpoint/vault_tree.h"

struct check {
    const struct layout_table *storage;
    uint32_t rank, files, file; /* files there must be; the one that is being checked */
    uint32_t *pieces;           /* of each tensor on the rank */
    struct layout_box *boxes;   /* room for those of one tensor */
};

static void count_pieces(struct check *check)
{
    size_t tensors = layout_table_count(check->storage);

    check->pieces = mem_array(tensors, sizeof *check->pieces);
    for (size_t i = 0; i < tensors; i++) {
        size_t count = layout_table_pieces(check->storage, i, check->rank, NULL, 0);
        check->pieces[i] = (uint32_t)count;
        if (check->pieces[i] > check->files)
            check->files = check->pieces[i];
    }
    check->boxes = mem_array(check->files, sizeof *check->boxes);
}

static bool is_shard(const char *name)
{
    static const char suffix[] = ".safetensors";
    size_t len = strlen(name);

    return len >= sizeof suffix - 1 && strcmp(name + len - (sizeof suffix - 1), suffix) == 0;
}

/* --- one file */

static enum status wrong_tensor(const struct safetensors_entry *entry, const char *what,
                                struct error *err)
{
    char shown[128];

    (void)snprintf(shown, sizeof shown, "%s", entry->name);
    text_cut(shown, 120);
    return error_set(err, STATUS_DATA_LOSS, "tensor %s: %s", shown, what);
}

static enum status check_entry(const struct check *check, const struct safetensors_entry *entry,
                               const uint64_t *offsets, struct error *err)
{
    const struct layout_tensor *tensor;
    size_t index, bytes = entry->dims * sizeof *offsets;

    if (!layout_table_find(check->storage, entry->name, entry->name_len, &index))
        return wrong_tensor(entry, "the layout does not have it", err);
    tensor = layout_table_at(check->storage, index);
    if (tensor->name_len != entry->name_len ||
        memcmp(tensor->name, entry->name, entry->name_len) != 0)
        return wrong_tensor(entry, "an alias is stored beside its tensor", err);
    if (check->pieces[index] <= check->file)
        return wrong_tensor(entry, "the rank has no such piece of it", err);
    if (entry->dtype != tensor->dtype || entry->dims != tensor->dims)
        return wrong_tensor(entry, "another dtype or number of dimensions", err);
    (void)layout_table_pieces(check->storage, index, check->rank, check->boxes, check->files);
    const struct layout_box *box = &check->boxes[check->file];
    if (entry->dims && memcmp(entry->shape, box->size, bytes) != 0)
        return wrong_tensor(entry, "another shape", err);
    if (entry->dims && memcmp(offsets, box->offset, bytes) != 0)
        return wrong_tensor(entry, "it is from another place", err);
    return STATUS_OK;
}

/* The first tensor that has to be there and is not. */
static enum status missing_tensor(const struct check *check, const struct safetensors *head,
                                  struct error *err)
{
    for (size_t i = 0; i < layout_table_count(check->storage); i++) {
        const struct layout_tensor *tensor = layout_table_at(check->storage, i);
        const struct safetensors_entry wanted = {.name = tensor->name};
        if (check->pieces[i] > check->file &&
            !safetensors_find(head, tensor->name, tensor->name_len))
            return wrong_tensor(&wanted, "it is not there", err);
    }
    return STATUS_OK;
}

static bool has_meta(const struct safetensors *head, const char *key, const char *wanted)
{
    size_t len;
    const char *value = safetensors_meta(head, key, &len);

    return value && len == strlen(wanted) && memcmp(value, wanted, len) == 0;
}

static enum status check_head(const struct check *check, const struct safetensors *head,
                              struct error *err)
{
    SCOPED(safetensors_dcp_destroy) struct safetensors_dcp *dcp = NULL;
    enum status st = safetensors_dcp_read(head, &dcp, err);

    if (st != STATUS_OK)
        return error_set(err, STATUS_DATA_LOSS, "%s of its header is not as it must be",
                         SAFETENSORS_DCP_INFO);
    if (!has_meta(head, "format", "pt") ||
        !has_meta(head, "DCP_VERSION", SAFETENSORS_DCP_VERSION) ||
        safetensors_data_at(head) % SAFETENSORS_ALIGN != 0)
        return error_set(err, STATUS_DATA_LOSS, "its header is not one of ours");
    for (size_t i = 0; i < safetensors_count(head) && st == STATUS_OK; i++)
        st = check_entry(check, safetensors_at(head, i), safetensors_dcp_offsets(dcp, i), err);
    return st == STATUS_OK ? missing_tensor(check, head, err) : st;
}

static enum status open_and_check(const struct check *check, int dir, const char *name,
                                  struct error *err)
{
    SCOPED_FD int fd = -1;
    SCOPED(safetensors_destroy) struct safetensors *head = NULL;
    struct stat stat;
    enum status st = vault_tree_file(dir, name, &fd, err);

    if (st != STATUS_OK)
        return st;
    if (fstat(fd, &stat) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "stat: %s", strerror(errno));
    st = safetensors_open(fd, (uint64_t)stat.st_size, false, &head, err);
    if (st == STATUS_INVALID) { /* a bad file here: damage */
        if (err)
            err->code = STATUS_DATA_LOSS;
        return STATUS_DATA_LOSS;
    }
    return st == STATUS_OK ? check_head(check, head, err) : st;
}

/* --- the part */

static enum status check_files(struct check *check, int dir, const char *const *names, size_t count,
                               struct error *err)
{
    char wanted[SHARD_IMAGE_NAME_MAX];
    size_t shards = 0;
    enum status st = STATUS_OK;

    for (size_t i = 0; i < count; i++)
        shards += is_shard(names[i]);
    if (shards != check->files)
        return error_set(err, STATUS_DATA_LOSS,
                         "%zu shard files, but %" PRIu32 " by the layout, of rank %" PRIu32, shards,
                         check->files, check->rank);
    for (check->file = 0; check->file < check->files && st == STATUS_OK; check->file++) {
        size_t found = 0;
        shard_image_file_name(check->rank, check->file, check->files, wanted);
        while (found < count && strcmp(names[found], wanted) != 0)
            found++;
        if (found == count)
            return error_set(err, STATUS_DATA_LOSS, "%s is not there", wanted);
        st = open_and_check(check, dir, wanted, err);
        if (st != STATUS_OK)
            return err ? error_wrap(err, "%s", wanted) : st;
    }
    return STATUS_OK;
}

enum status seal_check_part(int dir, const char *const *names, size_t count,
                            const struct layout_table *storage, uint32_t rank, struct error *err)
{
    struct check check = {.storage = storage, .rank = rank};

    if (rank >= layout_table_world(storage))
        return error_set(err, STATUS_DATA_LOSS, "rank %" PRIu32 " of a world of %" PRIu32, rank,
                         layout_table_world(storage));
    count_pieces(&check);
    enum status st = check_files(&check, dir, names, count, err);
    mem_free(check.pieces);
    mem_free(check.boxes);
    return st;
}
