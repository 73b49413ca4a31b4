/* test_verb.c - the table of verbs: every row complete, --help fits, typos are answered. */
#include "ctl/args.h"
#include "ctl/connect.h"
#include "ctl/term.h"
#include "ctl/verb.h"
#include "tests/unit/unit.h"

static void row_is_complete(const struct verb *verb)
{
    assert_true(strlen(verb->summary) <= 84);
    assert_non_null(strstr(verb->examples, verb->name));
    if (verb->verbs)
        return;
    assert_true(verb->config_size >= sizeof(struct connect_flags));
    assert_string_equal(verb->rows[0].name, "server");
}

static void every_row_is_complete(void **state)
{
    (void)state;
    for (const struct verb *const *verb = verb_table; *verb; verb++) {
        assert_ptr_equal(verb_find((*verb)->name), *verb);
        assert_true(strlen((*verb)->name) <= 12);
        row_is_complete(*verb);
        for (size_t i = 0; (*verb)->verbs && (*verb)->verbs[i]; i++)
            row_is_complete((*verb)->verbs[i]);
    }
    assert_null(verb_find("nothing"));
}

static void typos_are_answered(void **state)
{
    (void)state;
    assert_string_equal(verb_nearest("submti"), "submit");
    assert_string_equal(verb_nearest("job"), "jobs");
    assert_string_equal(verb_nearest("shwo"), "show");
    assert_null(verb_nearest("frobnicate"));
}

static void words_from_elsewhere_are_known(void **state)
{
    (void)state;
    assert_string_equal(verb_elsewhere("sbatch"), "submit FILE");
    assert_string_equal(verb_elsewhere("scancel"), "cancel JOB");
    assert_string_equal(verb_elsewhere("describe"), "show JOB");
    assert_non_null(strstr(verb_elsewhere("drain"), "cordon NODE"));
    assert_null(verb_elsewhere("frobnicate"));
    assert_null(verb_elsewhere(""));
    assert_null(verb_elsewhere("srun salloc"));
    for (const struct verb *const *verb = verb_table; *verb; verb++)
        assert_null(verb_elsewhere((*verb)->name));
}

static void the_overview_names_each_verb_and_fits(void **state)
{
    struct text out;
    (void)state;
    text_init(&out, 0);
    verb_overview(&out);
    for (const struct verb *const *verb = verb_table; *verb; verb++)
        assert_non_null(strstr(text_get(&out), (*verb)->name));
    char *copy = text_take(&out), *save;
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        assert_true(term_width(line) <= 100);
    mem_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_is_complete),
                                       cmocka_unit_test(typos_are_answered),
                                       cmocka_unit_test(words_from_elsewhere_are_known),
                                       cmocka_unit_test(the_overview_names_each_verb_and_fits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
