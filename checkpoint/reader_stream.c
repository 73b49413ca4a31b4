/* reader_stream.c - the bytes of tensors, a window at a time. See reader_stream.h. */
#include "checkpoint/reader_stream.h"
#include "checkpoint/layout_build.h"
#include <pthread.h>
#include <string.h>

struct part { /* a contiguous run of a piece: a box of its own */
    size_t piece;
    uint64_t at, bytes; /* in the piece */
    struct layout_box box;
};
struct batch { /* what is loaded at once */
    struct part *parts;
    size_t count, room;
    uint64_t bytes;
    unsigned char *memory;
    size_t memory_len;
};
/* One batch is loaded by a thread of its own while the one before is handed over. */
struct stream {
    struct reader *reader;
    const struct reader_stream_piece *pieces;
    reader_stream_fn fn;
    void *arg;
    size_t window;
    struct batch batches[2];
    uint64_t number;  /* of the batch that grows, from 1 */
    uint64_t *latest; /* of each tensor: the batch that last had a part of it */
    unsigned
        grows; /* index of the batch that parts are added to; the other one is loaded, or empty */
};
struct loading {
    const struct stream *stream;
    struct batch *batch;
    enum status st;
    struct error err;
};

struct layout_box reader_stream_whole(const struct layout_tensor *tensor)
{
    struct layout_box box = {0};

    for (uint32_t d = 0; d < tensor->dims; d++)
        box.size[d] = tensor->shape[d];
    return box;
}

static const struct layout_tensor *tensor_of(const struct stream *stream, size_t piece)
{
    return layout_table_at(reader_layout(stream->reader), stream->pieces[piece].tensor);
}

/* --- a batch of parts: one load */

static enum status batch_add(struct layout_build *build, const struct layout_tensor *tensor,
                             const struct part *part, struct error *err)
{
    static const uint32_t rank_0 = 0;
    uint64_t numbers[2 * LAYOUT_DIMS_MAX];
    struct layout_boxes boxes = {tensor->dims, 1, &rank_0, numbers};
    struct layout_tensor copy = *tensor;

    for (uint32_t d = 0; d < tensor->dims; d++) {
        numbers[d] = part->box.offset[d];
        numbers[tensor->dims + d] = part->box.size[d];
    }
    enum status st = layout_build_boxes(build, &boxes, &copy.layout, err);
    return st == STATUS_OK ? layout_build_tensor(build, &copy, err) : st;
}

static enum status batch_table(const struct stream *stream, const struct batch *batch,
                               struct layout_table **out, struct error *err)
{
    SCOPED(layout_build_destroy) struct layout_build *build = layout_build_create(1);

    for (size_t i = 0; i < batch->count; i++) {
        const struct part *part = &batch->parts[i];
        enum status st = batch_add(build, tensor_of(stream, part->piece), part, err);
        if (st != STATUS_OK)
            return st;
    }
    return layout_build_finish(build, out, err);
}

static enum status batch_hand_over(const struct stream *stream, struct batch *batch,
                                   struct error *err)
{
    enum status st = STATUS_OK;
    size_t at = 0;

    for (size_t i = 0; i < batch->count && st == STATUS_OK; i++) {
        const struct part *part = &batch->parts[i];
        st = stream->fn(stream->arg, part->piece, part->at, batch->memory + at, (size_t)part->bytes,
                        err);
        at += (size_t)part->bytes;
    }
    batch->count = 0;
    batch->bytes = 0;
    return st;
}

static enum status batch_load(const struct stream *stream, struct batch *batch, struct error *err)
{
    SCOPED(layout_table_destroy) struct layout_table *table = NULL;
    SCOPED(mem_free) void *pieces = mem_array(batch->count, sizeof(void *));
    size_t at = 0;
    enum status st = batch_table(stream, batch, &table, err);

    if (st != STATUS_OK)
        return st;
    if (batch->memory_len < batch->bytes) {
        mem_free(batch->memory);
        batch->memory_len = (size_t)batch->bytes;
        batch->memory = mem_array(batch->memory_len, 1);
    }
    for (size_t i = 0; i < batch->count; at += (size_t)batch->parts[i++].bytes)
        ((void **)pieces)[i] = batch->memory + at;
    return reader_load(stream->reader, table, 0, pieces, NULL, err);
}

static void *load_main(void *arg)
{
    struct loading *loading = arg;

    loading->st = batch_load(loading->stream, loading->batch, &loading->err);
    return NULL;
}

/* Loads the batch that grew, and hands over the one before meanwhile. */
static enum status batch_run(struct stream *stream, struct error *err)
{
    struct batch *before = &stream->batches[1 - stream->grows];
    struct loading loading = {.stream = stream, .batch = &stream->batches[stream->grows]};
    pthread_t thread;
    bool beside = before->count && pthread_create(&thread, NULL, load_main, &loading) == 0;

    if (!beside)
        (void)load_main(&loading);
    enum status st = batch_hand_over(stream, before, err);
    if (beside)
        (void)pthread_join(thread, NULL);
    if (st == STATUS_OK && loading.st != STATUS_OK && err)
        *err = loading.err;
    stream->grows = 1 - stream->grows;
    return st == STATUS_OK ? loading.st : st;
}

/* No part is added any more. */
static enum status batch_last(struct stream *stream, struct error *err)
{
    enum status st = stream->batches[stream->grows].count ? batch_run(stream, err) : STATUS_OK;

    return st == STATUS_OK ? batch_hand_over(stream, &stream->batches[1 - stream->grows], err) : st;
}

/* --- pieces into parts */

/* A table holds a tensor once, so that a second part of it begins another batch. */
static enum status part_add(struct stream *stream, const struct part *part, struct error *err)
{
    struct batch *batch = &stream->batches[stream->grows];

    size_t tensor = stream->pieces[part->piece].tensor;

    if (batch->count &&
        (batch->bytes + part->bytes > stream->window || stream->latest[tensor] == stream->number)) {
        enum status st = batch_run(stream, err);
        if (st != STATUS_OK)
            return st;
        batch = &stream->batches[stream->grows];
        stream->number++;
    }
    stream->latest[tensor] = stream->number;
    if (batch->count == batch->room) {
        batch->room = batch->room ? 2 * batch->room : 64;
        batch->parts = mem_resize(batch->parts, batch->room, sizeof(*batch->parts));
    }
    batch->parts[batch->count++] = *part;
    batch->bytes += part->bytes;
    return STATUS_OK;
}

/* Bits of one step along a dimension of the box. */
static uint64_t step_bits(const struct layout_tensor *tensor, const struct layout_box *box,
                          uint32_t dim)
{
    uint64_t bits = dtype_bits(tensor->dtype);

    for (uint32_t d = dim + 1; d < tensor->dims; d++)
        bits *= box->size[d];
    return bits;
}

/* The outermost dimension of which a step fits: parts are ranges of it. */
static uint32_t cut_dim(const struct stream *stream, const struct layout_tensor *tensor,
                        const struct layout_box *box)
{
    uint32_t dim = 0;

    while (dim + 1 < tensor->dims && step_bits(tensor, box, dim) / 8 > stream->window)
        dim++;
    return dim;
}

/* How many steps a part takes: a multiple of 8 where elements are no whole bytes. */
static uint64_t steps_of(const struct stream *stream, const struct layout_tensor *tensor,
                         const struct layout_box *box, uint32_t dim)
{
    uint64_t steps = (uint64_t)stream->window * 8 / step_bits(tensor, box, dim);

    if (dtype_bits(tensor->dtype) % 8)
        steps = steps / 8 * 8;
    return steps ? steps : dtype_bits(tensor->dtype) % 8 ? 8 : 1;
}

/* Next index of the dims before `dim`, last one fastest. False: that was the last. */
static bool next_index(const struct layout_box *whole, uint32_t dim, struct layout_box *box)
{
    for (uint32_t d = dim; d-- > 0;) {
        if (++box->offset[d] < whole->offset[d] + whole->size[d])
            return true;
        box->offset[d] = whole->offset[d];
    }
    return false;
}

static enum status piece_cut(struct stream *stream, size_t piece, uint64_t bytes, struct error *err)
{
    const struct layout_tensor *tensor = tensor_of(stream, piece);
    const struct layout_box *whole = &stream->pieces[piece].box;
    uint32_t dim = cut_dim(stream, tensor, whole);
    uint64_t steps = steps_of(stream, tensor, whole, dim);
    struct part part = {.piece = piece, .box = *whole};

    for (uint32_t d = 0; d < dim; d++)
        part.box.size[d] = 1;
    do {
        for (uint64_t at = 0; at < whole->size[dim]; at += steps) {
            uint64_t left = whole->size[dim] - at;
            part.box.offset[dim] = whole->offset[dim] + at;
            part.box.size[dim] = left < steps ? left : steps;
            part.bytes = layout_box_bytes(&part.box, tensor);
            enum status st = part_add(stream, &part, err);
            if (st != STATUS_OK)
                return st;
            part.at += part.bytes;
        }
    } while (next_index(whole, dim, &part.box));
    return part.at == bytes ? STATUS_OK
                            : error_set(err, STATUS_INTERNAL, "a piece was cut into other bytes");
}

static enum status piece_add(struct stream *stream, size_t piece, struct error *err)
{
    const struct layout_tensor *tensor = tensor_of(stream, piece);
    const struct layout_box *box = &stream->pieces[piece].box;
    uint64_t bytes = layout_box_bytes(box, tensor);
    struct part part = {.piece = piece, .bytes = bytes, .box = *box};

    if (!bytes)
        return STATUS_OK;
    return bytes <= stream->window || !tensor->dims ? part_add(stream, &part, err)
                                                    : piece_cut(stream, piece, bytes, err);
}

enum status reader_stream(struct reader *reader, const struct reader_stream_piece *pieces,
                          size_t count, size_t window, reader_stream_fn fn, void *arg,
                          struct error *err)
{
    size_t tensors = layout_table_count(reader_layout(reader));
    SCOPED(mem_free) void *memory = mem_array(tensors + 1, sizeof(uint64_t));
    struct stream stream = {.reader = reader,
                            .pieces = pieces,
                            .fn = fn,
                            .arg = arg,
                            .window = window ? window : READER_STREAM_WINDOW,
                            .number = 1,
                            .latest = memory};
    enum status st = STATUS_OK;

    for (size_t i = 0; i < count && st == STATUS_OK; i++)
        st = piece_add(&stream, i, err);
    if (st == STATUS_OK)
        st = batch_last(&stream, err);
    for (size_t i = 0; i < COUNT_OF(stream.batches); i++) {
        mem_free(stream.batches[i].parts);
        mem_free(stream.batches[i].memory);
    }
    return st;
}
