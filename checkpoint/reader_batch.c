/* reader_batch.c - see reader_batch.h. */
#include "checkpoint/reader_batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/reader_scatter.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_dcp.h"

struct batch_file {
    struct shard_read read;
    struct block_table *blocks; /* of its rank; owned by the first file of the rank */
    bool owns_blocks;
    size_t from, to; /* its runs */
    unsigned char *head;
    size_t head_len;
    unsigned char *bits; /* blocks that are needed */
};
struct batch_span {
    uint32_t file;
    struct shard_read_span span;
};
struct batch {
    struct reader_load *load;
    struct batch_file files[READER_BATCH_FILES];
    uint32_t files_count;
    struct batch_span *spans;
    size_t spans_count;
};

static void batch_destroy(struct batch *batch)
{
    if (!batch)
        return;
    for (uint32_t i = 0; i < batch->files_count; i++) {
        struct batch_file *file = &batch->files[i];
        shard_read_close(&file->read);
        if (file->owns_blocks)
            block_table_destroy(file->blocks);
        mem_free(file->head);
        mem_free(file->bits);
    }
    mem_free(batch->spans);
    mem_free(batch);
}
SCOPED_DESTRUCTOR(struct batch *, batch_destroy)

static uint32_t rank_of(const struct batch_file *file, const struct reader_load *load)
{
    return (uint32_t)(load->runs[file->from].key >> 32);
}

static uint32_t piece_of(const struct batch_file *file, const struct reader_load *load)
{
    return (uint32_t)load->runs[file->from].key;
}

/* --- open */

static enum status lacks(struct reader *reader, uint32_t rank, uint32_t piece, struct error *err)
{
    (void)snprintf(reader->damaged, sizeof reader->damaged, "part of rank %" PRIu32, rank);
    return error_set(err, STATUS_DATA_LOSS,
                     "rank %" PRIu32 " has no shard %" PRIu32 " though the layout says so", rank,
                     piece);
}

static enum status file_open(struct batch *batch, struct batch_file *file, struct error *err)
{
    struct reader *reader = batch->load->reader;
    uint32_t rank = rank_of(file, batch->load), piece = piece_of(file, batch->load);
    const struct manifest_part *part = manifest_part_of(reader->manifest, rank);
    const struct manifest_file *shard = part ? reader_shard(part, piece) : NULL;
    enum status st = STATUS_OK;

    if (!shard)
        return lacks(reader, rank, piece, err);
    if (file > batch->files && rank_of(file - 1, batch->load) == rank) {
        file->blocks = file[-1].blocks;
    } else {
        st = reader_blocks(reader, part, &file->blocks, err);
        file->owns_blocks = st == STATUS_OK;
    }
    if (st != STATUS_OK)
        return st;
    if (piece >= file->blocks->files_count || file->blocks->files[piece].bytes != shard->bytes)
        return error_set(err, STATUS_DATA_LOSS, "%s is not in its part's table of blocks",
                         shard->path);
    st = shard_read_open(reader->dir, shard->path, &file->blocks->files[piece], &reader->patience,
                         &file->read, err);
    if (st == STATUS_NOT_FOUND)
        st = error_set(err, STATUS_DATA_LOSS, "%s is missing", shard->path);
    if (st == STATUS_DATA_LOSS)
        (void)snprintf(reader->damaged, sizeof reader->damaged, "%s", shard->path);
    if (st == STATUS_OK)
        reader_find_copy(reader, part, &file->read);
    return st;
}

static enum status batch_open(struct batch *batch, size_t from, size_t to, struct error *err)
{
    const struct reader_run *runs = batch->load->runs;

    for (size_t i = from, end; i < to; i = end) {
        struct batch_file *file = &batch->files[batch->files_count++];
        for (end = i + 1; end < to && runs[end].key == runs[i].key;)
            end++;
        shard_read_init(&file->read);
        file->from = i;
        file->to = end;
        enum status st = file_open(batch, file, err);
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

/* --- headers */

struct head_sink {
    unsigned char *head;
    size_t len;
};

static void head_bytes(void *arg, uint64_t at, const unsigned char *bytes, size_t len)
{
    const struct head_sink *sink = arg;

    if (at < sink->len)
        memcpy(sink->head + at, bytes, len < sink->len - at ? len : (size_t)(sink->len - at));
}

/* One item a file: the head as far as its memory goes. */
static enum status head_read(void *arg, size_t item, void *buffer, struct error *err)
{
    struct batch *batch = arg;
    struct batch_file *file = &batch->files[item];
    struct head_sink head = {file->head, file->head_len};
    const struct shard_read_sink sink = {.take = head_bytes, .arg = &head};
    uint64_t count = (file->head_len + BLOCK_TABLE_BLOCK - 1) / BLOCK_TABLE_BLOCK;
    uint64_t most = io_pool_buffer_bytes(batch->load->pool) / BLOCK_TABLE_BLOCK;
    enum status st = STATUS_OK;

    for (uint64_t at = 0; at < count && st == STATUS_OK; at += most) {
        const struct shard_read_span span = {.first = at,
                                             .count =
                                                 (uint32_t)(count - at < most ? count - at : most),
                                             .shared = batch->load->reader->options.ranks_here > 1};
        st = shard_read_blocks(&file->read, &span, buffer, &sink, &batch->load->counts, err);
    }
    return st;
}

static uint64_t head_bytes_of(const struct batch_file *file)
{
    uint64_t n = 0;

    for (size_t i = 8; i-- > 0;)
        n = n << 8 | file->head[i];
    return n > SAFETENSORS_HEADER_MAX ? 0 : n + 8;
}

static enum status batch_heads(struct batch *batch, struct error *err)
{
    bool more = false;
    enum status st;

    for (uint32_t i = 0; i < batch->files_count; i++) {
        struct batch_file *file = &batch->files[i];
        uint64_t bytes = file->read.blocks.bytes;
        file->head_len = (size_t)(bytes < BLOCK_TABLE_BLOCK ? bytes : BLOCK_TABLE_BLOCK);
        file->head = mem_alloc(BLOCK_TABLE_BLOCK);
    }
    st = io_pool_run(batch->load->pool, batch->files_count, head_read, batch, err);
    for (uint32_t i = 0; st == STATUS_OK && i < batch->files_count; i++) {
        struct batch_file *file = &batch->files[i];
        uint64_t want = head_bytes_of(file);
        if (want > file->read.blocks.bytes)
            want = 0; /* the parser tells */
        if (want <= file->head_len)
            continue;
        file->head = mem_resize(file->head, (size_t)want, 1);
        file->head_len = (size_t)want;
        more = true;
    }
    return st == STATUS_OK && more
               ? io_pool_run(batch->load->pool, batch->files_count, head_read, batch, err)
               : st;
}

/* --- where the pieces lie */

static enum status not_as_laid_out(const struct reader_load *load, const struct batch_file *file,
                                   const struct layout_tensor *tensor, struct error *err)
{
    (void)snprintf(load->reader->damaged, sizeof load->reader->damaged, "%s", file->read.path);
    return error_set(err, STATUS_DATA_LOSS, "%s does not hold tensor %.80s as the layout says",
                     file->read.path, tensor->name);
}

/* The header is what it says of itself; the layout says what it has to be. */
static enum status piece_place(struct reader_load *load, const struct batch_file *file,
                               const struct safetensors *head, size_t source_tensor, uint64_t *base,
                               struct error *err)
{
    const struct layout_table *layout = load->reader->layout;
    const struct layout_tensor *tensor = layout_table_at(layout, source_tensor);
    const struct safetensors_entry *entry = safetensors_find(head, tensor->name, tensor->name_len);
    uint32_t rank = rank_of(file, load), piece = piece_of(file, load);
    SCOPED(mem_free) void *memory = mem_array((size_t)piece + 1, sizeof(struct layout_box));
    struct layout_box *boxes = memory;

    if (layout_table_pieces(layout, source_tensor, rank, boxes, (size_t)piece + 1) <= piece ||
        !entry || entry->dtype != tensor->dtype || entry->dims != tensor->dims ||
        (entry->dims &&
         memcmp(entry->shape, boxes[piece].size, entry->dims * sizeof(uint64_t)) != 0))
        return not_as_laid_out(load, file, tensor, err);
    *base = safetensors_data_at(head) + entry->begin;
    return STATUS_OK;
}

static int run_order(const void *a, const void *b)
{
    const struct reader_run *x = a, *y = b;

    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static enum status file_place(struct batch *batch, struct batch_file *file, struct error *err)
{
    struct reader_load *load = batch->load;
    SCOPED(safetensors_destroy) struct safetensors *head = NULL;
    uint64_t reach = 0, base = 0;
    size_t tensor = SIZE_MAX;
    enum status st =
        safetensors_parse(file->head, file->head_len, file->read.blocks.bytes, &head, err);

    if (st != STATUS_OK) {
        (void)snprintf(load->reader->damaged, sizeof load->reader->damaged, "%s", file->read.path);
        return error_set(err, STATUS_DATA_LOSS, "%s: %s", file->read.path, err ? err->text : "");
    }
    for (size_t i = file->from; i < file->to && st == STATUS_OK; i++) {
        struct reader_run *run = &load->runs[i];
        struct plan_cursor cursor = run->cursor;
        struct plan_run planned;
        if (!plan_next(load->plan, &cursor, &planned))
            return error_set(err, STATUS_INTERNAL, "a plan that ends early");
        if (planned.source_tensor != tensor)
            st = piece_place(load, file, head, tensor = planned.source_tensor, &base, err);
        run->base = base;
        run->begin = base + planned.source_at;
        run->end = run->begin + reader_scatter_extent(&planned);
        reader_scatter_mark(&planned, base, BLOCK_TABLE_BLOCK, file->bits);
    }
    if (st != STATUS_OK)
        return st;
    qsort(&load->runs[file->from], file->to - file->from, sizeof *load->runs, run_order);
    for (size_t i = file->from; i < file->to; i++) {
        reach = load->runs[i].end > reach ? load->runs[i].end : reach;
        load->runs[i].reach = reach;
    }
    return STATUS_OK;
}

static enum status batch_place(struct batch *batch, struct error *err)
{
    for (uint32_t i = 0; i < batch->files_count; i++) {
        struct batch_file *file = &batch->files[i];
        file->bits = mem_alloc(file->read.blocks.count / 8 + 1);
        enum status st = file_place(batch, file, err);
        if (st != STATUS_OK)
            return st;
        mem_free(file->head);
        file->head = NULL;
    }
    return STATUS_OK;
}

/* --- spans */

static bool needed(const struct batch_file *file, uint64_t block)
{
    return block < file->read.blocks.count && (file->bits[block / 8] >> (block % 8) & 1);
}

/* Needed blocks in a row make a span; a single block between two needed ones is read along, which
 * costs less than another request. out NULL: counts. */
static size_t file_spans(const struct batch *batch, uint32_t index, struct batch_span *out)
{
    const struct batch_file *file = &batch->files[index];
    uint64_t most = io_pool_buffer_bytes(batch->load->pool) / BLOCK_TABLE_BLOCK;
    size_t count = 0;

    for (uint64_t at = 0; at < file->read.blocks.count;) {
        uint64_t end = at;
        while (end - at < most && (needed(file, end) || (end > at && needed(file, end + 1))))
            end++;
        if (end > at && out)
            out[count] = (struct batch_span){
                .file = index,
                .span = {.first = at,
                         .count = (uint32_t)(end - at),
                         .shared = batch->load->reader->options.ranks_here > 1}};
        count += end > at;
        at = end > at ? end : at + 1;
    }
    return count;
}

static void batch_spans(struct batch *batch)
{
    size_t used = 0;

    for (uint32_t i = 0; i < batch->files_count; i++)
        batch->spans_count += file_spans(batch, i, NULL);
    batch->spans = mem_array(batch->spans_count ? batch->spans_count : 1, sizeof *batch->spans);
    for (uint32_t i = 0; i < batch->files_count; i++)
        used += file_spans(batch, i, batch->spans + used);
}

struct span_sink {
    const struct reader_load *load;
    const struct batch_file *file;
};

/* The first of the file's runs that reaches beyond `at`. */
static size_t first_run(const struct span_sink *sink, uint64_t at)
{
    size_t low = sink->file->from, high = sink->file->to;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sink->load->runs[middle].reach > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void span_bytes(void *arg, uint64_t at, const unsigned char *bytes, size_t len)
{
    const struct span_sink *sink = arg;
    const struct reader_load *load = sink->load;

    for (size_t i = first_run(sink, at); i < sink->file->to && load->runs[i].begin < at + len;
         i++) {
        struct plan_cursor cursor = load->runs[i].cursor;
        struct plan_run run;
        if (load->runs[i].end <= at || !plan_next(load->plan, &cursor, &run))
            continue;
        reader_scatter_copy(&run, load->runs[i].base, at, bytes, len,
                            load->pieces[load->first[run.tensor] + run.target_piece]);
    }
}

/* In one row of one run, and no other run wants any of it. */
static unsigned char *span_place(void *arg, uint64_t at, size_t len)
{
    const struct span_sink *sink = arg;
    const struct reader_load *load = sink->load;
    size_t first = first_run(sink, at), next = first + 1;
    struct plan_run run;

    if (first == sink->file->to || load->runs[first].begin > at || load->runs[first].end <= at)
        return NULL;
    if (next < sink->file->to && load->runs[next].begin < at + len)
        return NULL;
    struct plan_cursor cursor = load->runs[first].cursor;
    if (!plan_next(load->plan, &cursor, &run))
        return NULL;
    return reader_scatter_place(&run, load->runs[first].base, at, len,
                                load->pieces[load->first[run.tensor] + run.target_piece]);
}

static enum status span_read(void *arg, size_t item, void *buffer, struct error *err)
{
    struct batch *batch = arg;
    const struct reader_options *options = &batch->load->reader->options;
    size_t start = options->ranks_here > 1 ? batch->spans_count / options->ranks_here *
                                                 (options->rank_here % options->ranks_here)
                                           : 0;
    const struct batch_span *span = &batch->spans[(start + item) % batch->spans_count];
    struct batch_file *file = &batch->files[span->file];
    struct span_sink runs = {batch->load, file};
    const struct shard_read_sink sink = {span_bytes, span_place, &runs};

    return shard_read_blocks(&file->read, &span->span, buffer, &sink, &batch->load->counts, err);
}

static void name_damage(struct batch *batch)
{
    struct reader *reader = batch->load->reader;

    for (uint32_t i = 0; i < batch->files_count; i++) {
        uint64_t block = atomic_load(&batch->files[i].read.damaged);
        if (block) {
            (void)snprintf(reader->damaged, sizeof reader->damaged, "%s, block %" PRIu64,
                           batch->files[i].read.path, block - 1);
            return;
        }
    }
}

enum status reader_batch_read(struct reader_load *load, size_t from, size_t to, struct error *err)
{
    SCOPED(batch_destroy) struct batch *batch = NEW(struct batch);
    struct error why = {0};
    enum status st;

    batch->load = load;
    st = batch_open(batch, from, to, &why);
    if (st == STATUS_OK)
        st = batch_heads(batch, &why);
    if (st == STATUS_OK)
        st = batch_place(batch, &why);
    if (st == STATUS_OK) {
        batch_spans(batch);
        st = io_pool_run(load->pool, batch->spans_count, span_read, batch, &why);
    }
    if (st == STATUS_DATA_LOSS)
        name_damage(batch);
    if (st != STATUS_OK)
        return error_set(err, st, "%s", why.text);
    load->reads += batch->spans_count;
    load->files += batch->files_count;
    return STATUS_OK;
}
