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
    struct map *owners; /* tag -> struct save_owner */
};
struct save_owner *save_owner_get(struct saves *saves, const char *tag);
void save_owner_done(struct saves *saves, const char *tag); /* one answer came */
/* save_task.c */
void save_task_destroy(struct save_task *task);
void save_verify_destroy_all(struct saves *saves);
