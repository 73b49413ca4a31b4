/* test_block_sum.c - blocks and the whole, however the bytes come. */
#include "checkpoint/block_sum.h"
#include "checkpoint/block_table.h"
#include "checkpoint/digest.h"
#include "tests/unit/unit.h"

static void compare(const unsigned char *bytes, size_t len, size_t step)
{
    uint32_t crcs[8] = {0};
    struct block_sum sum = {0};

    for (size_t at = 0; at < len; at += step)
        block_sum_add(&sum, bytes + at, len - at < step ? len - at : step, crcs);
    block_sum_end(&sum, crcs);
    assert_int_equal(sum.at, len);
    assert_int_equal(sum.crc32c, digest_crc32c(0, bytes, len));
    for (size_t i = 0; i < block_table_count(len); i++) {
        size_t at = i * BLOCK_TABLE_BLOCK;
        size_t n = len - at < BLOCK_TABLE_BLOCK ? len - at : BLOCK_TABLE_BLOCK;
        assert_int_equal(crcs[i], digest_crc32c(0, bytes + at, n));
    }
}

static void any_steps_give_the_same(void **state)
{
    static const size_t lens[] = {0, 1, 65535, 65536, 65537, 131072, 400000};
    static const size_t steps[] = {1, 7, 4096, 65535, 65536, 65537, 400000};
    SCOPED(mem_free) void *memory = mem_array(400000, 1);
    unsigned char *bytes = memory;

    (void)state;
    for (size_t i = 0; i < 400000; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < COUNT_OF(lens); i++)
        for (size_t k = 0; k < COUNT_OF(steps); k++)
            compare(bytes, lens[i], steps[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_steps_give_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
