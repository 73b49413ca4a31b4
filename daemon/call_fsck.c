/* call_fsck.c - see call_fsck.h. */
#include "daemon/call_fsck.h"
#include "daemon/attempt.h"
#include "daemon/fsck.h"
#include "daemon/job.h"
#include "daemon/save.h"
#include "daemon/save_chore.h"
#include "daemon/save_copy.h"
#include "daemon/save_inner.h"
#include "daemon/save_keep.h"
#include "daemon/watch.h"

struct repair {
    struct hub *hub;
    struct call *call;
    const Pb__FsckRepair *request;
    const Pb__Difference *difference;
    struct save *save;   /* NULL: memory does not hold it */
    Pb__Checkpoint *row; /* its draft, or that of a row that memory does not hold */
};

static struct job *find_job(const struct hub *hub, int64_t id)
{
    return id > 0 ? map_get(hub->jobs, (uint64_t)id) : NULL;
}

static void note_event(const struct repair *repair)
{
    const Pb__Difference *d = repair->difference;
    Pb__Event *event = watch_event(repair->hub, "checkpoint.fsck");
    const ProtobufCEnumValue *kind =
        protobuf_c_enum_descriptor_get_value(&pb__difference__kind__descriptor, (int)d->kind);
    char where[120] = "", text[400];

    if (d->checkpoint)
        snprintf(where, sizeof(where), "checkpoint %lld: ", (long long)d->checkpoint);
    else if (d->path)
        snprintf(where, sizeof(where), "%.100s: ", d->path);
    snprintf(text, sizeof(text), "%s%s: %.150s; fsck: %s", where, kind ? kind->name : "",
             d->text ? d->text : "", fsck_repair_text(d->repair));
    event->has_job = d->job > 0;
    event->job = d->job;
    event->node = d->node && *d->node ? mem_strdup(d->node) : NULL;
    event->actor = mem_strdup(repair->call->actor);
    event->text = mem_strdup(text);
}

/* --- the row */

static void stray_settled(struct entry *entry, bool committed, void *arg)
{
    (void)committed;
    entry_fini(entry);
    mem_free(arg);
}

/* Of a job that memory does not hold: the store's row, changed. */
static void draft_stray(struct repair *repair)
{
    struct entry *entry = NEW(struct entry);

    entry_init(entry, CHANGE_CHECKPOINT, stray_settled, entry);
    repair->row = (Pb__Checkpoint *)message_copy(&repair->request->row->base);
    draft_add_take(&repair->hub->drafts, entry, &repair->row->base);
}

static enum status open_row(struct repair *repair)
{
    const Pb__FsckRepair *request = repair->request;
    struct error *err = &repair->call->err;

    repair->save = map_get(repair->hub->saves, (uint64_t)repair->difference->checkpoint);
    if (repair->save) {
        if (save_view(repair->save)->version != request->version)
            return error_set(err, STATUS_ABORTED, "it has changed meanwhile: look again");
        repair->row = save_edit(repair->save);
    } else if (request->row && !find_job(repair->hub, request->row->job)) {
        draft_stray(repair);
    } else {
        return error_set(err, STATUS_NOT_FOUND, "it is not there any more: look again");
    }
    repair->row->has_version = true;
    return STATUS_OK;
}

static enum status set_state(struct repair *repair, Pb__Checkpoint__State to)
{
    Pb__Checkpoint *row = repair->row;
    const char *why = repair->difference->text;

    if (repair->save) {
        save_set_state(repair->save, to, why);
        save_chore_update_all(repair->save->job);
        return STATUS_OK;
    }
    row->has_state = true;
    row->state = to;
    row->version++;
    draft_text(&row->reason, why);
    return STATUS_OK;
}

/* --- each repair */

static enum status write_row(struct repair *repair)
{
    repair->row->version++;
    return STATUS_OK;
}

static enum status mark_torn(struct repair *repair)
{
    if (repair->row->state != SAVE_STATE(STAGED) && repair->row->state != SAVE_STATE(SEALED))
        return error_set(&repair->call->err, STATUS_PRECONDITION, "it is not STAGED");
    return set_state(repair, SAVE_STATE(TORN));
}

static enum status mark_damaged(struct repair *repair)
{
    if (repair->row->state != SAVE_STATE(COMMITTED) && repair->row->state != SAVE_STATE(VERIFIED))
        return error_set(&repair->call->err, STATUS_PRECONDITION, "it is not COMMITTED");
    return set_state(repair, SAVE_STATE(DAMAGED));
}

static enum status cut_parent(struct repair *repair)
{
    repair->row->parent = 0;
    repair->row->version++;
    return STATUS_OK;
}

static enum status unpin(struct repair *repair)
{
    repair->row->pinned = false;
    repair->row->version++;
    return STATUS_OK;
}

static enum status verify(struct repair *repair)
{
    if (!repair->save)
        return error_set(&repair->call->err, STATUS_PRECONDITION,
                         "its job ended long ago: memory does not hold it");
    return save_chore_verify(repair->save, repair->call->actor, &repair->call->err);
}

static enum status lose_copy(struct repair *repair)
{
    const Pb__Difference *d = repair->difference;

    for (size_t i = 0; i < repair->row->n_copies; i++) {
        Pb__ShardCopy *copy = repair->row->copies[i];
        if (copy->durability != PB__SHARD_COPY__DURABILITY__NODE || copy->rank != d->rank ||
            !d->role || strcmp(copy->role, d->role) != 0 || strcmp(copy->node, d->node) != 0)
            continue;
        copy->has_lost = copy->lost = true;
        repair->row->version++;
        return STATUS_OK;
    }
    return error_set(&repair->call->err, STATUS_NOT_FOUND, "there is no such copy");
}

static Pb__ShardCopy *copy_create(const struct hub *hub, const Pb__CheckpointPart *part,
                                  const char *node, const char *vault)
{
    Pb__ShardCopy *copy = NEW(Pb__ShardCopy);

    pb__shard_copy__init(copy);
    copy->role = mem_strdup(part->role);
    copy->node = mem_strdup(node);
    copy->vault = mem_strdup(vault);
    copy->has_rank = copy->has_durability = copy->has_bytes = copy->has_made_us = true;
    copy->rank = part->rank;
    copy->durability = save_copy_durability(hub, node, vault);
    for (size_t i = 0; i < part->n_files; i++)
        copy->bytes += part->files[i]->bytes;
    copy->made_us = loop_wall_us(hub->loop);
    return copy;
}

static void copy_add_take(Pb__Checkpoint *row, Pb__ShardCopy *copy)
{
    row->copies = mem_resize(row->copies, row->n_copies + 1, sizeof(*row->copies));
    row->copies[row->n_copies++] = copy;
}

static enum status add_copy(struct repair *repair)
{
    const Pb__Difference *d = repair->difference;
    Pb__Checkpoint *row = repair->row;

    for (size_t i = 0; i < row->n_copies; i++) {
        Pb__ShardCopy *copy = row->copies[i];
        if (copy->durability == PB__SHARD_COPY__DURABILITY__NODE && copy->rank == d->rank &&
            d->role && strcmp(copy->role, d->role) == 0 && strcmp(copy->node, d->node) == 0) {
            copy->has_lost = true;
            copy->lost = false;
            row->version++;
            return STATUS_OK;
        }
    }
    for (size_t i = 0; i < row->n_parts; i++) {
        if (row->parts[i]->rank != d->rank || !d->role || strcmp(row->parts[i]->role, d->role) != 0)
            continue;
        copy_add_take(row, copy_create(repair->hub, row->parts[i], d->node, row->vault));
        row->version++;
        return STATUS_OK;
    }
    return error_set(&repair->call->err, STATUS_NOT_FOUND, "it has no such part");
}

static enum status noted(struct repair *repair)
{
    (void)repair; /* an agent has done it */
    return STATUS_OK;
}

/* --- repairs of something else than one row */

static enum status set_last(struct repair *repair)
{
    struct job *job = find_job(repair->hub, repair->difference->job);
    struct error *err = &repair->call->err;

    if (!job)
        return error_set(err, STATUS_NOT_FOUND, "the job ended long ago");
    if (job_view(job)->last_checkpoint != repair->difference->checkpoint)
        return error_set(err, STATUS_ABORTED, "it has changed meanwhile: look again");
    Pb__Job *row = (Pb__Job *)draft_edit(&repair->hub->drafts, &job->entry);
    const struct save *newest = save_resume(job);
    row->last_checkpoint = newest ? newest->id : 0;
    row->version++;
    return STATUS_OK;
}

static void fill_registered(struct repair *repair, Pb__Checkpoint *row)
{
    uint64_t bytes = 0;
    uint32_t incarnation;
    int64_t job, step;
    uint32_t attempt;

    for (size_t i = 0; i < row->n_parts; i++) {
        for (size_t k = 0; k < row->parts[i]->n_files; k++)
            bytes += row->parts[i]->files[k]->bytes;
        copy_add_take(row,
                      copy_create(repair->hub, row->parts[i], row->parts[i]->node, row->vault));
    }
    row->has_bytes = row->has_state = row->has_parts_expected = row->has_version = true;
    row->has_committed_us = row->has_incarnation = true;
    row->bytes = bytes;
    row->state = SAVE_STATE(COMMITTED);
    row->parts_expected = (uint32_t)row->n_parts;
    row->version = 1;
    row->committed_us = loop_wall_us(repair->hub->loop);
    if (fsck_path_parse(row->path, &job, &step, &attempt, &incarnation))
        row->incarnation = incarnation;
}

/* Of a job without a living attempt: what is gone on from next is decided with it. */
static enum status register_again(struct repair *repair)
{
    const Pb__Checkpoint *manifest = repair->request->row;
    struct job *job = manifest ? find_job(repair->hub, manifest->job) : NULL;
    struct error *err = &repair->call->err;

    if (!job)
        return error_set(err, STATUS_NOT_FOUND, "the job ended long ago: import it instead");
    if (attempt_is_open(job))
        return error_set(err, STATUS_PRECONDITION, "the job runs");
    LIST_EACH(&job->saves, item)
    {
        const Pb__Checkpoint *row = save_view(LIST_ITEM(item, struct save, node));
        if (!strcmp(row->path, manifest->path) && !strcmp(row->vault, manifest->vault))
            return error_set(err, STATUS_ABORTED, "it has a row by now");
    }
    Pb__Checkpoint *row = (Pb__Checkpoint *)message_copy(&manifest->base);
    fill_registered(repair, row);
    repair->save = save_register_take(job, row);
    repair->row = row;
    save_event(repair->save, "checkpoint.committed", SAVE_STATE(SEALED), "registered again");
    if (save_resume(job) == repair->save) {
        Pb__Job *job_row = (Pb__Job *)draft_edit(&repair->hub->drafts, &job->entry);
        job_row->has_last_checkpoint = true;
        job_row->last_checkpoint = repair->save->id;
        job_row->version++;
    }
    return STATUS_OK;
}

static const struct repair_kind {
    Pb__Difference__Repair repair;
    bool row; /* it is about one row */
    enum status (*apply)(struct repair *repair);
} kinds[] = {
    {PB__DIFFERENCE__REPAIR__WRITE_ROW, true, write_row},
    {PB__DIFFERENCE__REPAIR__MARK_TORN, true, mark_torn},
    {PB__DIFFERENCE__REPAIR__MARK_DAMAGED, true, mark_damaged},
    {PB__DIFFERENCE__REPAIR__CUT_PARENT, true, cut_parent},
    {PB__DIFFERENCE__REPAIR__UNPIN, true, unpin},
    {PB__DIFFERENCE__REPAIR__VERIFY, true, verify},
    {PB__DIFFERENCE__REPAIR__LOSE_COPY, true, lose_copy},
    {PB__DIFFERENCE__REPAIR__ADD_COPY, true, add_copy},
    {PB__DIFFERENCE__REPAIR__SET_LAST, false, set_last},
    {PB__DIFFERENCE__REPAIR__REGISTER, false, register_again},
    {PB__DIFFERENCE__REPAIR__SEAL, false, noted},
    {PB__DIFFERENCE__REPAIR__REMOVE, false, noted},
    {PB__DIFFERENCE__REPAIR__SET_ASIDE, false, noted},
};

enum status call_fsck_repair(struct hub *hub, struct call *call)
{
    struct repair repair = {.hub = hub, .call = call};
    Pb__CheckpointReply out = PB__CHECKPOINT_REPLY__INIT;
    const struct repair_kind *kind = NULL;

    repair.request = (const Pb__FsckRepair *)call->request;
    repair.difference = repair.request->difference;
    for (size_t i = 0; repair.difference && i < COUNT_OF(kinds); i++)
        if (kinds[i].repair == repair.difference->repair)
            kind = &kinds[i];
    if (!kind)
        return error_set(&call->err, STATUS_INVALID, "nothing that can be repaired");
    enum status st = kind->row ? open_row(&repair) : STATUS_OK;
    if (st == STATUS_OK)
        st = kind->apply(&repair);
    if (st != STATUS_OK)
        return st;
    note_event(&repair);
    out.checkpoint = repair.row;
    call->reply = message_copy(&out.base);
    return STATUS_OK;
}
