/* test_layout.c - tables read, printed, and checked for holes and overlaps. */
#include "tests/unit/unit.h"

#include <inttypes.h>

#include "checkpoint/layout_build.h"
#include "tests/support/layout_random.h"

#define HEAD(world) "{\"format\":\"rondo-layout-1\",\"world\":" world ",\n\"layouts\":["
#define TENSORS     8

static const char whole[] =
    HEAD("4") "\n"
              "{\"kind\":\"grid\",\"cuts\":[[0,512,1024],[0,4096]],\"ranks\":[[0,2],[1,3]]},\n"
              "{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[2,3]],[3,[2,0],[1,3]]]},\n"
              "{\"kind\":\"flat\",\"ranges\":[[0,0,5],[1,5,10]]},\n"
              "{\"kind\":\"grid\",\"cuts\":[],\"ranks\":[[0]]}],\n"
              "\"tensors\":[\n"
              "[\"embed.weight\",\"F32\",[1024,4096],0],\n"
              "[\"b\\\"\\u000a\\\\\xc3\xa9\",\"BF16\",[3,3],1],\n"
              "[\"c\",\"F8_E4M3\",[3,3],2],\n"
              "[\"step\",\"I64\",[],3]],\n"
              "\"aliases\":{\n"
              "\"lm_head.weight\":\"embed.weight\"}}\n";

static struct layout_table *parsed(const char *json)
{
    struct layout_table *table = NULL;
    struct error err = {0};

    if (layout_table_parse(json, strlen(json), &table, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return table;
}

static char *printed(const struct layout_table *table)
{
    struct text out;

    text_init(&out, 0);
    layout_table_print(table, &out);
    return text_take(&out);
}

static void printing_gives_what_was_read(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *table = parsed(whole);
    SCOPED_TEXT char *text = printed(table);
    size_t found = 9;

    (void)state;
    assert_string_equal(text, whole);
    assert_int_equal(layout_table_count(table), 4);
    assert_int_equal(layout_table_world(table), 4);
    assert_true(layout_table_find(table, "lm_head.weight", 14, &found));
    assert_int_equal(found, 0);
    assert_false(layout_table_find(table, "lm_head", 7, &found));
    assert_int_equal(strlen(layout_table_digest(table)), 32);
    assert_int_equal(layout_table_check(table, NULL), STATUS_OK);
}

static void pieces_are_what_a_rank_holds(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *table = parsed(whole);
    struct layout_box boxes[4];

    (void)state;
    assert_int_equal(layout_table_pieces(table, 0, 3, boxes, 4), 1);
    assert_int_equal(boxes[0].offset[0], 512);
    assert_int_equal(boxes[0].size[0], 512);
    assert_int_equal(boxes[0].size[1], 4096);
    assert_int_equal(layout_table_pieces(table, 1, 1, boxes, 4), 0);
    assert_int_equal(layout_table_pieces(table, 2, 0, boxes, 4), 2); /* row 0, and 2 of row 1 */
    assert_int_equal(boxes[1].offset[0], 1);
    assert_int_equal(boxes[1].size[1], 2);
    assert_int_equal(layout_table_pieces(table, 2, 1, boxes, 4), 2); /* padding left out */
    assert_int_equal(layout_box_bytes(&boxes[0], layout_table_at(table, 2)), 1);
    assert_int_equal(boxes[1].size[0] * boxes[1].size[1], 3);
    assert_int_equal(layout_table_pieces(table, 3, 0, boxes, 0), 1); /* counted, not filled */
    assert_int_equal(layout_table_pieces(table, 3, 1, boxes, 4), 0);
}

static void random_tables_survive_printing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct layout_random random = {seed};
        struct layout_tensor tensors[TENSORS];
        char names[TENSORS * 8];
        layout_random_tensors(&random, tensors, TENSORS, names);
        SCOPED(layout_table_destroy)
        struct layout_table *table =
            layout_random_table(&random, 1 + (uint32_t)seed % 12, tensors, TENSORS, false);
        SCOPED_TEXT char *text = printed(table);
        SCOPED(layout_table_destroy) struct layout_table *again = parsed(text);
        SCOPED_TEXT char *text_again = printed(again);
        assert_string_equal(text, text_again);
        assert_string_equal(layout_table_digest(table), layout_table_digest(again));
    }
}

/* What the layouts hold of one tensor of 4 x 6. */
static void expect(const char *layouts, const char *tensor, const char *complaint)
{
    SCOPED_TEXT char *json =
        mem_printf(HEAD("4") "%s],\"tensors\":[%s],\"aliases\":{}}", layouts, tensor);
    SCOPED(layout_table_destroy) struct layout_table *table = NULL;
    struct error err = {0};
    enum status st = layout_table_parse(json, strlen(json), &table, &err);

    if (st == STATUS_OK)
        st = layout_table_check(table, &err);
    if (!complaint)
        assert_int_equal(st, STATUS_OK);
    else if (st != STATUS_INVALID || !strstr(err.text, complaint))
        fail_msg("%s: wanted \"%s\", got \"%s\"", json, complaint, err.text);
}

#define W "[\"w\",\"F32\",[4,6],0]"

static void holes_and_overlaps_are_named(void **state)
{
    (void)state;
    expect("{\"kind\":\"grid\",\"cuts\":[[0,2,4],[0,6]],\"ranks\":[[0],[]]}", W,
           "tensor w: hole: nobody holds all of [2:4,0:6]");
    expect("{\"kind\":\"grid\",\"cuts\":[[0,2,2,4],[0,6]],\"ranks\":[[0],[],[1]]}", W, NULL);
    expect("{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[4,3]],[1,[0,4],[4,2]]]}", W,
           "tensor w: hole: nobody holds all of [0:4,3:4]");
    expect("{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[4,3]],[1,[0,3],[3,3]]]}", W,
           "tensor w: hole: nobody holds all of [3:4,3:6]");
    expect("{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[4,4]],[1,[0,3],[4,3]]]}", W,
           "tensor w: overlap: [0:4,3:4] is held more than once");
    expect("{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[4,6]],[1,[0,0],[4,6]]]}", W, NULL);
    expect("{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[4,6]],[0,[0,0],[4,6]]]}", W,
           "overlap: rank 0 holds a part twice");
    expect("{\"kind\":\"boxes\",\"boxes\":[]}", W, "tensor w: hole: nobody holds all of [0:4,0:6]");
    expect("{\"kind\":\"flat\",\"ranges\":[[0,0,10],[1,12,30]]}", W,
           "tensor w: hole: nobody holds all of elements 10:12");
    expect("{\"kind\":\"flat\",\"ranges\":[[0,0,13],[1,12,30]]}", W,
           "tensor w: overlap: elements 12:13 is held more than once");
    expect("{\"kind\":\"flat\",\"ranges\":[[0,0,24],[1,26,30]]}", W, NULL); /* behind its end */
    expect("{\"kind\":\"flat\",\"ranges\":[[0,0,23]]}", W, "elements 23:24");
}

static void what_does_not_come_apart_is_checked_too(void **state)
{
    (void)state; /* a pinwheel round one cell */
#define WHEEL(more)                                                                                \
    "{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[2,1]],[1,[0,1],[1,2]],[2,[1,2],[2,1]],"              \
    "[3,[2,0],[1,2]]" more "]}"
    expect(WHEEL(",[0,[1,1],[1,1]]"), "[\"w\",\"F32\",[3,3],0]", NULL);
    expect(WHEEL(""), "[\"w\",\"F32\",[3,3],0]", "hole: nobody holds all of [0:3,0:3]");
    expect(WHEEL(",[0,[1,1],[1,1]],[1,[0,0],[1,1]]"), "[\"w\",\"F32\",[3,3],0]",
           "overlap: [0:1,0:1]");
}

/* Many of them in one layout, before memory is taken for them. */
static void what_lists_too_much_is_refused(void **state)
{
    static const struct {
        const char *head, *one, *complaint;
        size_t bytes;
    } cases[] = {
        {"{\"kind\":\"grid\",\"cuts\":[[0,1]],\"ranks\":[[0]", ",[]", "cells or holders",
         (size_t)13 << 20},
        {"{\"kind\":\"grid\",\"cuts\":[[0", ",0", "more than 16777216 numbers", (size_t)33 << 20},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct text json, many;
        struct layout_table *table = NULL;
        struct error err;
        text_init(&json, 0);
        text_init(&many, 0);
        while (many.len < 30000)
            text_add(&many, cases[i].one);
        text_add(&json, HEAD("1"));
        text_add(&json, cases[i].head);
        while (json.len < cases[i].bytes)
            text_add(&json, text_get(&many));
        text_fini(&many);
        assert_int_equal(layout_table_parse(text_get(&json), json.len, &table, &err),
                         STATUS_INVALID);
        assert_non_null(strstr(err.text, cases[i].complaint));
        text_fini(&json);
    }
}

/* Four arms of many slabs that turn round a square: no plane is free, and slabs of one arm lie side
 * by side all along the next. */
static void what_takes_too_long_to_check_is_refused(void **state)
{
    enum { SLABS = 6000, SIDE = 3 * SLABS };
    SCOPED(layout_build_destroy) struct layout_build *build = layout_build_create(1);
    SCOPED(mem_free) void *ranks = mem_array(4 * SLABS + 1, sizeof(uint32_t));
    SCOPED(mem_free) void *memory = mem_array(4 * SLABS + 1, 4 * sizeof(uint64_t));
    SCOPED(layout_table_destroy) struct layout_table *table = NULL;
    struct layout_boxes boxes = {2, 4 * SLABS + 1, ranks, memory};
    struct layout_tensor tensor = {
        .name = "w", .name_len = 1, .dtype = DTYPE_U8, .dims = 2, .shape = {SIDE, SIDE}};
    uint64_t(*box)[4] = memory;
    struct error err;

    (void)state;
    for (uint64_t i = 0; i < SLABS; i++, box += 4) {
        const uint64_t four[4][4] = {{i, 0, 1, SIDE - SLABS},
                                     {0, SIDE - SLABS + i, SIDE - SLABS, 1},
                                     {SIDE - SLABS + i, SLABS, 1, SIDE - SLABS},
                                     {SLABS, i, SIDE - SLABS, 1}};
        memcpy(box, four, sizeof four);
    }
    memcpy(box, (uint64_t[]){SLABS, SLABS, SLABS, SLABS}, sizeof *box);
    assert_int_equal(layout_build_boxes(build, &boxes, &tensor.layout, NULL), STATUS_OK);
    assert_int_equal(layout_build_tensor(build, &tensor, NULL), STATUS_OK);
    assert_int_equal(layout_build_finish(build, &table, NULL), STATUS_OK);
    assert_int_equal(layout_table_check(table, &err), STATUS_EXHAUSTED);
    assert_string_equal(err.text, "tensor w: too many boxes cross each other");
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
#define GRID(cuts, ranks) "{\"kind\":\"grid\",\"cuts\":" cuts ",\"ranks\":" ranks "}"
    expect(GRID("[[0,4],[0,7]]", "[[0]]"), W, "out of bounds");
    expect(GRID("[[0,4],[0,5]]", "[[0]]"), W, "out of bounds");
    expect(GRID("[[0,4]]", "[[0]]"), W, "2 dimensions, but 1");
    expect(GRID("[[0,4],[0,6]]", "[[4]]"), W, "rank 4 of a world of 4");
    expect(GRID("[[0,4],[0,6]]", "[[1,1]]"), W, "holds a part twice");
    expect(GRID("[[0,4],[0,6]]", "[[1],[2]]"), W, "another number of cells");
    expect(GRID("[[0,4],[0,3,2,6]]", "[[1],[2],[3]]"), W, "fall");
    expect(GRID("[[1,4],[0,6]]", "[[1]]"), W, "begin with no 0");
    expect(GRID("[[0,4],[0,6]]", "[[0]]"), "[\"w\",\"F32\",[4,6],1]", "there is no layout 1");
    expect(GRID("[[0,4],[0,6]]", "[[0]]"), "[\"w\",\"F31\",[4,6],0]", "unknown dtype");
    expect(GRID("[[0,4],[0,6]]", "[[0]]"), W "," W, "tensor w is there twice");
    expect(GRID("[[0,4],[0,6]]", "[[0]]"), "[\"\",\"F32\",[4,6],0]", "a name of 0 bytes");
    expect(GRID("[[0,4],[0,6]]", "[[0]]"), "[\"a\\u0000\",\"F32\",[4,6],0]", "UTF-8");
    expect(GRID("[[0,4],[0,6]]", "[[0]]"), "[\"__metadata__\",\"F32\",[4,6],0]", "keeps that name");
    expect("{\"kind\":\"boxes\",\"boxes\":[[0,[0,3],[4,18446744073709551614]]]}", W,
           "ends before it begins");
    expect("{\"kind\":\"boxes\",\"boxes\":[[0,[0,3],[4,4]]]}", W, "out of bounds");
    expect("{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[4,6]],[1,[0],[4]]]}", W,
           "boxes of different dimensions");
    expect("{\"kind\":\"flat\",\"ranges\":[[0,4,3]]}", W, "ends before it begins");
    expect("{\"kind\":\"flat\",\"ranges\":[[0,4]]}", W, "a range is [rank,begin,end]");
    expect(GRID("[[0,1],[0,1],[0,1],[0,1],[0,1],[0,1],[0,1],[0,1],[0,1]]", "[[0]]"), W,
           "more than 8 dimensions");
    expect(GRID("[[0,4294967296],[0,4294967296]]", "[[0]]"),
           "[\"w\",\"F32\",[4294967296,4294967296],0]", "more than 2^60 bytes");
}

static void elements_of_half_a_byte_are_cut_at_bytes(void **state)
{
    (void)state;
    expect(GRID("[[0,4],[0,2,6]]", "[[0],[1]]"), "[\"w\",\"F4\",[4,6],0]", NULL);
    expect(GRID("[[0,4],[0,3,6]]", "[[0],[1]]"), "[\"w\",\"F4\",[4,6],0]", "within a byte of F4");
    expect(GRID("[[0,4],[0,4,6]]", "[[0],[1]]"), "[\"w\",\"F6_E2M3\",[4,6],0]", "within a byte");
    expect(GRID("[[0,4],[0,4,8]]", "[[0],[1]]"), "[\"w\",\"F6_E2M3\",[4,8],0]", NULL);
    expect(GRID("[[0,2,4],[0,3]]", "[[0],[1]]"), "[\"w\",\"F4\",[4,3],0]", "within a byte");
    expect(GRID("[[0,4],[0,3]]", "[[0]]"), "[\"w\",\"F4\",[4,3],0]", NULL);
    expect(GRID("[[0,3],[0,3]]", "[[0]]"), "[\"w\",\"F4\",[3,3],0]", "no whole bytes");
    expect("{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[4,2]]]}", "[\"w\",\"F4\",[4,3],0]",
           "within a byte");
    expect("{\"kind\":\"flat\",\"ranges\":[[0,0,9],[1,9,24]]}", "[\"w\",\"F4\",[4,6],0]",
           "range 0:9 cuts a byte");
    expect("{\"kind\":\"flat\",\"ranges\":[[0,0,8],[1,8,25]]}", "[\"w\",\"F4\",[4,6],0]", NULL);
    expect("{\"kind\":\"flat\",\"ranges\":[[0,0,6],[1,6,12]]}", "[\"w\",\"F4\",[4,3],0]",
           "cuts a byte");
}

static void anything_but_the_format_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"world\":1}",
        "{\"format\":\"rondo-layout-2\",\"world\":1,\"layouts\":[],\"tensors\":[],\"aliases\":{}}",
        HEAD("0") "],\"tensors\":[],\"aliases\":{}}",
        HEAD("65537") "],\"tensors\":[],\"aliases\":{}}",
        HEAD("1.0") "],\"tensors\":[],\"aliases\":{}}",
        HEAD("1") "],\"tensors\":[]}",
        HEAD("1") "],\"tensors\":[],\"aliases\":{}} x",
        HEAD("1") "],\"tensors\":[],\"tensors\":[],\"aliases\":{}}",
        HEAD("1") "],\"tensors\":[],\"aliases\":{},\"more\":1}",
        HEAD("1") "],\"tensors\":[],\"aliases\":{\"a\":\"b\"}}",
        HEAD("1") "{\"kind\":\"cube\"}],\"tensors\":[],\"aliases\":{}}",
        HEAD("1") "{\"kind\":\"flat\"}],\"tensors\":[],\"aliases\":{}}",
        HEAD("1") "{\"kind\":\"flat\",\"cuts\":[]}],\"tensors\":[],\"aliases\":{}}",
    };
    struct layout_table *table = NULL;
    struct error err;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(layout_table_parse(bad[i], strlen(bad[i]), &table, &err), STATUS_INVALID);
        assert_null(table);
        assert_int_equal(layout_table_parse(bad[i], strlen(bad[i]), &table, NULL), STATUS_INVALID);
    }
    for (size_t len = 0; len < sizeof whole - 2; len++) /* cut anywhere */
        assert_int_equal(layout_table_parse(whole, len, &table, NULL), STATUS_INVALID);
}

static void zero_sizes_need_no_holder(void **state)
{
    (void)state;
    expect(GRID("[[0,0],[0,18446744073709551615]]", "[[]]"),
           "[\"w\",\"F32\",[0,18446744073709551615],0]", NULL);
    expect("{\"kind\":\"boxes\",\"boxes\":[]}", "[\"w\",\"F32\",[0,3],0]", NULL);
    expect("{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[0,3]]]}", "[\"w\",\"F32\",[0,3],0]", NULL);
    expect("{\"kind\":\"flat\",\"ranges\":[]}", "[\"w\",\"F32\",[5,0],0]", NULL);
    expect("{\"kind\":\"boxes\",\"boxes\":[[2,[],[]]]}", "[\"w\",\"F32\",[],0]", NULL);
    expect("{\"kind\":\"boxes\",\"boxes\":[]}", "[\"w\",\"F32\",[],0]", "hole");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printing_gives_what_was_read),
        cmocka_unit_test(pieces_are_what_a_rank_holds),
        cmocka_unit_test(random_tables_survive_printing),
        cmocka_unit_test(holes_and_overlaps_are_named),
        cmocka_unit_test(what_does_not_come_apart_is_checked_too),
        cmocka_unit_test(what_lists_too_much_is_refused),
        cmocka_unit_test(what_takes_too_long_to_check_is_refused),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(elements_of_half_a_byte_are_cut_at_bytes),
        cmocka_unit_test(anything_but_the_format_is_refused),
        cmocka_unit_test(zero_sizes_need_no_holder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
