/* reader_table.h - how a reader lies in memory. For reader*.c only. */
#pragma once
#include "checkpoint/block_table.h"
#include "checkpoint/io_file.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard_read.h"

#define READER_DAMAGED_MAX 400

struct reader {
    struct reader_options options;
    int dir;
    struct manifest *manifest;
    struct layout_table *layout;
    struct io_patience patience;
    struct io_pool *pool; /* of the last load; NULL before the first */
    bool pool_is_small;
    char damaged[READER_DAMAGED_MAX];
};

/* The table of a rank's part, checked by the manifest. */
enum status reader_blocks(struct reader *reader, const struct manifest_part *part,
                          struct block_table **out, struct error *err) MUST_CHECK;
/* The manifest's name of file `index` of the part ("trainer-0/shard-..."); NULL: it has none. */
const struct manifest_file *reader_shard(const struct manifest_part *part, uint32_t index);
/* Looks for a copy in shared memory. */
void reader_find_copy(const struct reader *reader, const struct manifest_part *part,
                      struct shard_read *read);
