/* fuzz_block_table.c - any bytes, and changed good ones with their checksum mended, as
 * blocks.crc32c. What is accepted is written again as the same bytes. */
#include "base/mem.h"
#include "checkpoint/block_table.h"
#include "checkpoint/digest.h"
#include "tests/fuzz/mutate.h"
#include <stdlib.h>
#include <string.h>

#define DOCUMENT_MAX 4096
#define SUM          4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static bool feed(const void *bytes, size_t len)
{
    struct block_table *table = NULL;
    uint64_t sizes[BLOCK_TABLE_FILES_MAX];

    if (block_table_parse(bytes, len, &table, NULL) != STATUS_OK)
        return false;
    must(table->files_count <= BLOCK_TABLE_FILES_MAX);
    for (uint32_t i = 0; i < table->files_count; i++) {
        sizes[i] = table->files[i].bytes;
        must(table->files[i].count == block_table_count(sizes[i]));
    }
    must(block_table_bytes(sizes, table->files_count) == len);
    SCOPED(mem_free) void *again = mem_array(len, 1);
    block_table_print(table, again);
    must(memcmp(again, bytes, len) == 0);
    block_table_destroy(table);
    return true;
}

static size_t good(uint8_t *out)
{
    static const uint64_t sizes[] = {0, 65537, 1, 65536};
    struct block_table *table = block_table_create(sizes, COUNT_OF(sizes));
    size_t len = block_table_bytes(sizes, COUNT_OF(sizes));

    must(table && len <= DOCUMENT_MAX);
    for (uint32_t i = 0; i < table->files_count; i++)
        for (uint32_t k = 0; k < table->files[i].count; k++)
            table->files[i].crcs[k] = 0x01020304u * (i + k);
    block_table_print(table, out);
    block_table_destroy(table);
    return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t document[DOCUMENT_MAX];

    if (size == 0)
        return 0;
    if (data[0] == 0) {
        feed(data + 1, size - 1);
        return 0;
    }
    size_t len = good(document);
    mutate_apply(data + 1, size - 1, document, &len, sizeof(document));
    if (data[0] & 1 && len >= SUM) {
        uint32_t sum = digest_crc32c(0, document, len - SUM);
        for (int i = 0; i < SUM; i++)
            document[len - SUM + (size_t)i] = (uint8_t)(sum >> (8 * i));
    }
    bool taken = feed(document, len);
    must(taken || size > 1); /* unchanged it is good */
    return 0;
}
