/* test_lead.c - which commands need rank 0 to be there first. */
#include "agent/lead.h"
#include "tests/unit/unit.h"

static enum lead lead_of(char *a, char *b, char *c)
{
    char *argv[] = {a, b, c};

    return lead_of_command(argv, c ? 3 : b ? 2 : a ? 1 : 0);
}

static void python_and_shells_need_a_lead(void **state)
{
    (void)state;
    assert_int_equal(lead_of("/usr/bin/python3", "train.py", NULL), LEAD_NEEDED);
    assert_int_equal(lead_of("/opt/conda/bin/torchrun", "x", NULL), LEAD_NEEDED);
    assert_int_equal(lead_of("/bin/sh", "-c", "exec ./train"), LEAD_NEEDED);
    assert_int_equal(lead_of("/usr/bin/numactl", "-N0", "python3.11"), LEAD_NEEDED);
    assert_int_equal(lead_of("./train.py", NULL, NULL), LEAD_NEEDED);
    assert_int_equal(lead_of("train", NULL, NULL), LEAD_NEEDED);
}

static void programs_by_path_are_looked_at(void **state)
{
    (void)state;
    assert_int_equal(lead_of("/bin/true", NULL, NULL), LEAD_LOOK);
    assert_int_equal(lead_of("./train", "--steps", "5"), LEAD_LOOK);
    assert_int_equal(lead_of(NULL, NULL, NULL), LEAD_NONE);
}

static void only_a_binary_needs_none(void **state)
{
    (void)state;
    assert_false(lead_of_head("\177ELF\2\1\1", 7));
    assert_true(lead_of_head("#!/usr/bin/env python3\n", 23));
    assert_true(lead_of_head("\177EL", 3));
    assert_true(lead_of_head("", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(python_and_shells_need_a_lead),
        cmocka_unit_test(programs_by_path_are_looked_at),
        cmocka_unit_test(only_a_binary_needs_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
