/* member.c - see member.h. */
#include "worker/member.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "worker/env.h"

#define SAVE_MS 600000

static struct page own_page = {.save_answered = -1, .stop_answered = -1};
static _Thread_local char error_text[256];

struct member member = {.dir = -1,
                        .page = &own_page,
                        .join_lock = PTHREAD_MUTEX_INITIALIZER,
                        .report_lock = PTHREAD_MUTEX_INITIALIZER,
                        .gate_lock = PTHREAD_MUTEX_INITIALIZER,
                        .ask_lock = PTHREAD_MUTEX_INITIALIZER,
                        .reports = {.fd = -1}};

int member_fail(enum rondo_status status, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(error_text, sizeof error_text, fmt, args);
    va_end(args);
    return -(int)status;
}

int member_fail_errno(int problem, const char *what)
{
    return member_fail(problem == ENOSPC || problem == EDQUOT ? RONDO_EXHAUSTED : RONDO_UNAVAILABLE,
                       "%s: %s", what, strerror(problem));
}

const char *member_error(void)
{
    return error_text;
}

bool member_is_here(void)
{
    return atomic_load(&member.pid) == (int)getpid();
}

bool member_is_writer(void)
{
    return member_is_here() && member.writer;
}

static int64_t env_number(const char *name, int64_t max, int64_t otherwise)
{
    const char *text = getenv(name);
    char *end = NULL;
    long long value;

    if (!text || !*text)
        return otherwise;
    errno = 0;
    value = strtoll(text, &end, 10);
    return errno != 0 || *end || value < 0 || value > max ? otherwise : (int64_t)value;
}

static uint32_t env_u32(const char *name, uint32_t otherwise)
{
    return (uint32_t)env_number(name, UINT32_MAX, otherwise);
}

static const char *env_text(const char *name, const char *otherwise)
{
    const char *text = getenv(name);

    return text && *text ? text : otherwise;
}

static int read_env(void)
{
    struct rondo_job *job = &member.job;

    job->size = sizeof *job;
    job->rank = env_u32(ENV_RANK, 0);
    job->world = env_u32(ENV_WORLD, 1);
    job->local_rank = env_u32(ENV_LOCAL_RANK, 0);
    job->local_world = env_u32(ENV_LOCAL_WORLD, 1);
    job->attempt = env_u32(ENV_ATTEMPT, 0);
    job->incarnation = env_u32(ENV_INCARNATION, 0);
    job->job = env_number(ENV_JOB, INT64_MAX, 0);
    job->every_steps = (uint64_t)env_number(ENV_EVERY_STEPS, INT64_MAX, 0);
    job->resume_step = env_number(ENV_RESUME_STEP, INT64_MAX, 0);
    job->resume_samples = env_number(ENV_RESUME_SAMPLES, INT64_MAX, 0);
    job->resume_checkpoint = env_number(ENV_RESUME_CHECKPOINT, INT64_MAX, 0);
    member.start_us = env_number(ENV_START_US, INT64_MAX, ask_now_us());
    (void)snprintf(member.name, sizeof member.name, "%s", env_text(ENV_JOB_NAME, ""));
    (void)snprintf(member.role, sizeof member.role, "%s", env_text(ENV_ROLE, "trainer"));
    (void)snprintf(member.resume_dir, sizeof member.resume_dir, "%s", env_text(ENV_RESUME_DIR, ""));
    job->name = member.name;
    job->role = member.role;
    job->resume_dir = member.resume_dir[0] ? member.resume_dir : NULL;
    if (job->world == 0 || job->rank >= job->world)
        return member_fail(RONDO_INVALID, "rank %u of %u workers", job->rank, job->world);
    return 0;
}

/* Without a page (an agent that made none) there are no gates, and everything else works. */
static void map_page(void)
{
    int fd = openat(member.dir, "page", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    struct page *page;

    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= PAGE_BYTES) {
        page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (page != MAP_FAILED && page->magic == PAGE_MAGIC && page->version >= 1)
            member.page = page;
        else if (page != MAP_FAILED)
            (void)munmap(page, PAGE_BYTES);
    }
    (void)close(fd);
}

static int join_agent(const char *path)
{
    int problem;

    member.job.managed = 1;
    member.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (member.dir < 0)
        return member_fail_errno(errno, "open " ENV_DIR);
    map_page();
    ask_init(&member.ask, member.dir);
    problem = reports_open(&member.reports, member.dir, &member.page->reports);
    if (problem == -EWOULDBLOCK)
        return 0; /* another process of this worker is the member: answers only */
    if (problem)
        return member_fail_errno(-problem, "open reports");
    member.writer = true;
    record_joined(&member.record);
    (void)reports_append(&member.reports, member.record.bytes, member.record.len);
    atomic_store(&member.page->joined, 1);
    return 0;
}

/* The program may say RONDO_RESUME_DIR="" to start over. */
static int join_alone(const struct rondo_options *options)
{
    const char *root = options && options->checkpoint_dir ? options->checkpoint_dir : "checkpoints";
    struct alone_point point;
    struct rondo_job *job = &member.job;
    int problem = alone_init(&member.alone, env_text(ENV_CHECKPOINT_DIR, root), job->role,
                             job->rank, job->world);

    if (problem)
        return member_fail_errno(-problem, "find the working directory");
    member.writer = true;
    if (options && job->every_steps == 0)
        job->every_steps = options->every_steps;
    const char *from = getenv(ENV_RESUME_DIR);
    member.alone.over = from && !*from;
    bool found = !from && alone_newest(&member.alone, &point);
    alone_disown(&member.alone);
    if (!found)
        return 0;
    (void)snprintf(member.resume_dir, sizeof member.resume_dir, "%s", point.dir);
    job->resume_dir = member.resume_dir;
    job->resume_step = point.step;
    job->resume_samples = point.samples;
    return 0;
}

static int join_first(const struct rondo_options *options)
{
    const char *path = getenv(ENV_DIR);
    int result = read_env();

    if (result == 0)
        result = path && *path ? join_agent(path) : join_alone(options);
    if (result != 0)
        return result;
    gate_init(&member.save, &member.page->save, &member.page->save_answered);
    gate_init(&member.stop, &member.page->stop, &member.page->stop_answered);
    atomic_store(&member.pid, (int)getpid());
    return 0;
}

int member_join(const struct rondo_options *options)
{
    int result = 0;

    if (atomic_load(&member.pid) != 0) /* joined already, here or in the parent */
        return 0;
    (void)pthread_mutex_lock(&member.join_lock);
    if (atomic_load(&member.pid) == 0)
        result = join_first(options);
    (void)pthread_mutex_unlock(&member.join_lock);
    return result;
}

/* --- the agent */

int member_ask(const struct ask_request *request, uint32_t ms, struct ask_answer *answer)
{
    int64_t deadline_us = ask_now_us() + (int64_t)(ms ? ms : SAVE_MS) * 1000;
    struct timespec until = {deadline_us / 1000000, deadline_us % 1000000 * 1000};
    int result;

    if (pthread_mutex_clocklock(&member.ask_lock, CLOCK_MONOTONIC, &until) != 0)
        return member_fail(RONDO_DEADLINE, "another thread's save is in progress");
    result = ask_call(&member.ask, request, deadline_us, answer);
    (void)pthread_mutex_unlock(&member.ask_lock);
    if (result != 0)
        return member_fail(RONDO_DEADLINE, "the agent has not answered in time");
    if (answer->status != 0)
        return member_fail((enum rondo_status)answer->status, "%s", answer->error);
    return 0;
}

void member_show_saving(void)
{
    atomic_store(&member.page->saving,
                 atomic_load(&member.in_save) || atomic_load(&member.said_saving));
}

void member_set_in_save(int on)
{
    atomic_store(&member.in_save, on);
    member_show_saving();
}
