/* launcher_shim.c - workers under real shims: the seam of launcher.h over libuv.
 *
 * A worker goes STARTING -> WAITING -> RUNNING -> ENDED -> CLEANING -> GONE, skipping what it does
 * not need; an adopted one enters where its records say. The end is told by pidfds, for workers of
 * ours and of an earlier agent alike. Whatever may block is done in passes on the pool, one at a
 * time per worker; each pass can be repeated, so that a lost or late one changes nothing. */
#include "agent/launcher.h"
#include "agent/launcher_shim_pass.h"
#include "agent/launcher_shim_pool.h"
#include "agent/launcher_shim_spare.h"
#include "agent/launcher_shim_start.h"
#include "agent/launcher_shim_watch.h"
#include "agent/stray.h"
#include "base/file.h"
#include "base/list.h"
#include "base/log.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHIM_THREADS             4
#define SHIM_ESCALATE_US         1000000  /* a shim that was asked to kill gets that long */
#define SHIM_UNKILLABLE_US       5000000  /* then the operator hears of it */
#define SHIM_HANGS_US            10000000 /* nothing is left but the shim: it ends too */
#define SHIM_PAUSE_US_MIN        2000
#define SHIM_PAUSE_US_MAX        500000
#define SHIM_UNKILLABLE_PAUSE_US 2000000

enum shim_state {
    SHIM_STARTING, /* in the pool: being started, or its records being read */
    SHIM_WAITING,  /* the shim runs, the worker not yet */
    SHIM_RUNNING,  /* STARTED was told */
    SHIM_ENDED,    /* EXITED or FAILED was told; the shim kills what is left */
    SHIM_CLEANING, /* the shim is gone; we kill what is left */
    SHIM_GONE,
};

struct shim_launcher {
    struct launcher base;
    struct loop *loop;
    struct uv_loop_s *uv;
    struct launcher_shim_pool *pool;
    struct launcher_shim_spares *spares;
    struct cgroup *cgroup;
    struct list procs;
    char *shim_path;
    char boot_id[64];
    char limits[96]; /* as launcher.h says */
};

struct shim_proc {
    struct launcher_proc base;
    struct shim_launcher *owner;
    struct list node;
    launcher_fn fn; /* NULL: forgotten */
    void *arg;
    char *dir, *tag;
    enum shim_state state;
    unsigned holds; /* a pass in the pool, a callback in progress */

    struct launcher_shim_job job;
    struct launcher_shim_start *start; /* while STARTING a worker of our own */
    struct launcher_shim_pass pass;
    bool passing; /* job is in the pool */
    bool fresh;   /* the shim was seen alive */
    bool other_boot;
    unsigned next; /* flags of the pass to follow */
    struct launcher_shim_pid ids;

    struct launcher_shim_watch *ready, *shim, *worker;
    struct loop_timer *timer;
    int64_t pause_us;   /* of the timer, growing */
    int64_t kill_us;    /* since when it should be gone; 0: it may run */
    int signal_waiting; /* came before the worker ran */
    bool asked_to_kill; /* by our caller */
    bool told_unkillable;
};

static void shim_proc_pass(struct shim_proc *proc, unsigned flags);

static struct shim_proc *shim_proc_of(struct launcher_proc *proc)
{
    return CONTAINER_OF(proc, struct shim_proc, base);
}

/* --- life of the handle */

static void shim_proc_close(struct shim_proc *proc)
{
    launcher_shim_watch_close(&proc->ready);
    launcher_shim_watch_close(&proc->shim);
    launcher_shim_watch_close(&proc->worker);
    loop_timer_destroy(proc->timer);
    proc->timer = NULL;
}

static void shim_proc_release(struct shim_proc *proc)
{
    if (--proc->holds > 0)
        return;
    if (proc->start) {
        launcher_shim_start_fini(proc->start);
        mem_free(proc->start);
    }
    launcher_shim_pass_fini(&proc->pass);
    mem_free(proc->dir);
    mem_free(proc->tag);
    mem_free(proc);
}

static void shim_forget(struct launcher_proc *base)
{
    struct shim_proc *proc = shim_proc_of(base);
    proc->fn = NULL;
    shim_proc_close(proc);
    list_remove(&proc->node);
    shim_proc_release(proc);
}

/* False when the callback has forgotten the worker: then proc is not to be touched again. */
static bool shim_proc_tell(struct shim_proc *proc, const struct launcher_event *event)
{
    if (!proc->fn)
        return false;
    proc->holds++;
    proc->fn(proc->arg, &proc->base, event);
    bool wanted = proc->fn != NULL;
    shim_proc_release(proc);
    return wanted;
}

static bool shim_proc_tell_text(struct shim_proc *proc, enum launcher_event_kind kind,
                                const char *text)
{
    const struct launcher_event event = {.kind = kind, .pid = proc->ids.worker, .text = text};
    return shim_proc_tell(proc, &event);
}

static void shim_proc_gone(struct shim_proc *proc)
{
    proc->state = SHIM_GONE;
    shim_proc_close(proc);
    shim_proc_tell_text(proc, LAUNCHER_GONE, NULL);
}

static void shim_proc_wake(struct shim_proc *proc, int64_t delay_us);

/* --- the end */

/* EXITED or FAILED, by the record. */
static bool shim_proc_ended(struct shim_proc *proc, const struct launcher_shim_pass *pass)
{
    const struct launcher_shim_exit *record = &pass->exit;
    proc->state = SHIM_ENDED;
    if (proc->kill_us == 0)
        proc->kill_us = loop_now_us(proc->owner->loop);
    if (proc->shim)
        shim_proc_wake(proc, SHIM_ESCALATE_US);
    if (record->stage != SHIM_STAGE_NONE) {
        struct text text;
        text_init(&text, 1024);
        launcher_shim_wire_explain(record, proc->start ? proc->start->program : "its program",
                                   proc->start ? proc->start->cwd : "its directory",
                                   proc->start ? proc->start->user : NULL, &text);
        bool wanted = shim_proc_tell_text(proc, LAUNCHER_FAILED, text_get(&text));
        text_fini(&text);
        return wanted;
    }
    const struct launcher_event event = {
        .kind = LAUNCHER_EXITED,
        .pid = proc->ids.worker,
        .exit_code = record->code,
        .signal = record->signal,
        .out_of_memory = pass->out_of_memory,
    };
    return shim_proc_tell(proc, &event);
}

static bool shim_proc_unkillable(struct shim_proc *proc, const char *pids)
{
    const int64_t since = proc->kill_us;
    if (proc->told_unkillable || since == 0 || !*pids ||
        loop_now_us(proc->owner->loop) - since < SHIM_UNKILLABLE_US)
        return true;
    proc->told_unkillable = true;
    SCOPED_TEXT char *text = mem_printf("in uninterruptible sleep: %s", pids);
    return shim_proc_tell_text(proc, LAUNCHER_UNKILLABLE, text);
}

static void shim_proc_clean(struct shim_proc *proc)
{
    proc->state = SHIM_CLEANING;
    proc->pause_us = SHIM_PAUSE_US_MIN;
    if (proc->kill_us == 0)
        proc->kill_us = loop_now_us(proc->owner->loop);
    shim_proc_pass(proc, PASS_KILL | PASS_WALK | PASS_REMOVE);
}

/* The shim is gone, and the pass has read all that it left. */
static void shim_proc_shim_gone(struct shim_proc *proc, const struct launcher_shim_pass *pass)
{
    if (proc->state != SHIM_ENDED) {
        proc->state = SHIM_CLEANING;
        const char *text = proc->ids.worker > 0
                               ? "the shim was killed"
                               : "the shim ended before the worker was known to run";
        if (!shim_proc_tell_text(proc, LAUNCHER_SHIM_LOST, text))
            return;
        if (proc->other_boot) {
            shim_proc_gone(proc);
            return;
        }
    } else if (proc->other_boot || (pass->has_exit && pass->exit.gone && pass->removed)) {
        shim_proc_gone(proc);
        return;
    }
    shim_proc_clean(proc);
}

static void shim_proc_passed_cleaning(struct shim_proc *proc, const struct launcher_shim_pass *pass)
{
    if (pass->left == 0 && pass->removed) {
        shim_proc_gone(proc);
        return;
    }
    if (!shim_proc_unkillable(proc, text_get(&pass->stuck)))
        return;
    shim_proc_wake(proc, proc->told_unkillable ? SHIM_UNKILLABLE_PAUSE_US : proc->pause_us);
    if (proc->pause_us < SHIM_PAUSE_US_MAX)
        proc->pause_us *= 2;
}

/* The shim still runs. */
static void shim_proc_passed_running(struct shim_proc *proc, const struct launcher_shim_pass *pass)
{
    const int64_t now = loop_now_us(proc->owner->loop);
    if ((pass->flags & PASS_WALK) && !shim_proc_unkillable(proc, text_get(&pass->stuck)))
        return;
    if ((pass->flags & PASS_WALK) && pass->left == 0 && now - proc->kill_us > SHIM_HANGS_US) {
        char shim[16]; /* the shim itself, perhaps in a write to a dead disk */
        snprintf(shim, sizeof(shim), "%d", (int)proc->ids.shim);
        syscall(SYS_pidfd_send_signal, launcher_shim_watch_fd(proc->shim), SIGKILL, NULL, 0u);
        if (now - proc->kill_us > 2 * SHIM_HANGS_US && !shim_proc_unkillable(proc, shim))
            return;
    }
    if (proc->kill_us > 0) {
        shim_proc_wake(proc, SHIM_ESCALATE_US);
    } else if (!proc->worker) { /* it has ended; its record is about to be written */
        shim_proc_wake(proc, proc->pause_us);
        if (proc->pause_us < SHIM_PAUSE_US_MAX)
            proc->pause_us *= 2;
    }
}

/* --- watching */

static void shim_proc_on_shim(void *arg);

static void shim_proc_on_worker(void *arg)
{
    struct shim_proc *proc = arg;
    launcher_shim_watch_close(&proc->worker);
    proc->pause_us = 10 * SHIM_PAUSE_US_MIN; /* most shims end before that, and tell it all */
    if (proc->state == SHIM_RUNNING && proc->kill_us == 0)
        shim_proc_wake(proc, proc->pause_us);
}

static void shim_proc_watch(struct shim_proc *proc, int shim_fd, int worker_fd)
{
    proc->fresh |= shim_fd >= 0;
    if (shim_fd >= 0)
        proc->shim = launcher_shim_watch_create(proc->owner->uv, shim_fd, shim_proc_on_shim, proc);
    if (worker_fd >= 0)
        proc->worker =
            launcher_shim_watch_create(proc->owner->uv, worker_fd, shim_proc_on_worker, proc);
}

static void shim_proc_signal_worker(struct shim_proc *proc, int signo)
{
    if (proc->worker)
        syscall(SYS_pidfd_send_signal, launcher_shim_watch_fd(proc->worker), signo, NULL, 0u);
}

static bool shim_proc_started(struct shim_proc *proc)
{
    proc->state = SHIM_RUNNING;
    if (proc->signal_waiting)
        shim_proc_signal_worker(proc, proc->signal_waiting);
    return shim_proc_tell_text(proc, LAUNCHER_STARTED, NULL);
}

/* What the shim says on its pipe: that the worker runs, or why it does not. */
static bool shim_proc_read_ready(struct shim_proc *proc)
{
    char bytes[SHIM_WIRE_RECORD_MAX];
    struct launcher_shim_pid ids;
    struct launcher_shim_pass ended = {0};
    ssize_t got = read(launcher_shim_watch_fd(proc->ready), bytes, sizeof(bytes));
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    launcher_shim_watch_close(&proc->ready);
    if (got <= 0 || proc->state != SHIM_WAITING)
        return true;
    if (launcher_shim_wire_pid(bytes, (size_t)got, &ids, NULL) == STATUS_OK) {
        proc->ids = ids;
        int fd = (int)syscall(SYS_pidfd_open, ids.worker, 0u);
        if (fd >= 0 && !stray_is_alive(ids.worker, ids.worker_start)) {
            close(fd);
            fd = -1;
        }
        shim_proc_watch(proc, -1, fd);
        return shim_proc_started(proc);
    }
    if (launcher_shim_wire_exit(bytes, (size_t)got, &ended.exit, NULL) == STATUS_OK)
        return shim_proc_ended(proc, &ended);
    return true;
}

static void shim_proc_on_ready(void *arg)
{
    shim_proc_read_ready(arg);
}

static void shim_proc_on_shim(void *arg)
{
    struct shim_proc *proc = arg;
    if (proc->ready && !shim_proc_read_ready(proc))
        return;
    launcher_shim_watch_close(&proc->shim);
    launcher_shim_watch_close(&proc->worker);
    loop_timer_stop(proc->timer);
    shim_proc_pass(proc, PASS_EXIT | PASS_REMOVE | (proc->asked_to_kill ? 0 : PASS_WITNESS));
}

/* --- passes */

static void shim_proc_adopted(struct shim_proc *proc, struct launcher_shim_pass *pass)
{
    proc->ids = pass->ids;
    proc->other_boot = pass->other_boot;
    if (pass->shim_lives && !pass->has_pid && !pass->has_exit) { /* in the middle of a start */
        shim_proc_wake(proc, proc->pause_us);
        if (proc->pause_us < SHIM_PAUSE_US_MAX)
            proc->pause_us *= 2;
        return;
    }
    shim_proc_watch(proc, pass->shim_fd, pass->worker_fd);
    pass->shim_fd = pass->worker_fd = -1;
    const bool lives = proc->shim != NULL;
    proc->state = SHIM_WAITING;
    if (pass->has_pid && !shim_proc_started(proc))
        return;
    if (pass->has_exit && !shim_proc_ended(proc, pass))
        return;
    if (!lives)
        shim_proc_pass(proc, PASS_EXIT | PASS_REMOVE);
    else if (proc->kill_us > 0)
        shim_proc_wake(proc, 0);
    else if (!proc->worker)
        shim_proc_wake(proc, proc->pause_us);
}

static void shim_proc_passed(struct shim_proc *proc, struct launcher_shim_pass *pass)
{
    if (pass->flags & PASS_ADOPT) {
        shim_proc_adopted(proc, pass);
        return;
    }
    if (pass->has_exit && (proc->state == SHIM_RUNNING || proc->state == SHIM_WAITING) &&
        !shim_proc_ended(proc, pass))
        return;
    if (proc->state == SHIM_CLEANING)
        shim_proc_passed_cleaning(proc, pass);
    else if (proc->shim)
        shim_proc_passed_running(proc, pass);
    else if (pass->flags & PASS_EXIT)
        shim_proc_shim_gone(proc, pass);
}

static void shim_proc_pass_run(struct launcher_shim_job *job)
{
    launcher_shim_pass_run(&CONTAINER_OF(job, struct shim_proc, job)->pass);
}

static void shim_proc_pass_done(struct launcher_shim_job *job)
{
    struct shim_proc *proc = CONTAINER_OF(job, struct shim_proc, job);
    struct launcher_shim_pass pass = proc->pass;
    proc->pass = (struct launcher_shim_pass){0};
    proc->passing = false;
    proc->holds++;
    if (proc->fn && proc->next) { /* something was asked meanwhile: what this pass saw may be old */
        unsigned next = proc->next | (pass.flags & (PASS_ADOPT | PASS_EXIT));
        shim_proc_pass(proc, next);
    } else if (proc->fn) {
        shim_proc_passed(proc, &pass);
    }
    if (pass.shim_fd >= 0)
        close(pass.shim_fd);
    if (pass.worker_fd >= 0)
        close(pass.worker_fd);
    launcher_shim_pass_fini(&pass);
    shim_proc_release(proc);
    shim_proc_release(proc);
}

static void shim_proc_pass(struct shim_proc *proc, unsigned flags)
{
    if (proc->passing) {
        proc->next |= flags;
        return;
    }
    proc->next = 0;
    proc->passing = true;
    proc->holds++;
    proc->pass = (struct launcher_shim_pass){
        .flags = flags,
        .dir = proc->dir,
        .tag = proc->tag,
        .boot_id = proc->owner->boot_id,
        .ids = proc->ids,
        .shim_watched = proc->shim != NULL,
        .session_fresh = proc->fresh,
    };
    proc->job.run = shim_proc_pass_run;
    proc->job.done = shim_proc_pass_done;
    launcher_shim_pool_submit(proc->owner->pool, &proc->job);
}

/* --- asking for an end */

/* CONT, because a stopped shim hears nothing. */
static void shim_proc_ask_shim(const struct shim_proc *proc)
{
    const int fd = launcher_shim_watch_fd(proc->shim);
    syscall(SYS_pidfd_send_signal, fd, SHIM_WIRE_KILL, NULL, 0u);
    syscall(SYS_pidfd_send_signal, fd, SIGCONT, NULL, 0u);
}

static void shim_proc_tick(void *arg)
{
    struct shim_proc *proc = arg;
    switch (proc->state) {
    case SHIM_STARTING:
        shim_proc_pass(proc, PASS_ADOPT | PASS_EXIT | (proc->asked_to_kill ? PASS_SEEK : 0));
        break;
    case SHIM_CLEANING:
        shim_proc_pass(proc, PASS_KILL | PASS_WALK | PASS_REMOVE);
        break;
    case SHIM_WAITING:
    case SHIM_RUNNING:
    case SHIM_ENDED:
        if (!proc->shim)
            break; /* its last pass is on the way */
        if (proc->kill_us > 0) {
            shim_proc_ask_shim(proc);
            shim_proc_pass(proc, PASS_KILL | PASS_WALK | PASS_EXIT);
        } else {
            shim_proc_pass(proc, PASS_EXIT);
        }
        break;
    case SHIM_GONE:
        break;
    }
}

static void shim_proc_wake(struct shim_proc *proc, int64_t delay_us)
{
    if (proc->timer)
        loop_timer_set(proc->timer, delay_us);
}

/* The cgroup and the shim first; a walk over all processes only if they do not do. */
static void shim_proc_kill_now(struct shim_proc *proc)
{
    if (!proc->shim || (proc->state != SHIM_WAITING && proc->state != SHIM_RUNNING))
        return;
    shim_proc_ask_shim(proc);
    if (proc->ids.cgroup2[0])
        shim_proc_pass(proc, PASS_KILL);
    shim_proc_wake(proc, SHIM_ESCALATE_US);
}

static void shim_kill(struct launcher_proc *base)
{
    struct shim_proc *proc = shim_proc_of(base);
    proc->asked_to_kill = true;
    if (proc->kill_us == 0)
        proc->kill_us = loop_now_us(proc->owner->loop);
    shim_proc_kill_now(proc);
}

static void shim_signal(struct launcher_proc *base, int signo)
{
    struct shim_proc *proc = shim_proc_of(base);
    if (proc->state == SHIM_STARTING || proc->state == SHIM_WAITING)
        proc->signal_waiting = signo;
    else
        shim_proc_signal_worker(proc, signo);
}

/* --- beginning */

static struct shim_proc *shim_proc_create(struct shim_launcher *launcher, const char *dir,
                                          const char *tag, launcher_fn fn, void *arg)
{
    struct shim_proc *proc = NEW(struct shim_proc);
    proc->base.ops = launcher->base.ops;
    proc->owner = launcher;
    proc->fn = fn;
    proc->arg = arg;
    proc->dir = mem_strdup(dir);
    proc->tag = mem_strdup(tag);
    proc->holds = 1;
    proc->pause_us = SHIM_PAUSE_US_MIN;
    proc->timer = loop_timer_create(launcher->loop, shim_proc_tick, proc);
    proc->pass.shim_fd = proc->pass.worker_fd = -1;
    list_add_last(&launcher->procs, &proc->node);
    return proc;
}

static void shim_proc_start_run(struct launcher_shim_job *job)
{
    launcher_shim_start_run(CONTAINER_OF(job, struct shim_proc, job)->start);
}

static void shim_proc_start_failed(struct shim_proc *proc)
{
    proc->state = SHIM_ENDED;
    if (!shim_proc_tell_text(proc, LAUNCHER_FAILED, proc->start->err.text))
        return;
    proc->state = SHIM_CLEANING;
    shim_proc_pass(proc, PASS_REMOVE);
}

static void shim_proc_start_done(struct launcher_shim_job *job)
{
    struct shim_proc *proc = CONTAINER_OF(job, struct shim_proc, job);
    struct launcher_shim_start *start = proc->start;
    proc->passing = false;
    if (!proc->fn) { /* forgotten: it runs on, as after an end of the agent */
        if (start->shim > 0) {
            close(start->shim_fd);
            close(start->ready_fd);
        }
    } else if (start->shim == 0) {
        memcpy(proc->ids.cgroup2, start->cgroups.v2, sizeof(start->cgroups.v2));
        memcpy(proc->ids.cgroup1, start->cgroups.v1, sizeof(start->cgroups.v1));
        memcpy(proc->ids.cgroup_pids, start->cgroups.pids, sizeof(start->cgroups.pids));
        shim_proc_start_failed(proc);
    } else {
        proc->state = SHIM_WAITING;
        proc->ids.shim = start->shim;
        memcpy(proc->ids.cgroup2, start->cgroups.v2, sizeof(start->cgroups.v2));
        memcpy(proc->ids.cgroup1, start->cgroups.v1, sizeof(start->cgroups.v1));
        memcpy(proc->ids.cgroup_pids, start->cgroups.pids, sizeof(start->cgroups.pids));
        proc->ready =
            launcher_shim_watch_create(proc->owner->uv, start->ready_fd, shim_proc_on_ready, proc);
        shim_proc_watch(proc, start->shim_fd, -1);
        if (proc->kill_us > 0)
            shim_proc_kill_now(proc);
    }
    shim_proc_release(proc);
}

static struct launcher_proc *
shim_start(struct launcher *base, const struct launcher_request *request, launcher_fn fn, void *arg)
{
    struct shim_launcher *launcher = CONTAINER_OF(base, struct shim_launcher, base);
    struct shim_proc *proc = shim_proc_create(launcher, request->dir, request->tag, fn, arg);
    proc->start = NEW(struct launcher_shim_start);
    launcher_shim_start_init(proc->start, launcher->shim_path, launcher->boot_id, launcher->cgroup,
                             request);
    proc->start->has_spare = launcher_shim_spares_take(launcher->spares, &proc->start->spare);
    proc->passing = true;
    proc->holds++;
    proc->job.run = shim_proc_start_run;
    proc->job.done = shim_proc_start_done;
    launcher_shim_pool_submit(launcher->pool, &proc->job);
    return &proc->base;
}

static struct launcher_proc *shim_adopt(struct launcher *base, const char *dir, const char *tag,
                                        launcher_fn fn, void *arg)
{
    struct shim_launcher *launcher = CONTAINER_OF(base, struct shim_launcher, base);
    struct shim_proc *proc = shim_proc_create(launcher, dir, tag, fn, arg);
    shim_proc_pass(proc, PASS_ADOPT | PASS_EXIT);
    return &proc->base;
}

static const char *shim_limits(struct launcher *base)
{
    return CONTAINER_OF(base, struct shim_launcher, base)->limits;
}

/* Without a cgroup for it, memory is limited by process (launcher_shim_start.c). */
static void shim_say_limits(struct shim_launcher *launcher)
{
    const char *groups = cgroup_limits(launcher->cgroup);
    if (cgroup_has_memory(launcher->cgroup))
        snprintf(launcher->limits, sizeof(launcher->limits), "%s", groups);
    else
        snprintf(launcher->limits, sizeof(launcher->limits), "%s%smemory.process",
                 strcmp(groups, "none") == 0 ? "" : groups, strcmp(groups, "none") == 0 ? "" : ",");
}

static void shim_destroy(struct launcher *base)
{
    struct shim_launcher *launcher = CONTAINER_OF(base, struct shim_launcher, base);
    while (!list_is_empty(&launcher->procs))
        shim_forget(&LIST_ITEM(launcher->procs.next, struct shim_proc, node)->base);
    launcher_shim_spares_stop(launcher->spares);
    launcher_shim_pool_destroy(launcher->pool);
    launcher_shim_spares_destroy(launcher->spares);
    cgroup_destroy(launcher->cgroup);
    mem_free(launcher->shim_path);
    mem_free(launcher);
}

static const struct launcher_ops shim_ops = {
    .start = shim_start,
    .adopt = shim_adopt,
    .signal = shim_signal,
    .kill = shim_kill,
    .forget = shim_forget,
    .limits = shim_limits,
    .destroy = shim_destroy,
};

enum status launcher_shim_create(const struct launcher_shim_options *options, struct launcher **out,
                                 struct error *err)
{
    static const struct cgroup_options no_cgroups = {"/dev/null", "/dev/null", 0};
    const struct cgroup_options cgroups = {NULL, NULL, options->tasks_max};
    char *boot_id = NULL;
    size_t len = 0;
    if (access(options->shim_path, X_OK) != 0)
        return error_set(err, STATUS_NOT_FOUND, "no program %s: %s", options->shim_path,
                         strerror(errno));
    enum status st = file_read("/proc/sys/kernel/random/boot_id", 64, &boot_id, &len, err);
    if (st != STATUS_OK)
        return st;
    struct shim_launcher *launcher = NEW(struct shim_launcher);
    launcher->base.ops = &shim_ops;
    launcher->loop = options->loop;
    launcher->uv = loop_uv_handle(options->loop);
    list_init(&launcher->procs);
    launcher->shim_path = mem_strdup(options->shim_path);
    boot_id[strcspn(boot_id, "\n")] = '\0';
    memcpy(launcher->boot_id, boot_id, strnlen(boot_id, sizeof(launcher->boot_id) - 1));
    mem_free(boot_id);
    launcher->cgroup = cgroup_create(options->without_cgroups ? &no_cgroups : &cgroups);
    shim_say_limits(launcher);
    if (options->tasks_max > 0 && !cgroup_has_tasks(launcher->cgroup))
        log_warn("launcher.no_pids", log_str("text", "no cgroup with the pids controller can be "
                                                     "made here: worker_tasks_max does not hold"));
    launcher->pool = launcher_shim_pool_create(options->loop, SHIM_THREADS);
    launcher->spares = launcher_shim_spares_create(options->loop, launcher->pool,
                                                   launcher->shim_path, options->spares);
    *out = &launcher->base;
    return STATUS_OK;
}
