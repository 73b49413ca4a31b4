/* test_table.c - columns that fit. */
#include "ctl/table.h"
#include "tests/unit/unit.h"

static const struct table_column columns[] = {
    {"ID", TABLE_RIGHT}, {"NAME", TABLE_SHRINK}, {"STATE", TABLE_STATE}};

static void expect(struct table *table, size_t width, const char *wanted)
{
    struct text out;
    text_init(&out, 0);
    table_print(table, width, false, &out);
    assert_string_equal(text_get(&out), wanted);
    text_fini(&out);
}

static void columns_take_their_natural_width(void **state)
{
    (void)state;
    struct table *table = table_create(columns, 3);
    table_addf(table, "%d", 7);
    table_add(table, "\u4e2d\u6587");
    table_add(table, "RUNNING");
    table_add(table, "12");
    table_add(table, "");
    table_add(table, NULL);
    assert_int_equal(table_rows(table), 2);
    expect(table, 100,
           "ID  NAME  STATE\n"
           " 7  \u4e2d\u6587  RUNNING\n"
           "12  -     -\n");
    table_destroy(table);
}

static void wide_columns_give_way(void **state)
{
    (void)state;
    struct table *table = table_create(columns, 3);
    table_add(table, "1");
    table_add(table, "a-name-that-is-far-too-long-for-this");
    table_add(table, "QUEUED");
    expect(table, 24,
           "ID  NAME          STATE\n"
           " 1  a-name-that~  QUEUED\n");
    table_destroy(table);
}

static void cells_cannot_move_the_cursor(void **state)
{
    (void)state;
    struct table *table = table_create(columns, 3);
    table_add(table, "1");
    table_add(table, "a\x1b[2J\n\xc2\x9b\xff");
    table_add(table, "X");
    expect(table, 100,
           "ID  NAME      STATE\n"
           " 1  a?[2J???  X\n");
    table_destroy(table);
}

static void long_cells_are_bounded(void **state)
{
    (void)state;
    struct table *table = table_create(columns, 3);
    char *name = mem_alloc(5001);
    memset(name, 'x', 5000);
    table_add(table, "1");
    table_add(table, name);
    table_addf(table, "%s", name);
    struct text out;
    text_init(&out, 0);
    table_print(table, 10, true, &out);
    assert_true(out.len < 800);
    text_fini(&out);
    mem_free(name);
    table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_take_their_natural_width),
        cmocka_unit_test(wide_columns_give_way),
        cmocka_unit_test(cells_cannot_move_the_cursor),
        cmocka_unit_test(long_cells_are_bounded),
    };
    setenv("LC_ALL", "C", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
