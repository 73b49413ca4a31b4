/* test_checkpoint_at.c - which checkpoint an operand means, and the verbs of the noun that need no
 * daemon. */
#include "ctl/checkpoint_at.h"
#include "ctl/verb.h"
#include "tests/unit/checkpoint/copies.h"

static void make(const char *dir)
{
    struct sharded *sharded = sharded_create(copies_two);
    reader_close(copies_make(sharded, dir));
    sharded_destroy(sharded);
}

static int find(const char *vault, const char *word, struct checkpoint_at *out)
{
    struct checkpoint_flags flags = {.vault = (char *)(uintptr_t)vault};
    struct checkpoint_at_source source = {.flags = &flags};
    return checkpoint_at_find(&source, word, out);
}

static void operands_without_a_daemon(void **state)
{
    SCOPED_TEXT char *place = mem_printf("%s/source", (char *)*state);
    struct checkpoint_at at;
    make(*state);
    assert_int_equal(find("", place, &at), VERB_OK);
    assert_true(at.offline);
    assert_string_equal(at.dir, place);
    int64_t id = at.row->id, job = at.row->job;
    checkpoint_at_fini(&at);
    SCOPED_TEXT char *by_id = mem_printf("%" PRId64, id);
    SCOPED_TEXT char *by_step = mem_printf("%" PRId64 "@120", job);
    SCOPED_TEXT char *newest = mem_printf("%" PRId64 "@", job);
    SCOPED_TEXT char *no_step = mem_printf("%" PRId64 "@121", job);
    const char *words[] = {"source", by_id, by_step, newest};
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        assert_int_equal(find(*state, words[i], &at), VERB_OK);
        assert_string_equal(at.path, "source");
        checkpoint_at_fini(&at);
    }
    assert_int_equal(find(*state, no_step, &at), VERB_REFUSED);
    assert_int_equal(find(*state, "nothing", &at), VERB_REFUSED);
    assert_int_equal(find(*state, "../source", &at), VERB_REFUSED);
}

static void places_are_told_from_names(void **state)
{
    (void)state;
    assert_true(checkpoint_at_is_place("/srv/x"));
    assert_true(checkpoint_at_is_place("./x"));
    assert_true(checkpoint_at_is_place("job-7/step-1.1"));
    assert_false(checkpoint_at_is_place("12"));
    assert_false(checkpoint_at_is_place("charlm@120"));
    assert_false(checkpoint_at_is_place("no-such-name-here"));
}

static int run(const char *const *words)
{
    char *argv[16];
    int argc = 0;
    for (; words[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc];
    argv[argc] = NULL;
    return verb_run(verb_find(words[0]), argc, argv);
}
#define RUN(...) run((const char *const[]){"checkpoint", __VA_ARGS__, NULL})

static void verbs_on_a_directory(void **state)
{
    SCOPED_TEXT char *a = mem_printf("%s/source", (char *)*state);
    SCOPED_TEXT char *b = mem_printf("%s/on-3", (char *)*state);
    SCOPED_TEXT char *hf = mem_printf("%s/hf", (char *)*state);
    SCOPED_TEXT char *back = mem_printf("%s/back", (char *)*state);
    const char *vault = *state;
    make(vault);
    assert_int_equal(RUN("list", "--vault", vault), VERB_OK);
    assert_int_equal(RUN("show", a), VERB_OK);
    assert_int_equal(RUN("show", a, "-o", "json"), VERB_OK);
    assert_int_equal(RUN("verify", a), VERB_OK);
    assert_int_equal(RUN("reshard", a, b, "--to", "3", "--rule", "model.rows=1:ranks"), VERB_OK);
    assert_int_equal(RUN("reshard", a, b, "--to", "3"), VERB_REFUSED); /* it is there */
    assert_int_equal(RUN("diff", a, b), VERB_OK);
    assert_int_equal(RUN("verify", "--vault", vault, "-o", "json"), VERB_OK);
    assert_int_equal(RUN("export", b, hf, "--prefix", "model."), VERB_OK);
    assert_int_equal(RUN("import", hf, back, "--prefix", "model."), VERB_OK);
    assert_int_equal(RUN("diff", back, a), VERB_NEGATIVE); /* others were not exported */
    assert_int_equal(RUN("du", "--vault", vault, "--parts"), VERB_OK);
    assert_int_equal(RUN("gc", "--dry-run", "--vault", vault), VERB_OK);
    SCOPED_TEXT char *shard =
        mem_printf("%s/trainer-0/shard-00001-model-00001-of-00001.safetensors", a);
    int fd = open(shard, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "!", 1, 4200), 1);
    (void)close(fd);
    assert_int_equal(RUN("verify", a), VERB_NEGATIVE);
    assert_int_equal(RUN("export", a, "./never-made"), VERB_NEGATIVE);
    assert_int_not_equal(access("./never-made", F_OK), 0);
}

static void wrong_usage_is_told(void **state)
{
    (void)state;
    assert_int_equal(RUN("lst"), VERB_USAGE);
    assert_int_equal(RUN("verify"), VERB_USAGE);
    assert_int_equal(RUN("list"), VERB_USAGE);
    assert_int_equal(RUN("gc", "x"), VERB_USAGE);
    assert_int_equal(RUN("pin", "./here"), VERB_USAGE);
    assert_int_equal(RUN("reshard", "a", "b"), VERB_USAGE);
    assert_int_equal(RUN("reshard", "a", "b", "--to", "data=0"), VERB_USAGE);
    assert_int_equal(RUN("export", "a", "b", "--as", "zip"), VERB_USAGE);
    assert_int_equal(RUN("export", "a", "b", "--max-shard-bytes", "much"), VERB_USAGE);
    assert_string_equal(verb_noun_nearest(verb_find("checkpoint"), "lst"), "list");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(operands_without_a_daemon), cmocka_unit_test(places_are_told_from_names),
        T(verbs_on_a_directory), cmocka_unit_test(wrong_usage_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
