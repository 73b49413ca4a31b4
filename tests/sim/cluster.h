/* cluster.h - a whole simulated cluster from one seed: database, daemon, hosts, users, faults, and
 * what must hold. */
#pragma once
#include "daemon/core.h"
#include "tests/sim/host.h"
#include "tests/support/sim_store.h"

#define CLUSTER_HOSTS_MAX 6
#define CLUSTER_JOBS_MAX  12

struct cluster_job { /* what a user asked for */
    char request_id[48];
    int64_t id; /* 0: not acknowledged yet */
    bool acknowledged, submitted, cancelled;
    bool stays_cancelled; /* the cancel was acknowledged */
    uint32_t workers;
    int64_t steps;
    uint32_t budget; /* of relaunches; a small one may be used up */
};
struct cluster_answer { /* what ranks said at a step: must agree */
    int64_t job, step;
    uint32_t attempt, incarnation;
    int kind, yes;
};
struct cluster {
    struct sim *sim;
    struct sim_db *db;
    char root[256];
    struct sim_process *daemon_process;
    struct store *store;
    struct core *core;
    bool core_started;
    struct host *hosts[CLUSTER_HOSTS_MAX];
    size_t hosts_count;
    struct list conns, uplinks, seams, asks, handles, launchers;
    uint32_t pids;
    struct cluster_job jobs[CLUSTER_JOBS_MAX];
    size_t jobs_count;
    struct map *answers; /* "job.attempt.incarnation.kind.step" -> struct cluster_answer */
    struct map
        *reported; /* "job.attempt.role.rank.incarnation.step" -> this: what workers have written */
    struct map *incarnations; /* "job.attempt.incarnation" -> this: what was launched */
    bool lonely;              /* a daemon that is often away, programs that often fail */
    bool calm;                /* faults have stopped */
    uint64_t crashes, points, restarts;
    uint64_t filled, from_slots, verified; /* slots that workers filled; checkpoints at the end */
};

/* Runs one seed; true: nothing was broken. verbose: prints the trace also when all is well. */
bool cluster_run(uint64_t seed, const char *root, bool verbose, uint64_t *hash);
/* For programs. */
void cluster_said(struct cluster *cluster, const struct cluster_answer *answer);
void cluster_reported(struct cluster *cluster, const char *key);
