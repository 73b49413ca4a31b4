/* vault_pool.h - the seam to checkpoints: one job for the vault at a time a request, off the loop.
 *
 * Two implementations: vault_pool_uv.c (checkpoint/vault.h in libuv's pool) and the simulator's.
 * Loop thread only. `done` runs exactly once, later; after the seam's destroy it does not run. */
#pragma once
#include "base/error.h"
#include "checkpoint/vault_look.h"
#include "proto/pb.h"
#include <stdatomic.h>
#include <stdbool.h>

struct vault_pool;

enum vault_job_kind {
    VAULT_JOB_PART_CREATE, /* -> dir */
    VAULT_JOB_PART_DIGEST, /* -> part */
    VAULT_JOB_SEAL,
    VAULT_JOB_VERIFY,
    VAULT_JOB_DELETE,
    VAULT_JOB_SCAN,   /* steps in `source` that match pattern and carry their marker -> steps */
    VAULT_JOB_IMPORT, /* links the files of `below` in `source` into a new part -> dir */
    VAULT_JOB_SLOT_MAKE,
    VAULT_JOB_SLOT_SCAN,
    VAULT_JOB_SLOT_MARK,
    VAULT_JOB_SLOT_DROP, /* vault_slot.h; vault is then the directory of the slots */
    VAULT_JOB_PERSIST, /* the slot `source` of the rank becomes its part, vault_persist.h -> part */
    VAULT_JOB_FETCH,   /* parts of `path` from other nodes, vault_fetch.h */
    VAULT_JOB_AUDIT,   /* the next piece of a deep look, checkpoint/vault_audit.h */
    VAULT_JOB_LOOK,    /* the next piece of a vault, checkpoint/vault_look.h -> looked, over */
    VAULT_JOB_SET_ASIDE,
};
#define VAULT_JOB_STEPS_MAX 256
struct vault_job { /* owns everything in it */
    enum vault_job_kind kind;
    char *vault, *path, *role; /* vault: its directory on this node */
    uint32_t rank;
    int64_t uid, gid;
    char *digest; /* VERIFY: of the manifest, NULL: any. SEAL: result, SHA-256 of what was sealed */
    void *manifest;
    size_t manifest_len;
    char *source, *pattern, *marker; /* source: the attempt's directory */
    atomic_bool stop;                /* DIGEST, IMPORT, FETCH: set by the loop, ends it early */
    char *below;                     /* IMPORT: one of SCAN's step_dirs. SLOT_*: its name */
    uint64_t bytes;                  /* SLOT_MAKE */
    int64_t step;                    /* PERSIST: that it must be of; -1: any */
    _Atomic uint64_t done_bytes;     /* PERSIST, FETCH: so far; read by the loop */
    struct vault_fetch *fetch;       /* FETCH */
    struct vault_audit *audit;       /* AUDIT: begun before, or NULL; goes on in the next job */
    uint64_t bytes_max;              /* AUDIT, LOOK: of this piece */
    char *node;                      /* AUDIT, LOOK: only the parts of that node; NULL: all */
    struct vault_look *look;         /* LOOK: begun before, or NULL; goes on in the next job */
    struct vault_look_options look_options; /* LOOK: but for vault, path and node */
    /* results */
    char dir[4096];
    Pb__CheckpointPart *part;
    int64_t steps[VAULT_JOB_STEPS_MAX];
    char *step_dirs[VAULT_JOB_STEPS_MAX]; /* where each one is, below source */
    size_t steps_count;
    struct vault_slot_found *found; /* SLOT_SCAN */
    size_t found_count;
    bool nothing;            /* PERSIST: nothing was handed over in that slot */
    bool over;               /* AUDIT: all was read. LOOK: that was all */
    Pb__VaultFound **looked; /* LOOK */
    size_t looked_count;
};
typedef void (*vault_pool_done)(void *arg, enum status st, const struct error *err,
                                struct vault_job *job); /* a loan */
struct vault_pool_ops {
    void (*run)(struct vault_pool *pool, struct vault_job *job_take, vault_pool_done done,
                void *arg);
    void (*destroy)(struct vault_pool *pool);
};
struct vault_pool {
    const struct vault_pool_ops *ops;
};
static inline void vault_pool_run(struct vault_pool *pool, struct vault_job *job_take,
                                  vault_pool_done done, void *arg)
{
    pool->ops->run(pool, job_take, done, arg);
}
/* Strings are copied; NULL stays NULL. */
struct vault_job *vault_job_create(enum vault_job_kind kind, const char *vault, const char *path,
                                   const char *role, uint32_t rank);
void vault_job_destroy(struct vault_job *job); /* NULL is fine */
/* Runs it here and now. Any thread; blocks. */
enum status vault_job_run(struct vault_job *job, struct error *err) MUST_CHECK;

struct loop;
struct vault_pool *vault_pool_uv_create(struct loop *loop, uint32_t threads_max);
