/* test_enum.c - names of values, also of those that have none. */
#include "proto/pb.h"
#include "proto/text/enum.h"
#include "tests/unit/unit.h"

static void every_value_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(enum_name(&pb__job__state__descriptor, PB__JOB__STATE__RUNNING), "RUNNING");
    const char *one = enum_name(&pb__job__state__descriptor, 777);
    const char *two = enum_name(&pb__job__state__descriptor, -5);
    assert_string_equal(one, "777");
    assert_string_equal(two, "-5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_value_has_a_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
