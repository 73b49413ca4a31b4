/* test_submission.c - many files, chunks, code packed once, over a daemon that loses replies. */
#include "ctl/connect.h"
#include "ctl/submission.h"
#include "tests/unit/ctl/fake.h"
#include <sys/stat.h>

static struct submission *load(struct fake *fake, const char *yaml, size_t copies, int *code)
{
    char *file = fake->paths[0], *files[1200];
    struct submission_options options = {.hold = true};
    snprintf(file, sizeof fake->paths[0], "%s/job.yaml", fake->dir);
    unit_write(file, yaml);
    for (size_t i = 0; i < copies; i++)
        files[i] = file;
    struct submission *submission = submission_load(files, copies, &options, code);
    if (submission)
        assert_ptr_equal(submission_file(submission, 0), file);
    return submission;
}

static struct connect *reach(struct fake *fake)
{
    struct connect_flags flags = {.server = fake->target};
    int code = 0;
    struct connect *connect = connect_open(&flags, &code);
    assert_non_null(connect);
    return connect;
}

static void reply_free(Pb__SubmitManyReply *reply)
{
    for (size_t i = 0; i < reply->n_results; i++) {
        mem_free(reply->results[i]->error);
        mem_free(reply->results[i]);
    }
    mem_free(reply->results);
}

static void a_thousand_jobs_go_in_few_messages_each_once(void **state)
{
    struct fake *fake = *state;
    Pb__SubmitManyReply reply = PB__SUBMIT_MANY_REPLY__INIT;
    int code = 0;
    struct submission *submission =
        load(fake, "name: a\nroles: [{name: r, command: [x]}]\n", 1100, &code);
    assert_non_null(submission);
    assert_true(submission_spec(submission, 7)->hold);
    struct connect *connect = reach(fake);
    fake->away = 3;
    assert_int_equal(submission_send(submission, connect, &reply), VERB_OK);
    assert_int_equal(reply.n_results, 1100);
    assert_int_equal(fake->jobs, 1100);
    assert_true(fake->chunks <= 5 + 3);
    for (size_t i = 0; i < reply.n_results; i++)
        assert_int_equal(reply.results[i]->job, i + 1);
    reply_free(&reply);
    connect_close(connect);
    submission_destroy(submission);
}

static void code_is_packed_and_sent_once(void **state)
{
    struct fake *fake = *state;
    Pb__SubmitManyReply reply = PB__SUBMIT_MANY_REPLY__INIT;
    int code = 0;
    mkdir(unit_path(fake->dir, "src"), 0700);
    unit_write(unit_path(fake->dir, "src/train.py"), "");
    assert_int_equal(truncate(unit_path(fake->dir, "src/train.py"), 3000000), 0);
    struct submission *submission =
        load(fake, "name: a\ncode: {path: src}\nroles: [{name: r, command: [x]}]\n", 3, &code);
    assert_non_null(submission);
    struct connect *connect = reach(fake);
    assert_int_equal(submission_send(submission, connect, &reply), VERB_OK);
    assert_int_equal(fake->code_puts, 1);
    assert_true(fake->code_bytes > 3000000);
    assert_string_equal(fake->code_digest, submission_spec(submission, 2)->code->digest);
    reply_free(&reply);
    connect_close(connect);
    submission_destroy(submission);
}

static void code_that_cannot_be_packed_is_a_problem_of_the_file(void **state)
{
    struct fake *fake = *state;
    int code = 0;
    assert_null(
        load(fake, "name: a\ncode: {path: gone}\nroles: [{name: r, command: [x]}]\n", 1, &code));
    assert_int_equal(code, VERB_USAGE);
    assert_int_equal(fake->calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_thousand_jobs_go_in_few_messages_each_once, fake_setup,
                                        fake_teardown),
        cmocka_unit_test_setup_teardown(code_is_packed_and_sent_once, fake_setup, fake_teardown),
        cmocka_unit_test_setup_teardown(code_that_cannot_be_packed_is_a_problem_of_the_file,
                                        fake_setup, fake_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
