/* serve_fsck.h - what the files of Fsck share: one run, from its call to its last reply. For
 * serve_fsck*.c only.
 *
 * Loop thread. Stages: the rows before, the listings of all vaults one after the other, the jobs
 * that memory does not hold, the comparison, the repairs. One run at a time. */
#pragma once
#include "daemon/fsck.h"
#include "daemon/serve_hub.h"
#include "proto/text/message.h"

struct serve_fsck_target { /* a vault of a node, or its slots */
    char *node, *vault;    /* vault "": slots */
    bool shared;
    size_t node_next; /* shared: nodes from this one on have not been tried */
    char *error;      /* why it could not be looked at */
    Pb__VaultFound **found;
    size_t count, cap;
    bool others; /* there is more in it than was asked for */
};
enum serve_fsck_asking {
    SERVE_FSCK_IDLE,
    SERVE_FSCK_LISTING,
    SERVE_FSCK_MANIFEST, /* of a directory that is to be registered */
    SERVE_FSCK_REPAIRING
};
struct serve_fsck {
    struct list node; /* of serve->fscks */
    struct serve *serve;
    struct rpc_call *call; /* NULL: the caller has left */
    Pb__FsckRequest *request;
    char actor[300];
    unsigned waiting; /* answers of core and store that still come */
    bool over;        /* it has its end; what still waits is freed when it is answered */
    struct loop_timer *timer;
    /* serve_fsck_view.c */
    struct map *before, *due_before; /* checkpoint -> version + 1; -> itself */
    struct map *jobs_before;         /* job -> 1 + 2 * its last attempt + whether that is open */
    struct map *stored;              /* checkpoint -> Pb__CheckpointRow of a page */
    Pb__CheckpointRows **pages;
    size_t pages_count, rows_count, rows_bytes;
    int64_t *ids; /* jobs to be asked for */
    size_t ids_count, ids_next;
    Pb__ListJobsReply **jobs;
    size_t jobs_count;
    struct map *versions; /* checkpoint -> version + 1 that was compared */
    /* serve_fsck_look.c */
    struct serve_fsck_target *targets;
    size_t targets_count, target, found_bytes;
    enum serve_fsck_asking asking;
    char ask_node[256];
    uint64_t ask, read_bytes, read_now;
    /* serve_fsck.c, serve_fsck_repair.c */
    Pb__Difference **differences;
    size_t differences_count, next;
    Pb__Checkpoint *manifest; /* of the directory that is to be registered */
    Pb__FsckSummary summary;
};

struct serve_fsck *serve_fsck_now(const struct serve *serve); /* NULL: none is under way */
void serve_fsck_fail(struct serve_fsck *fsck, enum status st, const char *text);
void serve_fsck_progress(struct serve_fsck *fsck, const char *text);
/* The stage is through: the next one. */
void serve_fsck_viewed(struct serve_fsck *fsck);
void serve_fsck_looked(struct serve_fsck *fsck);
void serve_fsck_jobs_known(struct serve_fsck *fsck);
void serve_fsck_repaired(struct serve_fsck *fsck, enum status st, const char *text);

void serve_fsck_view_begin(struct serve_fsck *fsck);
void serve_fsck_view_jobs(struct serve_fsck *fsck); /* those of directories */
void serve_fsck_view_compare(struct serve_fsck *fsck, fsck_fn fn);
void serve_fsck_view_fini(struct serve_fsck *fsck);
/* As it is now, from memory or as it was stored; NULL. */
const Pb__Checkpoint *serve_fsck_view_row(const struct serve_fsck *fsck, int64_t id);

void serve_fsck_look_begin(struct serve_fsck *fsck);
/* Asks that node; false: it is away. */
bool serve_fsck_look_ask(struct serve_fsck *fsck, const char *node, Pb__VaultAsk *ask,
                         enum serve_fsck_asking what);
void serve_fsck_look_end(struct serve_fsck *fsck); /* nobody waits for what is asked */
void serve_fsck_look_fini(struct serve_fsck *fsck);

void serve_fsck_repair_begin(struct serve_fsck *fsck, Pb__Difference *difference);
void serve_fsck_repair_answered(struct serve_fsck *fsck, const Pb__VaultChunk *chunk,
                                const char *error);
