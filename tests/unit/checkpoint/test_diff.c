/* test_diff.c - in which tensors two checkpoints differ; how much: test_diff_values.c. */
#include "tests/unit/checkpoint/copies.h"

#include "checkpoint/diff.h"

struct rows {
    struct diff_row row[8];
    char name[8][64];
    size_t count;
};

static void take(void *arg, const struct diff_row *row)
{
    struct rows *rows = arg;

    assert_true(rows->count < 8);
    rows->row[rows->count] = *row;
    (void)snprintf(rows->name[rows->count++], 64, "%s",
                   (row->first ? row->first : row->second)->name);
}

static struct reader *save_as(const struct sharded *sharded, const char *dir, const char *name)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, name);

    assert_int_equal(mkdir(path, 0755), 0);
    sharded_save(sharded, path);
    return copies_open(path);
}

static void layouts_do_not_matter_and_values_do(void **state)
{
    struct sharded *a = sharded_create(copies_two), *b = sharded_create(copies_three);
    struct rows rows = {.count = 0};
    struct diff_sum sum;
    struct error err;
    float one = 1.0F, two = 3.5F;

    memcpy(a->full[0] + 40, &one, sizeof(one));
    memcpy(b->full[0] + 40, &two, sizeof(two));
    a->full[5][96] = 1; /* the last byte of model.mask */
    b->full[5][96] = 0;
    SCOPED(reader_close) struct reader *first = save_as(a, *state, "a");
    SCOPED(reader_close) struct reader *second = save_as(b, *state, "b");
    if (diff_run(first, second, NULL, take, &rows, &sum, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(rows.count, 2);
    assert_string_equal(rows.name[0], "model.mask");
    assert_int_equal(rows.row[0].differing, 1);
    assert_false(rows.row[0].has_max);
    assert_string_equal(rows.name[1], "model.rows");
    assert_int_equal(rows.row[1].kind, DIFF_VALUES);
    assert_int_equal(rows.row[1].differing, 1);
    assert_true(rows.row[1].max_abs == 2.5);
    assert_int_equal(sum.tensors, 6);
    assert_int_equal(sum.same, 4);
    sharded_destroy(a);
    sharded_destroy(b);
}

static void other_forms_are_named(void **state)
{
    static const char other[] =
        "{\"format\":\"rondo-layout-1\",\"world\":1,\"layouts\":["
        "{\"kind\":\"grid\",\"cuts\":[[0,33],[0,41]],\"ranks\":[[0]]},"
        "{\"kind\":\"grid\",\"cuts\":[],\"ranks\":[[0]]}],"
        "\"tensors\":[[\"model.rows\",\"F32\",[33,41],0],[\"step\",\"U64\",[],1],"
        "[\"zz\",\"U64\",[],1]],\"aliases\":{}}";
    struct sharded *a = sharded_create(copies_two), *b = sharded_create(other);
    SCOPED(reader_close) struct reader *first = save_as(a, *state, "a");
    SCOPED(reader_close) struct reader *second = save_as(b, *state, "b");
    struct rows rows = {.count = 0};
    struct error err;

    if (diff_run(first, second, NULL, take, &rows, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(rows.count, 7);
    assert_int_equal(rows.row[0].kind, DIFF_ONLY_FIRST);
    assert_string_equal(rows.name[3], "model.rows");
    assert_int_equal(rows.row[3].kind, DIFF_SHAPE);
    assert_string_equal(rows.name[5], "step");
    assert_int_equal(rows.row[5].kind, DIFF_TYPE);
    assert_int_equal(rows.row[6].kind, DIFF_ONLY_SECOND);
    sharded_destroy(a);
    sharded_destroy(b);
}

/* Damage on the second side ends it, with that side's reason. */
static void damage_is_an_error_not_a_difference(void **state)
{
    struct sharded *a = sharded_create(copies_two);
    SCOPED(reader_close) struct reader *first = save_as(a, *state, "a");
    SCOPED(reader_close) struct reader *second = save_as(a, *state, "b");
    SCOPED_TEXT char *shard =
        mem_printf("%s/b/trainer-0/shard-00001-model-00001-of-00001.safetensors", (char *)*state);
    struct rows rows = {.count = 0};
    struct error err;
    int fd = open(shard, O_RDWR | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "\xde\xad\xbe\xef", 4, 4096 + 100), 4);
    close(fd);
    assert_int_equal(diff_run(first, second, NULL, take, &rows, NULL, &err), STATUS_DATA_LOSS);
    assert_int_equal(strncmp(err.text, "second: ", 8), 0);
    SCOPED_TEXT char *again = mem_printf("%s/b", (char *)*state);
    SCOPED(reader_close) struct reader *third = copies_open(again);
    assert_int_equal(diff_run(third, first, NULL, take, &rows, NULL, &err), STATUS_DATA_LOSS);
    sharded_destroy(a);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(layouts_do_not_matter_and_values_do),
        T(other_forms_are_named),
        T(damage_is_an_error_not_a_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
