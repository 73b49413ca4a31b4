/* test_safetensors.c - headers: what is taken, what is refused, and what we write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"

/* A file of this JSON with that many bytes of data behind it. */
static enum status parse_with(const char *json, size_t len, uint64_t data, bool import,
                              struct safetensors **out, struct error *err)
{
    unsigned char *head = calloc(1, 8 + len);

    for (int i = 0; i < 8; i++)
        head[i] = (unsigned char)((uint64_t)len >> (8 * i));
    memcpy(head + 8, json, len);
    enum status st = import ? safetensors_parse_import(head, 8 + len, 8 + len + data, out, err)
                            : safetensors_parse(head, 8 + len, 8 + len + data, out, err);
    free(head);
    return st;
}

#define A4 "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}"

static const struct row {
    const char *json;
    uint64_t data;
    bool good;
} rows[] = {
    {"{}", 0, true},
    {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, true},
    {"{\"__metadata__\":null}", 0, true},
    {"", 0, false},
    {"{" A4 "}", 4, true},
    {"  {" A4 "}", 4, true},
    {"{" A4 "} \t\r\n  ", 4, true},
    {"{" A4 "}x", 4, false},
    {"\xef\xbb\xbf{" A4 "}", 4, false},
    {"{" A4 "}", 5, false},
    {"{" A4 "}", 3, false},
    {"{" A4 "," A4 "}", 4, false},
    {"{" A4 ",\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]}}", 4, false},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, false},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, false},
    {"{\"__metadata__\":{\"a\":1}}", 0, false},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, false},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"x\":[{}]}}", 4, false},
    {"{\"a\":[\"U8\",[4],[0,4]]}", 4, false},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4.0],\"data_offsets\":[0,4]}}", 4, false},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4e0],\"data_offsets\":[0,4]}}", 4, false},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, false},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[04],\"data_offsets\":[0,4]}}", 4, false},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]}}", 4,
     false},
    {"{" A4 ",}", 4, false},
    {"{\"\\ud800\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, false},
    {"{\"\\u0000\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, false},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, false},
    {"{\"../x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, true},
    {"{\"a\":{\"dtype\":\"F7\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, false},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, true},
    {"{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[4,4]}}", 4, true},
    {"{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[2,2]}}", 4, false},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, false},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, true},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]}}", 0,
     false},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
     true},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]}}", 5, false},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}}", 4, false},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,4]}}", 4, false},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0]}}", 4, false},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, false},
    {"{" A4 ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}", 6, false},
    {"{" A4 ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[5,9]}}", 9, false},
};

static void each_row_of_the_table_has_its_verdict(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct safetensors *file = NULL;
        struct error err = {0};
        enum status st =
            parse_with(rows[i].json, strlen(rows[i].json), rows[i].data, false, &file, &err);
        if ((st == STATUS_OK) != rows[i].good)
            fail_msg("%s: %s", rows[i].json, st ? err.text : "taken");
        assert_true(st == STATUS_OK || (st == STATUS_INVALID && !file && err.text[0]));
        safetensors_destroy(file);
    }
    struct safetensors *file = NULL;
    assert_int_equal(parse_with("{}\0", 3, 0, false, &file, NULL), STATUS_INVALID);
}

static void lengths_are_checked_before_anything_is_read(void **state)
{
    unsigned char head[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    struct safetensors *file = NULL;
    struct error err;

    (void)state;
    assert_int_equal(safetensors_parse(head, 7, 7, &file, &err), STATUS_INVALID);
    assert_int_equal(safetensors_parse(head, 16, 16, &file, &err), STATUS_INVALID);
    memset(head, 0, sizeof(head));
    head[0] = 9;
    assert_int_equal(safetensors_parse(head, 16, 16, &file, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "a header of 9 bytes in a file of 16"));
    assert_int_equal(safetensors_parse(head, 16, 1000, &file, &err), STATUS_INVALID);
    assert_null(file);
}

static void unknown_fields_are_counted_on_import(void **state)
{
    static const char json[] = "{\"a\":{\"dtype\":\"U8\",\"new\":{\"x\":[1,2.5]},\"shape\":[4],"
                               "\"data_offsets\":[0,4]}}";
    struct safetensors *file = NULL;

    (void)state;
    assert_int_equal(parse_with(json, strlen(json), 4, true, &file, NULL), STATUS_OK);
    assert_int_equal(safetensors_unknown(file), 1);
    safetensors_destroy(file);
}

static void what_we_write_is_read_back(void **state)
{
    static const uint64_t cube[] = {2, 3, 5}, none[] = {0}, row[] = {7};
    struct safetensors_entry entries[] = {
        {.name = "z\"\\\n", .name_len = 4, .dtype = DTYPE_U8, .dims = 1, .shape = row},
        {.name = "b", .name_len = 1, .dtype = DTYPE_F32, .dims = 3, .shape = cube},
        {.name = "a", .name_len = 1, .dtype = DTYPE_F32, .dims = 0, .shape = NULL},
        {.name = "e", .name_len = 1, .dtype = DTYPE_I64, .dims = 1, .shape = none},
    };
    const struct safetensors_pair meta[] = {{"format", 6, "pt", 2}, {"k", 1, "{\"x\":1}", 7}};
    SCOPED(safetensors_destroy) struct safetensors *file = NULL;
    struct text out;
    struct error err;
    size_t len;

    (void)state;
    text_init(&out, 0);
    assert_int_equal(safetensors_build(entries, 4, meta, 2, &out, &err), STATUS_OK);
    assert_int_equal(out.len % SAFETENSORS_ALIGN, 0);
    assert_int_equal(safetensors_parse(out.data, out.len, out.len + 120 + 4 + 7, &file, &err),
                     STATUS_OK);
    assert_int_equal(safetensors_count(file), 4);
    assert_int_equal(safetensors_data_at(file), out.len);
    assert_string_equal(safetensors_at(file, 0)->name, "e"); /* widest first, then by name */
    assert_string_equal(safetensors_at(file, 1)->name, "a");
    assert_string_equal(safetensors_at(file, 2)->name, "b");
    const struct safetensors_entry *found = safetensors_find(file, "z\"\\\n", 4);
    assert_non_null(found);
    assert_int_equal(found->begin, 124);
    assert_int_equal(found->end, 131);
    assert_null(safetensors_find(file, "zz", 2));
    assert_memory_equal(safetensors_meta(file, "k", &len), "{\"x\":1}", 7);
    assert_int_equal(len, 7);
    text_fini(&out);
}

static void what_readers_would_refuse_is_not_written(void **state)
{
    static const uint64_t one[] = {1};
    static const struct {
        const char *name;
        size_t len;
    } bad[] = {{"__metadata__", 12}, {"", 0}, {"a\0b", 3}, {"\xff", 1}};
    struct text out;

    (void)state;
    text_init(&out, 0);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct safetensors_entry entry = {.name = bad[i].name,
                                          .name_len = bad[i].len,
                                          .dtype = DTYPE_U8,
                                          .dims = 1,
                                          .shape = one};
        assert_int_equal(safetensors_build(&entry, 1, NULL, 0, &out, NULL), STATUS_INVALID);
    }
    struct safetensors_entry twice[] = {
        {.name = "a", .name_len = 1, .dtype = DTYPE_U8, .dims = 1, .shape = one},
        {.name = "a", .name_len = 1, .dtype = DTYPE_I64, .dims = 1, .shape = one}};
    assert_int_equal(safetensors_build(twice, 2, NULL, 0, &out, NULL), STATUS_INVALID);
    struct safetensors_entry half = {
        .name = "h", .name_len = 1, .dtype = DTYPE_F4, .dims = 1, .shape = one};
    assert_int_equal(safetensors_build(&half, 1, NULL, 0, &out, NULL), STATUS_INVALID);
    assert_int_equal(out.len, 0);
    text_fini(&out);
}

/* K32: elsewhere 1.29 million tensors gave a file that nobody could read. */
static void k32_a_header_too_long_is_an_error_before_any_data(void **state)
{
    enum { COUNT = 1000000 };
    static const uint64_t one[] = {1};
    struct safetensors_entry *entries = calloc(COUNT, sizeof(*entries));
    char *names = calloc(COUNT, 16);
    struct text out;
    struct error err;

    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        int len = snprintf(names + 16 * i, 16, "t%zu", i);
        entries[i] = (struct safetensors_entry){.name = names + 16 * i,
                                                .name_len = (size_t)len,
                                                .dtype = DTYPE_U8,
                                                .dims = 1,
                                                .shape = one};
    }
    text_init(&out, 0);
    assert_int_equal(safetensors_build(entries, COUNT, NULL, 0, &out, &err), STATUS_EXHAUSTED);
    assert_non_null(strstr(err.text, "1000000 tensors"));
    text_fini(&out);
    free(names);
    free(entries);
}

static void every_dtype_and_rank_survives(void **state)
{
    static const uint64_t shape[] = {2, 3, 5, 7, 4};

    (void)state;
    for (unsigned dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        for (uint32_t dims = 0; dims <= 5; dims++) {
            struct safetensors_entry entry = {.name = "t",
                                              .name_len = 1,
                                              .dtype = (enum dtype)dtype,
                                              .dims = dims,
                                              .shape = shape};
            struct safetensors *file = NULL;
            uint64_t bytes;
            struct text out;
            text_init(&out, 0);
            bool whole = safetensors_bytes(entry.dtype, shape, dims, &bytes, NULL) == STATUS_OK;
            enum status st = safetensors_build(&entry, 1, NULL, 0, &out, NULL);
            assert_int_equal(st, whole ? STATUS_OK : STATUS_INVALID);
            if (whole) {
                assert_int_equal(safetensors_parse(out.data, out.len, out.len + bytes, &file, NULL),
                                 STATUS_OK);
                assert_int_equal(safetensors_at(file, 0)->dtype, dtype);
                assert_int_equal(safetensors_at(file, 0)->dims, dims);
                assert_memory_equal(safetensors_at(file, 0)->shape, shape, dims * sizeof(*shape));
                assert_int_equal(
                    safetensors_parse(out.data, out.len, out.len + bytes + 1, &file, NULL),
                    STATUS_INVALID);
            }
            safetensors_destroy(file);
            text_fini(&out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_of_the_table_has_its_verdict),
        cmocka_unit_test(lengths_are_checked_before_anything_is_read),
        cmocka_unit_test(unknown_fields_are_counted_on_import),
        cmocka_unit_test(what_we_write_is_read_back),
        cmocka_unit_test(what_readers_would_refuse_is_not_written),
        cmocka_unit_test(k32_a_header_too_long_is_an_error_before_any_data),
        cmocka_unit_test(every_dtype_and_rank_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
