/* launcher_shim_start.h - starting one shim: user, cgroup, request file, process.
 *
 * launcher_shim_start_run blocks and belongs on a pool thread; all it needs is in the struct, all
 * it gives is there afterwards. */
#pragma once
#include "agent/cgroup.h"
#include "agent/launcher.h"
#include "agent/launcher_shim_spare.h"
#include "base/text.h"

struct launcher_shim_start {
    /* in: set by init, owned here */
    char *dir, *shim_path, *user, *program, *cwd;
    struct text request; /* all but the fields that only a thread may find out */
    uint64_t memory_mib;
    const struct cgroup *cgroup; /* borrowed */
    bool has_spare;              /* then it is used up */
    struct launcher_shim_spare spare;
    /* out */
    pid_t shim;            /* 0: not started, see err */
    int shim_fd, ready_fd; /* pidfd of the shim, read end of its pipe: the caller's to close */
    struct cgroup_paths cgroups; /* also when the start failed: empty or to be removed */
    struct error err;
};

/* Copies the request. */
void launcher_shim_start_init(struct launcher_shim_start *start, const char *shim_path,
                              const char *boot_id, const struct cgroup *cgroup,
                              const struct launcher_request *request);
void launcher_shim_start_fini(struct launcher_shim_start *start);
void launcher_shim_start_run(struct launcher_shim_start *start);
