/* test_reader_large.c - places beyond 2^32: a shard of 5 GiB, nearly all of it a hole. */
#include "tests/unit/checkpoint/sharded.h"

#define ROW  65536u
#define ROWS 81920u /* 5 GiB */
#define TAIL 1000u

static const char one[] = "{\"format\":\"rondo-layout-1\",\"world\":1,\"layouts\":["
                          "{\"kind\":\"grid\",\"cuts\":[[0,81920],[0,65536]],\"ranks\":[[0]]},"
                          "{\"kind\":\"grid\",\"cuts\":[[0,1000]],\"ranks\":[[0]]}],"
                          "\"tensors\":[[\"big\",\"U8\",[81920,65536],0],"
                          "[\"tail\",\"U8\",[1000],1]],\"aliases\":{}}";
/* Rank 1 has the last rows and the tail. */
static const char two[] = "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
                          "{\"kind\":\"grid\",\"cuts\":[[0,81917,81920],[0,65536]],"
                          "\"ranks\":[[0],[1]]},"
                          "{\"kind\":\"grid\",\"cuts\":[[0,1000]],\"ranks\":[[1]]}],"
                          "\"tensors\":[[\"big\",\"U8\",[81920,65536],0],"
                          "[\"tail\",\"U8\",[1000],1]],\"aliases\":{}}";
#define LAST_ROWS 3u

/* Writes bytes into the shard; the CRCs of its blocks are what is in them then. */
static void put(int fd, struct block_file *blocks, uint64_t at, const void *bytes, size_t len)
{
    static unsigned char block[BLOCK_TABLE_BLOCK];

    assert_int_equal(pwrite(fd, bytes, len, (off_t)at), len);
    for (uint64_t i = at / sizeof block; i <= (at + len - 1) / sizeof block; i++) {
        ssize_t n = pread(fd, block, sizeof block, (off_t)(i * sizeof block));
        assert_true(n > 0);
        blocks->crcs[i] = digest_crc32c(0, block, (size_t)n);
    }
}

static void fill(unsigned char *bytes, size_t len, size_t tensor, uint64_t at)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = sharded_byte(tensor, at + i);
}

/* The shard: values in the last rows and the tail, else zeros. */
static void put_shard(const char *path, const struct shard_image *image, struct block_file *blocks)
{
    static unsigned char values[LAST_ROWS * ROW];
    const struct shard_image_piece *big = shard_image_at(image, 0);
    const struct shard_image_piece *tail = shard_image_at(image, 1);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    size_t len;
    const void *head = shard_image_head(image, 0, &len);

    assert_true(fd >= 0);
    assert_true(tail->at > UINT64_C(5) << 30);
    assert_int_equal(ftruncate(fd, (off_t)blocks->bytes), 0);
    uint32_t zeros = digest_crc32c(0, values, BLOCK_TABLE_BLOCK);
    for (uint32_t i = 0; i < blocks->count; i++)
        blocks->crcs[i] = zeros;
    put(fd, blocks, 0, head, len);
    fill(values, sizeof values, 0, big->bytes - sizeof values);
    put(fd, blocks, big->at + big->bytes - sizeof values, values, sizeof values);
    fill(values, TAIL, 1, 0);
    put(fd, blocks, tail->at, values, TAIL);
    assert_int_equal(close(fd), 0);
}

static void put_small(const char *dir, const char *name, const void *bytes, size_t len,
                      struct text *manifest)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, name);
    struct digest_file digest;

    assert_int_equal(file_write_atomic(path, bytes, len, 0644, NULL), STATUS_OK);
    assert_int_equal(digest_file(path, false, &digest, NULL), STATUS_OK);
    sharded_file_line(manifest, manifest->data[manifest->len - 1] == '[', name, &digest);
}

/* A sealed checkpoint in dir, as good as any to a reader that checks blocks. */
static void make(const char *dir, struct layout_table *storage)
{
    SCOPED(shard_image_destroy) struct shard_image *image = NULL;
    struct sharded sharded = {.storage = storage};
    struct digest_file digest = {.xxh3 = "00000000000000000000000000000000"};
    struct text manifest, layout;

    assert_int_equal(shard_image_create(storage, 0, &image, NULL), STATUS_OK);
    digest.bytes = shard_image_bytes(image, 0);
    SCOPED(block_table_destroy) struct block_table *table = block_table_create(&digest.bytes, 1);
    SCOPED_TEXT char *part = mem_printf("%s/trainer-0", dir);
    SCOPED_TEXT char *name = mem_printf("trainer-0/%s", shard_image_name(image, 0));
    SCOPED_TEXT char *shard = mem_printf("%s/%s", dir, name);
    SCOPED_TEXT char *path = mem_printf("%s/manifest.json", dir);
    assert_int_equal(mkdir(part, 0755), 0);
    put_shard(shard, image, &table->files[0]);
    sharded_manifest_begin(&sharded, &manifest);
    text_addf(&manifest,
              "{\"role\": \"trainer\", \"rank\": 0, \"node\": \"n\", \"samples\": 64, "
              "\"layout_digest\": \"%s\", \"files\": [",
              layout_table_digest(storage));
    sharded_file_line(&manifest, true, name, &digest);
    size_t len = block_table_bytes(&digest.bytes, 1);
    SCOPED(mem_free) void *printed = mem_alloc(len);
    block_table_print(table, printed);
    put_small(dir, "trainer-0/blocks.crc32c", printed, len, &manifest);
    put_small(dir, "trainer-0/state.json", "{\"rank\":{}}", 11, &manifest);
    text_init(&layout, 0);
    layout_table_print(storage, &layout);
    put_small(dir, "trainer-0/layout.json", text_get(&layout), layout.len, &manifest);
    text_fini(&layout);
    text_add(&manifest, "]}]}");
    assert_int_equal(file_write_atomic(path, text_get(&manifest), manifest.len, 0644, NULL),
                     STATUS_OK);
    text_fini(&manifest);
}

static void what_lies_beyond_4_gib_is_found(void **state)
{
    static unsigned char want[LAST_ROWS * ROW], rows[LAST_ROWS * ROW + 1], tail[TAIL + 1];
    SCOPED(layout_table_destroy) struct layout_table *storage = sharded_layout(one);
    SCOPED(layout_table_destroy) struct layout_table *target = sharded_layout(two);
    SCOPED(reader_close) struct reader *reader = NULL;
    struct reader_stats stats = {0};
    struct error err;

    make(*state, storage);
    rows[sizeof rows - 1] = tail[TAIL] = 0xee;
    if (reader_open(*state, "", NULL, &reader, &err) != STATUS_OK ||
        reader_load(reader, target, 1, (void *[]){rows, tail}, &stats, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    fill(want, sizeof want, 0, (uint64_t)(ROWS - LAST_ROWS) * ROW);
    assert_memory_equal(rows, want, sizeof want);
    fill(want, TAIL, 1, 0);
    assert_memory_equal(tail, want, TAIL);
    assert_int_equal(rows[sizeof rows - 1], 0xee);
    assert_int_equal(tail[TAIL], 0xee);
    assert_true(stats.direct + stats.cached < 1U << 20); /* the rest is left alone */
}

static void damage_beyond_4_gib_is_named(void **state)
{
    static unsigned char rows[LAST_ROWS * ROW], tail[TAIL];
    SCOPED(layout_table_destroy) struct layout_table *storage = sharded_layout(one);
    SCOPED(layout_table_destroy) struct layout_table *target = sharded_layout(two);
    SCOPED(reader_close) struct reader *reader = NULL;
    SCOPED_TEXT char *path =
        mem_printf("%s/trainer-0/shard-00001-model-00001-of-00001.safetensors", (char *)*state);
    struct error err;

    make(*state, storage);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "!", 1, (off_t)((uint64_t)(ROWS - 1) * ROW)), 1);
    assert_int_equal(close(fd), 0);
    assert_int_equal(reader_open(*state, "", NULL, &reader, &err), STATUS_OK);
    assert_int_equal(reader_load(reader, target, 1, (void *[]){rows, tail}, NULL, &err),
                     STATUS_DATA_LOSS);
    assert_non_null(strstr(reader_damaged(reader), ", block 81919"));
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(what_lies_beyond_4_gib_is_found),
        T(damage_beyond_4_gib_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
