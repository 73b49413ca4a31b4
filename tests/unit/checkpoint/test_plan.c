/* test_plan.c - plans of layouts that can be followed by eye; test_plan_random.c does all others.
 */
#include "tests/unit/unit.h"

#include "checkpoint/layout_build.h"
#include "checkpoint/plan.h"

/* One tensor "w" of 8 x 6 F32 in rows (parts of dim 0) or columns over that many ranks. */
static struct layout_table *one_tensor(uint32_t world, uint32_t dim, const char *name,
                                       uint64_t columns)
{
    SCOPED(layout_build_destroy) struct layout_build *build = layout_build_create(world);
    struct layout_tensor tensor = {
        .name = name, .name_len = strlen(name), .dtype = DTYPE_F32, .dims = 2};
    uint64_t cuts[2][16] = {{0, 8}, {0, columns}};
    uint32_t at[16], ranks[16];
    struct layout_grid grid = {2, {cuts[0], cuts[1]}, {2, 2}, at, ranks};
    struct layout_table *table = NULL;

    tensor.shape[0] = 8;
    tensor.shape[1] = columns;
    for (uint32_t i = 0; i <= world; i++) {
        cuts[dim][i] = tensor.shape[dim] * i / world;
        at[i] = ranks[i] = i;
    }
    grid.counts[dim] = world + 1;
    assert_int_equal(layout_build_grid(build, &grid, &tensor.layout, NULL), STATUS_OK);
    assert_int_equal(layout_build_tensor(build, &tensor, NULL), STATUS_OK);
    assert_int_equal(layout_build_finish(build, &table, NULL), STATUS_OK);
    return table;
}

static void a_column_slice_is_one_run(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *source = one_tensor(1, 0, "w", 6);
    SCOPED(layout_table_destroy) struct layout_table *target = one_tensor(3, 1, "w", 6);
    SCOPED(plan_destroy) struct plan *plan = NULL;
    struct plan_cursor at = {0};
    struct plan_run run;

    (void)state;
    assert_int_equal(plan_rank(source, target, 1, NULL, &plan, NULL), STATUS_OK);
    assert_int_equal(plan_count(plan), 1);
    assert_int_equal(plan_bytes(plan), 64);
    assert_true(plan_next(plan, &at, &run));
    assert_int_equal(run.source_at, 8);
    assert_int_equal(run.target_at, 0);
    assert_int_equal(run.bytes, 8);
    assert_int_equal(run.loops, 1);
    assert_int_equal(run.loop[0].count, 8);
    assert_int_equal(run.loop[0].source_step, 24);
    assert_int_equal(run.loop[0].target_step, 8);
    assert_int_equal(plan_run_bytes(&run), 64);
    assert_false(plan_next(plan, &at, &run));
}

static void offsets_need_more_than_32_bits(void **state)
{
    uint64_t columns = (uint64_t)6 << 32;
    SCOPED(layout_table_destroy) struct layout_table *source = one_tensor(2, 0, "w", columns);
    SCOPED(layout_table_destroy) struct layout_table *target = one_tensor(3, 1, "w", columns);
    SCOPED(plan_destroy) struct plan *plan = NULL;
    struct plan_cursor at = {0};
    struct plan_run run;

    (void)state;
    assert_int_equal(plan_rank(source, target, 2, NULL, &plan, NULL), STATUS_OK);
    assert_true(plan_bytes(plan) == 8 * columns / 3 * 4);
    assert_true(plan_next(plan, &at, &run) && plan_next(plan, &at, &run));
    assert_int_equal(run.source_rank, 1);
    assert_true(run.source_at == columns / 3 * 2 * 4);
    assert_true(run.target_at == 4 * (columns / 3) * 4); /* behind four rows */
    assert_true(run.bytes == columns / 3 * 4);
    assert_true(run.loop[0].source_step == columns * 4);
}

static void rows_are_contiguous(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *source = one_tensor(4, 0, "w", 6);
    SCOPED(layout_table_destroy) struct layout_table *target = one_tensor(2, 0, "w", 6);
    SCOPED(plan_destroy) struct plan *plan = NULL;
    struct plan_cursor at = {0};
    struct plan_run run;

    (void)state;
    assert_int_equal(plan_rank(source, target, 1, NULL, &plan, NULL), STATUS_OK);
    assert_int_equal(plan_count(plan), 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(plan_next(plan, &at, &run));
        assert_int_equal(run.source_rank, 2 + i);
        assert_int_equal(run.target_at, i * 48);
        assert_int_equal(run.bytes, 48);
        assert_int_equal(run.loops, 0);
    }
}

static void missing_and_surplus_tensors_are_errors_unless_partial(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *source = one_tensor(2, 0, "w", 6);
    SCOPED(layout_table_destroy) struct layout_table *target = one_tensor(2, 0, "v", 6);
    SCOPED(plan_destroy) struct plan *plan = NULL;
    struct plan_options partial = {.partial = true};
    struct error err;

    (void)state;
    assert_int_equal(plan_rank(source, target, 0, NULL, &plan, &err), STATUS_INVALID);
    assert_string_equal(err.text, "tensor v: the checkpoint does not have it; did you mean w?");
    assert_int_equal(plan_rank(source, target, 0, &partial, &plan, &err), STATUS_OK);
    assert_int_equal(plan_count(plan), 0);
}

static void another_shape_is_an_error_always(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *source = one_tensor(2, 0, "w", 6);
    SCOPED(layout_table_destroy) struct layout_table *target = one_tensor(2, 0, "w", 7);
    struct plan_options partial = {.partial = true};
    struct plan *plan = NULL;
    struct error err;

    (void)state;
    assert_int_equal(plan_rank(source, target, 0, &partial, &plan, &err), STATUS_INVALID);
    assert_string_equal(err.text, "tensor w: 8 x 6 in the checkpoint, 8 x 7 here");
    assert_int_equal(plan_rank(source, source, 2, NULL, &plan, &err), STATUS_INVALID);
    assert_null(plan);
}

/* Some tensors, whole on each of the ranks. */
static struct layout_table *replicated(uint32_t world, uint32_t count)
{
    SCOPED(layout_build_destroy) struct layout_build *build = layout_build_create(world);
    uint64_t cuts[2] = {0, 64};
    uint32_t at[2] = {0, world}, ranks[16];
    struct layout_grid grid = {1, {cuts}, {2}, at, ranks};
    struct layout_tensor tensor = {.dtype = DTYPE_U8, .dims = 1, .shape = {64}};
    struct layout_table *table = NULL;

    for (uint32_t i = 0; i < world; i++)
        ranks[i] = i;
    assert_int_equal(layout_build_grid(build, &grid, &tensor.layout, NULL), STATUS_OK);
    for (uint32_t i = 0; i < count; i++) {
        char name[2] = {(char)('a' + i), '\0'};
        tensor.name = name;
        tensor.name_len = 1;
        assert_int_equal(layout_build_tensor(build, &tensor, NULL), STATUS_OK);
    }
    assert_int_equal(layout_build_finish(build, &table, NULL), STATUS_OK);
    return table;
}

static uint64_t far_but_from_two(void *arg, uint32_t rank)
{
    (void)arg;
    return rank == 2 ? 1 : 5;
}

static void the_nearest_replica_is_read(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *source = replicated(4, 8);
    SCOPED(layout_table_destroy) struct layout_table *target = replicated(1, 8);
    SCOPED(plan_destroy) struct plan *plan = NULL;
    SCOPED(plan_totals_destroy) struct plan_totals *totals = NULL;
    struct plan_options options = {.cost = far_but_from_two};
    struct plan_cursor at = {0};
    struct plan_run run;

    (void)state;
    assert_int_equal(plan_rank(source, target, 0, &options, &plan, NULL), STATUS_OK);
    while (plan_next(plan, &at, &run))
        assert_int_equal(run.source_rank, 2);
    assert_int_equal(plan_global(source, target, &options, &totals, NULL), STATUS_OK);
    assert_int_equal(totals->source_bytes[2], 8 * 64);
}

static void replicas_that_cost_the_same_take_turns(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *source = replicated(4, 8);
    SCOPED(layout_table_destroy) struct layout_table *target = replicated(1, 8);
    SCOPED(plan_totals_destroy) struct plan_totals *totals = NULL;

    (void)state;
    assert_int_equal(plan_global(source, target, NULL, &totals, NULL), STATUS_OK);
    for (uint32_t rank = 0; rank < 4; rank++)
        assert_int_equal(totals->source_bytes[rank], 2 * 64);
}

static void keys_tell_plans_apart(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *rows = one_tensor(2, 0, "w", 6);
    SCOPED(layout_table_destroy) struct layout_table *columns = one_tensor(2, 1, "w", 6);
    char keys[4][33];

    (void)state;
    plan_key(rows, columns, 0, false, keys[0]);
    plan_key(rows, columns, 1, false, keys[1]);
    plan_key(columns, rows, 0, false, keys[2]);
    plan_key(rows, columns, 0, true, keys[3]);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(keys[i], keys[k]);
    plan_key(rows, columns, 0, false, keys[1]);
    assert_string_equal(keys[0], keys[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_column_slice_is_one_run),
        cmocka_unit_test(offsets_need_more_than_32_bits),
        cmocka_unit_test(rows_are_contiguous),
        cmocka_unit_test(missing_and_surplus_tensors_are_errors_unless_partial),
        cmocka_unit_test(another_shape_is_an_error_always),
        cmocka_unit_test(the_nearest_replica_is_read),
        cmocka_unit_test(replicas_that_cost_the_same_take_turns),
        cmocka_unit_test(keys_tell_plans_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
