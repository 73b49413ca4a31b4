/* block_sum.h - CRC32C of bytes that come in order: of each 64 KiB block, and of all of them, in
 * one pass.
 *
 * Any thread; pure. Begin with zeroes. crcs: room for every block that is begun (block_table_count
 * of all bytes). */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct block_sum {
    uint64_t at;           /* bytes that came */
    uint32_t crc32c, open; /* of the blocks that are whole; of the one that is not yet */
};

void block_sum_add(struct block_sum *sum, const void *bytes, size_t len, uint32_t *crcs);
/* No more comes: the last block may be short. crc32c is of all bytes now. */
void block_sum_end(struct block_sum *sum, uint32_t *crcs);
