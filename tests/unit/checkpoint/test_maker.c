/* test_maker.c - what is made is whole, or it is not sealed. Its bits: test_reshard.c. */
#include "tests/unit/checkpoint/copies.h"

#include "checkpoint/maker.h"
#include "checkpoint/vault.h"

static void every_byte_must_have_come(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED_TEXT char *target = mem_printf("%s/made", (char *)*state);
    const struct maker_facts facts = {.step = 3};
    SCOPED(maker_destroy) struct maker *maker = NULL;
    const struct shard_image *image;
    char byte = 1;
    struct error err;

    assert_int_equal(maker_create(target, sharded->storage, &facts, &maker, &err), STATUS_OK);
    assert_int_equal(maker_rank_begin(maker, &image, &err), STATUS_OK);
    assert_int_equal(maker_write(maker, 0, 0, &byte, 1, &err), STATUS_OK);
    assert_int_equal(maker_write(maker, 0, shard_image_at(image, 0)->bytes, &byte, 1, &err),
                     STATUS_INTERNAL);
    assert_int_equal(maker_rank_end(maker, &err), STATUS_DATA_LOSS);
    assert_int_equal(maker_seal(maker, NULL, &err), STATUS_INTERNAL);
    maker_destroy(maker);
    maker = NULL;
    assert_int_equal(copies_names(*state), 0);
    sharded_destroy(sharded);
}

static void make_all(struct maker *maker, const struct layout_table *storage)
{
    const struct shard_image *image;
    struct error err;

    for (uint32_t rank = 0; rank < layout_table_world(storage); rank++) {
        assert_int_equal(maker_rank_begin(maker, &image, &err), STATUS_OK);
        for (size_t i = 0; i < shard_image_count(image); i++) {
            SCOPED(mem_free) void *zero = mem_alloc((size_t)shard_image_at(image, i)->bytes + 1);
            assert_int_equal(
                maker_write(maker, i, 0, zero, (size_t)shard_image_at(image, i)->bytes, &err),
                STATUS_OK);
        }
        assert_int_equal(maker_rank_end(maker, &err), STATUS_OK);
    }
}

static void what_is_sealed_passes_the_vaults_own_check(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED_TEXT char *target = mem_printf("%s/made", (char *)*state);
    const struct maker_facts facts = {.role = "policy", .step = 3, .samples = 9};
    SCOPED(maker_destroy) struct maker *maker = NULL;
    char digest[65];
    struct error err;

    assert_int_equal(maker_create(target, sharded->storage, &facts, &maker, &err), STATUS_OK);
    make_all(maker, sharded->storage);
    if (maker_seal(maker, digest, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    if (vault_verify(*state, "made", digest, true, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(copies_names(*state), 1);
    sharded_destroy(sharded);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(every_byte_must_have_come),
        T(what_is_sealed_passes_the_vaults_own_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
