/* test_making.c - files that are made: whatever order the bytes come in, they and their digests are
 * right. */
#include "checkpoint/block_table.h"
#include "checkpoint/digest.h"
#include "checkpoint/making.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <unistd.h>

enum { FILES = 3 };

struct made {
    struct making files[FILES];
    uint32_t *crcs[FILES];
    uint64_t bytes[FILES], done[FILES];
    const unsigned char *from; /* of all files */
};

static void begin(struct made *made, struct making_stage *stage, int dir)
{
    for (int i = 0; i < FILES; i++) {
        SCOPED_TEXT char *name = mem_printf("f%d", i);
        made->done[i] = 0;
        made->crcs[i] = mem_array((size_t)block_table_count(made->bytes[i]) + 1, sizeof(uint32_t));
        assert_int_equal(
            making_begin(&made->files[i], stage, dir, name, made->bytes[i], made->crcs[i], NULL),
            STATUS_OK);
    }
}

static void put(struct made *made, int file, uint64_t at, uint64_t len)
{
    assert_int_equal(making_write(&made->files[file], made->from + at, (size_t)len, at, NULL),
                     STATUS_OK);
}

/* As much as is left, in steps of at most `step`. */
static bool put_next(struct made *made, int file, uint64_t step)
{
    uint64_t left = made->bytes[file] - made->done[file], len = left < step ? left : step;

    if (len)
        put(made, file, made->done[file], len);
    made->done[file] += len;
    return len > 0;
}

static void end(struct made *made, const char *where)
{
    for (int i = 0; i < FILES; i++) {
        SCOPED_TEXT char *path = mem_printf("%s/f%d", where, i);
        Pb__CheckpointFile out = PB__CHECKPOINT_FILE__INIT;
        struct digest_file is;
        assert_int_equal(making_end(&made->files[i], &out, NULL), STATUS_OK);
        assert_int_equal(making_sync(&made->files[i], NULL), STATUS_OK);
        making_fini(&made->files[i]);
        assert_int_equal(digest_file(path, false, &is, NULL), STATUS_OK);
        assert_int_equal(is.bytes, made->bytes[i]);
        assert_int_equal(is.crc32c, digest_crc32c(0, made->from, (size_t)made->bytes[i]));
        assert_int_equal(out.bytes, is.bytes);
        assert_int_equal(out.crc32c, is.crc32c);
        assert_string_equal(out.xxh3, is.xxh3);
        for (uint64_t at = 0; at < is.bytes; at += BLOCK_TABLE_BLOCK) {
            size_t n =
                is.bytes - at < BLOCK_TABLE_BLOCK ? (size_t)(is.bytes - at) : BLOCK_TABLE_BLOCK;
            assert_int_equal(made->crcs[i][at / BLOCK_TABLE_BLOCK],
                             digest_crc32c(0, made->from + at, n));
        }
        mem_free(out.xxh3);
        mem_free(made->crcs[i]);
        assert_int_equal(unlink(path), 0);
    }
}

/* One after the other; to and fro; the last half first. */
static void write_in(struct made *made, int way, uint64_t step)
{
    bool more = true;

    for (int i = 0; way == 0 && i < FILES; i++)
        while (put_next(made, i, step))
            continue;
    while (way == 1 && more) {
        more = false;
        for (int i = 0; i < FILES; i++)
            more |= put_next(made, i, step);
    }
    for (int i = 0; way == 2 && i < FILES; i++) {
        uint64_t half = made->bytes[i] / 2;
        put(made, i, half, made->bytes[i] - half);
        put(made, i, 0, half);
    }
}

static void any_order_gives_the_same_files(void **state)
{
    static const uint64_t sizes[][FILES] = {
        {0, 1, 4095}, {4096, 4097, 131072}, {70000, 200001, 65536}, {34000001, 5, 40000000}};
    static const uint64_t steps[] = {777, 4096, 300000, 50000000};
    const size_t most = 40000000;
    SCOPED(mem_free) void *memory = mem_array(most, 1);
    SCOPED(making_stage_destroy) struct making_stage *stage = NULL;
    int dir = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct made made = {.from = memory};

    for (size_t i = 0; i < most; i++)
        ((unsigned char *)memory)[i] = (unsigned char)(i * 2654435761u >> 17);
    assert_int_equal(making_stage_create(&stage, NULL), STATUS_OK);
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (size_t k = sizes[i][0] > 1000000 ? 2 : 0; k < COUNT_OF(steps); k++)
            for (int way = 0; way < 3; way++) {
                memcpy(made.bytes, sizes[i], sizeof made.bytes);
                begin(&made, stage, dir);
                write_in(&made, way, steps[k]);
                end(&made, *state);
            }
    close(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        any_order_gives_the_same_files, unit_dir_setup, unit_dir_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
