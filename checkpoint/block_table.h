/* block_table.h - blocks.crc32c: the CRC32C of every 64 KiB block of a part's shard files.
 *
 * A file beside the shards, named and digested by the manifest. With it a range is checked without
 * reading its file whole, and damage is named to the block. Form, all little-endian: magic
 * "RNDBLKS1", u32 version 1, u32 block bytes (65536), u32 files, u32 0; then of each file u64
 * bytes; then the u32 CRCs of each file's blocks, file after file (the last block of a file may be
 * short; an empty file has none); then u32 CRC32C of all before. Any thread; pure. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"
#include <stdint.h>

#define BLOCK_TABLE_BLOCK     65536u
#define BLOCK_TABLE_FILES_MAX 4096u
#define BLOCK_TABLE_BYTES_MAX ((size_t)1 << 30)

struct block_file {
    uint64_t bytes;
    uint32_t count; /* of blocks */
    uint32_t *crcs;
};
struct block_table {
    uint32_t files_count;
    struct block_file *files;
};

/* Blocks of a file of that many bytes. */
uint64_t block_table_count(uint64_t bytes);
/* Bytes of the table for files of these sizes; 0: too large. */
size_t block_table_bytes(const uint64_t *file_bytes, size_t count);
struct block_table *block_table_create(const uint64_t *file_bytes,
                                       size_t count); /* CRCs are 0; NULL: too large */
void block_table_destroy(struct block_table *table);  /* NULL is fine */
SCOPED_DESTRUCTOR(struct block_table *, block_table_destroy)
/* out has room for block_table_bytes. */
void block_table_print(const struct block_table *table, void *out);
/* Strict: what is not exactly of that form is STATUS_DATA_LOSS. */
enum status block_table_parse(const void *bytes, size_t len, struct block_table **out,
                              struct error *err) MUST_CHECK;
