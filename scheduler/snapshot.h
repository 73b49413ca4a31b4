/* snapshot.h - what the scheduler sees, and the plan it answers with.
 *
 * Plain values; the caller owns a snapshot and all it points to, and it does not change during a
 * pass. The plan and all it points to live in the arena given to the pass. Devices are named by
 * (kind, index); memory in MiB; times are the caller's microseconds and only compared. */
#pragma once
#include "base/mem.h"
#include <stdbool.h>
#include <stdint.h>

struct snapshot_kind { /* devices of one kind on one node */
    const char *name;
    uint32_t *free; /* indices, ascending; the pass consumes its own copy */
    size_t free_count;
    size_t usable_count; /* healthy ones, free or not: could it ever fit? */
};
struct snapshot_node {
    const char *name;
    bool open; /* in service and healthy */
    uint64_t memory_free_mib, memory_mib;
    struct snapshot_kind *kinds;
    size_t kinds_count;
    const char *const *vaults; /* names it offers */
    size_t vaults_count;
};
struct snapshot_role {
    const char *name, *device;
    uint32_t workers, workers_min; /* min <= size <= workers is acceptable */
    uint32_t devices, cpus;        /* a worker's; cpus beside devices of another kind */
    uint64_t memory_mib;
};
struct snapshot_avoid { /* a node where the job just failed to start: see avoid.h */
    const char *node;
    int64_t until_us;
    const char *why;
    int64_t since_us; /* it failed there last */
};
struct snapshot_job { /* in the order they are to be tried */
    int64_t id;
    const struct snapshot_role *roles;
    size_t roles_count;
    const char *vault;     /* every node must offer it; NULL: any */
    const char *only_node; /* class `node` vault that holds its checkpoints; NULL: any */
    /* Left alone until their time is over, if the other nodes could ever hold the gang; if not,
     * they are as good as any. So they are for a job that found no room elsewhere for AVOID_WAIT_US
     * after its last failure: it may have been its own, and to wait for more is to wait in vain. */
    const struct snapshot_avoid *avoids;
    size_t avoids_count;
};
struct snapshot {
    struct snapshot_node *nodes;
    size_t nodes_count;
    const struct snapshot_job *jobs;
    size_t jobs_count;
    int64_t now_us; /* on the clock of the avoids */
};

struct plan_worker {
    uint32_t role, rank;
    size_t node;              /* index into the snapshot's nodes */
    uint32_t *devices, *cpus; /* in the snapshot's lists of free ones */
    uint32_t devices_count, cpus_count;
};
enum plan_answer { PLAN_START, PLAN_NO_ROOM, PLAN_UNSATISFIABLE };
struct plan_entry { /* one per job that was looked at, in order */
    size_t job;     /* index into the snapshot's jobs */
    enum plan_answer answer;
    struct plan_worker *workers; /* START: by role, then rank; workers of one node are neighbours */
    size_t workers_count;
    const char *text; /* why, for people */
};
struct plan {
    struct plan_entry *entries;
    size_t entries_count;
};
