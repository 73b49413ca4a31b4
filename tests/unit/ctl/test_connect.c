/* test_connect.c - flags, environment and context, in that order. */
#include "ctl/connect.h"
#include "ctl/verb.h"
#include "tests/unit/unit.h"
#include <sys/stat.h>

static const char *env_server, *env_context, *env_timeout, *env_home;

static const char *fake_env(const char *name)
{
    return strcmp(name, "RONDO_SERVER") == 0    ? env_server
           : strcmp(name, "RONDO_CONTEXT") == 0 ? env_context
           : strcmp(name, "RONDO_TIMEOUT") == 0 ? env_timeout
           : strcmp(name, "HOME") == 0          ? env_home
                                                : NULL;
}

static void flags_win_over_environment_and_context(void **state)
{
    struct connect_flags flags = {.server = (char[]){"flag:1"}, .cert = (char[]){"/c.pem"}};
    struct connect_target target;
    struct error err;
    env_server = "env:1";
    env_context = *state;
    env_timeout = "2m";
    unit_write(unit_path(*state, "server"), "context:1\n");
    assert_int_equal(connect_resolve(&flags, fake_env, &target, &err), STATUS_OK);
    assert_string_equal(target.server, "flag:1");
    assert_string_equal(target.cert, "/c.pem");
    assert_string_equal(target.key, unit_path(*state, "ctl.key"));
    assert_int_equal(target.timeout_ms, 120000);
    connect_target_fini(&target);
    flags.server = NULL;
    assert_int_equal(connect_resolve(&flags, fake_env, &target, &err), STATUS_OK);
    assert_string_equal(target.server, "env:1");
    connect_target_fini(&target);
    env_server = "";
    assert_int_equal(connect_resolve(&flags, fake_env, &target, &err), STATUS_OK);
    assert_string_equal(target.server, "context:1");
    connect_target_fini(&target);
}

static void the_context_in_the_home_is_found(void **state)
{
    struct connect_flags flags = {0};
    struct connect_target target;
    struct error err;
    env_server = env_context = env_timeout = NULL;
    env_home = *state;
    mkdir(unit_path(*state, ".rondo"), 0700);
    mkdir(unit_path(*state, ".rondo/ctl"), 0700);
    unit_write(unit_path(*state, ".rondo/ctl/server"), "home:7411");
    assert_int_equal(connect_resolve(&flags, fake_env, &target, &err), STATUS_OK);
    assert_string_equal(target.server, "home:7411");
    assert_string_equal(target.ca, unit_path(*state, ".rondo/ctl/ca.pem"));
    assert_int_equal(target.timeout_ms, 15000);
    connect_target_fini(&target);
}

static void what_is_missing_is_named(void **state)
{
    struct connect_flags flags = {0};
    struct connect_target target;
    struct error err;
    env_server = env_context = env_timeout = NULL;
    env_home = *state;
    assert_int_equal(connect_resolve(&flags, fake_env, &target, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "no daemon is named"));
    env_context = unit_path(*state, "absent");
    assert_int_equal(connect_resolve(&flags, fake_env, &target, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "absent/server"));
    unit_write(unit_path(*state, "server"), "\n");
    env_context = *state;
    assert_int_equal(connect_resolve(&flags, fake_env, &target, &err), STATUS_INVALID);
    flags.timeout = (char[]){"-3"};
    assert_int_equal(connect_resolve(&flags, fake_env, &target, &err), STATUS_INVALID);
}

static void statuses_have_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(connect_exit_code(STATUS_OK), VERB_OK);
    assert_int_equal(connect_exit_code(STATUS_UNAVAILABLE), VERB_UNREACHED);
    assert_int_equal(connect_exit_code(STATUS_DEADLINE), VERB_UNREACHED);
    assert_int_equal(connect_exit_code(STATUS_NOT_FOUND), VERB_REFUSED);
    assert_int_equal(connect_exit_code(STATUS_DATA_LOSS), VERB_BROKEN);
    assert_true(connect_may_retry(STATUS_UNAVAILABLE));
    assert_false(connect_may_retry(STATUS_DENIED));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(flags_win_over_environment_and_context, unit_dir_setup,
                                        unit_dir_teardown),
        cmocka_unit_test_setup_teardown(the_context_in_the_home_is_found, unit_dir_setup,
                                        unit_dir_teardown),
        cmocka_unit_test_setup_teardown(what_is_missing_is_named, unit_dir_setup,
                                        unit_dir_teardown),
        cmocka_unit_test(statuses_have_exit_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
