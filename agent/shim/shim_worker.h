/* shim_worker.h - turning a fork of the shim into the worker.
 *
 * One thread, the shim's main one: the worker dies with it (PDEATHSIG follows the thread). */
#pragma once
#include "agent/shim/shim_request.h"
#include <sys/types.h>

/* Open before the fork: what the worker's descriptors 0, 1 and 2 become. */
struct shim_worker_files {
    int null, out, err;
};
struct shim_worker_failure { /* also the message on the exec pipe */
    int32_t stage, error;
};

int shim_worker_files_open(struct shim_worker_files *files, int dir,
                           const struct shim_request *request);
void shim_worker_files_close(struct shim_worker_files *files);
/* Forks the worker and waits until it has executed its program. Its pid, or -1 with *failure; then
 * nothing of it is left. */
pid_t shim_worker_start(const struct shim_request *request, const struct shim_worker_files *files,
                        struct shim_worker_failure *failure);
