/* sparse.h - sealed checkpoints of zeros whose shards are holes: as large as a test likes, and made
 * at once on any disk.
 *
 * Readers that check blocks find them good; whole digests of shards are not there. Include it in
 * one file of a program. */
#pragma once
#include "tests/unit/checkpoint/sharded.h"

/* Writes bytes into the shard; the CRCs of its blocks are what is in them then. */
static inline void sparse_put(int fd, struct block_file *blocks, uint64_t at, const void *bytes,
                              size_t len)
{
    static unsigned char block[BLOCK_TABLE_BLOCK];

    assert_int_equal(pwrite(fd, bytes, len, (off_t)at), len);
    for (uint64_t i = at / sizeof block; i <= (at + len - 1) / sizeof block; i++) {
        ssize_t n = pread(fd, block, sizeof block, (off_t)(i * sizeof block));
        assert_true(n > 0);
        blocks->crcs[i] = digest_crc32c(0, block, (size_t)n);
    }
}

struct sparse_options {
    const char *state; /* state.json of each rank; NULL: no values */
    /* What a test puts into a shard beside zeros; NULL: nothing. */
    void (*fill)(int fd, const struct shard_image *image, struct block_file *blocks);
};

static inline void sparse_put_shard(const char *path, const struct shard_image *image,
                                    struct block_file *blocks, const struct sparse_options *options)
{
    static const unsigned char zeros[BLOCK_TABLE_BLOCK];
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    size_t len;
    const void *head = shard_image_head(image, 0, &len);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)blocks->bytes), 0);
    uint32_t sum = digest_crc32c(0, zeros, sizeof zeros);
    for (uint32_t i = 0; i < blocks->count; i++)
        blocks->crcs[i] = sum;
    if (blocks->bytes % sizeof zeros)
        blocks->crcs[blocks->count - 1] =
            digest_crc32c(0, zeros, (size_t)(blocks->bytes % sizeof zeros));
    sparse_put(fd, blocks, 0, head, len);
    if (options->fill)
        options->fill(fd, image, blocks);
    assert_int_equal(close(fd), 0);
}

static inline void sparse_put_small(const char *dir, const char *name, const void *bytes,
                                    size_t len, struct text *manifest)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, name);
    struct digest_file digest;

    assert_int_equal(file_write_atomic(path, bytes, len, 0644, NULL), STATUS_OK);
    assert_int_equal(digest_file(path, false, &digest, NULL), STATUS_OK);
    sharded_file_line(manifest, manifest->data[manifest->len - 1] == '[', name, &digest);
}

static inline void sparse_put_part(const char *dir, const struct layout_table *storage,
                                   uint32_t rank, const struct sparse_options *options,
                                   struct text *manifest)
{
    const char *state = options->state ? options->state : "{\"common\":{},\"rank\":{}}";
    SCOPED(shard_image_destroy) struct shard_image *image = NULL;
    SCOPED_TEXT char *part = mem_printf("trainer-%" PRIu32, rank);
    SCOPED_TEXT char *made = mem_printf("%s/%s", dir, part);
    SCOPED_TEXT char *state_name = mem_printf("%s/state.json", part);
    SCOPED_TEXT char *blocks_name = mem_printf("%s/blocks.crc32c", part);
    struct digest_file digest = {.xxh3 = "00000000000000000000000000000000"};

    assert_int_equal(shard_image_create(storage, rank, &image, NULL), STATUS_OK);
    assert_int_equal(mkdir(made, 0755), 0);
    assert_int_equal(shard_image_files(image), 1);
    digest.bytes = shard_image_bytes(image, 0);
    SCOPED(block_table_destroy) struct block_table *table = block_table_create(&digest.bytes, 1);
    SCOPED_TEXT char *shard = mem_printf("%s/%s", part, shard_image_name(image, 0));
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, shard);
    sparse_put_shard(path, image, &table->files[0], options);
    sharded_file_line(manifest, true, shard, &digest);
    size_t len = block_table_bytes(&digest.bytes, 1);
    SCOPED(mem_free) void *printed = mem_alloc(len);
    block_table_print(table, printed);
    sparse_put_small(dir, blocks_name, printed, len, manifest);
    sparse_put_small(dir, state_name, state, strlen(state), manifest);
}

/* A sealed checkpoint in dir; storage: each rank has one piece of a tensor at most. */
static inline void sparse_make(const char *dir, struct layout_table *storage,
                               const struct sparse_options *options)
{
    struct sharded sharded = {.storage = storage};
    SCOPED_TEXT char *path = mem_printf("%s/manifest.json", dir);
    struct text manifest, layout;

    sharded_manifest_begin(&sharded, &manifest);
    for (uint32_t rank = 0; rank < layout_table_world(storage); rank++) {
        text_addf(&manifest,
                  "%s{\"role\": \"trainer\", \"rank\": %" PRIu32
                  ", \"node\": \"n\", \"samples\": 64, \"layout_digest\": \"%s\", \"files\": [",
                  rank ? ", " : "", rank, layout_table_digest(storage));
        sparse_put_part(dir, storage, rank, options, &manifest);
        if (rank == 0) {
            text_init(&layout, 0);
            layout_table_print(storage, &layout);
            sparse_put_small(dir, "trainer-0/layout.json", text_get(&layout), layout.len,
                             &manifest);
            text_fini(&layout);
        }
        text_add(&manifest, "]}");
    }
    text_add(&manifest, "]}");
    assert_int_equal(file_write_atomic(path, text_get(&manifest), manifest.len, 0644, NULL),
                     STATUS_OK);
    text_fini(&manifest);
}
