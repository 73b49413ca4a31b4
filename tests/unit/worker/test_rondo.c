/* test_rondo.c - the C calls with real threads and processes: gates on a shared page, reports from
 * many threads, what children may do. Each case runs in a child of its own: joining is once a
 * process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/digest.h"
#include "worker/env.h"
#include "worker/page.h"
#include "worker/rondo.h"
#include "worker/wire.h"

#define RANKS 3

struct place { /* the directory of one worker, as its agent sees it */
    char dir[64];
    struct page *page;
};

static void place_make(struct place *place)
{
    char path[128];
    int fd;
    snprintf(place->dir, sizeof place->dir, "/tmp/rondo-worker-XXXXXX");
    assert_non_null(mkdtemp(place->dir));
    snprintf(path, sizeof path, "%s/page", place->dir);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0 && ftruncate(fd, PAGE_BYTES) == 0);
    place->page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(place->page != MAP_FAILED);
    close(fd);
    place->page->version = 1;
    place->page->save_answered = place->page->stop_answered = -1;
    place->page->magic = PAGE_MAGIC;
}

static void place_remove(struct place *place)
{
    const char *names[] = {"page", "reports", "sock"};
    char path[128];
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", place->dir, names[i]);
        unlink(path);
    }
    munmap(place->page, PAGE_BYTES);
    assert_int_equal(rmdir(place->dir), 0);
}

/* Runs body as rank `rank` of RANKS in place; its result is the child's exit code. */
static pid_t member_start(const struct place *place, int rank, int (*body)(void *), void *arg)
{
    pid_t pid = fork();
    if (pid == 0) {
        char text[16];
        struct rondo_job job = {.size = sizeof job};
        snprintf(text, sizeof text, "%d", rank);
        setenv(ENV_DIR, place->dir, 1);
        setenv(ENV_RANK, text, 1);
        snprintf(text, sizeof text, "%d", RANKS);
        setenv(ENV_WORLD, text, 1);
        unsetenv(ENV_EVERY_STEPS);
        _exit(rondo_join(NULL, &job) == 0 && job.rank == (uint32_t)rank ? body(arg) : 99);
    }
    assert_true(pid > 0);
    return pid;
}

static int member_end(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Whole, good records in the file. */
static size_t records_in(const struct place *place)
{
    char path[128];
    unsigned char head[WIRE_HEAD_BYTES], body[65536];
    size_t count = 0;
    FILE *file;
    snprintf(path, sizeof path, "%s/reports", place->dir);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fread(head, 1, sizeof head, file) == sizeof head) {
        uint32_t len = wire_get_u32(head);
        assert_true(len <= sizeof body && fread(body, 1, len, file) == len);
        assert_int_equal(wire_get_u32(head + 4), digest_crc32c(0, body, len));
        count++;
    }
    fclose(file);
    return count;
}

/* --- gates between processes */

#define GATE_STEPS 6000

struct answers {
    char of[RANKS][GATE_STEPS + 1];
    atomic_int step[RANKS];
    atomic_llong acted[RANKS];
};
struct gate_body {
    struct answers *answers;
    int rank;
};

static int ask_all_steps(void *arg)
{
    struct gate_body *body = arg;
    uint32_t chance = (uint32_t)body->rank * 7919 + 1;
    for (int step = 1; step <= GATE_STEPS; step++) {
        int answer = rondo_should_save(step);
        if (answer != 0 && answer != 1)
            return 2;
        body->answers->of[body->rank][step] = (char)('0' + answer);
        if (answer)
            atomic_store(&body->answers->acted[body->rank], step);
        atomic_store(&body->answers->step[body->rank], step);
        chance = chance * 1664525 + 1013904223;
        if (chance >> 30 == 0)
            usleep(chance >> 20 & 0x3ff);
    }
    return 0;
}

static int64_t furthest(struct answers *answers, bool acted)
{
    int64_t least = INT64_MAX, most = 0;
    for (int i = 0; i < RANKS; i++) {
        int64_t at = acted ? atomic_load(&answers->acted[i]) : atomic_load(&answers->step[i]);
        most = at > most ? at : most;
        least = at < least ? at : least;
    }
    return acted ? least : most;
}

/* The agents and the daemon, in one: proposes until the ranks are through. Gives the armed count.
 */
static int drive_gates(struct place *places, struct answers *answers)
{
    int armed = 0;
    for (uint64_t number = 1; furthest(answers, false) < GATE_STEPS; number++) {
        int64_t step = furthest(answers, false) + (int64_t)(number % 400);
        bool all = true;
        if (step < 1 || step > GATE_STEPS)
            break;
        for (int i = 0; i < RANKS; i++)
            all &= page_gate_prepare(&places[i].page->save, &places[i].page->save_answered, number,
                                     step);
        for (int i = 0; i < RANKS; i++)
            page_gate_decide(&places[i].page->save, &places[i].page->save_answered, number, step,
                             all ? PAGE_ARM : PAGE_DROP);
        armed += all;
        while (all && furthest(answers, true) < step)
            usleep(50);
        usleep(200);
    }
    return armed;
}

static void processes_give_the_same_answers(void **state)
{
    struct answers *answers =
        mmap(NULL, sizeof *answers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct gate_body bodies[RANKS];
    struct place places[RANKS];
    pid_t pids[RANKS];
    int armed, yes = 0;
    (void)state;
    assert_true(answers != MAP_FAILED);
    for (int i = 0; i < RANKS; i++) {
        place_make(&places[i]);
        bodies[i] = (struct gate_body){answers, i};
        pids[i] = member_start(&places[i], i, ask_all_steps, &bodies[i]);
    }
    armed = drive_gates(places, answers);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(member_end(pids[i]), 0);
    for (int step = 1; step <= GATE_STEPS; step++) {
        for (int i = 1; i < RANKS; i++)
            assert_int_equal(answers->of[i][step], answers->of[0][step]);
        yes += answers->of[0][step] == '1';
    }
    assert_int_equal(yes, armed);
    print_message("%d gates armed\n", armed);
    for (int i = 0; i < RANKS; i++)
        place_remove(&places[i]);
    munmap(answers, sizeof *answers);
}

/* --- reports from threads */

#define THREADS 4
#define EACH    500

static void *report_thread(void *arg)
{
    const struct rondo_value values[] = {{.name = "loss", .number = 1.5},
                                         {.name = "n", .is_integer = 1, .integer = 3}};
    (void)arg;
    for (int i = 0; i < EACH; i++)
        if (rondo_report(i, i, values, 2) != 0)
            return (void *)1;
    return NULL;
}

static int report_from_threads(void *arg)
{
    pthread_t threads[THREADS];
    void *result = NULL, *any = NULL;
    (void)arg;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, report_thread, NULL) != 0)
            return 2;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &result);
        any = result ? result : any;
    }
    return any ? 3 : rondo_finish() == 0 ? 0 : 4;
}

static void records_of_threads_never_mix(void **state)
{
    struct place place;
    (void)state;
    place_make(&place);
    assert_int_equal(member_end(member_start(&place, 0, report_from_threads, NULL)), 0);
    assert_int_equal(records_in(&place), THREADS * EACH + 2); /* joined and finished */
    assert_int_equal(place.page->reports, THREADS * EACH + 2);
    assert_int_equal(place.page->finished, 1);
    place_remove(&place);
}

/* --- children forked at any moment */

static int fork_while_reporting(void *arg)
{
    pthread_t thread;
    (void)arg;
    if (pthread_create(&thread, NULL, report_thread, NULL) != 0)
        return 2;
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        int status = 0;
        if (child == 0) { /* would hang on a copied lock */
            char dir[64];
            alarm(60);
            _exit(rondo_report(1, 1, NULL, 0) == RONDO_IGNORED && rondo_should_save(7) == 0 &&
                          rondo_save_dir(1, dir, sizeof dir, 10) == -RONDO_PRECONDITION &&
                          rondo_finish() == -RONDO_PRECONDITION
                      ? 0
                      : 1);
        }
        if (waitpid(child, &status, 0) != child || status != 0)
            return 3;
    }
    pthread_join(thread, NULL);
    return 0;
}

static void forked_children_write_nothing_and_never_hang(void **state)
{
    struct place place;
    (void)state;
    place_make(&place);
    assert_int_equal(member_end(member_start(&place, 0, fork_while_reporting, NULL)), 0);
    assert_int_equal(records_in(&place), EACH + 1);
    assert_int_equal(place.page->finished, 0);
    assert_int_equal(place.page->save_answered, -1);
    place_remove(&place);
}

/* --- misuse */

static int misuse(void *arg)
{
    char dir[8];
    struct rondo_job job = {0};
    (void)arg;
    return rondo_join(NULL, &job) == -RONDO_INVALID && rondo_join(NULL, NULL) == -RONDO_INVALID &&
                   rondo_report(1, 1, NULL, 5) == -RONDO_INVALID &&
                   rondo_report_packed(1, 1, "dx", 2, "12345678", 1) == -RONDO_INVALID &&
                   rondo_report_packed(1, 1, "zx\0", 3, "12345678", 1) == -RONDO_INVALID &&
                   rondo_commit(1, -1, 1) == -RONDO_INVALID &&
                   rondo_save_dir(1, dir, sizeof dir, 50) == -RONDO_DEADLINE && *rondo_error()
               ? 0
               : 1;
}

static void misuse_is_an_error(void **state)
{
    struct place place;
    (void)state;
    assert_int_equal(rondo_report(1, 1, NULL, 0), -RONDO_PRECONDITION); /* not joined */
    assert_int_equal(rondo_should_save(1), -RONDO_PRECONDITION);
    place_make(&place);
    assert_int_equal(member_end(member_start(&place, 0, misuse, NULL)), 0);
    assert_int_equal(place.page->saving, 0);
    place_remove(&place);
}

static int older_callers(void *arg)
{
    struct rondo_job job = {.size = offsetof(struct rondo_job, job), .job = -5};
    (void)arg;
    return rondo_join(NULL, &job) == 0 && job.world == RANKS && job.job == -5 &&
                   job.size == offsetof(struct rondo_job, job)
               ? 0
               : 1;
}

static void older_callers_get_what_they_know(void **state)
{
    struct place place;
    (void)state;
    place_make(&place);
    assert_int_equal(member_end(member_start(&place, 0, older_callers, NULL)), 0);
    place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_give_the_same_answers),
        cmocka_unit_test(records_of_threads_never_mix),
        cmocka_unit_test(forked_children_write_nothing_and_never_hang),
        cmocka_unit_test(misuse_is_an_error),
        cmocka_unit_test(older_callers_get_what_they_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
