/* test_config.c - every row of the option table has a sound default and a sentence. */
#include "agent/config.h"
#include "tests/unit/unit.h"

static void defaults_are_sound(void **state)
{
    struct agent_config config = {0};
    struct text page;
    (void)state;
    option_defaults(config_rows, &config);
    assert_string_equal(config.daemon.items[0], "127.0.0.1:7411");
    assert_true(config.port_first < config.port_last);
    assert_int_equal(config.worker_umask, 022);
    assert_true(config.pass_env.count >= 3);
    for (const struct option *row = config_rows; row->name; row++)
        assert_true(strlen(row->help) > 10);
    option_fini(config_rows, &config);
    text_init(&page, 0);
    option_help(&config_page, &page);
    assert_non_null(strstr(text_get(&page), "--state-dir"));
    text_fini(&page);
}

static void flags_reach_their_members(void **state)
{
    struct agent_config config = {0};
    struct text problems;
    char *argv[] = {(char *)(uintptr_t) "rondo-agent",         (char *)(uintptr_t) "--node=n7",
                    (char *)(uintptr_t) "--vault=a=/v:shared", (char *)(uintptr_t) "--vault",
                    (char *)(uintptr_t) "b=/w:node",           NULL};
    int first = 0;
    (void)state;
    option_defaults(config_rows, &config);
    text_init(&problems, 0);
    assert_int_equal(option_flags(&config_page, &config, 5, argv, &first, &problems), STATUS_OK);
    assert_string_equal(config.node, "n7");
    assert_int_equal(config.vault.count, 2);
    assert_string_equal(config.vault.items[1], "b=/w:node");
    text_fini(&problems);
    option_fini(config_rows, &config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_sound),
        cmocka_unit_test(flags_reach_their_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
