/* shim_request.h - the request as the shim uses it: decoded, every length checked.
 *
 * One thread. The decoded strings point into the request's mapping; shim_request_fini gives both
 * back, so that a shim holds no environment while its worker runs. */
#pragma once
#include "agent/shim/shim_wire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shim_request {
    char **argv, **env; /* NULL-terminated */
    char cwd[SHIM_WIRE_PATH_MAX * 4];
    bool has_user;
    uint32_t uid, gid;
    const uint32_t *groups;
    uint32_t groups_count;
    uint32_t umask;
    const struct shim_wire_rlimit *rlimits;
    uint32_t rlimits_count;
    const uint32_t *cpus;
    uint32_t cpus_count;
    char out[SHIM_WIRE_NAME_MAX + 1], err[SHIM_WIRE_NAME_MAX + 1];
    char cgroup2[SHIM_WIRE_PATH_MAX], cgroup1[SHIM_WIRE_PATH_MAX];
    char cgroup_pids[SHIM_WIRE_PATH_MAX];
    char tag[SHIM_WIRE_NAME_MAX + 1], boot_id[64];
    void *map;
    size_t map_size;
};

/* Reads the whole request from fd. 0, or an errno: EPROTO when it is malformed. */
int shim_request_read(struct shim_request *request, int fd);
void shim_request_fini(struct shim_request *request);
