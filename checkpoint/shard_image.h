/* shard_image.h - what one rank writes: its shard files, their headers, and where each piece of
 * each tensor lies in them.
 *
 * A function of the storage layout and the rank alone. The k-th piece of a tensor is in file k; a
 * rank without pieces has no file. fill copies from the program's memory, once, digesting each
 * block in the same pass: it is the stall of a save. One thread an image. Used in librondo. */
#pragma once
#include "checkpoint/block_table.h"
#include "checkpoint/layout.h"

#define SHARD_IMAGE_NAME_MAX 64

struct shard_image;
struct shard_image_piece {
    uint32_t tensor, piece; /* piece == index of the file */
    struct layout_box box;
    uint64_t at, bytes; /* in the file */
};

/* Borrows storage as long as it lives. STATUS_EXHAUSTED: a header larger than any reader takes. */
enum status shard_image_create(const struct layout_table *storage, uint32_t rank,
                               struct shard_image **out, struct error *err) MUST_CHECK;
void shard_image_destroy(struct shard_image *image); /* NULL is fine */
SCOPED_DESTRUCTOR(struct shard_image *, shard_image_destroy)

uint32_t shard_image_files(const struct shard_image *image);
/* "shard-00001-model-00001-of-00001.safetensors": rank + 1, file + 1, files. */
void shard_image_file_name(uint32_t rank, uint32_t file, uint32_t files,
                           char out[SHARD_IMAGE_NAME_MAX]);
const char *shard_image_name(const struct shard_image *image, uint32_t file);
uint64_t shard_image_bytes(const struct shard_image *image, uint32_t file); /* the whole file */
const void *shard_image_head(const struct shard_image *image, uint32_t file, size_t *len);
/* By tensor, then by piece. */
size_t shard_image_count(const struct shard_image *image);
const struct shard_image_piece *shard_image_at(const struct shard_image *image, size_t index);

/* pieces: memory of each piece that the rank holds by `declared` (row-major, contiguous), by
 * tensor, then by piece. files: room for each file, shard_image_bytes of it. declared must be what
 * the storage layout was made from. */
enum status shard_image_fill(struct shard_image *image, const struct layout_table *declared,
                             const void *const *pieces, void *const *files,
                             struct error *err) MUST_CHECK;
/* CRCs of the last fill (0 before); a loan of the image. */
const struct block_table *shard_image_blocks(const struct shard_image *image);
