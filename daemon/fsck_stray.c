/* fsck_stray.c - what lies in vaults and slots and no usable row claims: leftovers, which may go,
 * and checkpoints that were forgotten, which may not. See fsck.h. */
#include "base/mem.h"
#include "checkpoint/vault_look.h"
#include "daemon/fsck_inner.h"
#include <stdio.h>
#include <string.h>

#define MAKING_US (24 * 3600 * 1000000ll) /* no copy or export takes that long */

struct stray {
    const struct fsck_listing *listing;
    size_t index;
    const Pb__VaultFound *found;
    int64_t job_id, step;
    uint32_t attempt;
    const struct fsck_job *job; /* NULL: nobody knows it */
};

static void tell(struct fsck *fsck, const struct stray *stray, Pb__Difference__Kind kind,
                 Pb__Difference__Repair repair, const struct fsck_row *row, const char *text)
{
    Pb__Difference difference = fsck_difference(kind, repair);

    if (row) {
        fsck_of_row(&difference, row->row);
    } else {
        difference.has_job = difference.has_step = stray->job_id > 0;
        difference.job = stray->job_id;
        difference.step = stray->step;
        difference.path = stray->found->path;
    }
    difference.vault = (char *)(uintptr_t)stray->listing->vault;
    difference.node = (char *)(uintptr_t)stray->listing->node;
    fsck_tell(fsck, &difference, text);
}

/* --- of a row that has no bytes any more */

static void left_of_row(struct fsck *fsck, const struct stray *stray, const struct fsck_row *row)
{
    bool alive = stray->job && row->row->attempt >= stray->job->live_from;
    bool tombstone = stray->found->kind == PB__VAULT_FOUND__KIND__TOMBSTONE;

    if (row->due || row->changing || alive)
        return;
    if (row->row->state == FSCK_STATE(DELETED))
        tell(fsck, stray, tombstone ? FSCK_KIND(TOMBSTONE_LEFT) : FSCK_KIND(DELETED_LEFT),
             FSCK_REPAIR(REMOVE), row, "DELETED, and files of it are still there");
    else if (row->row->state == FSCK_STATE(TORN))
        tell(fsck, stray, FSCK_KIND(TORN_LEFT), FSCK_REPAIR(REMOVE), row,
             "never finished, and files of it are still there");
}

/* --- of none */

/* Is that part whole somewhere in this vault, in a directory with the very same manifest? */
static bool is_somewhere(const struct fsck *fsck, const struct stray *stray,
                         const Pb__VaultFound__Part *part)
{
    for (size_t i = 0; i < fsck->input->listings_count; i++) {
        const struct fsck_listing *listing = &fsck->input->listings[i];
        const Pb__VaultFound *found =
            !listing->slots && strcmp(listing->vault, stray->listing->vault) == 0
                ? fsck_found_at(fsck, i, stray->found->path)
                : NULL;
        if (!found || !found->manifest_digest ||
            strcmp(found->manifest_digest, stray->found->manifest_digest) != 0)
            continue;
        for (size_t k = 0; k < found->n_parts; k++)
            if (found->parts[k]->rank == part->rank &&
                strcmp(found->parts[k]->role, part->role) == 0 &&
                found->parts[k]->state == PB__VAULT_FOUND__PART_STATE__WHOLE)
                return true;
    }
    return false;
}

static bool is_whole(const struct fsck *fsck, const struct stray *stray)
{
    for (size_t i = 0; i < stray->found->n_parts; i++)
        if (!is_somewhere(fsck, stray, stray->found->parts[i]))
            return false;
    return stray->found->n_parts > 0;
}

static bool is_of_path(const struct stray *stray)
{
    const Pb__Checkpoint *manifest = stray->found->manifest;

    return manifest && manifest->job == stray->job_id && manifest->step == stray->step &&
           manifest->attempt == stray->attempt;
}

static void sealed_stray(struct fsck *fsck, const struct stray *stray)
{
    const Pb__Checkpoint *manifest = stray->found->manifest;

    if (!is_of_path(stray))
        tell(fsck, stray, FSCK_KIND(BAD_STRAY), FSCK_REPAIR(SET_ASIDE), NULL,
             "its manifest is of another checkpoint");
    else if (!stray->job)
        tell(fsck, stray, FSCK_KIND(UNKNOWN_JOB), FSCK_REPAIR(SET_ASIDE), NULL,
             "a finished checkpoint of a job that nobody knows");
    else if (stray->job->submitted_us > manifest->created_us)
        tell(fsck, stray, FSCK_KIND(UNKNOWN_JOB), FSCK_REPAIR(SET_ASIDE), NULL,
             "finished before the job of that number was submitted");
    else if (!is_whole(fsck, stray))
        tell(fsck, stray, FSCK_KIND(BAD_STRAY), FSCK_REPAIR(SET_ASIDE), NULL,
             "sealed, without a row, and not all of its files are there");
    else if (stray->job->live_from != FSCK_NOBODY)
        tell(fsck, stray, FSCK_KIND(UNREGISTERED), FSCK_REPAIR(NOTHING), NULL,
             "finished, without a row; not while its job runs");
    else
        tell(fsck, stray, FSCK_KIND(UNREGISTERED), FSCK_REPAIR(REGISTER), NULL,
             "finished and whole, and the database has no row");
}

/* One directory in several vaults of nodes is one checkpoint. */
static bool is_told(struct fsck *fsck, const struct stray *stray)
{
    SCOPED_TEXT char *key = mem_printf("%s %s", stray->listing->vault, stray->found->path);

    return map_put_text(fsck->strays, key, fsck) != NULL;
}

static void stray_without_row(struct fsck *fsck, const struct stray *stray)
{
    if (!stray->job && fsck->input->some)
        return;
    switch (stray->found->kind) {
    case PB__VAULT_FOUND__KIND__SEALED:
        if (!is_told(fsck, stray))
            sealed_stray(fsck, stray);
        break;
    case PB__VAULT_FOUND__KIND__TOMBSTONE:
        tell(fsck, stray, FSCK_KIND(TOMBSTONE_LEFT), FSCK_REPAIR(REMOVE), NULL,
             "a deletion that came to no end");
        break;
    case PB__VAULT_FOUND__KIND__UNSEALED:
        if (stray->job)
            tell(fsck, stray, FSCK_KIND(STAGING_LEFT), FSCK_REPAIR(REMOVE), NULL,
                 "an unfinished save of an attempt that is over");
        else
            tell(fsck, stray, FSCK_KIND(UNKNOWN_JOB), FSCK_REPAIR(SET_ASIDE), NULL,
                 "an unfinished save of a job that nobody knows");
        break;
    default:
        tell(fsck, stray, FSCK_KIND(BAD_STRAY), FSCK_REPAIR(SET_ASIDE), NULL,
             "its manifest is none, and the database has no row");
        break;
    }
}

/* --- slots */

static void slot(struct fsck *fsck, struct stray *stray)
{
    long long job = 0;
    unsigned attempt = 0, incarnation = 0;

    if (stray->found->kept ||
        sscanf(stray->found->path, "job-%lld/%u.%u", &job, &attempt, &incarnation) != 3)
        return;
    stray->job = fsck_job_of(fsck, job);
    if ((stray->job && !stray->job->ended) || (!stray->job && fsck->input->some))
        return;
    stray->job_id = job;
    tell(fsck, stray, FSCK_KIND(SLOT_LEFT), FSCK_REPAIR(REMOVE), NULL,
         "slots in memory of a job that has ended");
}

/* --- all of a listing */

static bool is_aside(const char *path)
{
    return strncmp(path, VAULT_LOOK_ASIDE "/", strlen(VAULT_LOOK_ASIDE "/")) == 0;
}

static void look_at(struct fsck *fsck, struct stray *stray)
{
    uint32_t incarnation;
    const char *path = stray->found->path;

    if (stray->found->kind == PB__VAULT_FOUND__KIND__SLOT) {
        slot(fsck, stray);
        return;
    }
    if (stray->found->kind == PB__VAULT_FOUND__KIND__STAGING) {
        if (stray->found->age_us > MAKING_US && !fsck->input->some)
            tell(fsck, stray, FSCK_KIND(MAKING_LEFT), FSCK_REPAIR(REMOVE), NULL,
                 "a copy or export that came to no end");
        return;
    }
    if (!fsck_path_parse(path, &stray->job_id, &stray->step, &stray->attempt, &incarnation))
        return; /* no name of ours: somebody's own */
    stray->job = fsck_job_of(fsck, stray->job_id);
    const struct fsck_row *row = fsck_row_at(fsck, stray->listing->vault, path);
    if (row)
        left_of_row(fsck, stray, row);
    else if (!stray->job || stray->attempt < stray->job->live_from)
        stray_without_row(fsck, stray);
}

void fsck_stray_listing(struct fsck *fsck, size_t index)
{
    const struct fsck_listing *listing = &fsck->input->listings[index];

    for (size_t i = 0; !listing->error && i < listing->count; i++) {
        struct stray stray = {.listing = listing, .index = index, .found = listing->found[i]};
        fsck->summary->directories++;
        if (is_aside(stray.found->path))
            fsck->summary->set_aside++;
        else
            look_at(fsck, &stray);
    }
}
