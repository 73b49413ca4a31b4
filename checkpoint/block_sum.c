#include "checkpoint/block_sum.h"
#include "checkpoint/block_table.h"
#include "checkpoint/digest.h"

static void close_block(struct block_sum *sum, uint64_t bytes, uint32_t *crcs)
{
    crcs[(sum->at - bytes) / BLOCK_TABLE_BLOCK] = sum->open;
    sum->crc32c = digest_crc32c_combine(sum->crc32c, sum->open, bytes);
    sum->open = 0;
}

void block_sum_add(struct block_sum *sum, const void *bytes, size_t len, uint32_t *crcs)
{
    const unsigned char *from = bytes;

    while (len) {
        size_t left = BLOCK_TABLE_BLOCK - (size_t)(sum->at % BLOCK_TABLE_BLOCK);
        size_t take = len < left ? len : left;
        sum->open = digest_crc32c(sum->open, from, take);
        sum->at += take;
        if (take == left)
            close_block(sum, BLOCK_TABLE_BLOCK, crcs);
        from += take;
        len -= take;
    }
}

void block_sum_end(struct block_sum *sum, uint32_t *crcs)
{
    if (sum->at % BLOCK_TABLE_BLOCK)
        close_block(sum, sum->at % BLOCK_TABLE_BLOCK, crcs);
}
