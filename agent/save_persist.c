/* save_persist.c - parts that workers handed over in slots, on their way into the vault.
 *
 * What is filled is written whoever dies: when a worker has ended every slot that it had is looked
 * at, said or not, and so does the next agent. A part that is in the vault has a record in the
 * worker's directory (`slot.<step>`) before the daemon hears of it and until it has heard: what was
 * told is never written again. */
#include "agent/save_inner.h"
#include "agent/vault_slot.h"
#include "agent/worker_part.h"
#include "base/log.h"
#include "checkpoint/slot.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RECORD_BYTES_MAX ((size_t)1 << 20)

static struct save_slot *slot_of(struct saves *saves, const struct save *save)
{
    struct save_owner *owner = map_get_text(saves->owners, save->tag);
    return owner && save->slot >= 0 ? &owner->slots[save->slot] : NULL;
}

/* --- marks and records */

static void forget_record(struct saves *saves, const char *tag, int64_t step)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s/slot.%" PRId64, saves->agent->work_dir, tag, step);
    struct files_batch *batch = files_batch_create();
    (void)files_step_add(batch, FILES_REMOVE, path);
    files_run(saves->agent->files, batch, NULL, NULL);
}

static void save_persist_marked(void *arg, enum status st, const struct error *err,
                                struct vault_job *job)
{
    struct save_op *op = arg;
    struct save_owner *owner = save_owner_get(op->saves, op->tag);
    (void)job;
    if (st != STATUS_OK)
        log_warn("save.slot", log_str("worker", op->tag), log_err(err));
    owner->slots[op->slot].state = SAVE_SLOT_KEPT;
    if (st == STATUS_OK)
        forget_record(op->saves, op->tag, op->step);
    save_op_end(op);
}

/* The next agent need not look at it again; then its record goes. A slot into which the worker
 * writes the next one already needs no mark. */
static void mark(struct saves *saves, const struct save *save)
{
    struct save_slot *slot = slot_of(saves, save);
    if (!slot || slot->state != SAVE_SLOT_KEPT || slot->step != save->step) {
        forget_record(saves, save->tag, save->step);
        return;
    }
    slot->state = SAVE_SLOT_BUSY;
    struct save_op *op = save_op_create(saves, NULL, save->tag);
    op->slot = save->slot;
    op->step = save->step;
    vault_pool_run(saves->agent->options.vaults,
                   save_slot_job_create(saves, VAULT_JOB_SLOT_MARK, save->key, slot->name),
                   save_persist_marked, op);
}

void save_persist_acked(struct saves *saves, struct save *save)
{
    mark(saves, save);
}

static void failed(struct saves *saves, struct save *save, enum status st, const char *text)
{
    struct save_slot *slot = slot_of(saves, save);
    char late[160];
    if (slot && slot->state == SAVE_SLOT_BUSY)
        slot->state = SAVE_SLOT_KEPT;
    mark(saves, save);
    if (save->late) {
        (void)snprintf(late, sizeof(late), "it was not written into the vault in time: %.100s",
                       text);
        text = late;
    }
    save_staged(saves, save, st, text);
}

static void save_persist_recorded(void *arg, enum status st, const struct error *err,
                                  struct files_batch *batch)
{
    struct save_op *op = arg;
    struct save *save = op->save;
    struct save_slot *slot = slot_of(op->saves, save);
    (void)batch;
    if (st != STATUS_OK) {
        failed(op->saves, save, st, err->text);
    } else {
        save->recorded = true;
        if (slot)
            slot->state = SAVE_SLOT_KEPT;
        save_slot_drop_before(op->saves, save);
        save_staged(op->saves, save, STATUS_OK, "");
    }
    save_op_end(op);
}

static void record(struct save_op *op)
{
    struct save *save = op->save;
    size_t len = pb__checkpoint_part__get_packed_size(save->part);
    SCOPED(mem_free) void *bytes = mem_alloc(len + 1);
    SCOPED_TEXT char *name = save_record_path(save, "slot");
    SCOPED_TEXT char *path = mem_printf("%s/%s", op->saves->agent->work_dir, name);
    struct files_batch *batch = files_batch_create();
    (void)pb__checkpoint_part__pack(save->part, bytes);
    files_write(batch, path, bytes, len, 0600)->sync = true;
    files_run(op->saves->agent->files, batch, save_persist_recorded, op);
}

/* --- into the vault */

static void drop_nothing(struct saves *saves, struct save *save)
{
    struct save_slot *slot = slot_of(saves, save);
    if (slot) {
        slot->state = SAVE_SLOT_KEPT;
        slot->step = -1;
    }
    list_remove(&save->node);
    save_destroy(save);
}

static void save_persist_done(void *arg, enum status st, const struct error *err,
                              struct vault_job *job)
{
    struct save_op *op = arg;
    struct save *save = op->save;
    save->job = NULL;
    if (job->nothing || st == STATUS_EXISTS) { /* EXISTS: sealed, so the daemon has it */
        drop_nothing(op->saves, save);
        save_op_end(op);
        return;
    }
    if (st != STATUS_OK) {
        failed(op->saves, save, st, err->text);
        save_op_end(op);
        return;
    }
    save->part = job->part;
    job->part = NULL;
    mem_free(save->part->node);
    save->part->node = mem_strdup(op->saves->agent->node);
    save->part->has_persist_us = true;
    save->part->persist_us = (uint64_t)(loop_now_us(op->saves->agent->loop) - save->made_us);
    log_info("save.written", log_str("worker", save->tag), log_int("step", save->step),
             log_int("bytes", (int64_t)atomic_load(&job->done_bytes)),
             log_int("us", (int64_t)save->part->persist_us));
    record(op);
}

static void persist(struct saves *saves, const struct worker *worker, struct save *save, int index)
{
    struct save_slot *slot = &save_owner_get(saves, worker->tag)->slots[index];
    struct vault_job *job = vault_job_create(VAULT_JOB_PERSIST, save->vault, save->path,
                                             save->key->role, save->key->rank);
    save->slot = index;
    slot->state = SAVE_SLOT_BUSY;
    slot->step = save->step;
    job->source = save_slot_path(saves, save->key, slot->name);
    job->step = save->step;
    job->uid = worker->user ? worker->user->uid : -1;
    job->gid = worker->user ? worker->user->gid : -1;
    save_read_start(saves, save, job, save_persist_done);
}

/* A save of that step that has failed gives way: it tries again. True: there is one already. */
static bool is_known(struct saves *saves, const char *tag, int64_t step)
{
    struct save *save = save_find(saves, tag, step);
    if (save && save->error) {
        list_remove(&save->node);
        save_destroy(save);
        save = NULL;
    }
    return save != NULL;
}

static void save_persist_scanned(void *arg, enum status st, const struct error *err,
                                 struct vault_job *job);

static void look(struct saves *saves, const struct worker *worker, struct save_op *op)
{
    save_owner_get(saves, worker->tag)->looking = true;
    vault_pool_run(saves->agent->options.vaults,
                   save_slot_job_create(saves, VAULT_JOB_SLOT_SCAN, worker->desired->key, ""),
                   save_persist_scanned, op);
}

void save_persist_given(struct saves *saves, struct worker *worker)
{
    struct save_owner *owner = save_owner_get(saves, worker->tag);
    bool unknown = false;
    for (size_t i = 0; i < COUNT_OF(owner->slots); i++)
        unknown |= owner->slots[i].state == SAVE_SLOT_GIVEN && owner->slots[i].step < 0;
    if (owner->looking)
        return; /* what is found then is taken */
    if (unknown) {
        struct save_op *op = save_op_create(saves, NULL, worker->tag);
        op->settles = true; /* its worker asks for another one, or has ended */
        look(saves, worker, op);
        return;
    }
    for (int i = 0; i < (int)COUNT_OF(owner->slots); i++) {
        if (owner->slots[i].state != SAVE_SLOT_GIVEN)
            continue;
        struct save *save = is_known(saves, worker->tag, owner->slots[i].step)
                                ? NULL
                                : save_create(saves, worker, owner->slots[i].step, -1);
        if (save)
            persist(saves, worker, save, i);
        else
            owner->slots[i].state = SAVE_SLOT_KEPT;
    }
}

void save_persist_ask(struct saves *saves, struct worker *worker, uint64_t connection,
                      const Pb__WorkerAsk *ask)
{
    struct save_owner *owner = save_owner_get(saves, worker->tag);
    int index = -1;
    for (int i = 0; i < (int)COUNT_OF(owner->slots); i++)
        if (owner->slots[i].state == SAVE_SLOT_GIVEN &&
            (owner->slots[i].step == ask->step || (owner->slots[i].step < 0 && index < 0)))
            index = i;
    bool known = is_known(saves, worker->tag, ask->step);
    if (index < 0 || known) { /* said again, or found without being said */
        bool was = known || owner->looking;
        for (size_t i = 0; i < COUNT_OF(owner->slots); i++)
            was |= owner->slots[i].step == ask->step && owner->slots[i].state != SAVE_SLOT_NONE;
        save_answer(saves, worker->tag, connection, ask->number,
                    was ? STATUS_OK : STATUS_PRECONDITION, "no slot was given out for that step",
                    NULL);
        return;
    }
    struct save *save = save_create(saves, worker, ask->step, ask->has_samples ? ask->samples : -1);
    if (!save) {
        save_answer(saves, worker->tag, connection, ask->number, STATUS_PRECONDITION,
                    "this node has no vault of that name", NULL);
        return;
    }
    save_answer(saves, worker->tag, connection, ask->number, STATUS_OK, NULL, NULL);
    persist(saves, worker, save, index);
}

/* --- in time */

void save_persist_tick(struct saves *saves, int64_t now)
{
    LIST_EACH(&saves->saves, node)
    {
        struct save *save = LIST_ITEM(node, struct save, node);
        const struct worker *worker = worker_find(saves->agent, save->tag);
        const Pb__Launch *launch = worker ? worker->desired->launch : NULL;
        uint64_t most_ms = launch && launch->phases ? launch->phases->save_ms : 0;
        if (!save->job || save->slot < 0 || !most_ms || save->late ||
            now - save->made_us < (int64_t)most_ms * 1000)
            continue;
        save->late = true;
        atomic_store(&save->job->stop, true);
    }
}

void saves_persisting(const struct saves *saves, uint32_t *count, uint64_t *bytes_left)
{
    *count = 0;
    *bytes_left = 0;
    LIST_EACH((struct list *)(uintptr_t)&saves->saves, node)
    {
        const struct save *save = LIST_ITEM(node, struct save, node);
        const struct save_owner *owner = map_get_text(saves->owners, save->tag);
        if (!save->job || save->slot < 0 || !owner)
            continue;
        uint64_t all = owner->slots[save->slot].bytes, done = atomic_load(&save->job->done_bytes);
        *count += 1;
        *bytes_left += done < all ? all - done : 0;
    }
}

/* --- what an earlier agent left */

static void take_found(struct saves *saves, struct worker *worker,
                       const struct vault_slot_found *found, bool settles)
{
    struct save_owner *owner = save_owner_get(saves, worker->tag);
    int index = slot_place(found->name);
    struct save_slot *slot = &owner->slots[index];
    if (slot->state != SAVE_SLOT_NONE && slot->state != SAVE_SLOT_GIVEN)
        return; /* looked at again, and this one is known */
    (void)snprintf(slot->name, sizeof(slot->name), "%s", found->name);
    const char *dot = strchr(found->name, '.');
    int64_t made = 0;
    if (dot)
        (void)text_to_i64(dot + 1, 0, INT64_MAX / 2, &made);
    slot->made = (uint64_t)made + 1;
    slot->bytes = found->bytes;
    slot->step = found->step;
    slot->state = SAVE_SLOT_KEPT;
    struct save *known = found->step >= 0 ? save_find(saves, worker->tag, found->step) : NULL;
    if (found->state == VAULT_SLOT_OPEN && !worker->ended_us && !settles) {
        slot->state = SAVE_SLOT_GIVEN; /* perhaps it is being filled */
        return;
    }
    if (found->state != VAULT_SLOT_FILLED)
        return;
    if (known) { /* written: it is marked once the daemon has said that it knows */
        known->slot = index;
        return;
    }
    struct save *save = save_create(saves, worker, found->step, -1);
    if (save)
        persist(saves, worker, save, index);
}

static void save_persist_scanned(void *arg, enum status st, const struct error *err,
                                 struct vault_job *job)
{
    struct save_op *op = arg;
    struct worker *worker = worker_find(op->saves->agent, op->tag);
    save_owner_get(op->saves, op->tag)->looking = false;
    if (st != STATUS_OK)
        log_warn("save.slot", log_str("worker", op->tag), log_err(err));
    for (size_t i = 0; worker && i < job->found_count; i++)
        take_found(op->saves, worker, &job->found[i], op->settles);
    save_op_end(op);
}

static void take_record(struct saves *saves, const struct worker *worker,
                        const struct files_step *step)
{
    const char *dot = strrchr(step->path, '.');
    Pb__CheckpointPart *part =
        step->len ? pb__checkpoint_part__unpack(NULL, step->len, step->bytes) : NULL;
    int64_t number;
    struct save *save = part && dot && text_to_i64(dot + 1, 0, INT64_MAX, &number) &&
                                !save_find(saves, worker->tag, number)
                            ? save_create(saves, worker, number, -1)
                            : NULL;
    if (!save) {
        if (part)
            pb__checkpoint_part__free_unpacked(part, NULL);
        return;
    }
    save->part = part;
    save->recorded = true;
    save_staged(saves, save, STATUS_OK, "");
}

static void save_persist_read(void *arg, enum status st, const struct error *err,
                              struct files_batch *batch)
{
    struct save_op *op = arg;
    struct saves *saves = op->saves;
    const struct worker *worker = worker_find(saves->agent, op->tag);
    if (st != STATUS_OK)
        log_warn("save.record", log_str("worker", op->tag), log_err(err));
    for (size_t i = 0; worker && i < batch->ran; i++)
        take_record(saves, worker, &batch->steps[i]);
    if (worker && saves->slot_dir) {
        look(saves, worker, op);
        return;
    }
    save_owner_get(saves, op->tag)->looking = false;
    save_op_end(op);
}

void save_persist_adopt(struct saves *saves, struct worker *worker, char *const *names,
                        size_t count)
{
    struct files_batch *batch = files_batch_create();
    struct save_op *op = save_op_create(saves, NULL, worker->tag);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], "slot.", 5) != 0)
            continue;
        SCOPED_TEXT char *path =
            mem_printf("%s/%s/%s", saves->agent->work_dir, worker->tag, names[i]);
        files_read(batch, path, 0, RECORD_BYTES_MAX)->missing_ok = true;
    }
    save_owner_get(saves, worker->tag)->looking = true;
    files_run(saves->agent->files, batch, save_persist_read, op);
}
