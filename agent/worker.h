/* worker.h - one worker: what is wanted of it, what it is, and the one door through which its state
 * changes.
 *
 * Owned by the agent's table; loop thread only. Others name it by tag
 * (<job>.<attempt>.<role>.<rank>.<incarnation>), which is also its directory. Leaves the table only
 * in a final state, when it is not desired any more and all its reports are acknowledged. */
#pragma once
#include "agent/exit_class.h"
#include "agent/gate.h"
#include "agent/hub.h"
#include "agent/spool_index.h"
#include "agent/worker_fsm.h"

enum worker_want { /* the daemon's word */
                   WORKER_WANT_RUN,
                   WORKER_WANT_STOP,
                   WORKER_WANT_KILL,
                   WORKER_WANT_NOTHING, /* not in the desired set */
};
enum worker_hold {                        /* bits: what EXITED waits for */
                   WORKER_HOLD_START = 1, /* a step of its preparation is under way */
                   WORKER_HOLD_DRAIN = 2, /* its reports */
                   WORKER_HOLD_FILES = 4, /* its last words */
                   WORKER_HOLD_SAVES = 8, /* digests of its checkpoints */
                   WORKER_HOLD_DEVICES = 16,
};
struct worker {
    struct agent *agent;
    char tag[SPOOL_TAG_MAX];
    char *dir;
    Pb__DesiredWorker *desired; /* own copy: key, launch, gate */
    Pb__ActualWorker__State state;
    enum worker_want want;
    enum exit_cause cause;
    char *cause_text;
    unsigned holds; /* enum worker_hold */
    size_t stage;   /* of its start */

    struct launcher_proc *proc;
    pid_t pid;
    int exit_code, signal;
    bool out_of_memory;
    const struct user *user; /* NULL: the agent's own */
    char *code_dir, *code_digest, *resume_dir, *resume_shm, *attempt_dir;

    struct page *page;
    struct sock *sock;
    uint64_t reports_seen;
    uint32_t saving_seen;
    struct gate_answer gate;
    int64_t step, samples, answered;
    bool joined, finished;
    char *failure, *traceback, *last_words;
    char *damaged; /* what it found in the checkpoint that it was to resume from */

    int64_t start_us; /* of the attempt on this node: reports and failures count from it */
    int64_t started_us, progress_us, asked_us, saving_us, saved_us, ended_us, delay_until_us;
    int64_t save_began_us; /* seen to save since then, after TERM; 0: it does not */
    uint32_t proofs;
    struct loop_timer *timer, *delay_timer, *proof_timer;
    int64_t told_us; /* its progress */
    bool leaving;
    bool held_up;   /* it was said who holds its devices */
    bool mentioned; /* in the Desired that is being applied */
};

/* Survives across callbacks where a pointer would not. */
struct worker_ref {
    struct agent *agent;
    char tag[SPOOL_TAG_MAX];
};
struct worker_ref *worker_ref_create(const struct worker *worker);
struct worker *worker_ref_take(struct worker_ref *ref); /* frees it; NULL: that worker is gone */

/* False: the key has no valid form. */
bool worker_tag(const Pb__WorkerKey *key, char tag[SPOOL_TAG_MAX]);
struct worker *worker_find(const struct agent *agent, const char *tag);
/* Adds it, PENDING. start_us 0: now, or that of its attempt on this node. */
struct worker *worker_create(struct agent *agent, const char *tag, const Pb__DesiredWorker *desired,
                             int64_t start_us);
void worker_destroy(struct worker *worker); /* out of the table; releases seams' handles */

/* The one door. An event without a row changes nothing. */
void worker_event(struct worker *worker, enum worker_event event);
/* Remembers why it will end; the first cause stays. Kept on disk for the next agent. */
void worker_blame(struct worker *worker, enum exit_cause cause, const char *text);
/* Does what the daemon wants, as far as the state allows; called again at each change. */
void worker_apply_want(struct worker *worker);
void worker_apply_gate(struct worker *worker);
char *worker_attempt_dir(const struct worker *worker, const char *vault); /* see vault_watch.h */
bool worker_is_final(const struct worker *worker);
bool worker_is_listed(const struct worker *worker); /* part of the actual set */
launcher_fn worker_launcher_fn(void);
uint64_t worker_grace_ms(const struct worker *worker, uint64_t *most_ms);
