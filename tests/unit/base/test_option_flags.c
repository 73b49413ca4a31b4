/* test_option_flags.c - the command line: forms, order of strength, operands, problems. */
#include "option_fixture.h"

static int argi;

/* Parses words after the program's name. */
static enum status parse(struct fixture *fixture, const char *const *words)
{
    char *argv[32] = {(char *)(uintptr_t) "rondo-x"};
    int argc = 1;
    for (; words[argc - 1]; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    text_reset(&fixture->out);
    return option_flags(&fixture_page, &fixture->config, argc, argv, &argi, &fixture->out);
}
#define PARSE(...) parse(*state, (const char *const[]){__VA_ARGS__, NULL})

static void all_forms_are_read(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(PARSE("--lease-ms", "2000", "--shift=-7", "--no-metrics", "--colour",
                           "--name=", "--state_dir", "--x", "verb", "--not-ours"),
                     STATUS_OK);
    assert_int_equal(fixture->config.lease_ms, 2000);
    assert_int_equal(fixture->config.shift, -7);
    assert_false(fixture->config.metrics);
    assert_true(fixture->config.colour);
    assert_string_equal(fixture->config.state_dir, "--x");
    assert_int_equal(argi, 9); /* the verb: what follows is not ours */
    assert_int_equal(PARSE("--metrics=yes", "--", "--lease-ms"), STATUS_OK);
    assert_true(fixture->config.metrics);
    assert_int_equal(argi, 3);
    assert_int_equal(PARSE("-", "x"), STATUS_OK); /* a lone dash is an operand */
    assert_int_equal(argi, 1);
}

static void flags_win_over_the_file_wherever_it_stands(void **state)
{
    struct fixture *fixture = *state;
    const char *path = unit_path(fixture->dir, "c.yaml");
    unit_write(path, "lease_ms: 3000\nshift: 1\npeers: [f, g, h]\n");
    assert_int_equal(PARSE("--lease-ms", "2000", "--config", path), STATUS_OK);
    assert_int_equal(fixture->config.lease_ms, 2000);
    assert_int_equal(fixture->config.shift, 1);
    assert_int_equal(fixture->config.peers.count, 3);
    assert_int_equal(PARSE("--peers", "x", "--config", path, "--peers=y"), STATUS_OK);
    assert_int_equal(fixture->config.peers.count, 2); /* the first flag replaced the file's list */
    assert_string_equal(fixture->config.peers.items[0], "x");
    assert_string_equal(fixture->config.peers.items[1], "y");
}

static void all_problems_are_told(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(PARSE("--leese-ms", "--shift", "99", "--no-metrics=1", "-x", "--zebra=1",
                           "--no-shift", "--name"),
                     STATUS_INVALID);
    assert_string_equal(text_get(&fixture->out),
                        "--leese-ms: unknown option; did you mean --lease-ms?\n"
                        "--shift: \"99\" is not a whole number from -10 to 10\n"
                        "--no-metrics: takes no value\n"
                        "-x: unknown option; see rondo-x --help\n"
                        "--zebra: unknown option; see rondo-x --help\n"
                        "--no-shift: unknown option; see rondo-x --help\n"
                        "--name: expected text of at most 4096 bytes behind it\n");
}

static void problems_of_file_and_flags_come_together(void **state)
{
    struct fixture *fixture = *state;
    const char *path = unit_path(fixture->dir, "c.yaml");
    unit_write(path, "shift: 99\n");
    assert_int_equal(PARSE("--config", path, "--lease-ms=1"), STATUS_INVALID);
    assert_non_null(strstr(text_get(&fixture->out), "c.yaml:1:8: "));
    assert_non_null(strstr(text_get(&fixture->out), "--lease-ms: "));
    assert_int_equal(PARSE("--config=/nonexistent/x"), STATUS_NOT_FOUND);
    assert_int_equal(PARSE("--config"), STATUS_INVALID);
}

static void long_words_do_no_harm(void **state)
{
    char word[2000] = "--";
    memset(word + 2, 'x', sizeof(word) - 3);
    word[sizeof(word) - 1] = '\0';
    assert_int_equal(PARSE(word), STATUS_INVALID);
    word[1] = 'x';
    assert_int_equal(PARSE(word), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(all_forms_are_read),
        FIXTURE_TEST(flags_win_over_the_file_wherever_it_stands),
        FIXTURE_TEST(all_problems_are_told),
        FIXTURE_TEST(problems_of_file_and_flags_come_together),
        FIXTURE_TEST(long_words_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
