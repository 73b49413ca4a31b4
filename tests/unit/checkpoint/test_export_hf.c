/* test_export_hf.c - whole tensors in files that others open; and the same bits back. */
#include "tests/unit/checkpoint/copies.h"

#include "checkpoint/diff.h"
#include "checkpoint/export_hf.h"
#include "checkpoint/import_hf.h"
#include "checkpoint/safetensors.h"

static struct safetensors *head_of(const char *dir, const char *name)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, name);
    struct safetensors *file = NULL;
    struct stat stat;
    struct error err;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &stat), 0);
    if (safetensors_open(fd, (uint64_t)stat.st_size, false, &file, &err) != STATUS_OK)
        fail_msg("%s: %s", name, err.text);
    close(fd);
    return file;
}

static void one_file_has_all_and_says_what_is_tied(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED(reader_close) struct reader *reader = copies_make(sharded, *state);
    SCOPED_TEXT char *target = mem_printf("%s/hf", (char *)*state);
    const struct export_hf_options options = {.prefix = "model."};
    struct export_hf_result result = {0};
    struct error err;
    size_t len;

    if (export_hf_write(reader, target, &options, &result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(result.files, 1);
    assert_int_equal(result.tensors, 4);
    assert_int_equal(copies_names(target), 1);
    SCOPED(safetensors_destroy) struct safetensors *file = head_of(target, "model.safetensors");
    assert_int_equal(safetensors_count(file), 4);
    assert_non_null(safetensors_find(file, "rows", 4));
    assert_null(safetensors_find(file, "tied", 4)); /* K25: stored once */
    assert_string_equal(safetensors_meta(file, "format", &len), "pt");
    assert_string_equal(safetensors_meta(file, "tied", &len), "rows");
    assert_int_equal(export_hf_write(reader, target, NULL, NULL, &err), STATUS_EXISTS);
    const struct export_hf_options none = {.prefix = "no."};
    assert_int_equal(export_hf_write(reader, target, &none, NULL, &err), STATUS_NOT_FOUND);
    assert_int_equal(copies_names(*state), 2);
    sharded_destroy(sharded);
}

static void count_rows(void *arg, const struct diff_row *row)
{
    print_message("differs: %s\n", (row->first ? row->first : row->second)->name);
    ++*(int *)arg;
}

/* K28: numbers of every kind, 0-d and empty ones too, come back as they were. */
static void k28_what_went_out_in_many_files_comes_back(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED(reader_close) struct reader *reader = copies_make(sharded, *state);
    SCOPED_TEXT char *hf = mem_printf("%s/hf", (char *)*state);
    SCOPED_TEXT char *back = mem_printf("%s/back", (char *)*state);
    const struct export_hf_options options = {.max_shard_bytes = 700};
    struct export_hf_result result;
    struct import_hf_result imported;
    struct diff_sum sum;
    struct error err;
    int rows = 0;

    if (export_hf_write(reader, hf, &options, &result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(result.files, 3);
    assert_int_equal(copies_names(hf), 4);
    if (import_hf_read(hf, back, NULL, &imported, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(imported.tensors, 6);
    SCOPED(reader_close) struct reader *copy = copies_open(back);
    if (diff_run(reader, copy, NULL, count_rows, &rows, &sum, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(rows, 0);
    assert_int_equal(sum.same, 6);
    sharded_destroy(sharded);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(one_file_has_all_and_says_what_is_tied),
        T(k28_what_went_out_in_many_files_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
