/* fsck.c - see fsck.h. Here: the rows by themselves. */
#include "base/mem.h"
#include "base/text.h"
#include "daemon/fsck_inner.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *fsck_repair_text(Pb__Difference__Repair repair)
{
    static const char *const texts[] = {
        [FSCK_REPAIR(NOTHING)] = "nothing: see to it",
        [FSCK_REPAIR(WRITE_ROW)] = "write the row again",
        [FSCK_REPAIR(MARK_TORN)] = "mark it TORN",
        [FSCK_REPAIR(MARK_DAMAGED)] = "mark it DAMAGED",
        [FSCK_REPAIR(CUT_PARENT)] = "begin the lineage here",
        [FSCK_REPAIR(SET_LAST)] = "name the newest",
        [FSCK_REPAIR(UNPIN)] = "unpin it",
        [FSCK_REPAIR(SEAL)] = "write the manifest again",
        [FSCK_REPAIR(LOSE_COPY)] = "note the copy as lost",
        [FSCK_REPAIR(ADD_COPY)] = "note the copy",
        [FSCK_REPAIR(VERIFY)] = "have it read again",
        [FSCK_REPAIR(REMOVE)] = "remove it",
        [FSCK_REPAIR(SET_ASIDE)] = "move it to lost+found",
        [FSCK_REPAIR(REGISTER)] = "register it again",
    };

    return (size_t)repair < COUNT_OF(texts) && texts[repair] ? texts[repair] : "";
}

bool fsck_path_parse(const char *path, int64_t *job, int64_t *step, uint32_t *attempt,
                     uint32_t *incarnation)
{
    char again[128], tail[24] = "";

    *incarnation = 1;
    if (sscanf(path, "job-%" SCNd64 "/step-%" SCNd64 ".%" SCNu32 ".%" SCNu32, job, step, attempt,
               incarnation) < 3)
        return false;
    if (*incarnation > 1)
        (void)snprintf(tail, sizeof(tail), ".%" PRIu32, *incarnation);
    (void)snprintf(again, sizeof(again), "job-%" PRId64 "/step-%" PRId64 ".%" PRIu32 "%s", *job,
                   *step, *attempt, tail);
    return *job > 0 && *attempt > 0 && *incarnation > 0 && strcmp(again, path) == 0;
}

/* --- differences */

Pb__Difference fsck_difference(Pb__Difference__Kind kind, Pb__Difference__Repair repair)
{
    Pb__Difference difference = PB__DIFFERENCE__INIT;

    difference.has_kind = difference.has_repair = difference.has_outcome = true;
    difference.kind = kind;
    difference.repair = repair;
    difference.outcome = PB__DIFFERENCE__OUTCOME__FOUND;
    return difference;
}

void fsck_of_row(Pb__Difference *difference, const Pb__Checkpoint *row)
{
    difference->has_checkpoint = difference->has_job = difference->has_step = true;
    difference->checkpoint = row->id;
    difference->job = row->job;
    difference->step = row->step;
    difference->vault = row->vault;
    difference->path = row->path;
    difference->has_pinned = row->pinned;
    difference->pinned = row->pinned;
}

void fsck_tell(struct fsck *fsck, Pb__Difference *difference, const char *text)
{
    difference->text = (char *)(uintptr_t)text;
    difference->note = (char *)(uintptr_t)fsck_repair_text(difference->repair);
    fsck->summary->differences++;
    fsck->fn(fsck->arg, difference);
}

bool fsck_is_usable(const Pb__Checkpoint *row)
{
    return row->state == FSCK_STATE(COMMITTED) || row->state == FSCK_STATE(VERIFIED);
}

/* --- the index */

static char *place_key(const char *vault, const char *path)
{
    return mem_printf("%s %s", vault ? vault : "", path ? path : "");
}

const struct fsck_row *fsck_row_at(const struct fsck *fsck, const char *vault, const char *path)
{
    SCOPED_TEXT char *key = place_key(vault, path);

    return map_get_text(fsck->paths, key);
}

const struct fsck_job *fsck_job_of(const struct fsck *fsck, int64_t id)
{
    return id > 0 ? map_get(fsck->jobs, (uint64_t)id) : NULL;
}

const Pb__VaultFound *fsck_found_at(const struct fsck *fsck, size_t listing, const char *path)
{
    SCOPED_TEXT char *key = mem_printf("%zu %s", listing, path ? path : "");

    return map_get_text(fsck->found, key);
}

static void index_rows(struct fsck *fsck)
{
    const struct fsck_input *input = fsck->input;

    for (size_t i = 0; i < input->rows_count; i++) {
        const struct fsck_row *row = &input->rows[i];
        SCOPED_TEXT char *key = place_key(row->row->vault, row->row->path);
        map_put(fsck->ids, (uint64_t)row->row->id, (void *)(uintptr_t)row);
        map_put_text(fsck->paths, key, (void *)(uintptr_t)row);
    }
    for (size_t i = 0; i < input->jobs_count; i++)
        map_put(fsck->jobs, (uint64_t)input->jobs[i].id, (void *)(uintptr_t)&input->jobs[i]);
}

static void index_listings(struct fsck *fsck)
{
    const struct fsck_input *input = fsck->input;

    for (size_t i = 0; i < input->listings_count; i++) {
        const struct fsck_listing *listing = &input->listings[i];
        for (size_t k = 0; k < listing->count; k++) {
            SCOPED_TEXT char *key = mem_printf("%zu %s", i, listing->found[k]->path);
            map_put_text(fsck->found, key, (void *)(uintptr_t)listing->found[k]);
        }
    }
}

static void index_fini(struct fsck *fsck)
{
    map_destroy(fsck->ids);
    map_destroy(fsck->paths);
    map_destroy(fsck->jobs);
    map_destroy(fsck->found);
    map_destroy(fsck->strays);
    mem_free(fsck->empty);
    mem_free(fsck->unlooked_at);
}

/* --- a row by itself */

static bool same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

bool fsck_row_is_stale(const Pb__CheckpointRow *stored)
{
    const Pb__Checkpoint *row = stored->row;
    const char *state = NULL;
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(&pb__checkpoint__state__descriptor, (int)row->state);

    if (value)
        state = value->name;
    if (!same(stored->state, state) || !same(stored->path, row->path) ||
        !same(stored->manifest_digest, row->manifest_digest))
        return true;
    return fsck_is_usable(row) && stored->copies < row->n_copies;
}

static void tell_row(struct fsck *fsck, const struct fsck_row *row, Pb__Difference__Kind kind,
                     Pb__Difference__Repair repair, const char *text)
{
    Pb__Difference difference = fsck_difference(kind, repair);

    fsck_of_row(&difference, row->row);
    fsck_tell(fsck, &difference, text);
}

static bool is_alive(const struct fsck_job *job, uint32_t attempt)
{
    return job && attempt >= job->live_from;
}

static void look_at_row(struct fsck *fsck, const struct fsck_row *row)
{
    const Pb__Checkpoint *c = row->row;
    const struct fsck_job *job = fsck_job_of(fsck, c->job);

    if (!row->stored)
        tell_row(fsck, row, FSCK_KIND(ROW_LOST), FSCK_REPAIR(WRITE_ROW),
                 "the daemon knows it, the database has no row");
    else if (row->stale)
        tell_row(fsck, row, FSCK_KIND(ROW_STALE), FSCK_REPAIR(WRITE_ROW),
                 "columns of its row are not what the row says");
    if ((c->state == FSCK_STATE(STAGED) || c->state == FSCK_STATE(SEALED)) && !row->due &&
        !is_alive(job, c->attempt))
        tell_row(fsck, row, FSCK_KIND(STAGED_OVER), FSCK_REPAIR(MARK_TORN),
                 "STAGED by an attempt that is over");
    if (c->parent && !fsck->input->some && !map_get(fsck->ids, (uint64_t)c->parent))
        tell_row(fsck, row, FSCK_KIND(PARENT_UNKNOWN), FSCK_REPAIR(CUT_PARENT),
                 "nobody knows the parent that it names");
    if (c->pinned && (c->state == FSCK_STATE(DELETED) || c->state == FSCK_STATE(TORN)))
        tell_row(fsck, row, FSCK_KIND(PIN_WITHOUT_BYTES), FSCK_REPAIR(UNPIN),
                 "pinned, and it has no bytes any more");
}

static void look_at_job(struct fsck *fsck, const struct fsck_job *job)
{
    Pb__Difference difference = fsck_difference(FSCK_KIND(LAST_UNKNOWN), FSCK_REPAIR(SET_LAST));

    if (!job->last_checkpoint || map_get(fsck->ids, (uint64_t)job->last_checkpoint))
        return;
    difference.has_job = difference.has_checkpoint = true;
    difference.job = job->id;
    difference.checkpoint = job->last_checkpoint;
    fsck_tell(fsck, &difference, "the job's newest checkpoint is one that nobody knows");
}

/* --- all of it */

static void tell_unlooked(struct fsck *fsck, size_t i)
{
    const struct fsck_listing *listing = &fsck->input->listings[i];
    Pb__Difference difference = fsck_difference(
        fsck->empty[i] ? FSCK_KIND(VAULT_EMPTY) : FSCK_KIND(NOT_LOOKED_AT), FSCK_REPAIR(NOTHING));
    SCOPED_TEXT char *text =
        fsck->empty[i]
            ? mem_printf("none of %zu is there: mounted? If lost: --gone", fsck->unlooked_at[i])
            : mem_printf("%zu expected, not looked at: %s", fsck->unlooked_at[i], listing->error);

    difference.node = (char *)(uintptr_t)listing->node;
    difference.vault = (char *)(uintptr_t)listing->vault;
    fsck_tell(fsck, &difference, text);
}

void fsck_compare(const struct fsck_input *input, fsck_fn fn, void *arg, Pb__FsckSummary *summary)
{
    struct fsck fsck = {.input = input, .fn = fn, .arg = arg, .summary = summary};

    fsck.ids = map_create();
    fsck.paths = map_create();
    fsck.jobs = map_create();
    fsck.found = map_create();
    fsck.strays = map_create();
    fsck.empty = mem_array(input->listings_count + 1, sizeof(bool));
    fsck.unlooked_at = mem_array(input->listings_count + 1, sizeof(size_t));
    index_rows(&fsck);
    index_listings(&fsck);
    fsck_place_count(&fsck);
    for (size_t i = 0; i < input->rows_count; i++) {
        if (input->rows[i].changing) {
            summary->changing++;
            continue;
        }
        summary->checkpoints++;
        look_at_row(&fsck, &input->rows[i]);
        fsck_place_row(&fsck, &input->rows[i]);
    }
    for (size_t i = 0; i < input->jobs_count; i++)
        look_at_job(&fsck, &input->jobs[i]);
    for (size_t i = 0; i < input->listings_count; i++) {
        if (fsck.unlooked_at[i] && (fsck.empty[i] || input->listings[i].error))
            tell_unlooked(&fsck, i);
        fsck_stray_listing(&fsck, i);
    }
    index_fini(&fsck);
}
