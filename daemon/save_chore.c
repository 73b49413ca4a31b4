/* save_chore.c - see save_chore.h. */
#include "daemon/save_chore.h"
#include "checkpoint/digest.h"
#include "checkpoint/vault.h"
#include "daemon/attempt.h"
#include "daemon/node.h"
#include "daemon/save_copy.h"
#include "daemon/save_inner.h"
#include "daemon/save_keep.h"

/* --- what is wanted */

/* Its bytes are where they were committed, good or not. */
static bool is_readable(const struct save *save)
{
    return save_is_usable(save) || save_view(save)->state == SAVE_STATE(DAMAGED);
}

static bool is_newest(const struct save *save)
{
    const struct save *newest = save_resume(save->job);

    return newest == save;
}

static bool wants_verify(const struct save *save)
{
    const Pb__Checkpoint *row = save_view(save);
    const Pb__CheckpointPolicy *policy = job_view(save->job)->spec->checkpoint;

    if (row->state == SAVE_STATE(DAMAGED))
        return row->verify_asked;
    if (!save_is_usable(save))
        return false;
    if (row->verify_asked)
        return true;
    /* Plain ones are read whole before each resume; of sharded ones each byte as it is loaded. */
    return row->state == SAVE_STATE(COMMITTED) && policy && policy->verify &&
           row->format == PB__CHECKPOINT__FORMAT__SHARDED && is_newest(save);
}

/* --- who does it, and has */

static bool is_done_by(const struct save *save, const char *node)
{
    char name[300];

    snprintf(name, sizeof(name), "%d:%s", (int)save_view(save)->state, node);
    for (size_t i = 0; i < save->answered_count; i++)
        if (!strcmp(save->answered[i], name))
            return true;
    return false;
}

static bool is_dead(const Pb__Checkpoint *row)
{
    return row->state == SAVE_STATE(EXPIRED) || row->state == SAVE_STATE(TORN);
}

/* Has every node its own? Then each does it for what it has. */
static bool is_each_nodes(const Pb__Checkpoint *row)
{
    return save_copy_is_apart(row) ||
           (is_dead(row) && row->n_copies &&
            row->copies[0]->durability == PB__SHARD_COPY__DURABILITY__NODE);
}

/* Who is asked, one after the other; some more than once. NULL: that was all. Whoever wrote a part
 * seals and verifies it; whoever has one, or began an attempt from it and may have fetched some of
 * it, deletes. */
struct asked {
    const struct save *save;
    bool all; /* whatever state it is in */
    size_t parts, copies, places;
    const struct list *attempt;
};

static const char *asked_place(struct asked *asked)
{
    const struct list *attempts = &asked->save->job->attempts;

    for (; asked->attempt != attempts; asked->attempt = asked->attempt->next, asked->places = 0) {
        const Pb__Attempt *row =
            attempt_view(LIST_ITEM((struct list *)(uintptr_t)asked->attempt, struct attempt, node));
        if (attempt_resume(row) == asked->save->id && asked->places < row->n_places)
            return row->places[asked->places++]->node;
    }
    return NULL;
}

static const char *asked_next(struct asked *asked)
{
    const Pb__Checkpoint *row = save_view(asked->save);

    if (asked->parts < row->n_parts && (!asked->parts || asked->all || is_each_nodes(row)))
        return row->parts[asked->parts++]->node;
    if (!asked->all && (!is_dead(row) || !is_each_nodes(row)))
        return NULL;
    if (asked->copies < row->n_copies)
        return row->copies[asked->copies++]->node;
    if (!asked->attempt)
        asked->attempt = asked->save->job->attempts.next;
    return asked_place(asked);
}

static bool is_asked(const struct save *save, const char *node)
{
    struct asked asked = {.save = save};

    for (const char *name; (name = asked_next(&asked));)
        if (!strcmp(name, node))
            return true;
    return false;
}

static bool is_done(const struct save *save)
{
    struct asked asked = {.save = save};
    const char *last = "";

    for (const char *name; (name = asked_next(&asked)); last = name)
        if (strcmp(name, last) != 0 && !is_done_by(save, name))
            return false;
    return true;
}

void save_nodes_dirty(const struct save *save)
{
    struct asked asked = {.save = save, .all = true};

    for (const char *name; (name = asked_next(&asked));)
        node_desired_dirty(save->job->hub, name);
}

/* A torn one goes once nobody writes into it any more: a worker whose directory went away in the
 * middle of a save would fail for it. */
static bool wants_delete(const struct save *save)
{
    const Pb__Checkpoint *row = save_view(save);

    if (row->state == SAVE_STATE(EXPIRED))
        return true;
    return row->state == SAVE_STATE(TORN) &&
           (row->n_parts >= row->parts_expected || !attempt_is_open(save->job) ||
            !save_is_of_now(save->job, row));
}

void save_chore_update(struct save *save)
{
    const Pb__Checkpoint *row = save_view(save);
    bool whole = row->state == SAVE_STATE(STAGED) && row->n_parts >= row->parts_expected;
    bool wanted =
        row->n_parts && (whole || wants_delete(save) || wants_verify(save)) && !is_done(save);

    if (wanted == !list_is_empty(&save->chore))
        return;
    if (wanted)
        list_add_last(&save->job->hub->chores, &save->chore);
    else
        list_remove(&save->chore);
}

void save_chore_update_all(struct job *job)
{
    LIST_EACH(&job->saves, item)
    {
        struct save *save = LIST_ITEM(item, struct save, node);
        bool before = !list_is_empty(&save->chore);
        if (!save_is_usable(save) && save_view(save)->state != SAVE_STATE(TORN))
            continue;
        save_chore_update(save);
        if (before != !list_is_empty(&save->chore))
            save_nodes_dirty(save);
    }
}

void save_chore_recount(struct hub *hub)
{
    size_t at = 0;

    for (struct save *save; (save = map_next(hub->saves, &at));)
        save_chore_update(save);
}

bool save_chore_is_due(const struct job *job)
{
    LIST_EACH((struct list *)(uintptr_t)&job->saves, item)
    {
        const struct save *save = LIST_ITEM(item, struct save, node);
        if (!list_is_empty(&save->chore) && !is_readable(save))
            return true;
    }
    return false;
}

/* --- who has done it */

void save_chore_reset(struct save *save)
{
    for (size_t i = 0; i < save->answered_count; i++)
        mem_free(save->answered[i]);
    mem_free(save->answered);
    save->answered = NULL;
    save->answered_count = 0;
}

/* What was answered is kept with the state that it was for: a turn may be undone. */
bool save_chore_answered(struct save *save, const char *node)
{
    const Pb__Checkpoint *row = save_view(save);

    if (!is_done_by(save, node)) {
        save->answered = mem_resize(save->answered, save->answered_count + 1, sizeof(char *));
        save->answered[save->answered_count++] = mem_printf("%d:%s", (int)row->state, node);
    }
    return is_done(save);
}

/* --- the desired set */

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

static void fill_verify(const Pb__Checkpoint *row, Pb__DesiredVerify *verify)
{
    pb__desired_verify__init(verify);
    verify->has_checkpoint = verify->has_own_parts = true;
    verify->checkpoint = row->id;
    verify->vault = row->vault;
    verify->path = row->path;
    verify->manifest_digest = row->manifest_digest;
    verify->own_parts = save_copy_is_apart(row);
}

static void fill_one(const struct node *node, const struct save *save, Pb__Desired *out,
                     struct arena *arena)
{
    Pb__Checkpoint *row = (Pb__Checkpoint *)save->entry.row;

    if (!row || !is_asked(save, node_view(node)->name) || is_done_by(save, node_view(node)->name))
        return;
    if (row->state == SAVE_STATE(STAGED)) {
        out->seals[out->n_seals] = arena_alloc(arena, sizeof(Pb__DesiredSeal));
        fill_seal(row, out->seals[out->n_seals++], arena);
        return;
    }
    if (is_readable(save)) {
        out->verifies[out->n_verifies] = arena_alloc(arena, sizeof(Pb__DesiredVerify));
        fill_verify(row, out->verifies[out->n_verifies++]);
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

void save_chore_fill(const struct node *node, Pb__Desired *out, struct arena *arena)
{
    size_t count = 0;

    LIST_EACH(&node->hub->chores, item)
    count++;
    out->seals = arena_alloc(arena, sizeof(void *) * (count + 1));
    out->verifies = arena_alloc(arena, sizeof(void *) * (count + 1));
    out->deletes = arena_alloc(arena, sizeof(void *) * (count + 1));
    LIST_EACH(&node->hub->chores, item)
    fill_one(node, LIST_ITEM(item, struct save, chore), out, arena);
}

/* --- verified */

static int part_order(const void *a, const void *b)
{
    const Pb__CheckpointPart *left = *(Pb__CheckpointPart *const *)a;
    const Pb__CheckpointPart *right = *(Pb__CheckpointPart *const *)b;
    int by_role = strcmp(left->role, right->role);

    return by_role ? by_role : left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* The identity of the whole, from those of its parts. */
static void tree_root(const Pb__Checkpoint *row, char out[65])
{
    SCOPED(mem_free) void *memory = mem_array(row->n_parts + 1, sizeof(Pb__CheckpointPart *));
    Pb__CheckpointPart **parts = memory;
    struct text lines;

    text_init(&lines, 0);
    memcpy(parts, row->parts, row->n_parts * sizeof(*parts));
    qsort(parts, row->n_parts, sizeof(*parts), part_order);
    for (size_t i = 0; i < row->n_parts; i++)
        text_addf(&lines, "%s  %s-%u\n", parts[i]->tree_digest, parts[i]->role, parts[i]->rank);
    digest_sha256(text_get(&lines), lines.len, out);
    text_fini(&lines);
}

static void note_digests(Pb__Checkpoint *row, const Pb__ActualVerified *verified)
{
    for (size_t k = 0; k < verified->n_parts; k++)
        for (size_t i = 0; i < row->n_parts; i++)
            if (verified->parts[k]->role && verified->parts[k]->tree_digest &&
                row->parts[i]->rank == verified->parts[k]->rank &&
                !strcmp(row->parts[i]->role, verified->parts[k]->role))
                draft_text(&row->parts[i]->tree_digest, verified->parts[k]->tree_digest);
}

static bool all_have_digests(const Pb__Checkpoint *row)
{
    for (size_t i = 0; i < row->n_parts; i++)
        if (!row->parts[i]->tree_digest || strlen(row->parts[i]->tree_digest) != 64)
            return false;
    return row->n_parts > 0;
}

static void commit_verified(struct save *save)
{
    Pb__Checkpoint *row = save_edit(save);
    char root[65];

    if (!all_have_digests(row))
        return;
    tree_root(row, root);
    if (row->tree_digest && strcmp(row->tree_digest, root) != 0) {
        save_set_state(save, SAVE_STATE(DAMAGED), "its bytes are not those that were verified");
        return;
    }
    draft_text(&row->tree_digest, root);
    row->has_verified_us = row->has_verify_asked = true;
    row->verified_us = loop_wall_us(save->job->hub->loop);
    row->verify_asked = false;
    save_set_state(save, SAVE_STATE(VERIFIED), NULL);
    save_keep_run(save->job); /* the one before may have stayed for this alone */
}

void save_chore_verified(struct node *node, const Pb__ActualVerified *verified)
{
    struct save *save = map_get(node->hub->saves, (uint64_t)verified->checkpoint);

    if (!save || !is_readable(save) || !is_asked(save, node_view(node)->name))
        return;
    if (verified->error) {
        Pb__Checkpoint *row = save_edit(save);
        row->has_verify_asked = true;
        row->verify_asked = false;
        save_set_state(save, SAVE_STATE(DAMAGED), verified->error);
        save_chore_update_all(save->job);
        return;
    }
    if (save_view(save)->state != SAVE_STATE(COMMITTED) && !save_view(save)->verify_asked)
        return;
    note_digests(save_edit(save), verified);
    if (save_chore_answered(save, node_view(node)->name))
        commit_verified(save);
    save_nodes_dirty(save);
}

enum status save_chore_verify(struct save *save, const char *actor, struct error *err)
{
    char text[200];

    if (!is_readable(save))
        return error_set(err, STATUS_PRECONDITION, "checkpoint %lld is %s: it is not read again",
                         (long long)save->id, HUB_NAME(checkpoint__state, save_view(save)->state));
    Pb__Checkpoint *row = save_edit(save);
    row->has_verify_asked = true;
    row->verify_asked = true;
    row->version++;
    save_chore_reset(save);
    save_chore_update(save);
    save_nodes_dirty(save);
    snprintf(text, sizeof(text), "to be read again, asked by %.100s", actor);
    save_event(save, "checkpoint.verify", 0, text);
    return STATUS_OK;
}
