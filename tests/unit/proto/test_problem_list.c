/* test_problem_list.c - lines with places, bounded. */
#include "proto/text/problem_list.h"
#include "tests/unit/unit.h"

static void places_count_from_one(void **state)
{
    struct text out;
    yaml_mark_t mark = {0, 5, 14};
    (void)state;
    text_init(&out, 0);
    struct problem_list list = {"job.yaml", true, &out, 0};
    assert_int_equal(problem_list_end(&list), STATUS_OK);
    problem_list_add(&list, &mark, "field '%s'", "x");
    problem_list_add(&list, NULL, "whole");
    assert_int_equal(problem_list_end(&list), STATUS_INVALID);
    assert_string_equal(text_get(&out), "job.yaml:6:15: field 'x'\njob.yaml: whole\n");
    struct problem_list silent = {"f", true, NULL, 0};
    problem_list_add(&silent, &mark, "x");
    assert_int_equal(problem_list_end(&silent), STATUS_INVALID);
    text_fini(&out);
}

static void quotes_are_short_and_printable(void **state)
{
    char out[PROBLEM_QUOTE_SIZE], names[12];
    static const char *const list[] = {"alpha", "beta", "gamma"};
    (void)state;
    assert_string_equal(problem_list_quote("a\x1b\n\xff\xc3\xa9", 6, out), "a???\xc3\xa9");
    char *wide = mem_alloc(1001);
    memset(wide, 'x', 1000);
    problem_list_quote(wide, 1000, out);
    assert_true(strlen(out) < sizeof out);
    assert_non_null(strstr(out, "x..."));
    problem_list_names(list, 3, names, sizeof names);
    assert_string_equal(names, "alpha, b...");
    mem_free(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_count_from_one),
                                       cmocka_unit_test(quotes_are_short_and_printable)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
