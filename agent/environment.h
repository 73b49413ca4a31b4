/* environment.h - the environment of a worker: all of it, built from scratch.
 *
 * Pure. Nothing is inherited but what the agent's options list. Order of strength: what the agent
 * sets, the node's `worker_env`, the job's own env; RONDO_* is the agent's alone. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include "base/option.h"
#include "proto/pb.h"

#define ENVIRONMENT_VALUE_BYTES_MAX 131000 /* the kernel refuses 131,072 a string */
#define ENVIRONMENT_BYTES_MAX       ((size_t)1 << 20)

struct environment;
struct environment_facts { /* borrowed for the call */
    const Pb__WorkerKey *key;
    const Pb__Launch *launch;
    const char *tag, *node;
    const char *dir, *tmp_dir;                  /* the worker's directory, its private TMPDIR */
    const char *user, *home;                    /* NULL: not known */
    const char *resume_dir;                     /* NULL: starts from the beginning */
    const char *resume_shm;                     /* NULL: no copy in this node's memory */
    const char *attempt_dir;                    /* NULL: the job has no vault */
    const char *python_path;                    /* NULL: none */
    int64_t start_us;                           /* of the attempt, CLOCK_MONOTONIC of this node */
    const struct option_list *pass_env;         /* names, taken from this process */
    const struct option_list *worker_env;       /* NAME=VALUE */
    const char *(*inherited)(const char *name); /* getenv, or the simulator's */
};
/* STATUS_INVALID names the variable that is refused. */
enum status environment_create(const struct environment_facts *facts, struct environment **out,
                               struct error *err) MUST_CHECK;
void environment_destroy(struct environment *environment); /* NULL is fine */
SCOPED_DESTRUCTOR(struct environment *, environment_destroy)
/* NULL-terminated NAME=VALUE, in a stable order. Loan. */
const char *const *environment_list(struct environment *environment);
const char *environment_get(const struct environment *environment, const char *name);
/* Every worker of the job, all roles, as JSON: what RONDO_RANK_TABLE names. */
void environment_rank_table(const Pb__Launch *launch, struct text *out);
