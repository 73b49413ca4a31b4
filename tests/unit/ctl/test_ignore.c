/* test_ignore.c - patterns of a .rondoignore. */
#include "ctl/ignore.h"
#include "tests/unit/unit.h"

static void patterns_match_as_documented(void **state)
{
    static const struct {
        const char *path;
        bool dir, out;
    } cases[] = {{"a.log", false, true},        {"deep/er/a.log", false, true},
                 {"keep.log", false, false},    {"data", true, true},
                 {"data", false, false},        {"x/data", true, true},
                 {"build", true, true},         {"x/build", true, false},
                 {"docs/a.txt", false, true},   {"docs/x/a.txt", false, false},
                 {".git", true, true},          {"m.pyc", false, true},
                 {".rondoignore", false, true}, {"x/.rondoignore", false, false},
                 {"__pycache__", true, false},  {"train.py", false, false}};
    (void)state;
    struct ignore *ignore = ignore_create("# comment\r\n\n*.log  \n!keep.log\ndata/\n/build\n"
                                          "docs/*.txt\n!__pycache__\n!\n/\n");
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (ignore_match(ignore, cases[i].path, cases[i].dir) != cases[i].out)
            fail_msg("%s", cases[i].path);
    ignore_destroy(ignore);
    ignore_destroy(NULL);
}

static void nothing_given_leaves_what_is_built_in(void **state)
{
    (void)state;
    struct ignore *ignore = ignore_create(NULL);
    assert_true(ignore_match(ignore, "a/__pycache__", true));
    assert_false(ignore_match(ignore, "a", false));
    ignore_destroy(ignore);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(patterns_match_as_documented),
                                       cmocka_unit_test(nothing_given_leaves_what_is_built_in)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
