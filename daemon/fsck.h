/* fsck.h - what differs between the database's rows of checkpoints, what lies in the vaults, and
 * what agents keep; and what would repair it. Pure: rows and listings in, differences out.
 *
 * Any thread. The rows are looked at before the listings are made and again after: what changed in
 * between is not compared, and what an attempt that lives may write is nobody's leftover. Nothing
 * but what no row and no living attempt can refer to is ever to be removed; what claims to be a
 * checkpoint is registered, marked or set aside. */
#pragma once
#include "proto/pb.h"
#include <stdbool.h>
#include <stddef.h>

#define FSCK_NOBODY UINT32_MAX

struct fsck_row {
    const Pb__Checkpoint *row; /* as it is after the listings */
    bool stored;               /* the database has it */
    bool stale;                /* its columns or its rows of copies are others than the row says */
    bool due;                  /* agents had or have something to do for it: seal, verify, delete */
    bool changing;             /* it was another one before the listings */
};
struct fsck_job {
    int64_t id;
    bool ended;
    uint32_t live_from;      /* attempts that may write, from this one on; FSCK_NOBODY: none may */
    int64_t submitted_us;    /* 0: not known */
    int64_t last_checkpoint; /* 0: none, or not known */
};
struct fsck_listing { /* one vault of one node */
    const char *node, *vault;
    bool shared;       /* all nodes that have it have this very one */
    bool slots;        /* its slots in memory; vault "" */
    bool others;       /* it has directories of jobs that were not asked for */
    const char *error; /* it could not be looked at: why; NULL: it was */
    const Pb__VaultFound *const *found;
    size_t count;
};
struct fsck_input {
    const struct fsck_row *rows; /* by id */
    size_t rows_count;
    const struct fsck_job *jobs; /* by id: of the rows, and of directories that have none */
    size_t jobs_count;
    const struct fsck_listing *listings;
    size_t listings_count;
    const char *const *gone_vaults; /* they may be empty: what was in them is lost */
    size_t gone_count;
    bool some; /* rows of some jobs only: directories of others are passed over */
};
/* A loan for the call. outcome is FOUND. */
typedef void (*fsck_fn)(void *arg, const Pb__Difference *difference);
/* In the order of rows, then of listings. Counts into summary: checkpoints, directories,
 * differences, changing, set_aside. */
void fsck_compare(const struct fsck_input *input, fsck_fn fn, void *arg, Pb__FsckSummary *summary);

/* Of "job-7/step-120.3.2"; without an incarnation that is 1. False: no name of ours. */
bool fsck_path_parse(const char *path, int64_t *job, int64_t *step, uint32_t *attempt,
                     uint32_t *incarnation);
/* What a repair does, in a few words. */
const char *fsck_repair_text(Pb__Difference__Repair repair);
/* Are the columns beside a row, and its rows of copies, what the row says? */
bool fsck_row_is_stale(const Pb__CheckpointRow *stored);
