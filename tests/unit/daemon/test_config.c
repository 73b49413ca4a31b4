/* test_config.c - the options of rondod: defaults are valid, contradictions are named. */
#include "base/text.h"
#include "daemon/config.h"
#include "tests/unit/unit.h"

static enum status flags(struct config *config, struct text *problems, int argc, char **argv)
{
    int at;

    option_defaults(config_daemon_rows, config);
    enum status st = option_flags(&config_page_dev, config, argc, argv, &at, problems);
    return st;
}

static void defaults_are_valid_for_dev_but_not_for_serve(void **state)
{
    struct config config;
    struct text problems;
    char *argv[] = {"rondod", NULL};

    (void)state;
    text_init(&problems, 0);
    assert_int_equal(flags(&config, &problems, 1, argv), STATUS_OK);
    assert_int_equal(config_check(&config, true, &problems), STATUS_OK);
    assert_string_equal(config.listen, "127.0.0.1:7411");
    assert_int_equal(config_check(&config, false, &problems), STATUS_INVALID);
    assert_non_null(strstr(text_get(&problems), "database"));
    assert_non_null(strstr(text_get(&problems), "cert"));
    config_fini(&config);
    text_fini(&problems);
}

static void every_contradiction_is_named(void **state)
{
    struct config config;
    struct text problems;
    char *argv[] = {"rondod",          "--listen=nowhere",   "--status-listen=0.0.0.0:1",
                    "--lease-ms=2000", "--log-level=chatty", NULL};

    (void)state;
    text_init(&problems, 0);
    assert_int_equal(flags(&config, &problems, 5, argv), STATUS_OK);
    assert_int_equal(config_check(&config, true, &problems), STATUS_INVALID);
    assert_non_null(strstr(text_get(&problems), "listen: "));
    assert_non_null(strstr(text_get(&problems), "status_cert"));
    assert_non_null(strstr(text_get(&problems), "heartbeat_ms"));
    assert_non_null(strstr(text_get(&problems), "log_level"));
    config_fini(&config);
    text_fini(&problems);
}

static void unknown_flags_name_the_nearest(void **state)
{
    struct config config;
    struct text problems;
    char *argv[] = {"rondod", "--agnets=3", NULL};

    (void)state;
    text_init(&problems, 0);
    assert_int_equal(flags(&config, &problems, 2, argv), STATUS_INVALID);
    assert_non_null(strstr(text_get(&problems), "--agents"));
    config_fini(&config);
    text_fini(&problems);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_valid_for_dev_but_not_for_serve),
        cmocka_unit_test(every_contradiction_is_named),
        cmocka_unit_test(unknown_flags_name_the_nearest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
