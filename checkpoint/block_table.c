/* block_table.c - CRC32C of every block of a part's shard files. See block_table.h. */
#include "checkpoint/block_table.h"
#include "checkpoint/digest.h"
#include <string.h>

#define HEAD_BYTES 24
#define VERSION    1

static const char magic[8] = {'R', 'N', 'D', 'B', 'L', 'K', 'S', '1'};

static void put_u32(unsigned char *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

static uint32_t get_u32(const unsigned char *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static uint64_t get_u64(const unsigned char *in)
{
    return get_u32(in) | (uint64_t)get_u32(in + 4) << 32;
}

uint64_t block_table_count(uint64_t bytes)
{
    return bytes / BLOCK_TABLE_BLOCK + (bytes % BLOCK_TABLE_BLOCK != 0);
}

size_t block_table_bytes(const uint64_t *file_bytes, size_t count)
{
    uint64_t total = HEAD_BYTES + 4;

    if (count > BLOCK_TABLE_FILES_MAX)
        return 0;
    for (size_t i = 0; i < count; i++) {
        if (block_table_count(file_bytes[i]) > BLOCK_TABLE_BYTES_MAX / 4)
            return 0;
        total += 8 + 4 * block_table_count(file_bytes[i]);
        if (total > BLOCK_TABLE_BYTES_MAX)
            return 0;
    }
    return (size_t)total;
}

struct block_table *block_table_create(const uint64_t *file_bytes, size_t count)
{
    if (!block_table_bytes(file_bytes, count))
        return NULL;
    struct block_table *table = NEW(struct block_table);
    table->files_count = (uint32_t)count;
    table->files = mem_array(count ? count : 1, sizeof(*table->files));
    for (size_t i = 0; i < count; i++) {
        struct block_file *file = &table->files[i];
        file->bytes = file_bytes[i];
        file->count = (uint32_t)block_table_count(file_bytes[i]);
        file->crcs = mem_array(file->count ? file->count : 1, sizeof(*file->crcs));
    }
    return table;
}

void block_table_destroy(struct block_table *table)
{
    if (!table)
        return;
    for (uint32_t i = 0; table->files && i < table->files_count; i++)
        mem_free(table->files[i].crcs);
    mem_free(table->files);
    mem_free(table);
}

void block_table_print(const struct block_table *table, void *out)
{
    unsigned char *begin = out, *at = begin + HEAD_BYTES;

    memset(begin, 0, HEAD_BYTES);
    memcpy(begin, magic, sizeof(magic));
    put_u32(begin + 8, VERSION);
    put_u32(begin + 12, BLOCK_TABLE_BLOCK);
    put_u32(begin + 16, table->files_count);
    for (uint32_t i = 0; i < table->files_count; i++, at += 8) {
        put_u32(at, (uint32_t)table->files[i].bytes);
        put_u32(at + 4, (uint32_t)(table->files[i].bytes >> 32));
    }
    for (uint32_t i = 0; i < table->files_count; i++) {
        for (uint32_t k = 0; k < table->files[i].count; k++, at += 4)
            put_u32(at, table->files[i].crcs[k]);
    }
    put_u32(at, digest_crc32c(0, begin, (size_t)(at - begin)));
}

static enum status check_head(const unsigned char *bytes, size_t len, struct error *err)
{
    if (len < HEAD_BYTES + 4 || memcmp(bytes, magic, sizeof(magic)) != 0)
        return error_set(err, STATUS_DATA_LOSS, "this is no table of block digests");
    if (get_u32(bytes + len - 4) != digest_crc32c(0, bytes, len - 4))
        return error_set(err, STATUS_DATA_LOSS, "the table of block digests is damaged");
    if (get_u32(bytes + 8) != VERSION || get_u32(bytes + 12) != BLOCK_TABLE_BLOCK ||
        get_u32(bytes + 20) != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "a table of block digests of a version that this program does not know");
    return STATUS_OK;
}

enum status block_table_parse(const void *bytes, size_t len, struct block_table **out,
                              struct error *err)
{
    const unsigned char *begin = bytes, *at = begin + HEAD_BYTES;
    enum status st = check_head(begin, len, err);

    if (st != STATUS_OK)
        return st;
    size_t count = get_u32(begin + 16);
    if (count > BLOCK_TABLE_FILES_MAX || 8 * count > len - HEAD_BYTES - 4)
        return error_set(err, STATUS_DATA_LOSS, "a table of block digests for %zu files", count);
    SCOPED(mem_free) void *memory = mem_array(count + 1, sizeof(uint64_t));
    uint64_t *sizes = memory;
    for (size_t i = 0; i < count; i++, at += 8)
        sizes[i] = get_u64(at);
    if (block_table_bytes(sizes, count) != len)
        return error_set(err, STATUS_DATA_LOSS, "a table of block digests of the wrong length");
    struct block_table *table = block_table_create(sizes, count);
    for (uint32_t i = 0; i < table->files_count; i++) {
        for (uint32_t k = 0; k < table->files[i].count; k++, at += 4)
            table->files[i].crcs[k] = get_u32(at);
    }
    *out = table;
    return STATUS_OK;
}
