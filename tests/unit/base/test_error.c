/* test_error.c - statuses, and texts that grow outwards. */
#include "tests/unit/unit.h"

static void set_fills_and_returns(void **state)
{
    struct error err;
    (void)state;
    assert_int_equal(error_set(&err, STATUS_NOT_FOUND, "open %s", "x"), STATUS_NOT_FOUND);
    assert_int_equal(err.code, STATUS_NOT_FOUND);
    assert_string_equal(err.text, "open x");
    assert_int_equal(error_set(NULL, STATUS_DENIED, "open %s", "x"), STATUS_DENIED);
}

static void set_may_print_its_own_text(void **state)
{
    struct error err;
    (void)state;
    error_set(&err, STATUS_INVALID, "inner");
    error_set(&err, STATUS_ABORTED, "outer of %s", err.text);
    assert_string_equal(err.text, "outer of inner");
}

static void wrap_puts_what_we_did_first(void **state)
{
    struct error err;
    (void)state;
    error_set(&err, STATUS_DATA_LOSS, "bad digest");
    assert_int_equal(error_wrap(&err, "load %d", 7), STATUS_DATA_LOSS);
    assert_string_equal(err.text, "load 7: bad digest");
    assert_int_equal(error_wrap(NULL, "load"), STATUS_UNKNOWN);
}

static void long_texts_are_cut_visibly(void **state)
{
    struct error err;
    char words[600];
    (void)state;
    memset(words, 'w', sizeof(words));
    words[sizeof(words) - 1] = '\0';
    error_set(&err, STATUS_INVALID, "%s", words);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    assert_string_equal(err.text + sizeof(err.text) - 4, "...");
    error_wrap(&err, "%s", words);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
}

static void a_cut_never_splits_utf8(void **state)
{
    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        struct error err;
        char words[600] = "aaaa";
        for (size_t i = 0; i < 140; i++)
            memcpy(words + shift + 3 * i, "\xe2\x82\xac", 4); /* euro signs */
        error_set(&err, STATUS_INVALID, "%s", words);
        size_t len = strlen(err.text);
        assert_string_equal(err.text + len - 3, "...");
        assert_int_equal((len - 3 - shift) % 3, 0);
    }
}

static void every_status_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(status_name(STATUS_OK), "ok");
    assert_string_equal(status_name(STATUS_NOT_FOUND), "not-found");
    assert_string_equal(status_name(STATUS_UNAUTHENTICATED), "unauthenticated");
    assert_string_equal(status_name((enum status)99), "unknown");
    for (int st = 0; st <= STATUS_UNAUTHENTICATED; st++)
        assert_non_null(status_name((enum status)st));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_fills_and_returns),       cmocka_unit_test(set_may_print_its_own_text),
        cmocka_unit_test(wrap_puts_what_we_did_first), cmocka_unit_test(long_texts_are_cut_visibly),
        cmocka_unit_test(a_cut_never_splits_utf8),     cmocka_unit_test(every_status_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
