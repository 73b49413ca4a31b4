/* test_block_table.c - blocks.crc32c: written, read back, and every damage seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/block_table.h"

static const uint64_t sizes[] = {0, 1, BLOCK_TABLE_BLOCK, BLOCK_TABLE_BLOCK + 1, 1000000};

static struct block_table *sample(void)
{
    struct block_table *table = block_table_create(sizes, COUNT_OF(sizes));

    for (uint32_t i = 0; i < table->files_count; i++)
        for (uint32_t k = 0; k < table->files[i].count; k++)
            table->files[i].crcs[k] = UINT32_C(0x9e3779b9) * (i + 1) + k;
    return table;
}

static void it_comes_back(void **state)
{
    SCOPED(block_table_destroy) struct block_table *table = sample(), *back = NULL;
    size_t len = block_table_bytes(sizes, COUNT_OF(sizes));
    SCOPED(mem_free) void *bytes = mem_array(len, 1);

    (void)state;
    block_table_print(table, bytes);
    assert_int_equal(block_table_parse(bytes, len, &back, NULL), STATUS_OK);
    assert_int_equal(back->files_count, COUNT_OF(sizes));
    for (uint32_t i = 0; i < back->files_count; i++) {
        assert_int_equal(back->files[i].bytes, sizes[i]);
        assert_int_equal(back->files[i].count, table->files[i].count);
        assert_memory_equal(back->files[i].crcs, table->files[i].crcs,
                            back->files[i].count * sizeof(uint32_t));
    }
}

static void every_flipped_bit_is_seen(void **state)
{
    SCOPED(block_table_destroy) struct block_table *table = sample();
    size_t len = block_table_bytes(sizes, COUNT_OF(sizes));
    SCOPED(mem_free) void *memory = mem_array(len, 1);
    unsigned char *bytes = memory;

    (void)state;
    block_table_print(table, bytes);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        struct block_table *back = NULL;
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
        assert_int_equal(block_table_parse(bytes, len, &back, NULL), STATUS_DATA_LOSS);
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
}

static void every_other_length_is_refused(void **state)
{
    SCOPED(block_table_destroy) struct block_table *table = sample();
    size_t len = block_table_bytes(sizes, COUNT_OF(sizes));
    SCOPED(mem_free) void *bytes = mem_array(len + 1, 1);

    (void)state;
    block_table_print(table, bytes);
    for (size_t cut = 0; cut <= len + 1; cut++) {
        struct block_table *back = NULL;
        if (cut != len)
            assert_int_equal(block_table_parse(bytes, cut, &back, NULL), STATUS_DATA_LOSS);
    }
}

static void sizes_are_bounded(void **state)
{
    uint64_t huge = UINT64_MAX;

    (void)state;
    assert_int_equal(block_table_bytes(&huge, 1), 0);
    assert_null(block_table_create(&huge, 1));
    assert_int_equal(block_table_count(UINT64_MAX), UINT64_C(1) << 48);
    assert_true(block_table_bytes(NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_comes_back),
        cmocka_unit_test(every_flipped_bit_is_seen),
        cmocka_unit_test(every_other_length_is_refused),
        cmocka_unit_test(sizes_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
