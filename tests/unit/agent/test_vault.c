/* test_vault.c - checkpoints of programs without the SDK: pattern, marker, links; jobs in the pool.
 */
#include "agent/vault_pool.h"
#include "agent/vault_watch.h"
#include "base/loop.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
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
        job->source = mem_strdup(dir);
        job->below = mem_strdup(found->step_dirs[0]);
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
    job->source = mem_strdup(dir);
    job->below = mem_strdup("step-3");
    assert_int_equal(vault_job_run(job, NULL), STATUS_INVALID);
    vault_job_destroy(job);
}

static void a_link_above_a_checkpoint_is_not_followed(void **state)
{
    const char *dir = *state;
    mkdir(unit_path(dir, "secret"), 0700);
    mkdir(unit_path(dir, "secret/step-3"), 0755);
    mkdir(unit_path(dir, "attempt"), 0755);
    mkdir(unit_path(dir, "vault"), 0755);
    unit_write(unit_path(dir, "secret/step-3/DONE"), "");
    assert_int_equal(symlink(unit_path(dir, "secret"), unit_path(dir, "attempt/x")), 0);
    struct vault_job *look = vault_job_create(VAULT_JOB_SCAN, NULL, NULL, NULL, 0);
    look->source = mem_strdup(unit_path(dir, "attempt"));
    look->pattern = mem_strdup("x/step-{step}");
    look->marker = mem_strdup("DONE");
    assert_int_equal(vault_job_run(look, NULL), STATUS_INVALID);
    assert_int_equal(look->steps_count, 0);
    vault_job_destroy(look);
    struct vault_job *job =
        vault_job_create(VAULT_JOB_IMPORT, unit_path(dir, "vault"), "job-7/step-3.1", "trainer", 0);
    job->source = mem_strdup(unit_path(dir, "attempt"));
    job->below = mem_strdup("x/step-3"); /* a directory when it was found */
    assert_int_equal(vault_job_run(job, NULL), STATUS_INVALID);
    assert_int_not_equal(access(unit_path(job->dir, "DONE"), F_OK), 0);
    vault_job_destroy(job);
}

static void files_of_others_are_not_taken(void **state)
{
    const char *dir = *state;
    mkdir(unit_path(dir, "step-3"), 0755);
    mkdir(unit_path(dir, "vault"), 0755);
    unit_write(unit_path(dir, "step-3/shadow"), "x");
    if (geteuid() != 0)
        skip();
    struct vault_job *job =
        vault_job_create(VAULT_JOB_IMPORT, unit_path(dir, "vault"), "job-7/step-3.1", "trainer", 0);
    job->source = mem_strdup(dir);
    job->below = mem_strdup("step-3");
    job->uid = job->gid = 65534;
    assert_int_equal(vault_job_run(job, NULL), STATUS_DENIED);
    assert_int_not_equal(access(unit_path(job->dir, "shadow"), F_OK), 0);
    vault_job_destroy(job);
}

#define SWAP_DIRS 40
static void *put_links(void *arg) /* as the worker, who owns the new part */
{
    const char *dir = arg;
    char path[512], target[512];
    (void)snprintf(target, sizeof(target), "%s/outside", dir);
    for (int n = 0, made = 0; made < SWAP_DIRS && n < 2000000; n++) {
        (void)snprintf(path, sizeof(path), "%s/vault/job-7/step-3.1/trainer-0/z%d", dir, made);
        made += symlink(target, path) == 0 || errno == EEXIST;
    }
    return NULL;
}

static void a_link_put_into_the_new_part_leads_nowhere(void **state)
{
    const char *dir = *state;
    char name[64];
    pthread_t thread;
    mkdir(unit_path(dir, "step-3"), 0755);
    mkdir(unit_path(dir, "vault"), 0755);
    mkdir(unit_path(dir, "outside"), 0755);
    for (int i = 0; i < SWAP_DIRS; i++) {
        (void)snprintf(name, sizeof(name), "step-3/z%d", i);
        mkdir(unit_path(dir, name), 0755);
        for (int k = 0; k < 20; k++) {
            (void)snprintf(name, sizeof(name), "step-3/z%d/evil%d", i, k);
            unit_write(unit_path(dir, name), "x");
        }
    }
    struct vault_job *job =
        vault_job_create(VAULT_JOB_IMPORT, unit_path(dir, "vault"), "job-7/step-3.1", "trainer", 0);
    job->source = mem_strdup(dir);
    job->below = mem_strdup("step-3");
    assert_int_equal(pthread_create(&thread, NULL, put_links, *state), 0);
    (void)!vault_job_run(job, NULL); /* fails, unless nobody came first */
    (void)pthread_join(thread, NULL);
    vault_job_destroy(job);
    assert_int_equal(rmdir(unit_path(dir, "outside")), 0); /* nothing was written there */
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

static struct vault_job *digest_of(const char *dir, const char *path, off_t bytes)
{
    struct vault_job *made =
        vault_job_create(VAULT_JOB_PART_CREATE, unit_path(dir, "vault"), path, "w", 0);
    made->uid = made->gid = -1;
    if (vault_job_run(made, NULL) != STATUS_OK)
        fail_msg("%s", path);
    unit_write(unit_path(made->dir, "w"), "");
    assert_int_equal(truncate(unit_path(made->dir, "w"), bytes), 0);
    vault_job_destroy(made);
    return vault_job_create(VAULT_JOB_PART_DIGEST, unit_path(dir, "vault"), path, "w", 0);
}

struct crowd {
    struct loop *loop;
    struct vault_job *endless[3];
    int ended;
    bool served;
};

static void endless_ended(void *arg, enum status st, const struct error *err, struct vault_job *job)
{
    struct crowd *crowd = arg;
    (void)err, (void)job;
    assert_true(crowd->served); /* not before the other was read */
    assert_int_not_equal(st, STATUS_OK);
    if (++crowd->ended == 3)
        loop_uv_stop(crowd->loop);
}

static void other_ended(void *arg, enum status st, const struct error *err, struct vault_job *job)
{
    struct crowd *crowd = arg;
    (void)err, (void)job;
    assert_int_equal(st, STATUS_OK);
    crowd->served = true;
    for (int i = 0; i < 3; i++)
        atomic_store(&crowd->endless[i]->stop, true);
}

/* Three digests that take for ever, of one job, came first. */
static void no_job_has_all_threads_that_read(void **state)
{
    static const char *const paths[] = {"job-1/step-1.1", "job-1/step-2.1", "job-1/step-3.1"};
    struct crowd crowd = {.loop = loop_uv_create()};
    struct vault_pool *pool = vault_pool_uv_create(crowd.loop, 4);
    assert_int_equal(mkdir(unit_path(*state, "vault"), 0755), 0);
    for (int i = 0; i < 3; i++) {
        crowd.endless[i] = digest_of(*state, paths[i], (off_t)15 << 40);
        vault_pool_run(pool, crowd.endless[i], endless_ended, &crowd);
    }
    vault_pool_run(pool, digest_of(*state, "job-2/step-1.1", 5), other_ended, &crowd);
    loop_uv_run(crowd.loop);
    assert_true(crowd.served);
    assert_int_equal(crowd.ended, 3);
    pool->ops->destroy(pool);
    loop_uv_destroy(crowd.loop);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_are_checked_and_matched),
        T(only_complete_directories_count_and_are_linked),
        T(links_in_a_checkpoint_are_refused),
        T(a_link_above_a_checkpoint_is_not_followed),
        T(files_of_others_are_not_taken),
        T(a_link_put_into_the_new_part_leads_nowhere),
        T(jobs_in_the_pool_answer_once_each),
        T(no_job_has_all_threads_that_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
