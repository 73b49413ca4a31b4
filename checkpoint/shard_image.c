/* shard_image.c - see shard_image.h; filling is in shard_image_fill.c. */
#include "checkpoint/shard_image.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_dcp.h"
#include "checkpoint/shard_image_table.h"

static enum status count_pieces(struct shard_image *image, struct error *err)
{
    size_t tensors = layout_table_count(image->storage), most = 0;
    uint64_t count = 0;

    image->first = mem_array(tensors + 1, sizeof *image->first);
    for (size_t i = 0; i < tensors; i++) {
        size_t n = layout_table_pieces(image->storage, i, image->rank, NULL, 0);
        image->first[i] = (uint32_t)count;
        count += n;
        most = n > most ? n : most;
        if (count > UINT32_MAX || most > BLOCK_TABLE_FILES_MAX)
            return error_set(err, STATUS_EXHAUSTED,
                             "rank %" PRIu32 " holds too many pieces: %zu of tensor %.80s",
                             image->rank, n, layout_table_at(image->storage, i)->name);
    }
    image->first[tensors] = (uint32_t)count;
    image->pieces = mem_array(count ? count : 1, sizeof *image->pieces);
    image->files_count = (uint32_t)most;
    image->files = mem_array(most ? most : 1, sizeof *image->files);
    return STATUS_OK;
}

static void fill_pieces(struct shard_image *image)
{
    size_t tensors = layout_table_count(image->storage);
    uint32_t most = image->files_count;
    SCOPED(mem_free) void *memory = mem_array(most ? most : 1, sizeof(struct layout_box));
    struct layout_box *boxes = memory;

    for (size_t i = 0; i < tensors; i++) {
        size_t n = layout_table_pieces(image->storage, i, image->rank, boxes, most);
        for (size_t k = 0; k < n; k++) {
            image->pieces[image->first[i] + k] = (struct shard_image_piece){
                .tensor = (uint32_t)i, .piece = (uint32_t)k, .box = boxes[k]};
            image->files[k].count++;
        }
    }
}

static struct shard_image_piece *piece_of_shape(const uint64_t *shape)
{
    return (struct shard_image_piece *)(void *)((char *)(uintptr_t)shape -
                                                offsetof(struct shard_image_piece, box.size));
}

/* Entries of one file; each has its piece's box for its shape, by which the piece is found again.
 */
static void file_entries(struct shard_image *image, uint32_t file,
                         struct safetensors_entry *entries, struct safetensors_dcp_entry *dcp)
{
    size_t tensors = layout_table_count(image->storage), used = 0;

    for (size_t i = 0; i < tensors; i++) {
        const struct layout_tensor *tensor = layout_table_at(image->storage, i);
        if (image->first[i + 1] - image->first[i] <= file)
            continue;
        struct shard_image_piece *piece = &image->pieces[image->first[i] + file];
        entries[used] = (struct safetensors_entry){.name = tensor->name,
                                                   .name_len = tensor->name_len,
                                                   .dtype = tensor->dtype,
                                                   .dims = tensor->dims,
                                                   .shape = piece->box.size};
        dcp[used++] = (struct safetensors_dcp_entry){.name = tensor->name,
                                                     .name_len = tensor->name_len,
                                                     .dims = tensor->dims,
                                                     .offsets = piece->box.offset};
    }
}

static void file_place(struct shard_image_file *file, const struct safetensors_entry *entries)
{
    uint64_t data_at = file->head.len;

    file->order = mem_array(file->count, sizeof *file->order);
    file->bytes = data_at + entries[file->count - 1].end;
    for (uint32_t i = 0; i < file->count; i++) {
        struct shard_image_piece *piece = piece_of_shape(entries[i].shape);
        piece->at = data_at + entries[i].begin;
        piece->bytes = entries[i].end - entries[i].begin;
        file->order[i] = piece;
    }
}

static void text_destroy(struct text *text)
{
    text_fini(text);
}

void shard_image_file_name(uint32_t rank, uint32_t file, uint32_t files,
                           char out[SHARD_IMAGE_NAME_MAX])
{
    (void)snprintf(out, SHARD_IMAGE_NAME_MAX,
                   "shard-%05" PRIu32 "-model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", rank + 1,
                   file + 1, files);
}

static enum status file_make(struct shard_image *image, uint32_t index, struct error *err)
{
    struct shard_image_file *file = &image->files[index];
    SCOPED(mem_free) void *entries = mem_array(file->count, sizeof(struct safetensors_entry));
    SCOPED(mem_free) void *dcp = mem_array(file->count, sizeof(struct safetensors_dcp_entry));
    __attribute__((cleanup(text_destroy))) struct text info;

    shard_image_file_name(image->rank, index, image->files_count, file->name);
    file_entries(image, index, entries, dcp);
    text_init(&info, 0);
    safetensors_dcp_print(dcp, file->count, &info);
    const struct safetensors_pair meta[] = {
        {"format", 6, "pt", 2},
        {"DCP_VERSION", 11, SAFETENSORS_DCP_VERSION, sizeof SAFETENSORS_DCP_VERSION - 1},
        {SAFETENSORS_DCP_INFO, sizeof SAFETENSORS_DCP_INFO - 1, text_get(&info), info.len},
    };
    text_init(&file->head, SAFETENSORS_WRITE_MAX + SAFETENSORS_ALIGN);
    enum status st =
        safetensors_build(entries, file->count, meta, COUNT_OF(meta), &file->head, err);
    if (st == STATUS_OK)
        file_place(file, entries);
    return st;
}

static enum status make_blocks(struct shard_image *image, struct error *err)
{
    SCOPED(mem_free) void *memory = mem_array(image->files_count + 1, sizeof(uint64_t));
    uint64_t *bytes = memory;

    for (uint32_t i = 0; i < image->files_count; i++)
        bytes[i] = image->files[i].bytes;
    image->blocks = block_table_create(bytes, image->files_count);
    if (!image->blocks)
        return error_set(err, STATUS_EXHAUSTED, "rank %" PRIu32 " holds too many bytes",
                         image->rank);
    return STATUS_OK;
}

enum status shard_image_create(const struct layout_table *storage, uint32_t rank,
                               struct shard_image **out, struct error *err)
{
    SCOPED(shard_image_destroy) struct shard_image *image = NEW(struct shard_image);
    enum status st;

    image->storage = storage;
    image->rank = rank;
    if (rank >= layout_table_world(storage))
        return error_set(err, STATUS_INVALID, "rank %" PRIu32 " of %" PRIu32, rank,
                         layout_table_world(storage));
    st = count_pieces(image, err);
    if (st != STATUS_OK)
        return st;
    fill_pieces(image);
    for (uint32_t i = 0; i < image->files_count && st == STATUS_OK; i++)
        st = file_make(image, i, err);
    if (st == STATUS_OK)
        st = make_blocks(image, err);
    if (st == STATUS_OK)
        *out = TAKE(image);
    return st;
}

void shard_image_destroy(struct shard_image *image)
{
    if (!image)
        return;
    for (uint32_t i = 0; image->files && i < image->files_count; i++) {
        text_fini(&image->files[i].head);
        mem_free(image->files[i].order);
    }
    block_table_destroy(image->blocks);
    mem_free(image->files);
    mem_free(image->pieces);
    mem_free(image->first);
    mem_free(image);
}

uint32_t shard_image_files(const struct shard_image *image)
{
    return image->files_count;
}

const char *shard_image_name(const struct shard_image *image, uint32_t file)
{
    return image->files[file].name;
}

uint64_t shard_image_bytes(const struct shard_image *image, uint32_t file)
{
    return image->files[file].bytes;
}

const void *shard_image_head(const struct shard_image *image, uint32_t file, size_t *len)
{
    *len = image->files[file].head.len;
    return image->files[file].head.data;
}

size_t shard_image_count(const struct shard_image *image)
{
    return image->first[layout_table_count(image->storage)];
}

const struct shard_image_piece *shard_image_at(const struct shard_image *image, size_t index)
{
    return &image->pieces[index];
}

const struct block_table *shard_image_blocks(const struct shard_image *image)
{
    return image->blocks;
}
