/* test_option_page.c - help and Markdown name every row with its default and range. */
#include "option_fixture.h"

static void assert_has(struct fixture *fixture, const char *piece)
{
    if (!strstr(text_get(&fixture->out), piece))
        fail_msg("missing <%s> in <%s>", piece, text_get(&fixture->out));
}

static void help_names_every_row(void **state)
{
    struct fixture *fixture = *state;
    option_help(&fixture_page, &fixture->out);
    assert_has(fixture, "rondo-x - does x\n\nUsage: rondo-x [options] [file...]\n");
    assert_has(fixture,
               "  --lease-ms N\n      How long a silent agent is kept. Default: 15000. Range: "
               "1000 to 600000.\n");
    assert_has(fixture, "  --[no-]metrics\n");
    assert_has(fixture, "  --state-dir TEXT\n");
    assert_has(fixture, "  --peers TEXT (repeatable)\n");
    assert_has(fixture, "  --config FILE\n");
    assert_has(fixture, "\nExamples:\n  rondo-x --lease-ms 2000\n");
}

static void no_line_of_help_is_too_wide(void **state)
{
    struct fixture *fixture = *state;
    option_help(&fixture_page, &fixture->out);
    for (const char *at = text_get(&fixture->out); *at; at += strcspn(at, "\n") + 1)
        assert_true(strcspn(at, "\n") <= 80);
}

static void markdown_is_a_table(void **state)
{
    struct fixture *fixture = *state;
    option_markdown(&fixture_page, &fixture->out);
    assert_has(fixture, "# rondo-x\n\ndoes x\n");
    assert_has(fixture, "| `lease_ms` | `--lease-ms N` | `15000` | 1000 to 600000 | How long");
    assert_has(fixture,
               "| `metrics` | `--[no-]metrics` | `true` |  | Collect \\| keep metrics. |\n");
    assert_has(fixture, "| `name` | `--name TEXT` |  |  | A name. |\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(help_names_every_row),
        FIXTURE_TEST(no_line_of_help_is_too_wide),
        FIXTURE_TEST(markdown_is_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
