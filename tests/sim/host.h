/* host.h - a simulated machine: its disk (a real directory), its processes, and the seams that an
 * agent on it sees.
 *
 * One thread. The machine outlives its agents: kill -9 of the agent process leaves disk and workers
 * as they are. Seams are made anew for each agent process; what they had under way dies with it. */
#pragma once
#include "agent/agent.h"
#include "base/list.h"
#include "tests/support/sim.h"

struct cluster;
struct host_proc;
struct host_agent;
struct host {
    struct cluster *cluster;
    struct sim *sim;
    char name[32];
    char dir[512]; /* its disk */
    uint32_t slots;
    struct list procs;        /* struct host_proc */
    struct host_agent *agent; /* NULL: not running */
    bool partitioned;         /* cut off from the daemon */
    uint64_t instances;
};
struct host_proc {    /* a worker, with its shim */
    struct list node; /* in host->procs */
    struct host *host;
    char *dir, *tag;
    char **env;
    bool started, exited, gone;
    int exit_code, signal;
    pid_t pid;
    struct host_handle *handle; /* who hears of it; NULL: nobody */
    struct program *program;    /* its behaviour */
};

struct host *host_create(struct cluster *cluster, const char *name, uint32_t slots,
                         const char *root);
void host_destroy(struct host *host);
void host_agent_start(struct host *host);
void host_agent_kill(struct host *host); /* kill -9; workers run on */

struct sim_process *host_process(const struct host *host); /* of the running agent; NULL */
struct agent *host_agent(const struct host *host);
void host_fini_seams(struct cluster *cluster);
/* For programs: the process has ended by itself. */
void host_proc_exit(struct host_proc *proc, int exit_code, int signal);
/* A request on the control socket; answer(arg, answer) or nothing at all when the agent dies
 * meanwhile. False: nobody listens. */
bool host_ask(struct host_proc *proc, const Pb__WorkerAsk *ask,
              void (*answer)(void *arg, const Pb__WorkerAnswer *answer), void *arg);
const char *host_proc_env(const struct host_proc *proc, const char *name); /* NULL: not set */
