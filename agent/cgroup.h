/* cgroup.h - a control group a worker, where the machine offers them: killing all of it at once,
 * a limit of memory, and one of tasks (processes and threads).
 *
 * cgroup_create at start (it blocks shortly); all else on any thread but the loop's. Groups are
 * optional: probed are v2 with the memory controller, v2 bare (kill only) and v1 memory; pids of
 * either. Ours lie below `rondo/`, one directory a worker with a random name, removed when the
 * worker is gone. */
#pragma once
#include "base/error.h"
#include "base/text.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CGROUP_PATH_MAX 512

struct cgroup;
struct cgroup_options {
    const char *mountinfo;  /* NULL: /proc/self/mountinfo */
    const char *membership; /* NULL: /proc/self/cgroup */
    uint64_t tasks_max;     /* of one worker; 0: no limit */
};
/* The groups of one worker; an empty path: none. */
struct cgroup_paths {
    char v2[CGROUP_PATH_MAX];
    char v1[CGROUP_PATH_MAX];   /* memory */
    char pids[CGROUP_PATH_MAX]; /* v1's; a limit in v2 needs no group of its own */
};

/* Never NULL; with neither tree usable it offers nothing. Removes empty groups that are left from
 * earlier agents. */
struct cgroup *cgroup_create(const struct cgroup_options *options);
void cgroup_destroy(struct cgroup *cgroup); /* NULL is fine */
/* "cgroup2.kill", "memory" and "pids", those that hold, in this order; or "none". */
const char *cgroup_limits(const struct cgroup *cgroup);
bool cgroup_has_memory(const struct cgroup *cgroup); /* is a limit enforced? */
bool cgroup_has_tasks(const struct cgroup *cgroup);
/* Makes a worker's groups; memory_mib 0: no limit. A limit that cannot be enforced is left out, as
 * cgroup_limits says. Failure makes nothing. */
enum status cgroup_add(const struct cgroup *cgroup, uint64_t memory_mib, struct cgroup_paths *out,
                       struct error *err) MUST_CHECK;
/* KILL to every process in them, in one go where the kernel has it. False: there was no such way.
 */
bool cgroup_kill(const struct cgroup_paths *paths);
/* True when they are gone; false while processes are left in them. */
bool cgroup_remove(const struct cgroup_paths *paths);
/* Has the kernel killed something in them for want of memory? */
bool cgroup_is_out_of_memory(const struct cgroup_paths *paths);
