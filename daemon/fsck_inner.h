/* fsck_inner.h - what the files of fsck.h share. For fsck*.c only. */
#pragma once
#include "base/map.h"
#include "daemon/fsck.h"

struct fsck {
    const struct fsck_input *input;
    fsck_fn fn;
    void *arg;
    Pb__FsckSummary *summary;
    struct map *ids;     /* checkpoint id -> struct fsck_row */
    struct map *paths;   /* "vault path" -> struct fsck_row */
    struct map *jobs;    /* id -> struct fsck_job */
    struct map *found;   /* "listing path" -> Pb__VaultFound */
    struct map *strays;  /* "vault path" told of already */
    bool *empty;         /* of each listing: nothing is there that should be */
    size_t *unlooked_at; /* of each listing: checkpoints that should be there */
};

#define FSCK_KIND(x)   PB__DIFFERENCE__KIND__##x
#define FSCK_REPAIR(x) PB__DIFFERENCE__REPAIR__##x
#define FSCK_STATE(x)  PB__CHECKPOINT__STATE__##x

/* A difference of that kind and repair, to be filled and told. */
Pb__Difference fsck_difference(Pb__Difference__Kind kind, Pb__Difference__Repair repair);
/* Fills what a row says: checkpoint, job, step, vault, path, pinned. */
void fsck_of_row(Pb__Difference *difference, const Pb__Checkpoint *row);
void fsck_tell(struct fsck *fsck, Pb__Difference *difference, const char *text);

bool fsck_is_usable(const Pb__Checkpoint *row);
const struct fsck_row *fsck_row_at(const struct fsck *fsck, const char *vault, const char *path);
const struct fsck_job *fsck_job_of(const struct fsck *fsck, int64_t id);
const Pb__VaultFound *fsck_found_at(const struct fsck *fsck, size_t listing, const char *path);

/* fsck_place.c: a row's bytes, where they must be. */
void fsck_place_count(struct fsck *fsck); /* what is expected in each listing */
void fsck_place_row(struct fsck *fsck, const struct fsck_row *row);
/* fsck_stray.c: what lies in a listing and no usable row claims. */
void fsck_stray_listing(struct fsck *fsck, size_t listing);
