/* test_option.c - defaults and what each type of row takes. */
#include "base/option_row.h"
#include "option_fixture.h"

static void defaults_fill_every_member(void **state)
{
    struct fixture_config *config = &((struct fixture *)*state)->config;
    assert_int_equal(config->lease_ms, 15000);
    assert_true(config->spool_bytes == 9000000000);
    assert_int_equal(config->shift, -5);
    assert_true(config->metrics);
    assert_false(config->colour);
    assert_string_equal(config->state_dir, "/var/lib/x");
    assert_string_equal(config->name, "");
    assert_int_equal(config->peers.count, 2);
    assert_string_equal(config->peers.items[1], "b");
}

static bool takes(void **state, const char *name, const char *value)
{
    return option_row_set(option_row_find(fixture_rows, name), &((struct fixture *)*state)->config,
                          value, strlen(value));
}

static void values_out_of_range_change_nothing(void **state)
{
    static const char *const bad[][2] = {
        {"lease_ms", "999"},
        {"lease_ms", "600001"},
        {"lease_ms", "4294968296"},
        {"lease_ms", "x"},
        {"spool_bytes", "-1"},
        {"spool_bytes", "9223372036854775808"},
        {"shift", "-11"},
        {"metrics", "maybe"},
        {"metrics", ""},
        {"state_dir", "/a/path/that/is/longer"},
        {"peers", "nine bytes"},
        {"name", "\xff"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(takes(state, bad[i][0], bad[i][1]));
    defaults_fill_every_member(state);
}

static void bounds_themselves_are_taken(void **state)
{
    assert_true(takes(state, "lease_ms", "1000"));
    assert_true(takes(state, "lease_ms", "600000"));
    assert_true(takes(state, "spool_bytes", "9223372036854775807"));
    assert_true(takes(state, "shift", "-10"));
    assert_true(takes(state, "state_dir", "12345678901234567890"));
    assert_true(takes(state, "metrics", "off"));
    assert_false(((struct fixture *)*state)->config.metrics);
}

static void lists_are_bounded(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 2; i < 1000; i++)
        assert_true(takes(state, "peers", "x"));
    assert_false(takes(state, "peers", "x"));
    assert_int_equal(fixture->config.peers.count, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(defaults_fill_every_member),
        FIXTURE_TEST(values_out_of_range_change_nothing),
        FIXTURE_TEST(bounds_themselves_are_taken),
        FIXTURE_TEST(lists_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
