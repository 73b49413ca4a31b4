/* test_error_file.c - last words of workers, whatever bytes they are. */
#include "agent/error_file.h"
#include "tests/unit/unit.h"

static void torchs_file_is_understood(void **state)
{
    static const char file[] = "{\"message\": {\"message\": \"ValueError: no\", \"extraInfo\": "
                               "{\"py_callstack\": \"Traceback\\n  f()\\nValueError: no\\n\"}}}";
    struct error_words words = {NULL, NULL};
    (void)state;
    assert_true(error_file_parse(file, strlen(file), &words));
    assert_string_equal(words.message, "ValueError: no");
    assert_string_equal(words.traceback, "Traceback\n  f()\nValueError: no\n");
    error_words_fini(&words);
    assert_true(error_file_parse("{\"message\": \"a\\nb\"}", 19, &words));
    assert_string_equal(words.message, "b");
    error_words_fini(&words);
}

static void other_bytes_are_not(void **state)
{
    static const char *const files[] = {"", "{", "[]", "{\"message\": 3}", "null", "\xff\xff"};
    struct error_words words = {NULL, NULL};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(files); i++)
        assert_false(error_file_parse(files[i], strlen(files[i]), &words));
    SCOPED_TEXT char *deep = mem_alloc(100001);
    memset(deep, '[', 100000);
    assert_false(error_file_parse(deep, 100000, &words));
}

static void stderr_gives_last_line_and_last_traceback(void **state)
{
    static const char text[] = "Traceback (most recent call last):\n old\nx\n"
                               "Traceback (most recent call last):\n new\nKeyError: 'a'\r\n\n";
    struct error_words words = {NULL, NULL};
    (void)state;
    assert_true(error_file_stderr(text, strlen(text), &words));
    assert_string_equal(words.message, "KeyError: 'a'");
    assert_non_null(strstr(words.traceback, "new"));
    assert_null(strstr(words.traceback, "old"));
    error_words_fini(&words);
    assert_false(error_file_stderr("\n\n", 2, &words));
}

static void everything_is_made_printable_and_bounded(void **state)
{
    char bytes[512];
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)i;
    SCOPED_TEXT char *clean = error_file_clean(bytes, sizeof(bytes), 300);
    assert_true(strlen(clean) < 300);
    assert_true(text_is_utf8(clean, strlen(clean)));
    SCOPED_TEXT char *good = error_file_clean("gr\xc3\xbc\xc3\x9f", 6, 100);
    assert_string_equal(good, "gr\xc3\xbc\xc3\x9f");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torchs_file_is_understood),
        cmocka_unit_test(other_bytes_are_not),
        cmocka_unit_test(stderr_gives_last_line_and_last_traceback),
        cmocka_unit_test(everything_is_made_printable_and_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
