/* test_json_text.c - strings as JSON, and back through the scanner. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "checkpoint/json_scan.h"
#include "checkpoint/json_text.h"

static void only_what_must_be_is_escaped(void **state)
{
    struct text out;

    (void)state;
    text_init(&out, 0);
    json_text_string(&out, "a\"b\\c\n\x1f\x7f/\xc3\xa9", 11);
    assert_string_equal(text_get(&out), "\"a\\\"b\\\\c\\u000a\\u001f\x7f/\xc3\xa9\"");
    text_reset(&out);
    json_text_string(&out, "", 0);
    assert_string_equal(text_get(&out), "\"\"");
    text_fini(&out);
}

static void every_byte_below_128_comes_back(void **state)
{
    struct arena *arena = arena_create(1 << 16);
    struct json_scan scan;
    struct text out;
    const char *back;
    char all[128];
    size_t len;

    (void)state;
    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (char)i;
    text_init(&out, 0);
    json_text_string(&out, all, sizeof(all));
    json_scan_init(&scan, out.data, out.len, arena);
    assert_true(json_scan_string(&scan, &back, &len));
    assert_int_equal(json_scan_end(&scan, NULL), STATUS_OK);
    assert_int_equal(len, sizeof(all));
    assert_memory_equal(back, all, sizeof(all));
    arena_destroy(arena);
    text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_must_be_is_escaped),
        cmocka_unit_test(every_byte_below_128_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
