/* test_json_scan.c - strict JSON: what is taken, what is refused and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/json_scan.h"

static enum status take(const char *json, size_t len, struct error *err)
{
    struct json_scan scan;
    struct arena *arena = arena_create(1 << 20);

    json_scan_init(&scan, json, len, arena);
    (void)json_scan_skip(&scan);
    enum status st = json_scan_end(&scan, err);
    arena_destroy(arena);
    return st;
}

static void values_of_every_kind_are_taken(void **state)
{
    static const char *const good[] = {
        "{}",
        "[]",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1.5e-3",
        "\"a\"",
        "\"\\u00e9\\ud83d\\ude00\\n\"",
        "[1,[2,{\"a\":[]}],{}]",
        " [ 1 , 2 ] \r\n\t",
        "{\"a\":1,\"b\":{\"c\":[{}]}}",
        "\"\xc3\xa9\"",
        "1E+5",
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        struct error err = {0};
        if (take(good[i], strlen(good[i]), &err) != STATUS_OK)
            fail_msg("%s: %s", good[i], err.text);
    }
}

static void everything_else_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "[",
        "[1,]",
        "{\"a\":1,}",
        "[1 2]",
        "{\"a\" 1}",
        "{a:1}",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "NaN",
        "nul",
        "\"a",
        "\"\\x\"",
        "\"\n\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\\u12\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "[] []",
        "[]x",
        "{1:2}",
        "]",
        "\xef\xbb\xbf{}",
        "[,1]",
        "\"\\",
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct error err = {0};
        if (take(bad[i], strlen(bad[i]), &err) != STATUS_INVALID)
            fail_msg("taken: %s", bad[i]);
        assert_int_equal(strncmp(err.text, "byte ", 5), 0);
    }
    assert_int_equal(take("[]\0", 3, NULL), STATUS_INVALID);
}

static void levels_are_bounded(void **state)
{
    char json[2 * (JSON_SCAN_DEPTH_MAX + 1)];

    (void)state;
    for (size_t depth = JSON_SCAN_DEPTH_MAX; depth <= JSON_SCAN_DEPTH_MAX + 1; depth++) {
        memset(json, '[', depth);
        memset(json + depth, ']', depth);
        assert_int_equal(take(json, 2 * depth, NULL),
                         depth <= JSON_SCAN_DEPTH_MAX ? STATUS_OK : STATUS_INVALID);
    }
}

static void members_come_one_by_one(void **state)
{
    static const char json[] =
        "{\"n\":[1,18446744073709551615],\"\\u0041\\u0000b\":\"x\\ty\",\"z\":null}";
    struct arena *arena = arena_create(1 << 16);
    struct json_scan scan;
    struct error err;
    const char *key, *text;
    size_t len;
    uint64_t number;

    (void)state;
    json_scan_init(&scan, json, strlen(json), arena);
    assert_true(json_scan_object(&scan));
    assert_true(json_scan_key(&scan, &key, &len));
    assert_true(json_scan_is(key, len, "n"));
    assert_true(json_scan_array(&scan));
    assert_true(json_scan_item(&scan));
    assert_true(json_scan_u64(&scan, &number));
    assert_int_equal(number, 1);
    assert_true(json_scan_item(&scan));
    assert_true(json_scan_u64(&scan, &number));
    assert_true(number == UINT64_MAX);
    assert_false(json_scan_item(&scan));
    assert_true(json_scan_key(&scan, &key, &len));
    assert_int_equal(len, 3);
    assert_memory_equal(key, "A\0b", 3);
    assert_true(json_scan_string(&scan, &text, &len));
    assert_int_equal(len, 3);
    assert_memory_equal(text, "x\ty", 3);
    assert_true(json_scan_key(&scan, &key, &len));
    assert_true(json_scan_null(&scan));
    assert_false(json_scan_key(&scan, &key, &len));
    assert_int_equal(json_scan_end(&scan, &err), STATUS_OK);
    arena_destroy(arena);
}

static void numbers_are_whole_and_fit(void **state)
{
    static const char *const bad[] = {"-1",    "4.0", "4e0", "01", "18446744073709551616",
                                      "\"4\"", ""};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct json_scan scan;
        uint64_t number = 7;
        json_scan_init(&scan, bad[i], strlen(bad[i]), NULL);
        assert_false(json_scan_u64(&scan, &number));
        assert_int_equal(number, 7);
        assert_int_equal(json_scan_end(&scan, NULL), STATUS_INVALID);
    }
}

static void the_first_failure_sticks(void **state)
{
    struct json_scan scan;
    struct error err;
    const char *key;
    size_t len;

    (void)state;
    json_scan_init(&scan, "{\"a\":1}", 7, NULL);
    assert_true(json_scan_object(&scan));
    assert_true(json_scan_key(&scan, &key, &len));
    assert_false(json_scan_fail(&scan, "no such key: %s", "a"));
    assert_false(json_scan_fail(&scan, "another"));
    assert_false(json_scan_key(&scan, &key, &len));
    assert_false(json_scan_skip(&scan));
    assert_int_equal(json_scan_end(&scan, &err), STATUS_INVALID);
    assert_string_equal(err.text, "byte 5: no such key: a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_every_kind_are_taken),
        cmocka_unit_test(everything_else_is_refused),
        cmocka_unit_test(levels_are_bounded),
        cmocka_unit_test(members_come_one_by_one),
        cmocka_unit_test(numbers_are_whole_and_fit),
        cmocka_unit_test(the_first_failure_sticks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
