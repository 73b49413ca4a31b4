/* test_plan_cases.c - faults that users of other systems met when they changed their parallel
 * layout (tests/CASES.md), each as a small example. */
#include "tests/unit/unit.h"

#include <inttypes.h>

#include "checkpoint/layout_mesh.h"
#include "checkpoint/plan.h"
#include "tests/support/layout_random.h"

static struct layout_table *parsed(uint32_t world, const char *layouts, const char *tensors,
                                   const char *aliases)
{
    SCOPED_TEXT char *json = mem_printf("{\"format\":\"rondo-layout-1\",\"world\":%" PRIu32
                                        ",\"layouts\":[%s],\"tensors\":[%s],\"aliases\":{%s}}",
                                        world, layouts, tensors, aliases);
    struct layout_table *table = NULL;
    struct error err = {0};

    if (layout_table_parse(json, strlen(json), &table, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return table;
}

/* One tensor on a mesh, by one rule. */
static struct layout_table *meshed(const char *mesh_text, const char *rule_text,
                                   const char *tensors)
{
    SCOPED(layout_table_destroy)
    struct layout_table *like =
        parsed(1, "{\"kind\":\"flat\",\"ranges\":[[0,0,1000000]]}", tensors, "");
    struct layout_table *table = NULL;
    struct layout_mesh mesh;
    struct layout_mesh_rule rule;

    assert_int_equal(layout_mesh_parse(mesh_text, &mesh, NULL), STATUS_OK);
    assert_int_equal(layout_mesh_rule_parse(&mesh, rule_text, &rule, NULL), STATUS_OK);
    assert_int_equal(layout_mesh_table(&mesh, &rule, 1, like, &table, NULL), STATUS_OK);
    return table;
}

/* Every rank of the target gets tensor 0 whole, byte for byte. */
static void moves(const struct layout_table *source, const struct layout_table *target)
{
    const struct layout_tensor *tensor = layout_table_at(target, 0);
    struct layout_box from[64], to[64];

    for (uint32_t rank = 0; rank < layout_table_world(target); rank++) {
        SCOPED(plan_destroy) struct plan *plan = NULL;
        SCOPED(mem_free) void *got = mem_alloc(1 << 16);
        SCOPED(mem_free) void *wanted = mem_alloc(1 << 16);
        SCOPED(mem_free) void *piece = mem_alloc(1 << 16);
        struct plan_cursor at = {0};
        struct plan_run run;
        size_t count = layout_table_pieces(target, 0, rank, to, COUNT_OF(to));
        assert_int_equal(plan_rank(source, target, rank, NULL, &plan, NULL), STATUS_OK);
        assert_in_range(count, 0, 1); /* so that pieces need no places */
        if (count)
            layout_random_fill(tensor, 0, &to[0], wanted);
        while (plan_next(plan, &at, &run)) {
            assert_in_range(layout_table_pieces(source, 0, run.source_rank, from, COUNT_OF(from)),
                            run.source_piece + 1, COUNT_OF(from));
            layout_random_fill(tensor, 0, &from[run.source_piece], piece);
            assert_in_range(run.loops, 0, 1);
            uint64_t rows = run.loops ? run.loop[0].count : 1;
            for (uint64_t i = 0; i < rows; i++)
                memcpy((uint8_t *)got + run.target_at + i * run.loop[0].target_step,
                       (uint8_t *)piece + run.source_at + i * run.loop[0].source_step, run.bytes);
        }
        assert_memory_equal(got, wanted, plan_bytes(plan));
    }
}

#define UNEVEN "[\"w\",\"F32\",[10,7],0]"

static void k21_uneven_shards_keep_their_places(void **state)
{
    SCOPED(layout_table_destroy)
    struct layout_table *source = meshed("a=3,b=2", "w=0:a,1:b", UNEVEN);
    SCOPED(layout_table_destroy)
    struct layout_table *target = meshed("a=2,b=4", "w=0:b,1:a balanced", UNEVEN);
    struct layout_box box;

    (void)state;
    assert_int_equal(layout_table_pieces(source, 0, 5, &box, 1), 1); /* the short corner */
    assert_int_equal(box.offset[0], 8);
    assert_int_equal(box.offset[1], 4);
    assert_int_equal(box.size[0], 2);
    assert_int_equal(box.size[1], 3);
    moves(source, target);
    moves(target, source);
}

static void k21_strided_shards_keep_their_places(void **state)
{
    /* q of 5, k and v of 3 rows each, cut for two ranks: each has three pieces */
    SCOPED(layout_table_destroy)
    struct layout_table *fused = parsed(2,
                                        "{\"kind\":\"grid\",\"cuts\":[[0,3,5,7,8,10,11],[0,4]],"
                                        "\"ranks\":[[0],[1],[0],[1],[0],[1]]}",
                                        "[\"qkv\",\"BF16\",[11,4],0]", "");
    SCOPED(layout_table_destroy)
    struct layout_table *whole = meshed("tensor=3", "qkv=0:tensor", "[\"qkv\",\"BF16\",[11,4],0]");
    struct layout_box boxes[3];

    (void)state;
    assert_int_equal(layout_table_pieces(fused, 0, 1, boxes, 3), 3);
    assert_int_equal(boxes[1].offset[0], 7);
    assert_int_equal(boxes[2].size[0], 1);
    moves(fused, whole);
}

#define EXPERTS "[\"experts\",\"BF16\",[5,4,6],0]"

static void k23_experts_cut_twice_are_written_once(void **state)
{
    /* uneven experts (3 and 2), cut by columns, twice over: who holds the same is declared by the
     * mesh, so no shard takes another's place */
    SCOPED(layout_table_destroy)
    struct layout_table *declared =
        meshed("expert=2,data=2,tensor=2", "experts=0:expert,2:tensor", EXPERTS);
    SCOPED(layout_table_destroy)
    struct layout_table *other = meshed("expert=5", "experts=0:expert", EXPERTS);
    SCOPED(layout_table_destroy)
    struct layout_table *stacked =
        meshed("stage=4", "experts=0:stage", EXPERTS); /* the axis in front was the pipeline's */
    SCOPED(layout_table_destroy) struct layout_table *storage = NULL;

    (void)state;
    assert_int_equal(layout_table_assign(declared, &storage, NULL), STATUS_OK);
    assert_int_equal(layout_table_check_storage(storage, NULL), STATUS_OK);
    assert_int_equal(layout_table_check_storage(declared, NULL), STATUS_INVALID);
    moves(storage, other);
    moves(storage, stacked);
    moves(stacked, other);
}

static void k24_experts_of_one_rank_alone_are_a_hole(void **state)
{
    SCOPED(layout_table_destroy)
    struct layout_table *table =
        parsed(2, "{\"kind\":\"boxes\",\"boxes\":[[0,[0,0,0],[3,4,6]]]}", EXPERTS, "");
    struct layout_table *storage = NULL;
    struct error err;

    (void)state;
    assert_int_equal(layout_table_assign(table, &storage, &err), STATUS_INVALID);
    assert_string_equal(err.text, "tensor experts: hole: nobody holds all of [3:5,0:4,0:6]");
}

#define ALL "{\"kind\":\"grid\",\"cuts\":[[0,4]],\"ranks\":[[0,1]]}"
#define ONE "{\"kind\":\"grid\",\"cuts\":[[0,4]],\"ranks\":[[0]]}"
#define E   "[\"embed\",\"F32\",[4],0]"
#define H   "[\"head\",\"F32\",[4],0]"

static void k25_tied_weights_are_stored_once(void **state)
{
    SCOPED(layout_table_destroy)
    struct layout_table *tied = parsed(2, ALL, E, "\"head\":\"embed\"");
    SCOPED(layout_table_destroy) struct layout_table *both = parsed(1, ONE, E "," H, "");
    SCOPED(layout_table_destroy) struct layout_table *storage = NULL;
    SCOPED(plan_destroy) struct plan *plan = NULL;
    struct plan_cursor at = {0};
    struct plan_run run;
    struct plan *none = NULL;
    struct error err;

    (void)state;
    assert_int_equal(layout_table_assign(tied, &storage, NULL), STATUS_OK);
    assert_int_equal(layout_table_count(storage), 1);
    assert_int_equal(layout_table_alias_count(storage), 1);
    assert_int_equal(plan_rank(storage, both, 0, NULL, &plan, NULL), STATUS_OK);
    assert_int_equal(plan_count(plan), 2); /* both come from the one */
    while (plan_next(plan, &at, &run))
        assert_int_equal(run.source_tensor, 0);
    /* two tensors of which only one would survive */
    assert_int_equal(plan_rank(both, tied, 0, NULL, &none, &err), STATUS_INVALID);
    assert_string_equal(
        err.text, "tensor head: a tensor of its own in the checkpoint, an alias of another here");
}

static void k26_a_tensor_that_is_not_complete_is_not_loaded(void **state)
{
    SCOPED(layout_table_destroy)
    struct layout_table *source = parsed(
        4, "{\"kind\":\"boxes\",\"boxes\":[[0,[0,0,0],[5,4,3]],[1,[0,0,3],[5,4,2]]]}", EXPERTS, "");
    SCOPED(layout_table_destroy)
    struct layout_table *target = meshed("tensor=2", "experts=2:tensor", EXPERTS);
    struct plan_options partial = {.partial = true};
    struct plan *plan = NULL;
    struct error err;

    (void)state;
    assert_int_equal(plan_rank(source, target, 0, &partial, &plan, &err), STATUS_OK);
    plan_destroy(plan);
    plan = NULL;
    assert_int_equal(plan_rank(source, target, 1, &partial, &plan, &err), STATUS_INVALID);
    assert_string_equal(err.text, "tensor experts: hole in the source within [0:5,0:4,5:6]");
    assert_null(plan);
}

static void k31_runs_are_as_few_as_the_cuts_allow(void **state)
{
#define LONG "[\"w\",\"U8\",[98304,8],0]"
    SCOPED(layout_table_destroy) struct layout_table *source = meshed("x=4096", "w=0:x", LONG);
    SCOPED(layout_table_destroy) struct layout_table *target = meshed("x=3072", "w=0:x", LONG);
    SCOPED(plan_totals_destroy) struct plan_totals *totals = NULL;

    (void)state;
    assert_int_equal(plan_global(source, target, NULL, &totals, NULL), STATUS_OK);
    assert_int_equal(totals->runs, 4096 + 3072 - 1024); /* m + n - gcd, not m * n */
    assert_int_equal(totals->bytes, 98304 * 8);
    assert_int_equal(totals->source_bytes[4095], 98304 * 8 / 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k21_uneven_shards_keep_their_places),
        cmocka_unit_test(k21_strided_shards_keep_their_places),
        cmocka_unit_test(k23_experts_cut_twice_are_written_once),
        cmocka_unit_test(k24_experts_of_one_rank_alone_are_a_hole),
        cmocka_unit_test(k25_tied_weights_are_stored_once),
        cmocka_unit_test(k26_a_tensor_that_is_not_complete_is_not_loaded),
        cmocka_unit_test(k31_runs_are_as_few_as_the_cuts_allow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
