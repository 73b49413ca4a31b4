/* test_vault.c - checkpoints of programs without the SDK: pattern, marker, links; jobs in the pool.
 */
#include "agent/vault_pool.h"
#include "agent/vault_watch.h"
#include "base/loop.h"
#include "tests/unit/unit.h"
#include <sys/stat.h>
#include <unistd.h>

static void patterns_are_checked_and_matched(void **state)
{
    static const char *const bad[] = {"",  "/a-{step}",     "../{step}",
                                      "a", "{step}-{step}", "{step}/a"};
    int64_t step = 0;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(vault_watch_pattern_ok(bad[i], NULL));
    assert_true(vault_watch_pattern_ok("ckpt/step-{step}.d", NULL));
    assert_true(vault_watch_match("step-{step}.d", "step-120.d", &step));
    assert_int_equal(step, 120);
    assert_false(vault_watch_match("step-{step}", "step-", &step));
    assert_false(vault_watch_match("step-{step}", "step-1x", &step));
    assert_false(vault_watch_match("step-{step}", "step--1", &step));
    assert_false(vault_watch_match("step-{step}", "step-99999999999999999999", &step));
    assert_true(vault_watch_match("{step}", "9007199254740993", &step));
    assert_true(step == 9007199254740993);
}

static struct vault_job *scan(const char *dir)
{
    struct vault_job *job = vault_job_create(VAULT_JOB_SCAN, NULL, NULL, NULL, 0);
    job->source = mem_strdup(dir);
    job->pattern = mem_strdup("step-{step}");
    job->marker = mem_strdup("DONE");
    assert_int_equal(vault_job_run(job, NULL), STATUS_OK);
    return job;
}

static void only_complete_directories_count_and_are_linked(void **state)
{
    const char *dir = *state;
    struct stat ours, theirs;
    mkdir(unit_path(dir, "step-1"), 0755);
    mkdir(unit_path(dir, "step-2"), 0755);
    mkdir(unit_path(dir, "step-2/sub"), 0755);
    mkdir(unit_path(dir, "vault"), 0755);
    unit_write(unit_path(dir, "step-2/sub/w"), "weights");
    unit_write(unit_path(dir, "step-2/DONE"), "");
    struct vault_job *found = scan(dir);
    assert_int_equal(found->steps_count, 1);
    assert_int_equal(found->steps[0], 2);
    for (int again = 0; again < 2; again++) { /* an earlier agent may have begun */
        struct vault_job *job = vault_job_create(VAULT_JOB_IMPORT, unit_path(dir, "vault"),
                                                 "job-7/step-2.1", "trainer", 0);
        job->source = mem_strdup(found->step_dirs[0]);
        assert_int_equal(vault_job_run(job, NULL), STATUS_OK);
        assert_int_equal(stat(unit_path(dir, "step-2/sub/w"), &theirs), 0);
        assert_int_equal(stat(unit_path(job->dir, "sub/w"), &ours), 0);
        assert_true(ours.st_ino == theirs.st_ino);
        vault_job_destroy(job);
    }
    vault_job_destroy(found);
    struct vault_job *digest = vault_job_create(VAULT_JOB_PART_DIGEST, unit_path(dir, "vault"),
                                                "job-7/step-2.1", "trainer", 0);
    assert_int_equal(vault_job_run(digest, NULL), STATUS_OK);
    assert_int_equal(digest->part->n_files, 2);
    vault_job_destroy(digest);
}

static void links_in_a_checkpoint_are_refused(void **state)
{
    const char *dir = *state;
    mkdir(unit_path(dir, "step-3"), 0755);
    mkdir(unit_path(dir, "vault"), 0755);
    assert_int_equal(symlink("/etc", unit_path(dir, "step-3/etc")), 0);
    struct vault_job *job =
        vault_job_create(VAULT_JOB_IMPORT, unit_path(dir, "vault"), "job-7/step-3.1", "trainer", 0);
    job->source = mem_strdup(unit_path(dir, "step-3"));
    assert_int_equal(vault_job_run(job, NULL), STATUS_INVALID);
    vault_job_destroy(job);
}

static int answers;
static void answered(void *arg, enum status st, const struct error *err, struct vault_job *job)
{
    (void)err, (void)job;
    assert_int_equal(st, STATUS_OK);
    if (++answers == 5)
        loop_uv_stop(arg);
}

static void jobs_in_the_pool_answer_once_each(void **state)
{
    struct loop *loop = loop_uv_create();
    struct vault_pool *pool = vault_pool_uv_create(loop, 2);
    for (int i = 0; i < 5; i++) {
        struct vault_job *job = vault_job_create(VAULT_JOB_SCAN, NULL, NULL, NULL, 0);
        job->source = mem_strdup(*state);
        job->pattern = mem_strdup("{step}");
        vault_pool_run(pool, job, answered, loop);
    }
    assert_int_equal(answers, 0);
    loop_uv_run(loop);
    assert_int_equal(answers, 5);
    pool->ops->destroy(pool);
    loop_uv_destroy(loop);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_are_checked_and_matched),
        T(only_complete_directories_count_and_are_linked),
        T(links_in_a_checkpoint_are_refused),
        T(jobs_in_the_pool_answer_once_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
