/* launcher_shim_pass.h - one look at a worker from outside: kill, find what is left, read how it
 * ended, clear away its cgroups.
 *
 * launcher_shim_pass_run blocks and belongs on a pool thread. A pass is idempotent: passes are
 * repeated until what was asked for is true. */
#pragma once
#include "agent/cgroup.h"
#include "agent/launcher_shim_wire.h"
#include "base/text.h"

enum launcher_shim_pass_flags {
    PASS_ADOPT = 1,    /* find out about a worker of which only the directory is known */
    PASS_KILL = 2,     /* cgroup.kill */
    PASS_WALK = 4,     /* find by descent, session and tag; KILL each */
    PASS_EXIT = 8,     /* read the exit record; reap the shim if it is our child and ended */
    PASS_REMOVE = 16,  /* remove the cgroups */
    PASS_SEEK = 32,    /* with ADOPT: KILL a shim that has not said its pid */
    PASS_WITNESS = 64, /* with EXIT: was it the kernel that killed it? */
};
struct launcher_shim_pass {
    /* in */
    unsigned flags;
    const char *dir, *tag, *boot_id; /* borrowed until the pass is done */
    struct launcher_shim_pid ids;    /* what is known; PASS_ADOPT fills it */
    bool shim_watched;               /* the shim has not ended: ids.shim is nobody else yet */
    bool session_fresh;              /* the worker was seen with its shim: its session is its own */
    /* out */
    bool has_pid, has_exit, has_request;
    bool shim_lives;        /* PASS_ADOPT: the request's lock is held */
    bool other_boot;        /* PASS_ADOPT: it ran before the machine started */
    int shim_fd, worker_fd; /* PASS_ADOPT: pidfds, the caller's to close; -1: ended */
    struct launcher_shim_exit exit;
    bool out_of_memory;
    size_t left;       /* PASS_WALK: alive, after KILL was sent */
    struct text stuck; /* those in uninterruptible sleep: "12 34" */
    bool removed;      /* PASS_REMOVE: nothing of the cgroups is left */
};

void launcher_shim_pass_run(struct launcher_shim_pass *pass);
void launcher_shim_pass_fini(struct launcher_shim_pass *pass);
