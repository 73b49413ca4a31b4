/* test_layout_mesh.c - meshes, rules, and the layouts that they make. */
#include "tests/unit/unit.h"

#include "checkpoint/layout_mesh.h"
#include "tests/support/layout_random.h"

#define TENSORS 8

static struct layout_mesh mesh_of(const char *text)
{
    struct layout_mesh mesh;
    struct error err;

    if (layout_mesh_parse(text, &mesh, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return mesh;
}

static void chunks_and_balanced_parts_are_cut_as_they_say(void **state)
{
    uint64_t cuts[8];

    (void)state;
    layout_rule_cuts(LAYOUT_RULE_CHUNK, 10, 1, 4, cuts); /* AutoTP would say [3,3,2,2] */
    assert_memory_equal(cuts, ((uint64_t[]){0, 3, 6, 9, 10}), 40);
    layout_rule_cuts(LAYOUT_RULE_BALANCED, 10, 1, 4, cuts);
    assert_memory_equal(cuts, ((uint64_t[]){0, 3, 6, 8, 10}), 40);
    layout_rule_cuts(LAYOUT_RULE_CHUNK, 5, 1, 4, cuts); /* the last is empty */
    assert_memory_equal(cuts, ((uint64_t[]){0, 2, 4, 5, 5}), 40);
    layout_rule_cuts(LAYOUT_RULE_CHUNK, 0, 1, 3, cuts);
    assert_memory_equal(cuts, ((uint64_t[]){0, 0, 0, 0}), 32);
    layout_rule_cuts(LAYOUT_RULE_CHUNK, UINT64_MAX, 1, 3, cuts);
    assert_true(cuts[1] == UINT64_MAX / 3 && cuts[3] == UINT64_MAX);
    layout_rule_cuts(LAYOUT_RULE_BALANCED, 12, 4, 2, cuts);
    assert_memory_equal(cuts, ((uint64_t[]){0, 8, 12}), 24);
}

static void meshes_are_read_or_refused(void **state)
{
    static const char *const bad[] = {"",        "data",        "data=",      "data=0",
                                      "data=2,", "=2",          "data=2;a=1", "data=2,data=2",
                                      "a=65537", "a=256,b=257", "Data=2",     "a=1 "};
    struct layout_mesh mesh = mesh_of("data=2,tensor=4");

    (void)state;
    assert_int_equal(mesh.axes, 2);
    assert_string_equal(mesh.axis[1].name, "tensor");
    assert_int_equal(layout_mesh_world(&mesh), 8);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(layout_mesh_parse(bad[i], &mesh, NULL), STATUS_INVALID);
}

static void rules_are_read_or_refused(void **state)
{
    static const char *const bad[] = {"w",           "=0:tensor",          "w=0",
                                      "w=8:tensor",  "w=0:expert",         "w=0:tensor,1:tensor",
                                      "w=0:tensor,", "w=0:tensor balance", "w=tensor"};
    struct layout_mesh mesh = mesh_of("data=2,tensor=4");
    struct layout_mesh_rule rule;

    (void)state;
    assert_int_equal(layout_mesh_rule_parse(&mesh, "*.w=1:tensor,0:data balanced", &rule, NULL),
                     STATUS_OK);
    assert_int_equal(rule.pattern_len, 3);
    assert_int_equal(rule.dim[0], 0);
    assert_int_equal(rule.dim[1], 1);
    assert_int_equal(rule.cut, LAYOUT_RULE_BALANCED);
    assert_int_equal(layout_mesh_rule_parse(&mesh, "norm.*=", &rule, NULL), STATUS_OK);
    assert_int_equal(rule.dim[0], LAYOUT_MESH_NO_DIM);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(layout_mesh_rule_parse(&mesh, bad[i], &rule, NULL), STATUS_INVALID);
}

static const char model[] = "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
                            "{\"kind\":\"grid\",\"cuts\":[[0,4,8],[0,6]],\"ranks\":[[0],[1]]},"
                            "{\"kind\":\"grid\",\"cuts\":[[0,6]],\"ranks\":[[0,1]]},"
                            "{\"kind\":\"grid\",\"cuts\":[[0,8],[0,3,6]],\"ranks\":[[0],[1]]}],"
                            "\"tensors\":[[\"up.w\",\"F32\",[8,6],0],[\"norm.w\",\"F32\",[6],1],"
                            "[\"down.w\",\"F32\",[8,6],2]],\"aliases\":{\"tied\":\"up.w\"}}";

static struct layout_table *like(void)
{
    struct layout_table *table = NULL;
    assert_int_equal(layout_table_parse(model, sizeof model - 1, &table, NULL), STATUS_OK);
    return table;
}

static void rules_cut_what_they_match(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *table = like();
    SCOPED(layout_table_destroy) struct layout_table *made = NULL;
    struct layout_mesh mesh = mesh_of("data=2,tensor=3");
    struct layout_mesh_rule rules[2];
    struct layout_box box;
    size_t found;

    (void)state;
    assert_int_equal(layout_mesh_rule_parse(&mesh, "*p.*=0:data,1:tensor", &rules[0], NULL), 0);
    assert_int_equal(layout_mesh_rule_parse(&mesh, "*=", &rules[1], NULL), STATUS_OK);
    assert_int_equal(layout_mesh_table(&mesh, rules, 2, table, &made, NULL), STATUS_OK);
    assert_int_equal(layout_table_check(made, NULL), STATUS_OK);
    assert_true(layout_table_find(made, "tied", 4, &found));
    assert_int_equal(found, 0);
    assert_int_equal(layout_table_pieces(made, 0, 5, &box, 1), 1); /* data 1, tensor 2 */
    assert_int_equal(box.offset[0], 4);
    assert_int_equal(box.offset[1], 4);
    assert_int_equal(box.size[0] * box.size[1], 8);
    for (uint32_t rank = 0; rank < 6; rank++) { /* down: the second rule */
        assert_int_equal(layout_table_pieces(made, 2, rank, &box, 1), 1);
        assert_int_equal(box.size[0] * box.size[1], 48);
    }
}

static void a_rule_for_a_dim_that_is_not_there_is_refused(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *table = like();
    struct layout_mesh mesh = mesh_of("tensor=3");
    struct layout_mesh_rule rule;
    struct layout_table *made = NULL;
    struct error err;

    (void)state;
    assert_int_equal(layout_mesh_rule_parse(&mesh, "*=1:tensor", &rule, NULL), STATUS_OK);
    assert_int_equal(layout_mesh_table(&mesh, &rule, 1, table, &made, &err), STATUS_INVALID);
    assert_string_equal(err.text, "tensor norm.w: a rule cuts dim 1, it has 1");
}

static void a_rule_that_matches_no_tensor_is_refused(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *table = like();
    struct layout_mesh mesh = mesh_of("tensor=3");
    struct layout_mesh_rule rule;
    struct layout_table *made = NULL;
    struct error err;

    (void)state;
    assert_int_equal(layout_mesh_rule_parse(&mesh, "norm.v=0:tensor", &rule, NULL), STATUS_OK);
    assert_int_equal(layout_mesh_table(&mesh, &rule, 1, table, &made, &err), STATUS_INVALID);
    assert_string_equal(err.text, "rule norm.v: no tensor is called so; did you mean norm.w?");
    assert_null(made);
}

static void without_rules_tensors_are_cut_as_they_were(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *table = like();
    SCOPED(layout_table_destroy) struct layout_table *made = NULL;
    struct layout_mesh mesh = mesh_of("data=2,tensor=4");
    struct layout_box box;

    (void)state;
    assert_int_equal(layout_mesh_table(&mesh, NULL, 0, table, &made, NULL), STATUS_OK);
    for (uint32_t rank = 0; rank < 8; rank++) {
        assert_int_equal(layout_table_pieces(made, 0, rank, &box, 1), 1); /* rows */
        assert_int_equal(box.offset[0], rank % 4 * 2);
        assert_int_equal(box.size[1], 6);
        assert_int_equal(layout_table_pieces(made, 1, rank, &box, 1), 1); /* on all */
        assert_int_equal(box.size[0], 6);
        assert_int_equal(layout_table_pieces(made, 2, rank, &box, 1), rank % 4 < 3); /* 2,2,2,0 */
    }
}

static void any_table_fits_on_any_mesh(void **state)
{
    static const char *const meshes[] = {"data=1", "tensor=5", "a=2,data=3,b=2", "x=7,y=3"};

    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct layout_random random = {seed};
        struct layout_tensor tensors[TENSORS];
        char names[TENSORS * 8];
        struct layout_mesh mesh = mesh_of(meshes[seed % COUNT_OF(meshes)]);
        struct error err;
        layout_random_tensors(&random, tensors, TENSORS, names);
        SCOPED(layout_table_destroy)
        struct layout_table *table =
            layout_random_table(&random, 1 + (uint32_t)seed % 12, tensors, TENSORS, false);
        SCOPED(layout_table_destroy) struct layout_table *made = NULL;
        if (layout_mesh_table(&mesh, NULL, 0, table, &made, &err) != STATUS_OK ||
            layout_table_check(made, &err) != STATUS_OK)
            fail_msg("seed %d: %s", (int)seed, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_and_balanced_parts_are_cut_as_they_say),
        cmocka_unit_test(meshes_are_read_or_refused),
        cmocka_unit_test(rules_are_read_or_refused),
        cmocka_unit_test(rules_cut_what_they_match),
        cmocka_unit_test(a_rule_for_a_dim_that_is_not_there_is_refused),
        cmocka_unit_test(a_rule_that_matches_no_tensor_is_refused),
        cmocka_unit_test(without_rules_tensors_are_cut_as_they_were),
        cmocka_unit_test(any_table_fits_on_any_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
