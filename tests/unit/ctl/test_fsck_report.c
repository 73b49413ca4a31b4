/* test_fsck_report.c - `rondoctl fsck`: a row a difference, a summary, an exit code. */
#include "tests/unit/ctl/fake.h"

static void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no '%s' in:\n%s", part, text);
}

static void differences_are_shown_and_are_a_no(void **state)
{
    struct fake *fake = *state;
    assert_int_equal(FAKE_RUN(fake, "fsck"), VERB_NEGATIVE);
    expect_in(fake->out, "missing        #7 job-1/step-3.1");
    expect_in(fake->out, "not-looked-at  vault main on n2");
    expect_in(fake->out, "2 differences; nothing was changed (--repair)\n");
}

static void what_was_repaired_and_what_is_left(void **state)
{
    struct fake *fake = *state;
    assert_int_equal(FAKE_RUN(fake, "fsck", "--repair"), VERB_NEGATIVE);
    expect_in(fake->out, "repaired: mark it DAMAGED");
    expect_in(fake->out, "left: nothing: see to it");
    expect_in(fake->out, "2 differences, 1 repaired, 1 left\n");
}

static void json_is_one_message(void **state)
{
    struct fake *fake = *state;
    assert_int_equal(FAKE_RUN(fake, "fsck", "-o", "json"), VERB_NEGATIVE);
    expect_in(fake->out, "\"kind\": \"MISSING\"");
    expect_in(fake->out, "\"outcome\": \"FOUND\"");
    expect_in(fake->out, "\"summary\"");
    assert_int_equal(fake->out[0], '{');
}

static void wrong_usage_asks_nobody(void **state)
{
    struct fake *fake = *state;
    assert_int_equal(FAKE_RUN(fake, "fsck", "--job", "1", "--project", "a"), VERB_USAGE);
    assert_int_equal(FAKE_RUN(fake, "fsck", "x"), VERB_USAGE);
    assert_int_equal(FAKE_RUN(fake, "fsck", "--vault", "/tmp", "--job", "name"), VERB_USAGE);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, fake_setup, fake_teardown)
    const struct CMUnitTest tests[] = {T(differences_are_shown_and_are_a_no),
                                       T(what_was_repaired_and_what_is_left),
                                       T(json_is_one_message), T(wrong_usage_asks_nobody)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
