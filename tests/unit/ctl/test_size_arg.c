/* test_size_arg.c - sizes as people write them. */
#include "ctl/size_arg.h"
#include "tests/unit/unit.h"

static void sizes_are_read(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } rows[] = {{"0", 0},
                {"7B", 7},
                {"5GB", 5000000000u},
                {"2GiB", 2147483648u},
                {"3k", 3000},
                {"4Ki", 4096},
                {"1T", 1000000000000u},
                {"500MB", 500000000u},
                {"18446744073709551615", UINT64_MAX}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint64_t value = 1;
        assert_true(size_arg_parse(rows[i].text, &value));
        assert_int_equal(value, rows[i].value);
    }
}

static void others_are_refused(void **state)
{
    static const char *const texts[] = {"",
                                        "B",
                                        "-1",
                                        "1.5G",
                                        "1GiBs",
                                        "1X",
                                        "5 GB",
                                        "1iB",
                                        "18446744073709551616",
                                        "18446744073709552k"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        uint64_t value = 1;
        assert_false(size_arg_parse(texts[i], &value));
        assert_int_equal(value, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_are_read),
                                       cmocka_unit_test(others_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
