/* test_output.c - formats, ages, times. */
#include "ctl/output.h"
#include "tests/unit/unit.h"
#include <sys/time.h>

static void formats_have_names(void **state)
{
    enum output_format format;
    (void)state;
    assert_true(output_parse("json", &format));
    assert_int_equal(format, OUTPUT_JSON);
    assert_true(output_parse("table", &format));
    assert_false(output_parse("xml", &format));
}

static void ages_and_times_of_nothing_are_dashes(void **state)
{
    struct timeval now;
    char out[32];
    (void)state;
    gettimeofday(&now, NULL);
    int64_t us = (int64_t)now.tv_sec * 1000000;
    output_age(0, out, sizeof out);
    assert_string_equal(out, "-");
    output_age(us + 3600000000, out, sizeof out);
    assert_string_equal(out, "0s");
    output_age(us - 7200000000, out, sizeof out);
    assert_non_null(strstr(out, "2h"));
    output_time(0, out, sizeof out);
    assert_string_equal(out, "-");
    output_time(us, out, sizeof out);
    assert_int_equal(strlen(out), 19);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(formats_have_names),
                                       cmocka_unit_test(ages_and_times_of_nothing_are_dashes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
