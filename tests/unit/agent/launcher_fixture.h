/* launcher_fixture.h - a launcher over real shims, workers of every kind, and what was told of
 * them.
 *
 * Workers are this very program: `<test> --worker NAME ARGS`. fixture_until waits for an event,
 * with a limit that only a broken build meets. */
#pragma once
#include "agent/launcher.h"
#include "agent/stray.h"
#include "base/text.h"
#include "tests/unit/unit.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIXTURE_LIMIT_US ((int64_t)120 * 1000000)

struct worker { /* what was told */
    struct fixture *fixture;
    struct launcher_proc *proc;
    char dir[256], tag[64];
    bool told[LAUNCHER_UNKILLABLE + 1];
    int order[16], count; /* kinds, as they came */
    pid_t pid;
    int exit_code, signal;
    bool out_of_memory;
    char text[512];
};
struct fixture {
    struct loop *loop;
    struct loop_timer *limit;
    struct launcher *launcher;
    char *dir;
    char self[512];
    bool late;
    const struct worker *awaited;
    int awaited_kind;
    unsigned made;
};

static inline void fixture_told(void *arg, struct launcher_proc *proc,
                                const struct launcher_event *event)
{
    struct worker *worker = arg;
    assert_ptr_equal(proc, worker->proc);
    worker->told[event->kind] = true;
    if (worker->count < 16)
        worker->order[worker->count++] = (int)event->kind;
    if (event->pid > 0)
        worker->pid = event->pid;
    if (event->kind == LAUNCHER_EXITED) {
        worker->exit_code = event->exit_code;
        worker->signal = event->signal;
        worker->out_of_memory = event->out_of_memory;
    }
    if (event->text)
        snprintf(worker->text, sizeof(worker->text), "%s", event->text);
    if (worker->fixture->awaited == worker && worker->fixture->awaited_kind == (int)event->kind)
        loop_uv_stop(worker->fixture->loop);
}

static inline void fixture_late(void *arg)
{
    struct fixture *fixture = arg;
    fixture->late = true;
    loop_uv_stop(fixture->loop);
}

static inline struct fixture *fixture_create(bool without_cgroups, unsigned spares)
{
    struct fixture *fixture = NEW(struct fixture);
    struct error err;
    fixture->loop = loop_uv_create();
    fixture->limit = loop_timer_create(fixture->loop, fixture_late, fixture);
    fixture->dir = unit_dir_create();
    ssize_t len = readlink("/proc/self/exe", fixture->self, sizeof(fixture->self) - 1);
    assert_true(len > 0);
    const struct launcher_shim_options options = {fixture->loop, RONDO_BINARY_DIR "/bin/rondo-shim",
                                                  without_cgroups, spares, 0};
    if (launcher_shim_create(&options, &fixture->launcher, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return fixture;
}

static inline void fixture_destroy(struct fixture *fixture)
{
    fixture->launcher->ops->destroy(fixture->launcher);
    loop_timer_destroy(fixture->limit);
    loop_uv_destroy(fixture->loop);
    unit_dir_destroy(fixture->dir);
    mem_free(fixture);
}

static inline int fixture_setup(void **state)
{
    *state = fixture_create(false, 0);
    return 0;
}

static inline int fixture_setup_bare(void **state)
{
    *state = fixture_create(true, 0);
    return 0;
}

static inline void fixture_run(struct fixture *fixture, int64_t us);

/* Shims of ours that wait for a directory; up to max of their pids. */
static inline unsigned fixture_waiting(pid_t *pids, unsigned max)
{
    static const char want[] = "rondo-shim\0--wait";
    unsigned count = 0;
    char path[64], bytes[64];
    DIR *dir = opendir("/proc");
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        struct stray stray;
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 0 || !stray_read(pid, &stray) || stray.parent != getpid() || stray.state == 'Z')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, bytes, sizeof(bytes)) > (ssize_t)sizeof(want) &&
            memcmp(bytes, want, sizeof(want)) == 0 && count < max)
            pids[count++] = pid;
        if (fd >= 0)
            close(fd);
    }
    if (dir)
        closedir(dir);
    return count;
}

static inline void fixture_until_waiting(struct fixture *fixture, unsigned spares)
{
    pid_t pids[64];
    for (int i = 0; i < 12000 && fixture_waiting(pids, 64) < spares; i++)
        fixture_run(fixture, 10000);
    assert_int_equal(fixture_waiting(pids, 64), spares);
    fixture_run(fixture, 10000); /* the last one is on the list */
}

/* Two shims wait. */
static inline int fixture_setup_spares(void **state)
{
    *state = fixture_create(false, 2);
    fixture_until_waiting(*state, 2);
    return 0;
}

static inline int fixture_teardown(void **state)
{
    fixture_destroy(*state);
    return 0;
}

static inline void worker_init(struct worker *worker, struct fixture *fixture)
{
    *worker = (struct worker){.fixture = fixture};
    snprintf(worker->dir, sizeof(worker->dir), "%s/w%u", fixture->dir, fixture->made);
    snprintf(worker->tag, sizeof(worker->tag), "%s.%u", strrchr(fixture->dir, '/') + 1,
             fixture->made++);
    assert_int_equal(mkdir(worker->dir, 0711), 0);
}

/* Fills what the request leaves open. */
static inline void worker_start(struct worker *worker, struct fixture *fixture,
                                struct launcher_request request)
{
    char tag[96];
    worker_init(worker, fixture);
    snprintf(tag, sizeof(tag), "RONDO_WORKER=%s", worker->tag);
    const char *const env[] = {"PATH=/usr/bin:/bin", tag, NULL};
    request.dir = worker->dir;
    request.tag = worker->tag;
    if (!request.env)
        request.env = env;
    if (!request.cwd)
        request.cwd = "/";
    worker->proc = fixture->launcher->ops->start(fixture->launcher, &request, fixture_told, worker);
    assert_int_equal(worker->count, 0); /* never from inside the call */
}

static inline void worker_start_shell(struct worker *worker, struct fixture *fixture,
                                      const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    worker_start(worker, fixture, (struct launcher_request){.argv = argv, .umask = 022});
}

/* This program as worker NAME. */
static inline void worker_start_self(struct worker *worker, struct fixture *fixture,
                                     const char *name, const char *arg)
{
    const char *const argv[] = {fixture->self, "--worker", name, arg, NULL};
    worker_start(worker, fixture, (struct launcher_request){.argv = argv, .umask = 022});
}

static inline void worker_adopt(struct worker *worker, struct fixture *fixture, const char *dir,
                                const char *tag)
{
    *worker = (struct worker){.fixture = fixture};
    snprintf(worker->dir, sizeof(worker->dir), "%s", dir);
    snprintf(worker->tag, sizeof(worker->tag), "%s", tag);
    worker->proc = fixture->launcher->ops->adopt(fixture->launcher, worker->dir, worker->tag,
                                                 fixture_told, worker);
    assert_int_equal(worker->count, 0);
}

static inline void worker_until(struct worker *worker, enum launcher_event_kind kind)
{
    struct fixture *fixture = worker->fixture;
    fixture->awaited = worker;
    fixture->awaited_kind = (int)kind;
    loop_timer_set(fixture->limit, FIXTURE_LIMIT_US);
    while (!worker->told[kind] && !fixture->late)
        loop_uv_run(fixture->loop);
    loop_timer_stop(fixture->limit);
    fixture->awaited = NULL;
    if (!worker->told[kind])
        fail_msg("event %d of %s never came (%d others did: %s)", (int)kind, worker->dir,
                 worker->count, worker->text);
}

static inline void fixture_stop(void *arg)
{
    struct fixture *fixture = arg;
    loop_uv_stop(fixture->loop);
}

/* Lets the loop run for a while. */
static inline void fixture_run(struct fixture *fixture, int64_t us)
{
    struct loop_timer *timer = loop_timer_create(fixture->loop, fixture_stop, fixture);
    loop_timer_set(timer, us);
    loop_uv_run(fixture->loop);
    loop_timer_destroy(timer);
}

static inline void worker_forget(struct worker *worker)
{
    worker->proc->ops->forget(worker->proc);
    worker->proc = NULL;
}

/* Until GONE, then forgotten. */
static inline void worker_finish(struct worker *worker)
{
    worker_until(worker, LAUNCHER_GONE);
    worker_forget(worker);
}

static inline void worker_kill(struct worker *worker)
{
    worker->proc->ops->kill(worker->proc);
}

/* A file of the worker's directory. */
static inline char *worker_file(const struct worker *worker, const char *name, size_t *len)
{
    char *bytes = NULL;
    size_t got = 0;
    struct error err;
    if (file_read(unit_path(worker->dir, name), (size_t)64 << 20, &bytes, &got, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    if (len)
        *len = got;
    return bytes;
}

static inline void worker_assert_out(const struct worker *worker, const char *expected)
{
    char *out = worker_file(worker, "out", NULL);
    assert_string_equal(out, expected);
    mem_free(out);
}

/* Until the worker has written that many bytes to its stdout: how workers say they are ready. */
static inline void worker_until_out(struct worker *worker, off_t bytes)
{
    struct stat st = {0};
    for (int i = 0; i < 12000; i++) {
        if (stat(unit_path(worker->dir, "out"), &st) == 0 && st.st_size >= bytes)
            return;
        fixture_run(worker->fixture, 10000);
    }
    fail_msg("%s wrote %lld of %lld bytes", worker->dir, (long long)st.st_size, (long long)bytes);
}

static inline size_t worker_survivors(const struct worker *worker)
{
    struct stray_list list;
    const struct stray_query query = {.tag = worker->tag};
    stray_find(&query, &list);
    size_t count = list.count;
    stray_list_fini(&list);
    return count;
}

static inline size_t fixture_descriptors(void)
{
    struct file_list list;
    assert_int_equal(file_list_read("/proc/self/fd", 10000, &list, NULL), STATUS_OK);
    size_t count = list.count;
    file_list_fini(&list);
    return count;
}
