/* test_reader_large.c - places beyond 2^32: a shard of 5 GiB, nearly all of it a hole. */
#include "tests/unit/checkpoint/sparse.h"

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

static void fill(unsigned char *bytes, size_t len, size_t tensor, uint64_t at)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = sharded_byte(tensor, at + i);
}

/* Values in the last rows and the tail, else zeros. */
static void put_values(int fd, const struct shard_image *image, struct block_file *blocks)
{
    static unsigned char values[LAST_ROWS * ROW];
    const struct shard_image_piece *big = shard_image_at(image, 0);
    const struct shard_image_piece *tail = shard_image_at(image, 1);

    assert_true(tail->at > UINT64_C(5) << 30);
    fill(values, sizeof values, 0, big->bytes - sizeof values);
    sparse_put(fd, blocks, big->at + big->bytes - sizeof values, values, sizeof values);
    fill(values, TAIL, 1, 0);
    sparse_put(fd, blocks, tail->at, values, TAIL);
}

static void what_lies_beyond_4_gib_is_found(void **state)
{
    static unsigned char want[LAST_ROWS * ROW], rows[LAST_ROWS * ROW + 1], tail[TAIL + 1];
    SCOPED(layout_table_destroy) struct layout_table *storage = sharded_layout(one);
    SCOPED(layout_table_destroy) struct layout_table *target = sharded_layout(two);
    SCOPED(reader_close) struct reader *reader = NULL;
    struct reader_stats stats = {0};
    struct error err;

    sparse_make(*state, storage, &(struct sparse_options){.fill = put_values});
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

    sparse_make(*state, storage, &(struct sparse_options){.fill = put_values});
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
