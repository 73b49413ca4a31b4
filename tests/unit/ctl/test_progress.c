/* test_progress.c - the line of numbers; waiting for jobs over lost replies. */
#include "ctl/progress.h"
#include "tests/unit/ctl/fake.h"

static void the_line_says_what_matters(void **state)
{
    struct text out;
    Pb__Job job = PB__JOB__INIT;
    Pb__Reason reason = PB__REASON__INIT;
    (void)state;
    text_init(&out, 0);
    job.state = PB__JOB__STATE__RUNNING;
    job.step = 120;
    job.samples = 3840;
    job.attempt = 2;
    job.restarts_used = 1;
    progress_line(&job, "loss", 2.3141592, true, &out);
    assert_string_equal(text_get(&out),
                        "RUNNING  attempt 2  step 120  samples 3840  loss 2.3142  restarts 1");
    text_reset(&out);
    job.state = PB__JOB__STATE__QUEUED;
    job.reason = &reason;
    reason.text = FAKE_TEXT("nothing fits");
    progress_line(&job, "loss", 0, false, &out);
    assert_string_equal(text_get(&out), "QUEUED  waits: nothing fits");
    text_reset(&out);
    reason.text = FAKE_TEXT("waits for free devices");
    progress_line(&job, "loss", 0, false, &out);
    assert_string_equal(text_get(&out), "QUEUED  waits for free devices");
    text_fini(&out);
}

static void waiting_ends_with_the_last_job(void **state)
{
    struct fake *fake = *state;
    struct connect_flags flags = {.server = fake->target};
    int64_t ids[] = {1, 2};
    int code = 0;
    fake_add(fake, NULL, "a");
    fake_add(fake, NULL, "b");
    fake->lists_to_end = 2;
    fake->away = 1;
    struct connect *connect = connect_open(&flags, &code);
    assert_int_equal(progress_wait(connect, ids, 2, true), VERB_OK);
    fake->states[1] = PB__JOB__STATE__FAILED;
    assert_int_equal(progress_wait(connect, ids, 2, true), VERB_NEGATIVE);
    ids[0] = 99;
    assert_int_equal(progress_wait(connect, ids, 1, true), VERB_REFUSED);
    connect_close(connect);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_says_what_matters),
        cmocka_unit_test_setup_teardown(waiting_ends_with_the_last_job, fake_setup, fake_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
