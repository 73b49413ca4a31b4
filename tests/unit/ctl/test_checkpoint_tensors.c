/* test_checkpoint_tensors.c - how a tensor lies over its ranks, in words. */
#include "ctl/checkpoint_tensors.h"
#include "tests/unit/checkpoint/copies.h"

static void expect(const struct layout_table *table, const char *tensor, const char *want)
{
    struct text out;
    size_t index;
    assert_true(layout_table_find(table, tensor, strlen(tensor), &index));
    text_init(&out, 0);
    checkpoint_tensors_layout(table, index, &out);
    assert_string_equal(text_get(&out), want);
    text_fini(&out);
}

static void layouts_in_words(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *three = sharded_layout(copies_three);
    (void)state;
    expect(three, "model.rows", "2 pieces on 2 ranks, dims 1");
    expect(three, "model.cube", "3 pieces on 2 ranks, dims 1 2");
    expect(three, "step", "whole on rank 2");
    expect(three, "model.none", "empty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_in_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
