/* test_pieces.c - a program's memory, cut as its layout says, or refused before it is touched. */
#include "tests/unit/unit.h"
#include "worker/pieces.h"

/* a: cut in two; b: flat, three boxes on rank 0; c: two boxes on rank 0; e: nothing in it. */
static const char layout[] =
    "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,2,4],[0,3]],\"ranks\":[[0],[1]]},"
    "{\"kind\":\"flat\",\"ranges\":[[0,1,8],[1,8,9],[1,0,1]]},"
    "{\"kind\":\"boxes\",\"boxes\":[[0,[0],[2]],[1,[2],[1]],[0,[3],[3]]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,0]],\"ranks\":[[0,1]]}],"
    "\"tensors\":[[\"a\",\"F32\",[4,3],0],[\"b\",\"U8\",[3,3],1],[\"c\",\"F64\",[6],2],"
    "[\"e\",\"F32\",[0],3]],\"aliases\":{}}";

static struct layout_table *table;
static char a[24], b[7], c[40];

static int setup(void **state)
{
    (void)state;
    return layout_table_parse(layout, strlen(layout), &table, NULL) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    layout_table_destroy(table);
    return 0;
}

static void boxes_follow_one_another_in_the_memory_given(void **state)
{
    const struct rondo_piece given[] = {
        {a, 24, 0, 0}, {b, 7, 1, 0}, {c, 16, 2, 0}, {c + 16, 24, 2, 0}};
    struct pieces pieces;

    (void)state;
    assert_int_equal(pieces_map(table, 0, given, 4, &pieces, NULL), STATUS_OK);
    assert_int_equal(pieces.count, 6);
    assert_ptr_equal(pieces.memory[0], a);
    assert_ptr_equal(pieces.memory[1], b);
    assert_ptr_equal(pieces.memory[2], b + 2);
    assert_ptr_equal(pieces.memory[3], b + 5);
    assert_ptr_equal(pieces.memory[4], c);
    assert_ptr_equal(pieces.memory[5], c + 16);
    pieces_fini(&pieces);
    pieces_fini(&pieces);
}

static void a_byte_too_few_or_too_many_is_refused_by_name(void **state)
{
    const struct rondo_piece good[] = {{a, 24, 0, 0}, {b, 7, 1, 0}, {c, 40, 2, 0}};
    struct rondo_piece given[4];
    struct pieces pieces = {0};
    struct error err;

    (void)state;
    for (int which = 0; which < 3; which++)
        for (int more = -1; more <= 1; more += 2) {
            const char name[] = {(char)('a' + which), ':', '\0'};
            memcpy(given, good, sizeof good);
            given[which].bytes += (uint64_t)(int64_t)more;
            assert_int_equal(pieces_map(table, 0, given, 3, &pieces, &err), STATUS_INVALID);
            assert_int_equal(strncmp(err.text, name, 2), 0);
            assert_null(pieces.memory);
        }
    assert_int_equal(pieces_map(table, 0, good, 3, &pieces, &err), STATUS_OK);
    pieces_fini(&pieces);
}

static void missing_surplus_and_misplaced_memory_is_refused(void **state)
{
    const struct rondo_piece good[] = {{a, 24, 0, 0}, {b, 7, 1, 0}, {c, 40, 2, 0}, {c, 8, 3, 0}};
    const struct rondo_piece mixed[] = {{b, 7, 1, 0}, {a, 24, 0, 0}, {c, 40, 2, 0}};
    const struct rondo_piece null[] = {{NULL, 24, 0, 0}, {b, 7, 1, 0}, {c, 40, 2, 0}};
    const struct rondo_piece across[] = {{a, 24, 0, 0}, {b, 7, 1, 0}, {c, 24, 2, 0}, {c, 16, 2, 0}};
    struct pieces pieces = {0};

    (void)state;
    assert_int_equal(pieces_map(table, 0, good, 2, &pieces, NULL), STATUS_INVALID);
    assert_int_equal(pieces_map(table, 0, good, 4, &pieces, NULL), STATUS_INVALID);
    assert_int_equal(pieces_map(table, 0, mixed, 3, &pieces, NULL), STATUS_INVALID);
    assert_int_equal(pieces_map(table, 0, null, 3, &pieces, NULL), STATUS_INVALID);
    assert_int_equal(pieces_map(table, 0, across, 4, &pieces, NULL), STATUS_INVALID);
    assert_int_equal(pieces_map(table, 0, NULL, 0, &pieces, NULL), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_follow_one_another_in_the_memory_given),
        cmocka_unit_test(a_byte_too_few_or_too_many_is_refused_by_name),
        cmocka_unit_test(missing_surplus_and_misplaced_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
