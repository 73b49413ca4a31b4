/* manifest.h - manifest.json as a reader needs it: which files a checkpoint has, their sizes and
 * digests.
 *
 * Written by vault_manifest.c; both forms are read, plain and sharded. Strict: what is not exactly
 * of those forms is STATUS_DATA_LOSS. Immutable: any thread. Used in librondo: no jansson. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_NAME      "manifest.json"
#define MANIFEST_BYTES_MAX ((size_t)64 << 20)

struct manifest_file {
    const char *path; /* below the checkpoint's directory; checked: no "..", no empty part */
    uint64_t bytes;
    uint32_t crc32c;
    char xxh3[33];
};
struct manifest_part {
    const char *role, *node;
    uint32_t rank;
    int64_t samples;
    struct manifest_file *files;
    size_t files_count;
};
struct manifest {
    struct arena *arena; /* of the texts */
    bool sharded;
    const char *layout, *layout_digest; /* sharded: path of layout.json, XXH3-128 of its bytes */
    const char *code;                   /* digest of the code that wrote it; NULL: not said */
    int64_t id, job, step, samples, parent, created_us;
    uint32_t attempt, world;
    struct manifest_part *parts;
    size_t parts_count;
};

enum status manifest_parse(const void *bytes, size_t len, struct manifest **out,
                           struct error *err) MUST_CHECK;
void manifest_destroy(struct manifest *manifest); /* NULL is fine */
SCOPED_DESTRUCTOR(struct manifest *, manifest_destroy)
/* NULL: there is none. */
const struct manifest_file *manifest_find(const struct manifest *manifest, const char *path);
/* The part that has the rank of a layout: of the role whose part holds the layout. NULL: none. */
const struct manifest_part *manifest_part_of(const struct manifest *manifest, uint32_t rank);
