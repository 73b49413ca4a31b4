/* test_checkpoint_verbs.c - the verbs of `rondoctl checkpoint` that ask the daemon. */
#include "tests/unit/ctl/fake.h"

static void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("no '%s' in:\n%s", part, text);
}

static void lists_shows_and_pins(void **state)
{
    struct fake *fake = *state;
    fake_add(fake, NULL, "alpha");
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "list", "alpha"), VERB_OK);
    expect_in(fake->out, "COMMITTED");
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "show", "alpha@300"), VERB_OK);
    expect_in(fake->out, "checkpoint 3");
    expect_in(fake->out, "1 (alpha)");
    expect_in(fake->out, "no node has its vault 'main' now");
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "show", "5", "-o", "json"), VERB_OK);
    expect_in(fake->out, "\"parents\": [\"3\"]");
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "show", "6"), VERB_REFUSED);
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "pin", "alpha@", "--note", "paper"), VERB_OK);
    expect_in(fake->out, "step 300) is pinned");
    assert_true(fake->pinned);
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "unpin", "5"), VERB_OK);
    assert_false(fake->pinned);
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "pin", "alpha@299"), VERB_REFUSED);
}

static void verify_waits_for_what_is_found(void **state)
{
    struct fake *fake = *state;
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "verify", "5"), VERB_OK);
    expect_in(fake->out, "VERIFIED");
    fake->damaged = true;
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "verify", "5"), VERB_NEGATIVE);
    expect_in(fake->out, "DAMAGED: trainer-0/x, block 3");
}

static void gc_and_du_tell(void **state)
{
    struct fake *fake = *state;
    fake_add(fake, NULL, "alpha");
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "gc", "--dry-run", "alpha"), VERB_OK);
    expect_in(fake->out, "remove");
    expect_in(fake->out, "1 would be removed, 3.0 MiB; nothing was");
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "du", "alpha"), VERB_OK);
    expect_in(fake->out, "job 1");
}

static void bytes_that_are_elsewhere_are_not_read(void **state)
{
    struct fake *fake = *state;
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "export", "5", "./never-made"), VERB_REFUSED);
    expect_in(fake->err, "no node has its vault 'main' now");
    assert_int_not_equal(access("./never-made", F_OK), 0);
    fake->refuse = STATUS_DENIED;
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "pin", "5"), VERB_REFUSED);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, fake_setup, fake_teardown)
    const struct CMUnitTest tests[] = {T(lists_shows_and_pins), T(verify_waits_for_what_is_found),
                                       T(gc_and_du_tell), T(bytes_that_are_elsewhere_are_not_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
