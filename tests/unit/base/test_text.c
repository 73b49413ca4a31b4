/* test_text.c - the growing buffer, UTF-8, nearest names, numbers, amounts. */
#include "base/text.h"
#include "tests/unit/unit.h"

static void buffer_grows_and_ends_with_nul(void **state)
{
    struct text text;
    (void)state;
    text_init(&text, 0);
    assert_string_equal(text_get(&text), "");
    for (int i = 0; i < 1000; i++)
        text_addf(&text, "%d,", i);
    assert_int_equal(text.len, strlen(text_get(&text)));
    assert_memory_equal(text_get(&text), "0,1,2,", 6);
    text_reset(&text);
    assert_string_equal(text_get(&text), "");
    text_fini(&text);
}

static void long_formats_are_whole(void **state)
{
    struct text text;
    char words[2000];
    (void)state;
    memset(words, 'x', sizeof(words) - 1);
    words[sizeof(words) - 1] = '\0';
    text_init(&text, 0);
    text_addf(&text, "<%s>", words);
    assert_int_equal(text.len, sizeof(words) + 1);
    assert_int_equal(text_get(&text)[text.len - 1], '>');
    text_fini(&text);
}

static void full_drops_whole_calls(void **state)
{
    struct text text;
    (void)state;
    text_init(&text, 8);
    text_add(&text, "12345");
    text_add(&text, "6789");
    assert_true(text.full);
    assert_string_equal(text_get(&text), "12345");
    text_addf(&text, "%s", "678");
    assert_string_equal(text_get(&text), "12345678");
    text_add_bytes(&text, "x", SIZE_MAX);
    assert_string_equal(text_get(&text), "12345678");
    text_fini(&text);
}

static void take_empties_the_buffer(void **state)
{
    struct text text;
    (void)state;
    text_init(&text, 0);
    text_add(&text, "abc");
    char *taken = text_take(&text), *empty = text_take(&text);
    assert_string_equal(taken, "abc");
    assert_string_equal(empty, "");
    assert_int_equal(text.len, 0);
    mem_free(taken);
    mem_free(empty);
}

static void utf8_is_strict(void **state)
{
    static const char *const good[] = {"",
                                       "abc",
                                       "\xc3\xa9",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x98\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80"};
    static const char *const bad[] = {"\x80",             /* lone continuation */
                                      "\xc3",             /* cut */
                                      "\xc0\xaf",         /* overlong */
                                      "\xe0\x80\xaf",     /* overlong */
                                      "\xf0\x80\x80\xaf", /* overlong */
                                      "\xed\xa0\x80",     /* surrogate */
                                      "\xf4\x90\x80\x80", /* past the end */
                                      "\xff",
                                      "a\xe2\x82",
                                      "\xe2\x28\xa1"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(good); i++)
        assert_true(text_is_utf8(good[i], strlen(good[i])));
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(text_is_utf8(bad[i], strlen(bad[i])));
    assert_false(text_is_utf8("a\0b", 3));
}

static void a_cut_keeps_characters_whole(void **state)
{
    char text[] = "ab\xc3\xa9z";
    (void)state;
    text_cut(text, 5);
    assert_string_equal(text, "ab\xc3\xa9z");
    text_cut(text, 4);
    assert_string_equal(text, "ab\xc3\xa9");
    text_cut(text, 3);
    assert_string_equal(text, "ab");
    text_cut(text, 0);
    assert_string_equal(text, "");
}

static void distance_counts_typing_mistakes(void **state)
{
    (void)state;
    assert_int_equal(text_distance("kitten", "sitting", 9), 3);
    assert_int_equal(text_distance("", "abc", 9), 3);
    assert_int_equal(text_distance("abc", "abc", 0), 0);
    assert_int_equal(text_distance("shwo", "show", 9), 1); /* two changed places */
    assert_int_equal(text_distance("hswo", "show", 9), 2);
    assert_int_equal(text_distance("ca", "abc", 9), 3);
    assert_int_equal(text_distance("kitten", "sitting", 2), 3); /* capped: limit + 1 */
    assert_int_equal(text_distance("a", "abcdefgh", 2), 3);
}

static void nearest_is_near(void **state)
{
    static const char *const names[] = {"lease_ms", "listen", "state_dir"};
    (void)state;
    assert_string_equal(text_nearest("leese_ms", names, 3), "lease_ms");
    assert_string_equal(text_nearest("state-dir", names, 3), "state_dir");
    assert_null(text_nearest("colour", names, 3));
    assert_null(text_nearest("", names, 3));
    static const char *const fields[] = {"backoff_ms_max", "backoff_ms", "budget"};
    assert_string_equal(text_nearest("backoff", fields, 3), "backoff_ms");
    assert_null(text_nearest("ba", fields, 3));
}

static void numbers_are_whole_and_in_range(void **state)
{
    int64_t i = 42;
    uint64_t u = 42;
    (void)state;
    assert_true(text_to_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &i));
    assert_true(i == INT64_MIN);
    assert_true(text_to_u64("18446744073709551615", 0, UINT64_MAX, &u));
    assert_true(u == UINT64_MAX);
    i = 42;
    u = 42;
    static const char *const bad[] = {
        "",   "-", "+1", " 1", "1 ", "1x", "0x10", "9223372036854775808", "18446744073709551616",
        "1.0"};
    for (size_t n = 0; n < COUNT_OF(bad); n++)
        assert_false(text_to_i64(bad[n], INT64_MIN, INT64_MAX, &i));
    assert_false(text_to_u64("-1", 0, UINT64_MAX, &u));
    assert_false(text_to_u64("18446744073709551616", 0, UINT64_MAX, &u));
    assert_false(text_to_i64("11", 0, 10, &i));
    assert_int_equal(i, 42); /* outputs untouched on failure */
    assert_int_equal(u, 42);
}

static void hex_goes_both_ways(void **state)
{
    char hex[9];
    unsigned char bytes[4] = {0};
    (void)state;
    text_to_hex("\x00\x9f\xff\x10", 4, hex);
    assert_string_equal(hex, "009fff10");
    assert_true(text_from_hex("009FfF10", bytes, 4));
    assert_memory_equal(bytes, "\x00\x9f\xff\x10", 4);
    assert_false(text_from_hex("009fff1", bytes, 4));
    assert_false(text_from_hex("009fff100", bytes, 4));
    assert_false(text_from_hex("009fffg0", bytes, 4));
}

static void amounts_read_well(void **state)
{
    char out[32];
    static const struct {
        uint64_t value;
        const char *text;
    } bytes[] = {{0, "0 B"},           {1023, "1023 B"},
                 {1024, "1.0 KiB"},    {1610612736, "1.5 GiB"},
                 {1048575, "1.0 MiB"}, {UINT64_MAX, "16.0 EiB"}},
      times[] = {{0, "0 ms"},       {312, "312 ms"},    {1500, "1.5 s"},
                 {125000, "2m05s"}, {7500000, "2h05m"}, {273600000, "3d04h"}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bytes); i++) {
        text_bytes(bytes[i].value, out, sizeof(out));
        assert_string_equal(out, bytes[i].text);
    }
    for (size_t i = 0; i < COUNT_OF(times); i++) {
        text_duration_ms(times[i].value, out, sizeof(out));
        assert_string_equal(out, times[i].text);
    }
}

static void bytes_are_ordered_and_prefixes_come_first(void **state)
{
    (void)state;
    assert_true(text_order("a", 1, "b", 1) < 0);
    assert_true(text_order("b", 1, "a", 1) > 0);
    assert_true(text_order("a", 1, "ab", 2) < 0);
    assert_true(text_order("\xff", 1, "a", 1) > 0);
    assert_true(text_order("a\0b", 3, "a\0a", 3) > 0);
    assert_int_equal(text_order(NULL, 0, "", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_ordered_and_prefixes_come_first),
        cmocka_unit_test(buffer_grows_and_ends_with_nul),
        cmocka_unit_test(long_formats_are_whole),
        cmocka_unit_test(full_drops_whole_calls),
        cmocka_unit_test(take_empties_the_buffer),
        cmocka_unit_test(utf8_is_strict),
        cmocka_unit_test(a_cut_keeps_characters_whole),
        cmocka_unit_test(distance_counts_typing_mistakes),
        cmocka_unit_test(nearest_is_near),
        cmocka_unit_test(numbers_are_whole_and_in_range),
        cmocka_unit_test(hex_goes_both_ways),
        cmocka_unit_test(amounts_read_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
