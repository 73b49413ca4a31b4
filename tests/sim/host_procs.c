/* host_procs.c - the processes of a simulated machine. See host_procs.h. */
#include "tests/sim/host_procs.h"
#include "base/mem.h"
#include "tests/sim/cluster.h"
#include "tests/sim/launched.h"
#include "tests/sim/program.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

struct procs_launcher {
    struct launcher launcher; /* first */
    struct list node;         /* in cluster->launchers */
    struct host *host;
    struct sim_process *process;
};
struct host_handle {
    struct launcher_proc proc; /* first */
    struct list node;          /* in cluster->handles */
    struct host_proc *target;  /* NULL: nothing of it was found */
    struct sim *sim;
    struct sim_process *process; /* of the agent that holds it */
    launcher_fn fn;
    void *arg;
    bool forgotten;
};
struct notice {
    struct host_handle *handle;
    enum launcher_event_kind kind;
};

/* --- telling */
static void notice_arrives(void *arg)
{
    struct notice notice = *(struct notice *)arg;
    struct host_handle *handle = notice.handle;
    struct launcher_event event = {.kind = notice.kind, .text = ""};

    mem_free(arg);
    if (handle->forgotten)
        return;
    if (handle->target) {
        event.pid = handle->target->pid;
        event.exit_code = handle->target->exit_code;
        event.signal = handle->target->signal;
    }
    handle->fn(handle->arg, &handle->proc, &event);
}

static void tell(struct host_handle *handle, enum launcher_event_kind kind, int64_t delay)
{
    if (!handle || handle->forgotten)
        return;
    struct notice *notice = NEW(struct notice);
    notice->handle = handle;
    notice->kind = kind;
    sim_after_owned(handle->sim, handle->process, delay, notice_arrives, notice);
}

/* --- processes */
static void proc_gone(void *arg)
{
    struct host_proc *proc = arg;

    if (proc->gone)
        return;
    proc->gone = true;
    tell(proc->handle, LAUNCHER_GONE, 50);
}

void host_proc_exit(struct host_proc *proc, int exit_code, int signal)
{
    if (proc->exited)
        return;
    proc->exited = true;
    proc->exit_code = exit_code;
    proc->signal = signal;
    sim_trace(proc->host->sim, "%s: %s ended, code %d signal %d", proc->host->name, proc->tag,
              exit_code, signal);
    tell(proc->handle, LAUNCHER_EXITED, 100);
    sim_after(proc->host->sim, NULL, sim_between(proc->host->sim, 200, 3000), proc_gone, proc);
}

static void proc_starts(void *arg)
{
    struct host_proc *proc = arg;

    if (proc->exited)
        return;
    proc->started = true;
    proc->program = program_create(proc);
    tell(proc->handle, LAUNCHER_STARTED, 50);
}

const char *host_proc_env(const struct host_proc *proc, const char *name)
{
    size_t len = strlen(name);

    for (char **env = proc->env; *env; env++)
        if (!strncmp(*env, name, len) && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

size_t host_procs_alive(const struct host *host)
{
    size_t count = 0;

    LIST_EACH((struct list *)(uintptr_t)&host->procs, item)
    {
        count += !LIST_ITEM(item, struct host_proc, node)->gone;
    }
    return count;
}

/* --- the seam */
static const struct launcher_ops launcher_ops;

static struct host_handle *handle_create(struct launcher *base, struct host_proc *target,
                                         launcher_fn fn, void *arg)
{
    struct procs_launcher *launcher = (struct procs_launcher *)base;
    struct host_handle *handle = NEW(struct host_handle);

    handle->proc.ops = &launcher_ops;
    handle->target = target;
    handle->sim = launcher->host->sim;
    handle->process = launcher->process;
    handle->fn = fn;
    handle->arg = arg;
    list_add_last(&launcher->host->cluster->handles, &handle->node);
    if (target)
        target->handle = handle;
    return handle;
}

static struct launcher_proc *launch(struct launcher *base, const struct launcher_request *request,
                                    launcher_fn fn, void *arg)
{
    struct host *host = ((struct procs_launcher *)base)->host;
    struct host_proc *proc = NEW(struct host_proc);
    size_t count = 0;

    while (request->env[count])
        count++;
    proc->host = host;
    proc->dir = mem_strdup(request->dir);
    proc->tag = mem_strdup(request->tag);
    proc->env = mem_array(count + 1, sizeof(char *));
    for (size_t i = 0; i < count; i++)
        proc->env[i] = mem_strdup(request->env[i]);
    proc->pid = (pid_t)(1000 + ++host->cluster->pids);
    launched_check(proc);
    list_add_last(&host->procs, &proc->node);
    if (host_procs_alive(host) > host->slots)
        sim_fail(host->sim, "%s has %zu workers on %u slots", host->name, host_procs_alive(host),
                 host->slots);
    struct host_handle *handle = handle_create(base, proc, fn, arg);
    if (!host->cluster->calm && sim_chance(host->sim, 10)) {
        proc->exited = proc->gone = true;
        tell(handle, LAUNCHER_FAILED, 500);
        tell(handle, LAUNCHER_GONE, 600);
    } else {
        sim_after(host->sim, NULL, sim_between(host->sim, 500, 5000), proc_starts, proc);
    }
    return &handle->proc;
}

static struct launcher_proc *adopt(struct launcher *base, const char *dir, const char *tag,
                                   launcher_fn fn, void *arg)
{
    struct host *host = ((struct procs_launcher *)base)->host;
    struct host_proc *found = NULL;

    (void)tag;
    LIST_EACH(&host->procs, item)
    {
        struct host_proc *proc = LIST_ITEM(item, struct host_proc, node);
        if (!strcmp(proc->dir, dir))
            found = proc;
    }
    struct host_handle *handle = handle_create(base, found, fn, arg);
    if (!found || (found->exited && !found->started)) {
        tell(handle, LAUNCHER_SHIM_LOST, 100);
        tell(handle, LAUNCHER_GONE, 200);
        return &handle->proc;
    }
    if (found->started)
        tell(handle, LAUNCHER_STARTED, 100);
    if (found->exited)
        tell(handle, LAUNCHER_EXITED, 200);
    if (found->gone)
        tell(handle, LAUNCHER_GONE, 300);
    return &handle->proc;
}

static void handle_signal(struct launcher_proc *base, int signo)
{
    struct host_proc *proc = ((struct host_handle *)base)->target;

    if (proc && proc->program && !proc->exited)
        program_signal(proc->program, signo);
}

static void kill_now(void *arg)
{
    struct host_proc *proc = arg;

    host_proc_exit(proc, 0, SIGKILL);
}

static void handle_kill(struct launcher_proc *base)
{
    struct host_handle *handle = (struct host_handle *)base;
    struct host_proc *proc = handle->target;

    if (proc && !proc->exited)
        sim_after(handle->sim, NULL, sim_between(handle->sim, 50, 3000), kill_now, proc);
}

static void handle_forget(struct launcher_proc *base)
{
    struct host_handle *handle = (struct host_handle *)base;

    handle->forgotten = true;
    if (handle->target && handle->target->handle == handle)
        handle->target->handle = NULL;
}

static const char *limits(struct launcher *base)
{
    (void)base;
    return "simulated";
}

static void launcher_destroy(struct launcher *base)
{
    (void)base;
}

static const struct launcher_ops launcher_ops = {
    launch, adopt, handle_signal, handle_kill, handle_forget, limits, launcher_destroy};

struct launcher *host_procs_launcher(struct host *host, struct sim_process *process)
{
    struct procs_launcher *launcher = NEW(struct procs_launcher);

    launcher->launcher.ops = &launcher_ops;
    launcher->host = host;
    launcher->process = process;
    list_add_last(&host->cluster->launchers, &launcher->node);
    return &launcher->launcher;
}

void host_procs_drop(struct host *host)
{
    LIST_EACH(&host->procs, item)
    {
        struct host_proc *proc = LIST_ITEM(item, struct host_proc, node);
        if (proc->handle)
            proc->handle->forgotten = true;
        proc->handle = NULL;
    }
}

void host_procs_fini(struct host *host)
{
    for (struct list *item; (item = list_take_first(&host->procs));) {
        struct host_proc *proc = LIST_ITEM(item, struct host_proc, node);
        program_destroy(proc->program);
        for (char **env = proc->env; *env; env++)
            mem_free(*env);
        mem_free(proc->env);
        mem_free(proc->dir);
        mem_free(proc->tag);
        mem_free(proc);
    }
}

void host_procs_fini_handles(struct cluster *cluster)
{
    for (struct list *item; (item = list_take_first(&cluster->handles));)
        mem_free(LIST_ITEM(item, struct host_handle, node));
    for (struct list *item; (item = list_take_first(&cluster->launchers));)
        mem_free(LIST_ITEM(item, struct procs_launcher, node));
}
