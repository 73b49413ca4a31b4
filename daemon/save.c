/* save.c - checkpoints as the daemon knows them. See save.h. */
#include "daemon/save.h"
#include "base/log.h"
#include "checkpoint/vault.h"
#include "daemon/attempt.h"
#include "daemon/job.h"
#include "daemon/node.h"
#include "daemon/save_chore.h"
#include "daemon/save_copy.h"
#include "daemon/save_inner.h"
#include "daemon/save_keep.h"
#include "daemon/session.h"
#include "daemon/watch.h"
#include <inttypes.h>

#define S(x)         SAVE_STATE(x)
#define SEAL_WAIT_US 5000000 /* a relaunch waits this long for a whole save to be committed */

Pb__Checkpoint *save_edit(struct save *save)
{
    return (Pb__Checkpoint *)draft_edit(&save->job->hub->drafts, &save->entry);
}

static void save_destroy(struct save *save)
{
    map_remove(save->job->hub->saves, (uint64_t)save->id);
    list_remove(&save->node);
    list_remove(&save->chore);
    save_chore_reset(save);
    entry_fini(&save->entry);
    mem_free(save);
}

static void save_settled(struct entry *entry, bool committed, void *arg)
{
    if (!committed && !entry->row)
        save_destroy(arg);
}

static struct save *save_new(struct job *job, int64_t id)
{
    struct save *save = NEW(struct save);

    save->job = job;
    save->id = id;
    save->since_us = loop_now_us(job->hub->loop);
    entry_init(&save->entry, CHANGE_CHECKPOINT, save_settled, save);
    list_init(&save->chore);
    list_add_last(&job->saves, &save->node);
    map_put(job->hub->saves, (uint64_t)id, save);
    return save;
}

struct save *save_load_take(struct hub *hub, Pb__Checkpoint *row_take)
{
    struct job *job = map_get(hub->jobs, (uint64_t)row_take->job);

    if (row_take->id >= hub->save_next)
        hub->save_next = row_take->id + 1;
    if (!job || map_get(hub->saves, (uint64_t)row_take->id)) {
        protobuf_c_message_free_unpacked(&row_take->base, NULL);
        return NULL;
    }
    struct save *save = save_new(job, row_take->id);
    save->entry.row = &row_take->base;
    return save;
}

struct save *save_register_take(struct job *job, Pb__Checkpoint *row_take)
{
    struct hub *hub = job->hub;

    if (row_take->id <= 0 || map_get(hub->saves, (uint64_t)row_take->id))
        row_take->id = hub->save_next;
    if (row_take->id >= hub->save_next)
        hub->save_next = row_take->id + 1;
    struct save *save = save_new(job, row_take->id);
    draft_add_take(&hub->drafts, &save->entry, &row_take->base);
    return save;
}

void save_destroy_all(struct job *job)
{
    while (!list_is_empty(&job->saves))
        save_destroy(LIST_ITEM(job->saves.next, struct save, node));
}

void save_event(const struct save *save, const char *kind, Pb__Checkpoint__State from,
                const char *text)
{
    const Pb__Checkpoint *row = save_view(save);
    Pb__Event *event = watch_event(save->job->hub, kind);
    char sentence[300];

    event->has_job = event->has_attempt = true;
    event->job = row->job;
    event->attempt = row->attempt;
    event->from = mem_strdup(from ? HUB_NAME(checkpoint__state, from) : "");
    event->to = mem_strdup(HUB_NAME(checkpoint__state, row->state));
    snprintf(sentence, sizeof(sentence), "checkpoint %lld, step %lld, sample %lld%s%.150s",
             (long long)row->id, (long long)row->step, (long long)row->samples, text ? ": " : "",
             text ? text : "");
    event->text = mem_strdup(sentence);
    log_info(kind, log_int("job", row->job), log_int("attempt", row->attempt),
             log_int("checkpoint", row->id), log_int("step", row->step),
             log_str("to", HUB_NAME(checkpoint__state, row->state)), log_str("text", text));
}

static void count(struct hub *hub, Pb__Checkpoint__State to)
{
    hub->health.saves_committed += to == S(COMMITTED);
    hub->health.saves_torn += to == S(TORN);
    hub->health.saves_damaged += to == S(DAMAGED);
    hub->health.saves_verified += to == S(VERIFIED);
}

void save_set_state(struct save *save, Pb__Checkpoint__State to, const char *text)
{
    Pb__Checkpoint__State from = save_view(save)->state;
    Pb__Checkpoint *row = save_edit(save);

    row->has_state = row->has_version = true;
    row->state = to;
    row->version++;
    if (to == S(TORN) || to == S(DAMAGED))
        draft_text(&row->reason, text);
    count(save->job->hub, to);
    save_chore_update(save);
    save_nodes_dirty(save);
    char kind[48];
    snprintf(kind, sizeof(kind), "checkpoint.%s",
             to == S(COMMITTED) ? "committed"
             : to == S(TORN)    ? "torn"
             : to == S(DAMAGED) ? "damaged"
                                : "state");
    save_event(save, kind, from, text);
}

/* --- reading */
bool save_is_usable(const struct save *save)
{
    Pb__Checkpoint__State state = save_view(save)->state;

    return state == S(COMMITTED) || state == S(VERIFIED);
}

bool save_is_newer(const Pb__Checkpoint *a, const Pb__Checkpoint *b)
{
    return a->attempt != b->attempt ? a->attempt > b->attempt : a->step > b->step;
}

const struct save *save_resume(const struct job *job)
{
    const struct save *best = NULL;

    if (job_view(job)->spec->checkpoint && job_view(job)->spec->checkpoint->start_over &&
        !job_view(job)->attempt)
        return NULL;
    LIST_EACH((struct list *)(uintptr_t)&job->saves, item)
    {
        const struct save *save = LIST_ITEM(item, struct save, node);
        if (save_is_usable(save) && (!best || save_is_newer(save_view(save), save_view(best))))
            best = save;
    }
    return best;
}

int64_t save_cursor(const struct job *job)
{
    const struct save *save = save_resume(job);

    return save ? save_view(save)->samples : 0;
}

bool save_in_flight(const struct job *job)
{
    const Pb__Attempt *attempt = attempt_view(job->attempt);

    LIST_EACH((struct list *)(uintptr_t)&job->saves, item)
    {
        const Pb__Checkpoint *row = save_view(LIST_ITEM(item, struct save, node));
        if (row->attempt == attempt->number &&
            (row->state == S(STAGED) || row->state == S(SEALED)) &&
            row->n_parts >= row->parts_expected)
            return true;
    }
    return false;
}

static uint32_t incarnation_of(const Pb__Checkpoint *row)
{
    return row->incarnation ? row->incarnation : 1;
}

bool save_is_of_now(const struct job *job, const Pb__Checkpoint *row)
{
    const Pb__Attempt *attempt = attempt_view(job->attempt);

    return row->attempt == attempt->number && incarnation_of(row) == attempt_incarnation(attempt);
}

bool save_is_whole(const struct job *job, int64_t step)
{
    LIST_EACH((struct list *)(uintptr_t)&job->saves, item)
    {
        const Pb__Checkpoint *row = save_view(LIST_ITEM(item, struct save, node));
        if (save_is_of_now(job, row) && row->step >= step &&
            (row->n_parts >= row->parts_expected || row->state == S(TORN)))
            return true;
    }
    return false;
}

/* --- staged parts */
static struct save *save_find(struct job *job, const Pb__WorkerKey *key, int64_t step)
{
    uint32_t incarnation = key->incarnation ? key->incarnation : 1;

    LIST_EACH(&job->saves, item)
    {
        struct save *save = LIST_ITEM(item, struct save, node);
        const Pb__Checkpoint *row = save_view(save);
        if (row->attempt == key->attempt && row->step == step && incarnation_of(row) == incarnation)
            return save;
    }
    return NULL;
}

/* Workers of the first role: the one that trains. */
static uint32_t world_size(const struct job *job)
{
    const Pb__Attempt *attempt = attempt_view(job->attempt);
    const char *role = job_view(job)->spec->roles[0]->name;
    uint32_t count = 0;

    for (size_t i = 0; i < attempt->n_places; i++)
        count += !strcmp(attempt->places[i]->role, role);
    return count;
}

static char *code_digest(const struct job *job)
{
    const Pb__Code *code = job_view(job)->spec->code;
    return code && code->digest && *code->digest ? mem_strdup(code->digest) : NULL;
}

static struct save *save_create(struct job *job, const Pb__ActualStaged *staged)
{
    struct hub *hub = job->hub;
    struct save *save = save_new(job, hub->save_next++);
    Pb__Checkpoint *row = NEW(Pb__Checkpoint);
    const Pb__CheckpointPolicy *policy = job_view(job)->spec->checkpoint;

    pb__checkpoint__init(row);
    row->has_id = row->has_job = row->has_attempt = row->has_step = row->has_samples = true;
    row->has_state = row->has_parts_expected = row->has_created_us = row->has_parent = true;
    row->has_world = row->has_version = row->has_bytes = true;
    row->id = save->id;
    row->job = staged->key->job;
    row->attempt = staged->key->attempt;
    row->has_incarnation = true;
    row->incarnation = staged->key->incarnation ? staged->key->incarnation : 1;
    row->step = staged->step;
    row->state = S(STAGED);
    row->world = world_size(job);
    bool one = policy && (policy->watch || /* looked for once, by the first worker's agent */
                          policy->writers == PB__CHECKPOINT_POLICY__WRITERS__RANK_ZERO);
    row->parts_expected = one ? 1 : row->world;
    row->parent = attempt_resume(attempt_view(job->attempt));
    row->created_us = loop_wall_us(hub->loop);
    row->vault = mem_strdup(staged->vault);
    row->path = mem_strdup(staged->path);
    row->code = code_digest(job);
    row->version = 1;
    draft_add_take(&hub->drafts, &save->entry, &row->base);
    return save;
}

static bool part_known(const Pb__Checkpoint *row, const Pb__CheckpointPart *part)
{
    for (size_t i = 0; i < row->n_parts; i++)
        if (row->parts[i]->rank == part->rank && !strcmp(row->parts[i]->role, part->role))
            return true;
    return false;
}

/* Whole: all parts are of one layout, or none has one. What rank 0 says of the layout is the
 * checkpoint's. False: it never will be a checkpoint. */
static bool seal_ready(struct save *save)
{
    Pb__Checkpoint *row = save_edit(save);
    const Pb__CheckpointPart *first = row->parts[0];
    char text[240];

    for (size_t i = 0; i < row->n_parts; i++) {
        const Pb__CheckpointPart *part = row->parts[i];
        const char *a = first->layout_digest ? first->layout_digest : "none";
        const char *b = part->layout_digest ? part->layout_digest : "none";
        if (strcmp(a, b) != 0) {
            snprintf(text, sizeof(text),
                     "rank %u saved by layout %.40s and rank %u by %.40s: the ranks do not agree "
                     "on what is to be saved",
                     first->rank, a, part->rank, b);
            save_set_state(save, S(TORN), text);
            return false;
        }
        if (first->layout_digest && part->samples != first->samples) {
            snprintf(text, sizeof(text),
                     "rank %u saved at sample %" PRId64 " and rank %u at sample %" PRId64
                     ": the ranks do not agree on the data cursor",
                     first->rank, first->samples, part->rank, part->samples);
            save_set_state(save, S(TORN), text);
            return false;
        }
        if (part->layout)
            draft_text(&row->layout, part->layout);
    }
    row->has_format = true;
    row->format =
        first->layout_digest ? PB__CHECKPOINT__FORMAT__SHARDED : PB__CHECKPOINT__FORMAT__PLAIN;
    if (first->layout_digest && !row->layout) {
        save_set_state(save, S(TORN), "no rank handed the layout over");
        return false;
    }
    draft_text(&row->layout_digest, first->layout_digest);
    return true;
}

static void add_part(struct save *save, const Pb__CheckpointPart *part)
{
    Pb__Checkpoint *row = save_edit(save);

    row->parts = mem_resize(row->parts, row->n_parts + 1, sizeof(*row->parts));
    row->parts[row->n_parts++] = (Pb__CheckpointPart *)message_copy(&part->base);
    for (size_t i = 0; i < part->n_files; i++)
        row->bytes += part->files[i]->bytes;
    if (part->samples > row->samples)
        row->samples = part->samples;
    row->version++;
    save_copy_staged(save, part);
    if (row->n_parts >= row->parts_expected && seal_ready(save)) {
        save_chore_update(save);
        save->since_us = loop_now_us(save->job->hub->loop);
        save_nodes_dirty(save);
    }
}

/* A part of a save that is torn already: it is known of, so that it is deleted, also when the parts
 * before it have been. */
static void add_litter(struct save *save, const Pb__CheckpointPart *part)
{
    Pb__Checkpoint *row = save_edit(save);

    if (!part_known(row, part)) {
        row->parts = mem_resize(row->parts, row->n_parts + 1, sizeof(*row->parts));
        row->parts[row->n_parts++] = (Pb__CheckpointPart *)message_copy(&part->base);
        row->version++;
        save_copy_staged(save, part);
    }
    save_chore_reset(save);
    save_chore_update(save);
    save_nodes_dirty(save);
}

/* A rank whose part failed has come to its end with it, and may have left files. */
static void note_failed(struct save *save, const Pb__WorkerKey *key, const char *node)
{
    Pb__CheckpointPart part = PB__CHECKPOINT_PART__INIT;

    if (save_view(save)->state != S(TORN) || !key->role)
        return;
    part.role = key->role;
    part.has_rank = true;
    part.rank = key->rank;
    part.node = (char *)(uintptr_t)node;
    add_litter(save, &part);
}

#define SUPERSEDED "its workers were restarted in place before it was committed"

static void staged_run(struct node *node, const Pb__ActualStaged *staged)
{
    struct job *job = staged->part && staged->vault && staged->path && staged->part->role
                          ? job_fenced(node->hub, staged->key)
                          : NULL;

    if (!job && staged->error)
        job = job_fenced(node->hub, staged->key);
    if (!job) /* an older attempt's, or the job is over: its files are swept with the attempt */
        return;
    struct save *save = save_find(job, staged->key, staged->step);
    if (staged->error) {
        if (!save)
            save = save_create(job, staged);
        if (save_view(save)->state == S(STAGED))
            save_set_state(save, S(TORN), staged->error);
        note_failed(save, staged->key, node_view(node)->name);
        return;
    }
    if (!save)
        save = save_create(job, staged);
    if (save_view(save)->state == S(TORN))
        add_litter(save, staged->part);
    if (part_known(save_view(save), staged->part))
        return;
    if (save_view(save)->state != S(STAGED))
        return;
    add_part(save, staged->part);
    if (save_view(save)->state == S(STAGED) && !save_is_of_now(job, save_view(save)))
        /* the part tells where to delete it */
        save_set_state(save, S(TORN), SUPERSEDED);
}

/* --- sealed */
/* A program that reports no steps has come as far as what it saved. */
static void note_reached(struct job *job, const Pb__Checkpoint *row, Pb__Job *job_row)
{
    if (row->step > job->step) {
        job->step = row->step;
        job->samples = row->samples ? row->samples : job->samples;
    }
    if (!job->step)
        return;
    job_row->has_step = job_row->has_samples = true;
    job_row->step = job->step;
    job_row->samples = job->samples ? job->samples : job_row->samples;
}

static void commit(struct save *save, const char *digest)
{
    struct job *job = save->job;
    struct hub *hub = job->hub;
    Pb__Checkpoint *row = save_edit(save);

    row->has_committed_us = true;
    row->committed_us = loop_wall_us(hub->loop);
    draft_text(&row->manifest_digest, digest);
    hub->health.save_bytes += row->bytes;
    hub->health.save_us +=
        row->committed_us > row->created_us ? (uint64_t)(row->committed_us - row->created_us) : 0;
    save_set_state(save, S(COMMITTED), NULL);
    Pb__Job *job_row = (Pb__Job *)draft_edit(&hub->drafts, &job->entry);
    job_row->has_last_checkpoint = true;
    job_row->last_checkpoint = save_view(save_resume(job))->id; /* seals may come out of order */
    note_reached(job, save_view(save), job_row);
    job_row->version++;
    save_keep_run(job);
    save_chore_update_all(job); /* the one before need not be read again any more */
    job_review(job);
}

static void sealed_run(struct node *node, const Pb__ActualSealed *sealed)
{
    struct save *save = map_get(node->hub->saves, (uint64_t)sealed->checkpoint);
    char digest[65];
    struct text manifest;

    if (!save || save_view(save)->state != S(STAGED))
        return;
    if (!sealed->error && !save_chore_answered(save, node_view(node)->name))
        return; /* others have parts of it, too */
    if (sealed->error) {
        save_set_state(save, S(TORN), sealed->error);
        job_review(save->job);
        return;
    }
    text_init(&manifest, 0);
    vault_manifest_build(save_view(save), &manifest, digest);
    text_fini(&manifest);
    if (!sealed->manifest_digest || strcmp(digest, sealed->manifest_digest) != 0)
        save_set_state(save, S(TORN), "the sealed manifest differs from the one asked for");
    else if (save->job->attempt &&
             save_view(save)->attempt == attempt_view(save->job->attempt)->number)
        commit(save, digest);
    else
        save_set_state(save, S(TORN), "sealed by a superseded attempt");
}

static void deleted_run(struct node *node, const Pb__ActualDeleted *deleted)
{
    struct save *save = map_get(node->hub->saves, (uint64_t)deleted->checkpoint);

    if (!save || !save_chore_answered(save, node_view(node)->name))
        return;
    if (save_view(save)->state == S(EXPIRED))
        save_set_state(save, S(DELETED), NULL);
    list_remove(&save->chore); /* a torn one stays TORN, with nothing left of it */
    save_nodes_dirty(save);
}

void save_run_reports(struct node *node)
{
    LIST_EACH(&node->staged, item)
    staged_run(node, (Pb__ActualStaged *)LIST_ITEM(item, struct session_note, node)->message);
    LIST_EACH(&node->sealed, item)
    sealed_run(node, (Pb__ActualSealed *)LIST_ITEM(item, struct session_note, node)->message);
    LIST_EACH(&node->deleted, item)
    deleted_run(node, (Pb__ActualDeleted *)LIST_ITEM(item, struct session_note, node)->message);
    LIST_EACH(&node->verified, item)
    save_chore_verified(node,
                        (Pb__ActualVerified *)LIST_ITEM(item, struct session_note, node)->message);
    LIST_EACH(&node->copies, item)
    save_copy_run(node, (Pb__ActualCopy *)LIST_ITEM(item, struct session_note, node)->message);
}

void save_drop_reports(struct node *node, uint64_t through_seq)
{
    session_notes_drop(&node->staged, through_seq);
    session_notes_drop(&node->sealed, through_seq);
    session_notes_drop(&node->deleted, through_seq);
    session_notes_drop(&node->verified, through_seq);
    session_notes_drop(&node->copies, through_seq);
}

/* --- ends */
/* What a loader of the attempt found: file and block; NULL: nothing. */
static const char *damage_found(const struct job *job)
{
    const Pb__Attempt *attempt = attempt_view(job->attempt);

    for (size_t i = 0; i < attempt->n_places; i++) {
        const struct node *node = map_get_text(job->hub->nodes, attempt->places[i]->node);
        Pb__WorkerKey key = PB__WORKER_KEY__INIT;
        key.job = attempt->job;
        key.role = attempt->places[i]->role;
        key.rank = attempt->places[i]->rank;
        key.attempt = attempt->number;
        const struct actual *actual = node ? node_actual(node, &key) : NULL;
        if (actual && actual->said->damaged &&
            (actual->said->key->incarnation ? actual->said->key->incarnation : 1) ==
                attempt_incarnation(attempt))
            return actual->said->damaged;
    }
    return NULL;
}

/* Whoever failed first: what a loader has found is so. */
static void note_damage(struct job *job)
{
    int64_t resume = attempt_resume(attempt_view(job->attempt));
    struct save *save = resume ? map_get(job->hub->saves, (uint64_t)resume) : NULL;
    const char *found = save && save_is_usable(save) ? damage_found(job) : NULL;

    if (found)
        save_set_state(save, S(DAMAGED), found);
}

void save_attempt_broken(struct job *job, Pb__Reason__Code code)
{
    const Pb__Attempt *attempt = attempt_view(job->attempt);
    int64_t resume = attempt_resume(attempt);
    struct save *save = code == PB__REASON__CODE__CHECKPOINT_ERROR && resume
                            ? map_get(job->hub->saves, (uint64_t)resume)
                            : NULL;
    note_damage(job);
    if (!save || !save_is_usable(save))
        return;
    if (job_view(job)->state == PB__JOB__STATE__STARTING)
        save_set_state(save, S(DAMAGED), "could not be loaded: see the job's first failure");
}

static void tear(struct job *job, bool whole_too, const char *why)
{
    LIST_EACH(&job->saves, item)
    {
        struct save *save = LIST_ITEM(item, struct save, node);
        const Pb__Checkpoint *row = save_view(save);
        if (row->state == S(STAGED) && (whole_too || row->n_parts < row->parts_expected))
            save_set_state(save, S(TORN), why);
    }
}

void save_restarted(struct job *job)
{
    LIST_EACH(&job->saves, item)
    {
        struct save *save = LIST_ITEM(item, struct save, node);
        if (save_view(save)->state == S(STAGED) && !save_is_of_now(job, save_view(save)))
            save_set_state(save, S(TORN), SUPERSEDED);
    }
    save_chore_update_all(job);
}

void save_attempt_ended(struct job *job)
{
    tear(job, false, "the attempt ended before every rank had reported");
    note_damage(job);
    save_keep_run(job);
    save_chore_update_all(job); /* nobody writes into torn ones any more */
}

/* Monotonic time until which a launch waits for a whole one to be committed; 0: none is under way.
 */
int64_t save_wait_until(const struct job *job)
{
    int64_t until = 0;

    LIST_EACH((struct list *)(uintptr_t)&job->saves, item)
    {
        const struct save *save = LIST_ITEM(item, struct save, node);
        const Pb__Checkpoint *row = save_view(save);
        if (row->state == S(STAGED) && row->n_parts >= row->parts_expected)
            until = save->since_us + SEAL_WAIT_US;
    }
    return until;
}

void save_give_up(struct job *job, const char *why)
{
    tear(job, true, why);
}

void save_job_ended(struct job *job)
{
    tear(job, true, "the job ended before every rank had reported");
}
