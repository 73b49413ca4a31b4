/* sharded.h - whole sharded checkpoints for tests: values that name their place, saved by as many
 * ranks as a layout has, compared after any load.
 *
 * Include it in one file of a program. */
#pragma once
#include "checkpoint/digest.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard_image.h"
#include "checkpoint/shard_write.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

struct sharded {
    struct layout_table *declared, *storage;
    unsigned char **full; /* of each tensor: all its bytes */
};

static inline unsigned char sharded_byte(size_t tensor, uint64_t at)
{
    uint64_t x = (at + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ tensor * UINT64_C(0xbf58476d1ce4e5b9);

    return (unsigned char)((x ^ x >> 29) * UINT64_C(0x94d049bb133111eb) >> 40);
}

static inline struct layout_table *sharded_layout(const char *json)
{
    struct layout_table *table = NULL;
    struct error err;

    if (layout_table_parse(json, strlen(json), &table, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return table;
}

static inline struct sharded *sharded_create(const char *json)
{
    struct sharded *sharded = NEW(struct sharded);
    struct error err;

    sharded->declared = sharded_layout(json);
    if (layout_table_assign(sharded->declared, &sharded->storage, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    sharded->full = mem_array(layout_table_count(sharded->declared) + 1, sizeof(void *));
    for (size_t i = 0; i < layout_table_count(sharded->declared); i++) {
        uint64_t bytes = layout_tensor_bytes(layout_table_at(sharded->declared, i));
        sharded->full[i] = mem_alloc((size_t)bytes + 1);
        for (uint64_t k = 0; k < bytes; k++)
            sharded->full[i][k] = sharded_byte(i, k);
    }
    return sharded;
}

static inline void sharded_destroy(struct sharded *sharded)
{
    for (size_t i = 0; i < layout_table_count(sharded->declared); i++)
        mem_free(sharded->full[i]);
    mem_free(sharded->full);
    layout_table_destroy(sharded->declared);
    layout_table_destroy(sharded->storage);
    mem_free(sharded);
}

/* The box's bytes, row after row. */
static inline void sharded_cut(const struct layout_tensor *tensor, const unsigned char *full,
                               const struct layout_box *box, unsigned char *out)
{
    uint64_t index[LAYOUT_DIMS_MAX] = {0}, row = tensor->dims ? box->size[tensor->dims - 1] : 1;
    uint64_t rows = layout_box_elements(box, tensor->dims) / (row ? row : 1);
    size_t bits = dtype_bits(tensor->dtype), len = (size_t)(row * bits / 8);

    for (uint64_t r = 0; r < rows; r++, out += len) {
        uint64_t at = 0, rest = r;
        for (uint32_t d = tensor->dims; d-- > 1;) {
            index[d - 1] = rest % box->size[d - 1];
            rest /= box->size[d - 1];
        }
        for (uint32_t d = 0; d < tensor->dims; d++)
            at = at * tensor->shape[d] + box->offset[d] + (d + 1 < tensor->dims ? index[d] : 0);
        memcpy(out, full + at * bits / 8, len);
    }
}

struct sharded_pieces {
    void **memory;
    uint64_t *bytes;
    size_t count;
};

/* Memory for a rank's pieces; full given: with their values, else with 0xee. */
static inline struct sharded_pieces sharded_pieces_make(const struct layout_table *table,
                                                        uint32_t rank, unsigned char *const *full)
{
    struct sharded_pieces pieces = {0};

    for (size_t i = 0; i < layout_table_count(table); i++) {
        const struct layout_tensor *tensor = layout_table_at(table, i);
        size_t n = layout_table_pieces(table, i, rank, NULL, 0);
        SCOPED(mem_free) void *memory = mem_array(n + 1, sizeof(struct layout_box));
        struct layout_box *boxes = memory;
        (void)layout_table_pieces(table, i, rank, boxes, n);
        pieces.memory = mem_resize(pieces.memory, pieces.count + n + 1, sizeof(void *));
        pieces.bytes = mem_resize(pieces.bytes, pieces.count + n + 1, sizeof(uint64_t));
        for (size_t k = 0; k < n; k++, pieces.count++) {
            uint64_t bytes = layout_box_bytes(&boxes[k], tensor);
            pieces.bytes[pieces.count] = bytes;
            pieces.memory[pieces.count] = mem_alloc((size_t)bytes + 1);
            memset(pieces.memory[pieces.count], 0xee, (size_t)bytes + 1);
            if (full)
                sharded_cut(tensor, full[i], &boxes[k], pieces.memory[pieces.count]);
        }
    }
    return pieces;
}

static inline void sharded_pieces_fini(struct sharded_pieces *pieces)
{
    for (size_t i = 0; i < pieces->count; i++)
        mem_free(pieces->memory[i]);
    mem_free(pieces->memory);
    mem_free(pieces->bytes);
}

/* One line of the manifest. */
static inline void sharded_file_line(struct text *out, bool first, const char *path,
                                     const struct digest_file *digest)
{
    text_addf(out,
              "%s{\"path\": \"%s\", \"bytes\": %" PRIu64 ", \"crc32c\": %" PRIu32
              ", \"xxh3\": \"%s\"}",
              first ? "" : ", ", path, digest->bytes, digest->crc32c, digest->xxh3);
}

/* A file of a part, written as agents write them. */
static inline enum status sharded_put(int part, uint32_t rank, struct io_pool *pool,
                                      const char *name, const void *bytes, size_t len,
                                      const uint32_t *crcs, struct text *manifest,
                                      struct error *err)
{
    const struct shard_write_options options = {.crcs = crcs};
    const struct shard_write_from from = {.memory = bytes, .bytes = len};
    SCOPED_TEXT char *path = mem_printf("trainer-%" PRIu32 "/%s", rank, name);
    struct shard_written written;
    enum status st = shard_write(pool, part, name, &from, &options, &written, err);

    if (st != STATUS_OK)
        return st;
    struct digest_file digest = {.bytes = written.bytes, .crc32c = written.crc32c};
    memcpy(digest.xxh3, written.xxh3, sizeof digest.xxh3);
    sharded_file_line(manifest, manifest->data[manifest->len - 1] == '[', path, &digest);
    return STATUS_OK;
}

static inline enum status sharded_put_shards(int part, uint32_t rank, struct io_pool *pool,
                                             const struct shard_image *image, void *const *files,
                                             struct text *manifest, struct error *err)
{
    SCOPED(mem_free) void *memory = mem_array(shard_image_files(image) + 1, sizeof(uint64_t));
    uint64_t *sizes = memory;
    enum status st = STATUS_OK;

    for (uint32_t i = 0; st == STATUS_OK && i < shard_image_files(image); i++) {
        sizes[i] = shard_image_bytes(image, i);
        st = sharded_put(part, rank, pool, shard_image_name(image, i), files[i], (size_t)sizes[i],
                         shard_image_blocks(image)->files[i].crcs, manifest, err);
    }
    size_t len = block_table_bytes(sizes, shard_image_files(image));
    SCOPED(mem_free) void *table = mem_alloc(len);
    block_table_print(shard_image_blocks(image), table);
    return st == STATUS_OK
               ? sharded_put(part, rank, pool, "blocks.crc32c", table, len, NULL, manifest, err)
               : st;
}

/* From the memory that the rank has by the declared layout to the files of its part (an open
 * directory), and its entry of the manifest. */
static inline enum status sharded_save_part(const struct sharded *sharded, int part, uint32_t rank,
                                            struct io_pool *pool, struct text *manifest,
                                            struct error *err)
{
    SCOPED(shard_image_destroy) struct shard_image *image = NULL;
    struct sharded_pieces pieces = sharded_pieces_make(sharded->declared, rank, sharded->full);
    enum status st = shard_image_create(sharded->storage, rank, &image, err);

    if (st != STATUS_OK)
        fail_msg("%s", err->text);
    SCOPED(mem_free) void *memory = mem_array(shard_image_files(image) + 1, sizeof(void *));
    void **files = memory;
    for (uint32_t i = 0; i < shard_image_files(image); i++)
        files[i] = mem_alloc((size_t)shard_image_bytes(image, i));
    st = shard_image_fill(image, sharded->declared, (const void *const *)pieces.memory, files, err);
    if (st != STATUS_OK)
        fail_msg("%s", err->text);
    text_addf(manifest,
              "%s{\"role\": \"trainer\", \"rank\": %" PRIu32
              ", \"node\": \"n\", \"samples\": 64, \"layout_digest\": \"%s\", \"files\": [",
              rank ? ", " : "", rank, layout_table_digest(sharded->storage));
    st = sharded_put_shards(part, rank, pool, image, files, manifest, err);
    if (st == STATUS_OK)
        st = sharded_put(part, rank, pool, "state.json", "{\"rank\":{}}", 11, NULL, manifest, err);
    if (st == STATUS_OK && rank == 0) {
        struct text layout;
        text_init(&layout, 0);
        layout_table_print(sharded->storage, &layout);
        st = sharded_put(part, rank, pool, "layout.json", text_get(&layout), layout.len, NULL,
                         manifest, err);
        text_fini(&layout);
    }
    text_add(manifest, "]}");
    for (uint32_t i = 0; i < shard_image_files(image); i++)
        mem_free(files[i]);
    sharded_pieces_fini(&pieces);
    return st;
}

static inline void sharded_manifest_begin(const struct sharded *sharded, struct text *manifest)
{
    text_init(manifest, 0);
    text_addf(manifest,
              "{\"format\": \"rondo-checkpoint-2\", \"layout\": \"trainer-0/layout.json\","
              " \"layout_digest\": \"%s\", \"id\": 5, \"job\": 7, \"attempt\": 1, \"step\": 120,"
              " \"samples\": 64, \"parent\": 0, \"world\": %" PRIu32
              ", \"created_us\": 1, \"parts\": [",
              layout_table_digest(sharded->storage), layout_table_world(sharded->storage));
}

/* A whole, sealed checkpoint in dir. */
static inline void sharded_save(const struct sharded *sharded, const char *dir)
{
    SCOPED(io_pool_destroy) struct io_pool *pool = NULL;
    SCOPED_TEXT char *path = mem_printf("%s/manifest.json", dir);
    struct text manifest;
    struct error err;

    sharded_manifest_begin(sharded, &manifest);
    assert_int_equal(io_pool_create(NULL, &pool, NULL), STATUS_OK);
    for (uint32_t rank = 0; rank < layout_table_world(sharded->storage); rank++) {
        SCOPED_TEXT char *part = mem_printf("%s/trainer-%" PRIu32, dir, rank);
        assert_int_equal(mkdir(part, 0755), 0);
        int fd = open(part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        if (sharded_save_part(sharded, fd, rank, pool, &manifest, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        close(fd);
    }
    text_add(&manifest, "]}");
    assert_int_equal(file_write_atomic(path, text_get(&manifest), manifest.len, 0644, NULL),
                     STATUS_OK);
    text_fini(&manifest);
}

/* Loads one rank; its outcome. What was loaded is compared, bit by bit. */
static inline enum status sharded_load_rank(const struct sharded *sharded, struct reader *reader,
                                            const struct layout_table *target, uint32_t rank,
                                            struct reader_stats *stats, struct error *err)
{
    SCOPED(mem_free) void *memory = mem_array(layout_table_count(target) + 1, sizeof(void *));
    unsigned char **full = memory;
    for (size_t i = 0; i < layout_table_count(target); i++) { /* they may list them otherwise */
        const struct layout_tensor *tensor = layout_table_at(target, i);
        size_t at = 0;
        assert_true(layout_table_find(sharded->declared, tensor->name, tensor->name_len, &at));
        full[i] = sharded->full[at];
    }
    struct sharded_pieces want = sharded_pieces_make(target, rank, full);
    struct sharded_pieces got = sharded_pieces_make(target, rank, NULL);
    enum status st = reader_load(reader, target, rank, got.memory, stats, err);

    for (size_t i = 0; st == STATUS_OK && i < got.count; i++) {
        assert_memory_equal(got.memory[i], want.memory[i], (size_t)want.bytes[i]);
        assert_int_equal(((unsigned char *)got.memory[i])[got.bytes[i]], 0xee);
    }
    sharded_pieces_fini(&want);
    sharded_pieces_fini(&got);
    return st;
}

static inline void sharded_load(const struct sharded *sharded, const char *dir, const char *json)
{
    SCOPED(layout_table_destroy) struct layout_table *target = sharded_layout(json);
    struct error err;

    for (uint32_t rank = 0; rank < layout_table_world(target); rank++) {
        SCOPED(reader_close) struct reader *reader = NULL;
        struct reader_stats stats = {0};
        if (reader_open(dir, "", NULL, &reader, &err) != STATUS_OK ||
            sharded_load_rank(sharded, reader, target, rank, &stats, &err) != STATUS_OK)
            fail_msg("rank %" PRIu32 ": %s", rank, err.text);
    }
}
