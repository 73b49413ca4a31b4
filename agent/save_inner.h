/* save_inner.h - what the files of save.h share. */
#pragma once
#include "agent/save.h"
#include "base/list.h"

#define SAVE_SEQ_FILLING UINT64_MAX

struct save { /* one rank's part, from the commit to the daemon's acknowledgement */
    struct list node;
    char tag[SPOOL_TAG_MAX];
    Pb__WorkerKey *key;
    int64_t step, samples; /* samples -1: not said */
    int64_t made_us;
    char vault_name[256], vault[1024], path[256];
    struct vault_job *job; /* digest or import under way: the pool's; NULL: none */
    bool watched;          /* of a program without the SDK */
    int slot;              /* of the worker's, that it comes from; -1: from none */
    bool recorded;         /* its part is on file: it is not written again after a restart */
    bool late;             /* given up, for it took too long */
    enum save_state { SAVE_WORKING, SAVE_STAGED } state;
    Pb__CheckpointPart *part;
    char *error;
    uint64_t sent_seq;
    Pb__ActualStaged message;
};
struct save_owner { /* a worker that saves */
    char tag[SPOOL_TAG_MAX];
    uint32_t outstanding; /* answers that are still to come */
    bool finishing, scanning;
    bool stopped;  /* what is still to be read is given up */
    int64_t *seen; /* steps of a watched directory that were taken */
    size_t seen_count;
    struct save_slot { /* see checkpoint/slot.h */
        enum save_slot_state {
            SAVE_SLOT_NONE,
            SAVE_SLOT_MAKING,
            SAVE_SLOT_GIVEN, /* the worker writes, or has written and did not say so yet */
            SAVE_SLOT_BUSY,  /* being read, or marked */
            SAVE_SLOT_KEPT,  /* nobody needs it; what is in it may be loaded again */
        } state;
        char name[32];
        uint64_t bytes, made; /* made: files that have had its place */
        int64_t step;         /* -1: nothing is in it */
    } slots[2];
    int64_t skipped; /* the last step for which it got none and did not wait, + 1; 0: none */
    bool looking;    /* what an earlier agent left is being looked at */
    bool began_new;  /* the slots of attempts before this one are gone */
};
struct save_op { /* one thing under way for a worker */
    struct saves *saves;
    struct save *save; /* NULL: SAVE_DIR */
    char tag[SPOOL_TAG_MAX];
    uint64_t connection, number; /* number 0: nobody waits for an answer */
    int slot;
    int64_t step;
    bool settles; /* a look at slots: what is not filled will not be */
};
struct save_task { /* a seal or a deletion that the daemon wants */
    struct list node;
    enum vault_job_kind kind;
    int64_t checkpoint;
    enum save_task_state { SAVE_TASK_RUNNING, SAVE_TASK_DONE } state;
    char *digest, *error;
    uint64_t sent_seq;
    int64_t done_us;
    bool wanted;
    Pb__ActualSealed sealed;
    Pb__ActualDeleted deleted;
};
struct saves {
    struct agent *agent;
    struct list saves, tasks, verifies;
    struct map *owners;  /* tag -> struct save_owner */
    struct list audits;  /* save_audit.c */
    struct list fetches; /* save_fetch.c */
    struct loop_timer *fetch_timer;
    struct loop_timer *audit_timer, *slot_timer;
    char *slot_dir;        /* where slots are; NULL: nowhere */
    struct map *kept_jobs; /* job -> struct save_slot_job: whose slots are kept */
    int64_t slots_since_us, slots_swept_us;
    bool sweeping;
};
struct save_owner *save_owner_get(struct saves *saves, const char *tag);
void save_owner_done(struct saves *saves, const char *tag); /* one answer came */
/* save_task.c */
void save_task_destroy(struct save_task *task);
void save_verify_destroy_all(struct saves *saves);

/* save.c */
void save_destroy(struct save *save);
struct save *save_find(struct saves *saves, const char *tag, int64_t step);
/* NULL: there is no such vault here. */
struct save *save_create(struct saves *saves, const struct worker *worker, int64_t step,
                         int64_t samples);
void save_staged(struct saves *saves, struct save *save, enum status st, const char *text);
struct save_op *save_op_create(struct saves *saves, struct save *save, const char *tag);
void save_op_end(struct save_op *op);
void save_answer(struct saves *saves, const char *tag, uint64_t connection, uint64_t number,
                 enum status st, const char *error, const char *dir);
char *save_record_path(const struct save *save, const char *kind); /* below the work directory */
void save_read_start(struct saves *saves, struct save *save, struct vault_job *job,
                     vault_pool_done done);

/* save_slot.c: slots, given out and dropped. */
void save_slot_begin(struct saves *saves);
void save_slot_end(struct saves *saves);
void save_slot_ask(struct saves *saves, struct worker *worker, uint64_t connection,
                   const Pb__WorkerAsk *ask);
void save_slot_forget(struct saves *saves, const struct save_owner *owner);
/* From now on a restart loads what this attempt has saved. */
void save_slot_drop_before(struct saves *saves, const struct save *save);
struct vault_job *save_slot_job_create(const struct saves *saves, enum vault_job_kind kind,
                                       const Pb__WorkerKey *key, const char *name);
char *save_slot_path(const struct saves *saves, const Pb__WorkerKey *key, const char *name);

/* save_persist.c: what was handed over in them. */
void save_persist_ask(struct saves *saves, struct worker *worker, uint64_t connection,
                      const Pb__WorkerAsk *ask);
/* Takes what is in slots that were given out: the worker may have ended before it could say so. */
void save_persist_given(struct saves *saves, struct worker *worker);
void save_persist_adopt(struct saves *saves, struct worker *worker, char *const *names,
                        size_t count);
void save_persist_acked(struct saves *saves, struct save *save); /* the daemon knows the part */
void save_persist_tick(struct saves *saves, int64_t now);

/* save_fetch.c: parts that are on other nodes. */
void save_fetch_desired(struct saves *saves, const Pb__Desired *desired);
void save_fetch_fill(struct saves *saves, Pb__ActualReport *report);
void save_fetch_sent(struct saves *saves, Pb__ActualReport *report, uint64_t seq);
void save_fetch_acked(struct saves *saves, uint64_t seq);
void save_fetch_down(struct saves *saves);
void save_fetch_destroy_all(struct saves *saves);

/* save_audit.c: committed checkpoints, read again at leisure. */
void save_audit_desired(struct saves *saves, const Pb__Desired *desired);
void save_audit_fill(struct saves *saves, Pb__ActualReport *report);
void save_audit_sent(struct saves *saves, Pb__ActualReport *report, uint64_t seq);
void save_audit_down(struct saves *saves);
void save_audit_destroy_all(struct saves *saves);
