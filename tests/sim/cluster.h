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
    uint32_t workers;
    int64_t steps;
};
struct cluster_answer { /* what ranks said at a step: must agree */
    int64_t job, step;
    uint32_t attempt;
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
    struct map *answers; /* "job.attempt.kind.step" -> struct cluster_answer */
    struct map
        *reported; /* "job.attempt.role.rank.incarnation.step" -> this: what workers have written */
    bool calm;     /* faults have stopped */
    uint64_t crashes, points;
};

/* Runs one seed; true: nothing was broken. verbose: prints the trace also when all is well. */
bool cluster_run(uint64_t seed, const char *root, bool verbose, uint64_t *hash);
/* For programs. */
void cluster_said(struct cluster *cluster, int64_t job, uint32_t attempt, int kind, int64_t step,
                  bool yes);
void cluster_reported(struct cluster *cluster, const char *key);
