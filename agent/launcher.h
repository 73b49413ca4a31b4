/* launcher.h - the seam to processes: start a worker under its shim, signal it, kill all of it,
 * adopt it after a restart.
 *
 * Two implementations: launcher_shim.c (real shims) and the simulator's. Loop thread only; nothing
 * blocks. Every worker has a directory of its own,
 * <work>/<job>.<attempt>.<role>.<rank>.<incarnation>, that holds all that must survive the agent:
 * request, shim's pid file, exit record, out, err, reports, page, sock. A process handle lives
 * until launcher_forget. Events come on the loop, never from inside a call. */
#pragma once
#include "base/error.h"
#include "base/loop.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct launcher;
struct launcher_proc;

struct launcher_request { /* borrowed for the call */
    const char
        *dir; /* exists already, mode 0700 of the worker's user's group; created by the caller */
    const char *const *argv; /* NULL-terminated */
    const char *const *env;  /* NULL-terminated NAME=VALUE: all of it, nothing is inherited */
    const char *cwd;
    const char *user; /* NULL: the agent's own */
    uint32_t umask;
    uint64_t memory_mib;  /* 0: no limit */
    const char *tag;      /* RONDO_WORKER=<tag> is in env: how strays are found in /proc */
    const uint32_t *cpus; /* bind to these CPU slots; count 0: do not bind */
    size_t cpus_count;
};

enum launcher_event_kind {
    LAUNCHER_STARTED,    /* exec succeeded: pid */
    LAUNCHER_FAILED,     /* never ran: text names path and errno */
    LAUNCHER_EXITED,     /* main process ended: exit_code or signal; strays are being killed */
    LAUNCHER_GONE,       /* nothing of it is left; after EXITED, FAILED or SHIM_LOST */
    LAUNCHER_SHIM_LOST,  /* the shim died without an exit record; the worker is being killed */
    LAUNCHER_UNKILLABLE, /* processes in D state after KILL: pids in text. GONE may still come later
                          */
};
struct launcher_event {
    enum launcher_event_kind kind;
    pid_t pid;
    int exit_code, signal;
    bool out_of_memory; /* the cgroup's limit or the kernel's OOM killer ended it */
    const char *text;
};
typedef void (*launcher_fn)(void *arg, struct launcher_proc *proc,
                            const struct launcher_event *event);

struct launcher_ops {
    struct launcher_proc *(*start)(struct launcher *launcher,
                                   const struct launcher_request *request, launcher_fn fn,
                                   void *arg);
    /* Takes up a worker that an earlier agent started in dir: the events it missed come again
     * (STARTED, EXITED, ...). */
    struct launcher_proc *(*adopt)(struct launcher *launcher, const char *dir, const char *tag,
                                   launcher_fn fn, void *arg);
    void (*signal)(struct launcher_proc *proc, int signo); /* the main process alone */
    void (*kill)(
        struct launcher_proc *proc); /* KILL to everything of it; GONE or UNKILLABLE follows */
    void (*forget)(struct launcher_proc
                       *proc); /* after GONE, or to leave it running at the agent's own exit */
    /* What is enforced, said at start: "cgroup2.kill": all of a worker is killed at once;
     * "memory": of a worker as a whole; "memory.process": of each of its processes alone;
     * "pids": its processes and threads are counted. */
    const char *(*limits)(struct launcher *launcher);
    void (*destroy)(struct launcher *launcher); /* leaves workers running */
};
struct launcher {
    const struct launcher_ops *ops;
};
struct launcher_proc {
    const struct launcher_ops *ops;
};

struct launcher_shim_options {
    struct loop *loop;     /* loop_uv */
    const char *shim_path; /* bin/rondo-shim */
    bool without_cgroups;  /* even where there are some */
    unsigned spares;       /* shims kept waiting for a start; 0: none */
    uint64_t tasks_max;    /* of one worker, where a cgroup can hold it to that; 0: no limit */
};
enum status launcher_shim_create(const struct launcher_shim_options *options, struct launcher **out,
                                 struct error *err) MUST_CHECK;
