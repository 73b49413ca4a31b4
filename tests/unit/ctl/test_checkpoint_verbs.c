/* test_checkpoint_verbs.c - the verbs of `rondoctl checkpoint` that ask the daemon. */
#include "ctl/checkpoint_at.h"
#include "tests/unit/ctl/fake.h"
#include <inttypes.h>
#include <sys/stat.h>

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

static void leases_are_renewed_now_and_then(void **state)
{
    struct fake *fake = *state;
    struct checkpoint_flags flags = {{fake->target, "", "", "", "", "", "table"}, ""};
    struct checkpoint_at_source source = {.flags = &flags};
    struct checkpoint_at at;
    assert_int_equal(checkpoint_at_find(&source, "5", &at), VERB_OK);
    checkpoint_at_renew(&source); /* nothing is held */
    assert_int_equal(fake->holds, 0);
    memcpy(at.hold, "abc", 4);
    source.held[source.held_count++] = &at;
    checkpoint_at_renew(&source);
    assert_int_equal(fake->holds, 1);
    unsigned lease_s = fake->lease_s;
    assert_true(source.renew_ms - connect_now_ms(source.connect) < lease_s * INT64_C(1000) / 3);
    checkpoint_at_renew(&source); /* not so soon */
    assert_int_equal(fake->holds, 1);
    source.renew_ms = 0;
    fake->away = 1; /* the reader goes on, and gives the lease back in the end */
    checkpoint_at_renew(&source);
    assert_string_equal(at.hold, "abc");
    checkpoint_at_close(&source, &at);
    assert_int_equal(fake->holds, 2); /* the lost one did not get there */
    assert_int_equal(fake->lease_s, 0);
    assert_int_equal(source.held_count, 0);
    checkpoint_at_fini(&at);
    checkpoint_at_end(&source);
}

static void put_manifest(const char *dir, int64_t id, int64_t parent, const char *code)
{
    SCOPED_TEXT char *job = mem_printf("%s/job-7", dir);
    SCOPED_TEXT char *place = mem_printf("%s/step-%" PRId64 ".1", job, id);
    SCOPED_TEXT char *path = mem_printf("%s/manifest.json", place);
    (void)mkdir(job, 0700);
    assert_int_equal(mkdir(place, 0700), 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fprintf(file,
                  "{\"format\": \"rondo-checkpoint-1\", \"id\": %" PRId64
                  ", \"job\": 7, \"attempt\": 1, \"step\": %" PRId64
                  ", \"samples\": 8, \"parent\": %" PRId64
                  ", \"world\": 1, \"created_us\": 1, %s\"parts\": []}",
                  id, id, parent, code);
    assert_int_equal(fclose(file), 0);
}

static void a_vault_alone_tells_the_lineage(void **state)
{
    struct fake *fake = *state;
    put_manifest(fake->dir, 3, 0, "");
    put_manifest(fake->dir, 5, 3, "");
    put_manifest(fake->dir, 9, 5, "\"code\": \"c0de\", ");
    SCOPED_TEXT char *place = mem_printf("%s/job-7/step-9.1", fake->dir);
    SCOPED_TEXT char *first = mem_printf("%s/job-7/step-3.1", fake->dir);
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "show", "9", "--vault", fake->dir), VERB_OK);
    expect_in(fake->out, "checkpoint 5 <- 3");
    expect_in(fake->out, "c0de");
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "show", place, "-o", "json"), VERB_OK);
    expect_in(fake->out, "\"parents\": [\"5\", \"3\"]");
    expect_in(fake->out, "\"code\": \"c0de\"");
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "show", first), VERB_OK);
    expect_in(fake->out, "none: its attempt began at step 0");
    SCOPED_TEXT char *path = mem_printf("%s/manifest.json", first);
    assert_int_equal(unlink(path), 0); /* retention took it: what is known is said */
    assert_int_equal(FAKE_RUN(fake, "checkpoint", "show", place), VERB_OK);
    expect_in(fake->out, "checkpoint 5 <- 3");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, fake_setup, fake_teardown)
    const struct CMUnitTest tests[] = {T(lists_shows_and_pins),
                                       T(verify_waits_for_what_is_found),
                                       T(leases_are_renewed_now_and_then),
                                       T(a_vault_alone_tells_the_lineage),
                                       T(gc_and_du_tell),
                                       T(bytes_that_are_elsewhere_are_not_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
