/* shard_image_fill.c - the one copy of a save: from the program's memory into files' images, the
 * CRC32C of each block in the same pass.
 *
 * Pieces are walked in the order of the file, so that its bytes come one after the other. */
#include <inttypes.h>
#include <string.h>

#include "checkpoint/digest.h"
#include "checkpoint/plan.h"
#include "checkpoint/shard_image_table.h"

/* Shorter rows are copied first and digested behind: a call for each would cost more. */
#define ROW_MIN 1024u

/* Where in a file we are. */
struct stream {
    unsigned char *image;
    uint64_t at;
    uint32_t crc;
    uint32_t *crcs;
};

/* from NULL: the bytes are in the image already. */
static void stream_put(struct stream *stream, const unsigned char *from, uint64_t len)
{
    while (len > 0) {
        uint64_t room = BLOCK_TABLE_BLOCK - stream->at % BLOCK_TABLE_BLOCK;
        size_t n = (size_t)(len < room ? len : room);
        unsigned char *to = stream->image + stream->at;
        stream->crc =
            from ? digest_crc32c_copy(stream->crc, to, from, n) : digest_crc32c(stream->crc, to, n);
        from = from ? from + n : NULL;
        len -= n;
        stream->at += n;
        if (n == room) {
            stream->crcs[stream->at / BLOCK_TABLE_BLOCK - 1] = stream->crc;
            stream->crc = 0;
        }
    }
}

static void stream_end(struct stream *stream)
{
    if (stream->at % BLOCK_TABLE_BLOCK)
        stream->crcs[stream->at / BLOCK_TABLE_BLOCK] = stream->crc;
}

struct fill {
    struct shard_image *image;
    const struct plan *plan;
    struct plan_cursor *cursors; /* of each piece of the image: its first run */
    const void *const *pieces;   /* of the program */
    uint32_t *first;             /* of them, of each tensor of the declared table */
};

typedef void (*row_fn)(void *arg, uint64_t source, uint64_t target, uint64_t bytes);

static void rows(const struct plan_run *run, uint32_t level, uint64_t source, uint64_t target,
                 row_fn fn, void *arg)
{
    if (level == run->loops) {
        fn(arg, source, target, run->bytes);
        return;
    }
    const struct plan_loop *loop = &run->loop[level];
    for (uint64_t i = 0; i < loop->count; i++)
        rows(run, level + 1, source + i * loop->source_step, target + i * loop->target_step, fn,
             arg);
}

struct row_copy {
    const unsigned char *from;
    unsigned char *to;
    struct stream *stream;
};

static void row_put(void *arg, uint64_t source, uint64_t target, uint64_t bytes)
{
    const struct row_copy *copy = arg;

    (void)target; /* comes one after the other, see is_sequence */
    stream_put(copy->stream, copy->from + source, bytes);
}

static void row_copy(void *arg, uint64_t source, uint64_t target, uint64_t bytes)
{
    const struct row_copy *copy = arg;

    memcpy(copy->to + target, copy->from + source, (size_t)bytes);
}

/* Do its rows make the whole piece, one behind the other? */
static bool is_sequence(const struct plan_run *run, uint64_t piece_bytes)
{
    uint64_t bytes = run->bytes;

    for (uint32_t i = run->loops; i-- > 0;) {
        if (run->loop[i].target_step != bytes)
            return false;
        bytes *= run->loop[i].count;
    }
    return run->target_at == 0 && bytes == piece_bytes;
}

static const unsigned char *source_of(const struct fill *fill, const struct plan_run *run)
{
    return fill->pieces[fill->first[run->source_tensor] + run->source_piece];
}

static enum status fill_piece(const struct fill *fill, const struct shard_image_piece *piece,
                              struct stream *stream, struct error *err)
{
    struct plan_cursor cursor = fill->cursors[piece - fill->image->pieces];
    struct row_copy copy = {.to = stream->image + stream->at, .stream = stream};
    uint64_t copied = 0;
    struct plan_run run;

    while (copied < piece->bytes && plan_next(fill->plan, &cursor, &run)) {
        if (run.source_rank != fill->image->rank || run.tensor != piece->tensor ||
            run.target_piece != piece->piece)
            break;
        copy.from = source_of(fill, &run);
        copied += plan_run_bytes(&run);
        if (run.bytes >= ROW_MIN && is_sequence(&run, piece->bytes)) {
            rows(&run, 0, run.source_at, 0, row_put, &copy);
            return STATUS_OK;
        }
        rows(&run, 0, run.source_at, run.target_at, row_copy, &copy);
    }
    if (copied != piece->bytes)
        return error_set(err, STATUS_INVALID,
                         "rank %" PRIu32 " does not hold what it has to write of tensor %.80s",
                         fill->image->rank,
                         layout_table_at(fill->image->storage, piece->tensor)->name);
    stream_put(stream, NULL, piece->bytes);
    return STATUS_OK;
}

static enum status fill_file(const struct fill *fill, uint32_t index, void *memory,
                             struct error *err)
{
    const struct shard_image_file *file = &fill->image->files[index];
    struct stream stream = {.image = memory, .crcs = fill->image->blocks->files[index].crcs};
    enum status st = STATUS_OK;

    stream_put(&stream, (const unsigned char *)file->head.data, file->head.len);
    for (uint32_t i = 0; i < file->count && st == STATUS_OK; i++)
        st = fill_piece(fill, file->order[i], &stream, err);
    stream_end(&stream);
    return st;
}

/* Runs come by tensor and piece, as the image's pieces do. */
static void find_cursors(struct fill *fill)
{
    struct plan_cursor cursor = {0}, here = cursor;
    const struct shard_image *image = fill->image;
    uint32_t done = UINT32_MAX;
    struct plan_run run;

    while (plan_next(fill->plan, &cursor, &run)) {
        uint32_t piece = image->first[run.tensor] + run.target_piece;
        if (piece != done)
            fill->cursors[piece] = here;
        done = piece;
        here = cursor;
    }
}

static uint32_t *first_pieces(const struct layout_table *declared, uint32_t rank)
{
    size_t tensors = layout_table_count(declared);
    uint32_t *first = mem_array(tensors + 1, sizeof *first);

    for (size_t i = 0; i < tensors; i++)
        first[i + 1] = first[i] + (uint32_t)layout_table_pieces(declared, i, rank, NULL, 0);
    return first;
}

static uint64_t cost_of(void *arg, uint32_t source_rank)
{
    return source_rank == *(const uint32_t *)arg ? 0 : 1;
}

enum status shard_image_fill(struct shard_image *image, const struct layout_table *declared,
                             const void *const *pieces, void *const *files, struct error *err)
{
    const struct plan_options own = {.cost = cost_of, .arg = &image->rank};
    SCOPED(plan_destroy) struct plan *plan = NULL;
    enum status st = plan_rank(declared, image->storage, image->rank, &own, &plan, err);

    if (st != STATUS_OK)
        return st;
    SCOPED(mem_free) void *first = first_pieces(declared, image->rank);
    SCOPED(mem_free)
    void *cursors = mem_array(shard_image_count(image) + 1, sizeof(struct plan_cursor));
    struct fill fill = {
        .image = image, .plan = plan, .cursors = cursors, .pieces = pieces, .first = first};
    find_cursors(&fill);
    for (uint32_t i = 0; i < image->files_count && st == STATUS_OK; i++)
        st = fill_file(&fill, i, files[i], err);
    return st;
}
