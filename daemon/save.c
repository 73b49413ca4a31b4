/* save.c - checkpoints as the daemon knows them. See save.h. */
#include "daemon/save.h"
#include "base/log.h"
#include "checkpoint/vault.h"
#include "daemon/attempt.h"
#include "daemon/job.h"
#include "daemon/node.h"
#include "daemon/session.h"
#include "daemon/watch.h"

#define S(x)         PB__CHECKPOINT__STATE__##x
#define SEAL_WAIT_US 5000000 /* a relaunch waits this long for a whole save to be committed */

static Pb__Checkpoint *save_edit(struct save *save)
{
    return (Pb__Checkpoint *)draft_edit(&save->job->hub->drafts, &save->entry);
}

static void save_destroy(struct save *save)
{
    map_remove(save->job->hub->saves, (uint64_t)save->id);
    list_remove(&save->node);
    list_remove(&save->chore);
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

void save_destroy_all(struct job *job)
{
    while (!list_is_empty(&job->saves))
        save_destroy(LIST_ITEM(job->saves.next, struct save, node));
}

static void save_event(const struct save *save, const char *kind, Pb__Checkpoint__State from,
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

/* Derived from the state: whole ones are to be sealed, dead ones to be deleted. */
static void chore_update(struct save *save)
{
    const Pb__Checkpoint *row = save_view(save);
    bool wanted =
        row->n_parts && ((row->state == S(STAGED) && row->n_parts >= row->parts_expected) ||
                         row->state == S(TORN) || row->state == S(EXPIRED));

    if (wanted == !list_is_empty(&save->chore))
        return;
    if (wanted)
        list_add_last(&save->job->hub->chores, &save->chore);
    else
        list_remove(&save->chore);
}

void save_recount(struct hub *hub)
{
    size_t at = 0;

    for (struct save *save; (save = map_next(hub->saves, &at));)
        chore_update(save);
}

static void nodes_dirty(const struct save *save)
{
    const Pb__Checkpoint *row = save_view(save);

    for (size_t i = 0; i < row->n_parts; i++)
        node_desired_dirty(save->job->hub, row->parts[i]->node);
}

static void save_set_state(struct save *save, Pb__Checkpoint__State to, const char *text)
{
    Pb__Checkpoint__State from = save_view(save)->state;
    Pb__Checkpoint *row = save_edit(save);

    row->has_state = row->has_version = true;
    row->state = to;
    row->version++;
    if (to == S(TORN) || to == S(DAMAGED))
        draft_text(&row->reason, text);
    chore_update(save);
    nodes_dirty(save);
    char kind[48];
    snprintf(kind, sizeof(kind), "checkpoint.%s",
             to == S(COMMITTED) ? "committed"
             : to == S(TORN)    ? "torn"
                                : "state");
    save_event(save, kind, from, text);
}

/* --- reading */
static bool usable(const struct save *save)
{
    Pb__Checkpoint__State state = save_view(save)->state;

    return state == S(COMMITTED) || state == S(VERIFIED);
}

/* Newest by commit: the end of the list is the newest made; a later attempt's is newer whatever its
 * step. */
const struct save *save_resume(const struct job *job)
{
    if (job_view(job)->spec->checkpoint && job_view(job)->spec->checkpoint->start_over &&
        !job_view(job)->attempt)
        return NULL;
    for (const struct list *item = job->saves.prev; item != &job->saves; item = item->prev) {
        const struct save *save = LIST_ITEM((struct list *)(uintptr_t)item, struct save, node);
        if (usable(save))
            return save;
    }
    return NULL;
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

/* Written by the workers that run now? */
static bool is_of_now(const struct job *job, const Pb__Checkpoint *row)
{
    const Pb__Attempt *attempt = attempt_view(job->attempt);

    return row->attempt == attempt->number && incarnation_of(row) == attempt_incarnation(attempt);
}

bool save_is_whole(const struct job *job, int64_t step)
{
    LIST_EACH((struct list *)(uintptr_t)&job->saves, item)
    {
        const Pb__Checkpoint *row = save_view(LIST_ITEM(item, struct save, node));
        if (is_of_now(job, row) && row->step >= step &&
            (row->n_parts >= row->parts_expected || row->state == S(TORN)))
            return true;
    }
    return false;
}

bool save_has_chore(const struct job *job)
{
    LIST_EACH((struct list *)(uintptr_t)&job->saves, item)
    {
        if (!list_is_empty(&LIST_ITEM(item, struct save, node)->chore))
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
    if (row->n_parts >= row->parts_expected) {
        chore_update(save);
        save->since_us = loop_now_us(save->job->hub->loop);
        nodes_dirty(save);
    }
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
        return;
    }
    if (!save)
        save = save_create(job, staged);
    if (save_view(save)->state != S(STAGED) || part_known(save_view(save), staged->part))
        return;
    add_part(save, staged->part);
    if (!is_of_now(job, save_view(save))) /* the part tells where to delete it */
        save_set_state(save, S(TORN), SUPERSEDED);
}

/* --- sealed */
static void retire(struct job *job)
{
    const Pb__CheckpointPolicy *policy = job_view(job)->spec->checkpoint;
    uint32_t keep = policy && policy->keep ? policy->keep : 1, kept = 0;

    for (struct list *item = job->saves.prev; item != &job->saves; item = item->prev) {
        struct save *save = LIST_ITEM(item, struct save, node);
        if (usable(save) && ++kept > keep && !save_is_held(job, save))
            save_set_state(save, S(EXPIRED), "beyond the number to keep");
    }
}

/* The checkpoint that the open attempt resumed from stays as long as nothing newer was committed by
 * it. */
bool save_is_held(const struct job *job, const struct save *save)
{
    return attempt_is_open(job) &&
           attempt_view(job->attempt)->resume_checkpoint == save_view(save)->id &&
           job_view(job)->state == PB__JOB__STATE__STARTING;
}

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
    save_set_state(save, S(COMMITTED), NULL);
    Pb__Job *job_row = (Pb__Job *)draft_edit(&hub->drafts, &job->entry);
    job_row->has_last_checkpoint = true;
    job_row->last_checkpoint = save_view(save_resume(job))->id; /* seals may come out of order */
    note_reached(job, save_view(save), job_row);
    job_row->version++;
    retire(job);
    job_review(job);
}

static void sealed_run(struct node *node, const Pb__ActualSealed *sealed)
{
    struct save *save = map_get(node->hub->saves, (uint64_t)sealed->checkpoint);
    char digest[65];
    struct text manifest;

    if (!save || save_view(save)->state != S(STAGED))
        return;
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

    if (!save)
        return;
    if (save_view(save)->state == S(EXPIRED))
        save_set_state(save, S(DELETED), NULL);
    list_remove(&save->chore); /* a torn one stays TORN, with nothing left of it */
    nodes_dirty(save);
}

void save_run_reports(struct node *node)
{
    LIST_EACH(&node->staged, item)
    staged_run(node, (Pb__ActualStaged *)LIST_ITEM(item, struct session_note, node)->message);
    LIST_EACH(&node->sealed, item)
    sealed_run(node, (Pb__ActualSealed *)LIST_ITEM(item, struct session_note, node)->message);
    LIST_EACH(&node->deleted, item)
    deleted_run(node, (Pb__ActualDeleted *)LIST_ITEM(item, struct session_note, node)->message);
}

void save_drop_reports(struct node *node, uint64_t through_seq)
{
    session_notes_drop(&node->staged, through_seq);
    session_notes_drop(&node->sealed, through_seq);
    session_notes_drop(&node->deleted, through_seq);
}

/* --- ends */
void save_attempt_broken(struct job *job, Pb__Reason__Code code)
{
    const Pb__Attempt *attempt = attempt_view(job->attempt);
    struct save *save = code == PB__REASON__CODE__CHECKPOINT_ERROR && attempt->resume_checkpoint
                            ? map_get(job->hub->saves, (uint64_t)attempt->resume_checkpoint)
                            : NULL;

    if (save && usable(save) && job_view(job)->state == PB__JOB__STATE__STARTING)
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
        if (save_view(save)->state == S(STAGED) && !is_of_now(job, save_view(save)))
            save_set_state(save, S(TORN), SUPERSEDED);
    }
}

void save_attempt_ended(struct job *job)
{
    tear(job, false, "the attempt ended before every rank had reported");
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

/* --- chores */
/* One node does it: that of the first part. */
static bool chore_is_here(const struct node *node, const Pb__Checkpoint *row)
{
    return row->n_parts && !strcmp(row->parts[0]->node, node_view(node)->name);
}

static void fill_seal(const Pb__Checkpoint *row, Pb__DesiredSeal *seal, struct arena *arena)
{
    struct text manifest;
    char digest[65];

    pb__desired_seal__init(seal);
    text_init(&manifest, 0);
    vault_manifest_build(row, &manifest, digest);
    seal->has_checkpoint = seal->has_job = seal->has_attempt = seal->has_manifest = true;
    seal->checkpoint = row->id;
    seal->job = row->job;
    seal->attempt = row->attempt;
    seal->vault = row->vault;
    seal->path = row->path;
    seal->manifest.len = manifest.len;
    seal->manifest.data = arena_alloc(arena, manifest.len + 1);
    memcpy(seal->manifest.data, text_get(&manifest), manifest.len);
    text_fini(&manifest);
}

static void fill_one(const struct node *node, const struct save *save, Pb__Desired *out,
                     struct arena *arena)
{
    Pb__Checkpoint *row = (Pb__Checkpoint *)save->entry.row;

    if (!row || !chore_is_here(node, row))
        return;
    if (row->state == S(STAGED)) {
        out->seals[out->n_seals] = arena_alloc(arena, sizeof(Pb__DesiredSeal));
        fill_seal(row, out->seals[out->n_seals++], arena);
        return;
    }
    Pb__DesiredDelete *gone = arena_alloc(arena, sizeof(*gone));
    pb__desired_delete__init(gone);
    gone->has_checkpoint = true;
    gone->checkpoint = row->id;
    gone->vault = row->vault;
    gone->path = row->path;
    out->deletes[out->n_deletes++] = gone;
}

void save_fill_desired(const struct node *node, Pb__Desired *out, struct arena *arena)
{
    size_t count = 0;

    LIST_EACH(&node->hub->chores, item)
    count++;
    out->seals = arena_alloc(arena, sizeof(void *) * (count + 1));
    out->deletes = arena_alloc(arena, sizeof(void *) * (count + 1));
    LIST_EACH(&node->hub->chores, item)
    fill_one(node, LIST_ITEM(item, struct save, chore), out, arena);
}
