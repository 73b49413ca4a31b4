/* test_import_hf.c - files by others: what is taken in, what is refused, what is left alone. */
#include "tests/unit/checkpoint/copies.h"

#include "checkpoint/import_hf.h"
#include "checkpoint/safetensors.h"

static const uint64_t four[] = {4};

/* A file with tensors of four bytes of these names. */
static void put_file(const char *dir, const char *file, const char *const *names, size_t count)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, file);
    struct safetensors_entry entries[4];
    struct text bytes;

    for (size_t i = 0; i < count; i++)
        entries[i] = (struct safetensors_entry){.name = names[i],
                                                .name_len = strlen(names[i]),
                                                .dtype = DTYPE_U8,
                                                .dims = 1,
                                                .shape = four};
    text_init(&bytes, 0);
    assert_int_equal(safetensors_build(entries, count, NULL, 0, &bytes, NULL), STATUS_OK);
    for (size_t i = 0; i < count; i++)
        text_add_bytes(&bytes, "abcd", 4);
    assert_int_equal(file_write_atomic(path, bytes.data, bytes.len, 0644, NULL), STATUS_OK);
    text_fini(&bytes);
}

static void put_index(const char *dir, const char *json)
{
    SCOPED_TEXT char *path = mem_printf("%s/model.safetensors.index.json", dir);

    assert_int_equal(file_write_atomic(path, json, strlen(json), 0644, NULL), STATUS_OK);
}

static void note(void *arg, const char *sentence)
{
    (void)snprintf(arg, 200, "%s", sentence);
}

static void the_index_says_what_counts(void **state)
{
    static const char *const ab[] = {"a", "stale"}, *const b[] = {"b"};
    SCOPED_TEXT char *source = mem_printf("%s/hf", (char *)*state);
    SCOPED_TEXT char *target = mem_printf("%s/made", (char *)*state);
    char said[200] = "";
    const struct watcher watcher = {.warn = note, .arg = said};
    const struct import_hf_options options = {.prefix = "model.", .step = 8, .watcher = &watcher};
    struct import_hf_result result;
    struct error err;

    assert_int_equal(mkdir(source, 0755), 0);
    put_file(source, "x-1.safetensors", ab, 2);
    put_file(source, "x-2.safetensors", b, 1);
    put_file(source, "old.safetensors", b, 1); /* K13: of an earlier export */
    put_index(source, "{\"metadata\":{\"total_size\":8},\"weight_map\":"
                      "{\"a\":\"x-1.safetensors\",\"b\":\"x-2.safetensors\"}}");
    if (import_hf_read(source, target, &options, &result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(result.tensors, 2);
    assert_int_equal(result.files, 2);
    assert_non_null(strstr(said, "\"stale\" is not in the index"));
    SCOPED(reader_close) struct reader *reader = copies_open(target);
    assert_int_equal(reader_manifest(reader)->step, 8);
    assert_string_equal(layout_table_at(reader_layout(reader), 0)->name, "model.a");
}

/* K19: a name in an index is data, never a path out of the directory. */
static void k19_names_of_files_stay_in_the_directory(void **state)
{
    static const char *const bad[] = {"../x.safetensors",
                                      "/etc/x.safetensors",
                                      "C:x.safetensors",
                                      "a\\\\x.safetensors",
                                      "x.bin",
                                      ".safetensors",
                                      ".x.safetensors",
                                      "\\u0000.safetensors"};
    SCOPED_TEXT char *target = mem_printf("%s/made", (char *)*state);
    struct error err;

    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        SCOPED_TEXT char *json = mem_printf("{\"weight_map\":{\"a\":\"%s\"}}", bad[i]);
        put_index(*state, json);
        assert_int_equal(import_hf_read(*state, target, NULL, NULL, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "model.safetensors.index.json: byte "));
    }
    assert_int_equal(copies_names(*state), 1);
}

static void what_the_index_promises_must_be_there(void **state)
{
    static const char *const a[] = {"a"};
    SCOPED_TEXT char *target = mem_printf("%s/made", (char *)*state);
    struct error err;

    put_file(*state, "x.safetensors", a, 1);
    put_index(*state, "{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"x.safetensors\"}}");
    assert_int_equal(import_hf_read(*state, target, NULL, NULL, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "x.safetensors has no tensor \"b\""));
    put_index(*state, "{\"weight_map\":{\"a\":\"y.safetensors\"}}");
    assert_int_equal(import_hf_read(*state, target, NULL, NULL, &err), STATUS_NOT_FOUND);
    put_index(*state, "{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"x.safetensors\"}}");
    assert_int_equal(import_hf_read(*state, target, NULL, NULL, &err), STATUS_INVALID);
    put_index(*state, "{}");
    assert_int_equal(import_hf_read(*state, target, NULL, NULL, &err), STATUS_INVALID);
    assert_int_equal(copies_names(*state), 2);
}

/* K14, K18: a file that is cut off, or none of this kind, is refused whole. */
static void k14_cut_files_and_pickles_are_refused(void **state)
{
    static const char *const a[] = {"a"};
    SCOPED_TEXT char *path = mem_printf("%s/x.safetensors", (char *)*state);
    SCOPED_TEXT char *pickle = mem_printf("%s/model.pt", (char *)*state);
    SCOPED_TEXT char *target = mem_printf("%s/made", (char *)*state);
    struct error err;

    put_file(*state, "x.safetensors", a, 1);
    assert_int_equal(truncate(path, 4096 + 3), 0);
    assert_int_equal(import_hf_read(path, target, NULL, NULL, &err), STATUS_INVALID);
    assert_int_equal(truncate(path, 4096 + 5), 0);
    assert_int_equal(import_hf_read(path, target, NULL, NULL, &err), STATUS_INVALID);
    assert_int_equal(file_write_atomic(pickle, "\x80\x02}q\x00.0000000000", 16, 0644, NULL),
                     STATUS_OK);
    assert_int_equal(import_hf_read(pickle, target, NULL, NULL, &err), STATUS_INVALID);
    assert_int_equal(copies_names(*state), 2);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(the_index_says_what_counts),
        T(k19_names_of_files_stay_in_the_directory),
        T(what_the_index_promises_must_be_there),
        T(k14_cut_files_and_pickles_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
