/* test_export_dcp.c - all shards in one directory, checked on their way, or nothing. */
#include "tests/unit/checkpoint/copies.h"

#include "checkpoint/export_dcp.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_dcp.h"

#define SECOND "shard-00002-model-00001-of-00001.safetensors"

static void every_shard_says_its_place(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED(reader_close) struct reader *reader = copies_make(sharded, *state);
    SCOPED(safetensors_destroy) struct safetensors *file = NULL;
    SCOPED_TEXT char *target = mem_printf("%s/out", (char *)*state);
    SCOPED_TEXT char *shard = mem_printf("%s/" SECOND, target);
    struct export_dcp_result result = {0};
    struct stat st;
    struct error err;
    size_t len;

    if (export_dcp_write(*state, "source", reader, target, NULL, &result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(result.files, copies_names(target));
    int fd = open(shard, O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(safetensors_open(fd, (uint64_t)st.st_size, false, &file, &err), STATUS_OK);
    assert_non_null(safetensors_meta(file, "DCP_SHARDING_INFO", &len));
    (void)close(fd);
    sharded_destroy(sharded);
}

static void k13_it_starts_empty_and_leaves_nothing(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED(reader_close) struct reader *reader = copies_make(sharded, *state);
    SCOPED_TEXT char *target = mem_printf("%s/out", (char *)*state);
    SCOPED_TEXT char *stale = mem_printf("%s/model.safetensors", target);
    SCOPED_TEXT char *shard = mem_printf("%s/source/trainer-1/" SECOND, (char *)*state);
    struct error err;

    assert_int_equal(mkdir(target, 0755), 0);
    unit_write(stale, "old");
    assert_int_equal(export_dcp_write(*state, "source", reader, target, NULL, NULL, &err),
                     STATUS_EXISTS);
    assert_int_equal(unlink(stale), 0);
    int fd = open(shard, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "!", 1, 4200), 1);
    (void)close(fd);
    assert_int_equal(export_dcp_write(*state, "source", reader, target, NULL, NULL, &err),
                     STATUS_DATA_LOSS);
    assert_non_null(strstr(err.text, SECOND));
    assert_int_equal(copies_names(target), 0);
    assert_int_equal(copies_names(*state), 2);
    sharded_destroy(sharded);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {T(every_shard_says_its_place),
                                       T(k13_it_starts_empty_and_leaves_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
