/* test_job_limit.c - rows and kinds of text. */
#include "proto/pb.h"
#include "proto/text/job_limit.h"
#include "tests/unit/unit.h"

static bool is_fine(enum job_limit_kind kind, const char *text)
{
    struct job_limit_text row = {NULL, NULL, kind, 1, 4096};
    return !job_limit_text_problem(&row, text, strlen(text));
}

static void kinds_of_text(void **state)
{
    (void)state;
    assert_true(is_fine(JOB_LIMIT_ANY, "a\nb"));
    assert_false(is_fine(JOB_LIMIT_ANY, "\xff"));
    assert_false(is_fine(JOB_LIMIT_ANY, ""));
    assert_true(is_fine(JOB_LIMIT_LINE, "Gr\xc3\xb6\xc3\x9f"
                                        "e"));
    assert_false(is_fine(JOB_LIMIT_LINE, "a\x7f"));
    assert_false(is_fine(JOB_LIMIT_LINE, "a\xc2\x9b"));
    assert_false(is_fine(JOB_LIMIT_LINE, "a\u2028b"));
    assert_true(is_fine(JOB_LIMIT_PATH, "a/..b/c.."));
    assert_false(is_fine(JOB_LIMIT_PATH, "a/.."));
    assert_false(is_fine(JOB_LIMIT_PATH, "../a"));
    assert_true(is_fine(JOB_LIMIT_SLUG, "a.b_c-1"));
    assert_false(is_fine(JOB_LIMIT_SLUG, ".a"));
    assert_false(is_fine(JOB_LIMIT_SLUG, "a,b"));
    assert_false(is_fine(JOB_LIMIT_WORD, "a.b"));
    assert_false(is_fine(JOB_LIMIT_HEX, "ab"));
}

static void rows_are_found_by_type_and_name(void **state)
{
    (void)state;
    assert_int_equal(job_limit_number(&pb__role__descriptor, "workers")->max, 100000);
    assert_null(job_limit_number(&pb__role__descriptor, "name"));
    assert_int_equal(job_limit_text(&pb__job_spec__descriptor, "name")->max, 253);
    assert_null(job_limit_text(&pb__job_spec__descriptor, "nothing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds_of_text),
                                       cmocka_unit_test(rows_are_found_by_type_and_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
