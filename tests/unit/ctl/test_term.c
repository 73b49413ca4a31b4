/* test_term.c - widths and what may reach a terminal. */
#include "ctl/term.h"
#include "tests/unit/unit.h"

static void widths_count_columns(void **state)
{
    (void)state;
    assert_int_equal(term_width(""), 0);
    assert_int_equal(term_width("abc"), 3);
    assert_int_equal(term_width("\u00e9\u4e2d"), 3);
    assert_int_equal(term_width("e\u0301"), 1);
    assert_int_equal(term_width("\xff\xfe"), 2);
}

static void fit_cuts_between_characters(void **state)
{
    char out[64];
    (void)state;
    assert_int_equal(term_fit("abcdef", 4, out, sizeof out), 4);
    assert_string_equal(out, "abc~");
    assert_int_equal(term_fit("\u4e2d\u6587\u4e2d", 4, out, sizeof out), 3);
    assert_string_equal(out, "\u4e2d~");
    assert_int_equal(term_fit("abc", 3, out, sizeof out), 3);
    assert_int_equal(term_fit("abc", 0, out, sizeof out), 0);
    assert_string_equal(out, "");
    char small[8];
    term_fit("abcdefghijkl", 100, small, sizeof small);
    assert_true(strlen(small) < sizeof small);
}

static void escapes_and_turned_text_are_shown_as_marks(void **state)
{
    char out[64];
    (void)state;
    term_fit("a\x1b[31mb\u202ec\xc2\x85"
             "d\x7f",
             60, out, sizeof out);
    assert_string_equal(out, "a?[31mb?c?d?");
}

static void colour_codes_only_where_there_is_colour(void **state)
{
    (void)state;
    assert_string_equal(term_code(false, TERM_RED), "");
    assert_string_equal(term_code(true, TERM_PLAIN), "\x1b[0m");
    assert_int_equal(term_state_paint("FAILED"), TERM_RED);
    assert_int_equal(term_state_paint("whatever"), TERM_PLAIN);
}

static void unicode_is_read_from_the_locale(void **state)
{
    (void)state;
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    assert_true(term_has_unicode());
    setenv("LC_ALL", "C", 1);
    assert_false(term_has_unicode());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths_count_columns),
        cmocka_unit_test(fit_cuts_between_characters),
        cmocka_unit_test(escapes_and_turned_text_are_shown_as_marks),
        cmocka_unit_test(colour_codes_only_where_there_is_colour),
        cmocka_unit_test(unicode_is_read_from_the_locale),
    };
    setenv("LC_ALL", "C", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
