/* test_reshard.c - a copy in another layout has the same bits, and is there whole or not at all. */
#include "tests/unit/checkpoint/copies.h"

#include "checkpoint/reshard.h"

static void the_copy_has_the_same_bits(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED(reader_close) struct reader *reader = copies_make(sharded, *state);
    SCOPED(layout_table_destroy) struct layout_table *three = sharded_layout(copies_three);
    SCOPED(layout_table_destroy) struct layout_table *storage = NULL;
    SCOPED_TEXT char *target = mem_printf("%s/copy/", (char *)*state);
    char digest[65] = "";
    struct error err;

    assert_int_equal(layout_table_assign(three, &storage, NULL), STATUS_OK);
    if (reshard_copy(reader, storage, target, NULL, digest, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(strlen(digest), 64);
    sharded_load(sharded, target, copies_two);
    sharded_load(sharded, target, copies_three);
    SCOPED(reader_close) struct reader *copy = copies_open(target);
    assert_int_equal(reader_manifest(copy)->step, 120);
    assert_int_equal(reader_manifest(copy)->parent, 5);
    assert_int_equal(reader_manifest(copy)->world, 3);
    SCOPED_TEXT char *plain = NULL; /* rank 2 has what rank 0 had */
    size_t len;
    assert_int_equal(reader_state(copy, 2, 1000, &plain, &len, &err), STATUS_OK);
    assert_string_equal(plain, "{\"rank\":{}}");
    assert_int_equal(copies_names(*state), 2);
    assert_int_equal(reshard_copy(reader, storage, target, NULL, NULL, &err), STATUS_EXISTS);
    sharded_destroy(sharded);
}

static void stop_at_once(void *arg, uint64_t bytes)
{
    (void)bytes;
    atomic_store((atomic_bool *)arg, true);
}

static void nothing_is_left_of_one_that_stops(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED(reader_close) struct reader *reader = copies_make(sharded, *state);
    SCOPED_TEXT char *target = mem_printf("%s/copy", (char *)*state);
    atomic_bool stop = false;
    const struct watcher watcher = {.moved = stop_at_once, .arg = &stop, .stop = &stop};
    struct error err;

    assert_int_equal(reshard_copy(reader, sharded->storage, target, &watcher, NULL, &err),
                     STATUS_CANCELLED);
    assert_int_equal(copies_names(*state), 1);
    sharded_destroy(sharded);
}

static void other_tensors_are_refused(void **state)
{
    static const char less[] = "{\"format\":\"rondo-layout-1\",\"world\":1,\"layouts\":["
                               "{\"kind\":\"grid\",\"cuts\":[[0,41],[0,33]],\"ranks\":[[0]]}],"
                               "\"tensors\":[[\"model.rows\",\"F32\",[41,33],0]],\"aliases\":{}}";
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED(reader_close) struct reader *reader = copies_make(sharded, *state);
    SCOPED(layout_table_destroy) struct layout_table *table = sharded_layout(less);
    SCOPED_TEXT char *target = mem_printf("%s/copy", (char *)*state);
    struct error err;

    assert_int_equal(reshard_copy(reader, table, target, NULL, NULL, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "the new layout lacks tensor"));
    assert_int_equal(copies_names(*state), 1);
    sharded_destroy(sharded);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(the_copy_has_the_same_bits),
        T(nothing_is_left_of_one_that_stops),
        T(other_tensors_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
