/* reshard.c - copies a checkpoint into another layout. See reshard.h. */
#include "checkpoint/reshard.h"
#include "checkpoint/maker.h"
#include "checkpoint/reader_stream.h"
#include "checkpoint/slot.h"
#include <stdlib.h>
#include <string.h>

#define STATE_MAX ((size_t)256 << 20)

struct order {
    size_t piece;  /* of the image */
    uint32_t file; /* and where in it */
    uint64_t at;
};
struct copy {
    struct reader *reader;
    struct maker *maker;
    const struct watcher *watcher;
    struct order *order; /* of the rank that is being copied */
};

static enum status same_tensors(const struct layout_table *from, const struct layout_table *to,
                                struct error *err)
{
    size_t other;

    for (size_t i = 0; i < layout_table_count(from); i++) {
        const struct layout_tensor *tensor = layout_table_at(from, i);
        if (!layout_table_find(to, tensor->name, tensor->name_len, &other))
            return error_set(err, STATUS_INVALID, "the new layout lacks tensor \"%.100s\"",
                             tensor->name);
    }
    return STATUS_OK;
}

/* The image's pieces in the order of their bytes, file after file, as they are best written. */
static int file_order(const void *a, const void *b)
{
    const struct order *one = a, *other = b;

    if (one->file != other->file)
        return one->file < other->file ? -1 : 1;
    return one->at < other->at ? -1 : one->at > other->at;
}

static enum status copy_bytes(void *arg, size_t piece, uint64_t at, const void *bytes, size_t len,
                              struct error *err)
{
    struct copy *copy = arg;

    if (watcher_stopped(copy->watcher))
        return error_set(err, STATUS_CANCELLED, "stopped");
    watcher_moved(copy->watcher, len);
    return maker_write(copy->maker, copy->order[piece].piece, at, bytes, len, err);
}

static enum status rank_pieces(struct copy *copy, const struct layout_table *storage,
                               const struct shard_image *image, struct error *err)
{
    size_t count = shard_image_count(image);
    SCOPED(mem_free) void *memory = mem_array(count + 1, sizeof(struct reader_stream_piece));
    SCOPED(mem_free) void *order = mem_array(count + 1, sizeof(struct order));
    struct reader_stream_piece *pieces = memory;

    copy->order = order;
    for (size_t i = 0; i < count; i++) {
        const struct shard_image_piece *to = shard_image_at(image, i);
        copy->order[i] = (struct order){i, to->piece, to->at};
    }
    qsort(copy->order, count, sizeof(struct order), file_order);
    for (size_t i = 0; i < count; i++) {
        const struct shard_image_piece *to = shard_image_at(image, copy->order[i].piece);
        const struct layout_tensor *tensor = layout_table_at(storage, to->tensor);
        pieces[i].box = to->box;
        if (!layout_table_find(reader_layout(copy->reader), tensor->name, tensor->name_len,
                               &pieces[i].tensor))
            return error_set(err, STATUS_INVALID, "the checkpoint has no tensor \"%.100s\"",
                             tensor->name);
    }
    return reader_stream(copy->reader, pieces, count, 0, copy_bytes, copy, err);
}

static enum status rank_state(struct copy *copy, uint32_t rank, struct error *err)
{
    SCOPED_TEXT char *bytes = NULL;
    size_t len;
    enum status st = reader_state(copy->reader, rank, STATE_MAX, &bytes, &len, err);

    if (st == STATUS_NOT_FOUND && rank)
        st = reader_state(copy->reader, 0, STATE_MAX, &bytes, &len, err);
    if (st == STATUS_NOT_FOUND)
        return STATUS_OK; /* it has none */
    return st == STATUS_OK ? maker_file(copy->maker, SLOT_STATE_NAME, bytes, len, err) : st;
}

static enum status copy_rank(struct copy *copy, const struct layout_table *storage, uint32_t rank,
                             struct error *err)
{
    const struct shard_image *image;
    enum status st = maker_rank_begin(copy->maker, &image, err);

    if (st == STATUS_OK)
        st = rank_pieces(copy, storage, image, err);
    if (st == STATUS_OK)
        st = rank_state(copy, rank, err);
    if (st == STATUS_OK)
        st = maker_rank_end(copy->maker, err);
    return st;
}

enum status reshard_copy(struct reader *reader, const struct layout_table *storage,
                         const char *target, const struct watcher *watcher, char digest[65],
                         struct error *err)
{
    const struct manifest *from = reader_manifest(reader);
    const struct maker_facts facts = {.role = from->parts_count ? from->parts[0].role : NULL,
                                      .code = from->code,
                                      .job = from->job,
                                      .step = from->step,
                                      .samples = from->samples,
                                      .parent = from->id,
                                      .attempt = from->attempt};
    SCOPED(maker_destroy) struct maker *maker = NULL;
    enum status st = same_tensors(reader_layout(reader), storage, err);

    if (st == STATUS_OK)
        st = maker_create(target, storage, &facts, &maker, err);
    struct copy copy = {reader, maker, watcher, NULL};
    for (uint32_t rank = 0; st == STATUS_OK && rank < layout_table_world(storage); rank++)
        st = copy_rank(&copy, storage, rank, err);
    return st == STATUS_OK ? maker_seal(maker, digest, err) : st;
}
