/* test_job.c - which job a word means, and words about jobs. */
#include "ctl/job_arg.h"
#include "ctl/job_state.h"
#include "tests/unit/unit.h"

struct row {
    int64_t id;
    const char *name;
    Pb__Job__State state;
};

static int64_t choose(const struct row *rows, size_t count, const char *word, bool newest_ok,
                      const char *why_wanted)
{
    Pb__Job jobs[16], *list[16];
    Pb__JobSpec specs[16];
    struct text why;
    text_init(&why, 0);
    for (size_t i = 0; i < count; i++) {
        pb__job__init(&jobs[i]);
        pb__job_spec__init(&specs[i]);
        specs[i].name = (char *)(uintptr_t)rows[i].name;
        jobs[i].spec = &specs[i];
        jobs[i].id = rows[i].id;
        jobs[i].state = rows[i].state;
        list[i] = &jobs[i];
    }
    int64_t id = job_arg_choose(list, count, word, newest_ok, &why);
    if (why_wanted)
        assert_string_equal(text_get(&why), why_wanted);
    text_fini(&why);
    return id;
}

static const struct row rows[] = {
    {9, "bert", PB__JOB__STATE__RUNNING},      {8, "bert", PB__JOB__STATE__QUEUED},
    {7, "gpt", PB__JOB__STATE__FAILED},        {6, "gpt", PB__JOB__STATE__RUNNING},
    {5, "old", PB__JOB__STATE__FAILED},        {4, "old", PB__JOB__STATE__FAILED},
    {3, "alpha-one", PB__JOB__STATE__RUNNING}, {2, "alpha-two", PB__JOB__STATE__RUNNING},
    {1, "alpha", PB__JOB__STATE__RUNNING}};

static void names_mean_the_only_active_job(void **state)
{
    (void)state;
    assert_int_equal(choose(rows, 9, "gpt", false, NULL), 6);
    assert_int_equal(choose(rows, 9, "alpha", false, NULL), 1); /* exact before longer ones */
    assert_int_equal(choose(rows, 9, "bert", false, "9, 8"), -1);
    assert_int_equal(choose(rows, 9, "bert", true, NULL), 9);
    assert_int_equal(choose(rows, 9, "old", true, NULL), 5);
    assert_int_equal(choose(rows, 9, "old", false, NULL), -1);
}

static void starts_of_names_must_be_of_one(void **state)
{
    (void)state;
    assert_int_equal(choose(rows, 9, "g", false, NULL), 6);
    assert_int_equal(choose(rows, 9, "alpha-o", false, NULL), 3);
    assert_int_equal(choose(rows, 9, "alpha-", false, "'alpha-one', 'alpha-two'"), -1);
    assert_int_equal(choose(rows, 9, "zeta", true, ""), 0);
    assert_int_equal(choose(rows, 0, "a", true, ""), 0);
}

static void states_are_named_in_any_case(void **state)
{
    Pb__Job__State parsed;
    (void)state;
    assert_true(job_state_parse("running", &parsed));
    assert_int_equal(parsed, PB__JOB__STATE__RUNNING);
    assert_true(job_state_ended(PB__JOB__STATE__CANCELLED));
    assert_false(job_state_ended(PB__JOB__STATE__HELD));
    Pb__Job job = PB__JOB__INIT;
    assert_string_equal(job_state_reason(&job), "");
    assert_string_equal(job_state_text(&job), "");
    assert_string_equal(job_state_job_name(&job), "");
    assert_int_equal(job_state_workers(&job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_mean_the_only_active_job),
                                       cmocka_unit_test(starts_of_names_must_be_of_one),
                                       cmocka_unit_test(states_are_named_in_any_case)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
