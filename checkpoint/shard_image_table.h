/* shard_image_table.h - how a shard image lies in memory. For shard_image*.c only. */
#pragma once
#include "base/text.h"
#include "checkpoint/shard_image.h"

struct shard_image_file {
    char name[SHARD_IMAGE_NAME_MAX];
    struct text head;
    uint64_t bytes;
    uint32_t count;                   /* of pieces */
    struct shard_image_piece **order; /* as they lie in the file */
};
struct shard_image {
    const struct layout_table *storage;
    uint32_t rank, files_count;
    struct shard_image_piece *pieces; /* by tensor, then piece */
    uint32_t *first;                  /* of each tensor, and one behind the last */
    struct shard_image_file *files;
    struct block_table *blocks;
};
