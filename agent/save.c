/* save.c - parts of checkpoints: a directory for the worker, its commit, the digest. See save.h. */
#include "agent/actual.h"
#include "agent/save_inner.h"
#include "agent/worker_part.h"
#include "base/log.h"
#include "checkpoint/vault.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILL_BYTES_MAX ((size_t)3 << 20)
#define ASKS_MAX       64   /* of a worker, under way at once */
#define SAVES_MAX      1024 /* of a worker, that the daemon has not acknowledged */

struct saves *saves_create(struct agent *agent)
{
    struct saves *saves = NEW(struct saves);
    saves->agent = agent;
    list_init(&saves->saves);
    list_init(&saves->tasks);
    list_init(&saves->verifies);
    list_init(&saves->audits);
    list_init(&saves->fetches);
    save_slot_begin(saves);
    saves->owners = map_create();
    return saves;
}

void save_destroy(struct save *save)
{
    pb__worker_key__free_unpacked(save->key, NULL);
    if (save->part)
        pb__checkpoint_part__free_unpacked(save->part, NULL);
    mem_free(save->error);
    mem_free(save);
}

static void owner_destroy(struct save_owner *owner)
{
    mem_free(owner->seen);
    mem_free(owner);
}

void saves_destroy(struct saves *saves)
{
    if (!saves)
        return;
    LIST_EACH(&saves->saves, node)
    save_destroy(LIST_ITEM(node, struct save, node));
    LIST_EACH(&saves->tasks, task)
    save_task_destroy(LIST_ITEM(task, struct save_task, node));
    save_verify_destroy_all(saves);
    save_audit_destroy_all(saves);
    save_fetch_destroy_all(saves);
    save_slot_end(saves);
    size_t at = 0;
    struct save_owner *owner;
    while ((owner = map_next(saves->owners, &at)))
        owner_destroy(owner);
    map_destroy(saves->owners);
    mem_free(saves);
}

const char *saves_vault(struct saves *saves, const char *name, char *out, size_t cap)
{
    const struct option_list *vaults = &saves->agent->config->vault;
    size_t len = name ? strlen(name) : 0;
    for (size_t i = 0; len && i < vaults->count; i++) {
        const char *item = vaults->items[i], *colon = strrchr(item, ':');
        if (strncmp(item, name, len) != 0 || item[len] != '=')
            continue;
        const char *path = item + len + 1;
        int size = colon && colon > path ? (int)(colon - path) : (int)strlen(path);
        (void)snprintf(out, cap, "%.*s", size, path);
        return out;
    }
    return NULL;
}

struct save_owner *save_owner_get(struct saves *saves, const char *tag)
{
    struct save_owner *owner = map_get_text(saves->owners, tag);
    if (!owner) {
        owner = NEW(struct save_owner);
        owner->slots[0].step = owner->slots[1].step = -1;
        (void)snprintf(owner->tag, sizeof(owner->tag), "%s", tag);
        (void)map_put_text(saves->owners, tag, owner);
    }
    return owner;
}

static void owner_release(struct saves *saves, struct save_owner *owner)
{
    struct worker *worker = worker_find(saves->agent, owner->tag);
    if (!owner->finishing || owner->outstanding)
        return;
    owner->finishing = false;
    if (worker)
        worker_end_release(worker, WORKER_HOLD_SAVES);
}

void save_owner_done(struct saves *saves, const char *tag)
{
    struct save_owner *owner = map_get_text(saves->owners, tag);
    if (!owner)
        return;
    owner->outstanding--;
    owner_release(saves, owner);
}

void saves_forget(struct saves *saves, const char *tag)
{
    struct save_owner *owner = map_remove_text(saves->owners, tag);
    if (!owner)
        return;
    save_slot_forget(saves, owner);
    owner_destroy(owner);
}

struct save_op *save_op_create(struct saves *saves, struct save *save, const char *tag)
{
    struct save_op *op = PENDING(&saves->agent->pending, struct save_op);
    op->saves = saves;
    op->save = save;
    (void)snprintf(op->tag, sizeof(op->tag), "%s", tag);
    save_owner_get(saves, tag)->outstanding++;
    return op;
}

void save_op_end(struct save_op *op)
{
    save_owner_done(op->saves, op->tag);
    pending_destroy(op);
}

void save_answer(struct saves *saves, const char *tag, uint64_t connection, uint64_t number,
                 enum status st, const char *error, const char *dir)
{
    struct worker *worker = worker_find(saves->agent, tag);
    Pb__WorkerAnswer out = PB__WORKER_ANSWER__INIT;
    if (!worker || !worker->sock || number == 0)
        return;
    out.has_number = out.has_status = true;
    out.number = number;
    out.status = (int32_t)st;
    out.error = (char *)(uintptr_t)(st == STATUS_OK ? NULL : error);
    out.dir = (char *)(uintptr_t)dir;
    worker->sock->ops->answer(worker->sock, connection, &out);
}

/* --- staged */

char *save_record_path(const struct save *save, const char *kind)
{
    return mem_printf("%s/%s.%" PRId64, save->tag, kind, save->step);
}

void save_staged(struct saves *saves, struct save *save, enum status st, const char *text)
{
    save->state = SAVE_STAGED;
    if (st != STATUS_OK) {
        save->error = mem_strdup(text);
        log_warn("save.failed", log_str("worker", save->tag), log_int("step", save->step),
                 log_str("err", text));
    } else {
        log_info("save.staged", log_str("worker", save->tag), log_int("step", save->step));
    }
    actual_mark_outbox(saves->agent->actual);
}

static void save_digest_done(void *arg, enum status st, const struct error *err,
                             struct vault_job *job)
{
    struct save_op *op = arg;
    struct save *save = op->save;
    save->job = NULL;
    if (st == STATUS_OK) {
        save->part = job->part;
        job->part = NULL;
        mem_free(save->part->node);
        save->part->node = strdup(op->saves->agent->node);
        save->part->has_samples = save->samples >= 0;
        save->part->samples = save->samples;
    }
    save_staged(op->saves, save, st, err ? err->text : "");
    save_op_end(op);
}

void save_read_start(struct saves *saves, struct save *save, struct vault_job *job,
                     vault_pool_done done)
{
    struct save_op *op = save_op_create(saves, save, save->tag);
    save->job = job;
    atomic_store(&job->stop, save_owner_get(saves, save->tag)->stopped);
    vault_pool_run(saves->agent->options.vaults, job, done, op);
}

static void digest_start(struct saves *saves, struct save *save)
{
    struct vault_job *job = vault_job_create(VAULT_JOB_PART_DIGEST, save->vault, save->path,
                                             save->key->role, save->key->rank);
    save_read_start(saves, save, job, save_digest_done);
}

static void save_commit_done(void *arg, enum status st, const struct error *err,
                             struct files_batch *batch)
{
    struct save_op *op = arg;
    (void)batch;
    save_answer(op->saves, op->tag, op->connection, op->number, st, err ? err->text : "", NULL);
    if (st == STATUS_OK)
        digest_start(op->saves, op->save);
    else
        save_staged(op->saves, op->save, st, err->text);
    save_op_end(op);
}

/* The commit is on file before the worker is told that it is done. */
static void commit_start(struct saves *saves, struct save *save, uint64_t connection,
                         uint64_t number)
{
    struct save_op *op = save_op_create(saves, save, save->tag);
    char text[64];
    SCOPED_TEXT char *name = save_record_path(save, "commit");
    SCOPED_TEXT char *path = mem_printf("%s/%s", saves->agent->work_dir, name);
    op->connection = connection;
    op->number = number;
    (void)snprintf(text, sizeof(text), "%" PRId64 " %s", save->samples,
                   save->watched ? "watch" : "sdk");
    struct files_batch *batch = files_batch_create();
    (void)files_write(batch, path, text, strlen(text) + 1, 0600);
    files_run(saves->agent->files, batch, save_commit_done, op);
}

struct save *save_find(struct saves *saves, const char *tag, int64_t step)
{
    LIST_EACH(&saves->saves, node)
    {
        struct save *save = LIST_ITEM(node, struct save, node);
        if (save->step == step && strcmp(save->tag, tag) == 0)
            return save;
    }
    return NULL;
}

/* NULL: there is no such vault here. */
struct save *save_create(struct saves *saves, const struct worker *worker, int64_t step,
                         int64_t samples)
{
    const Pb__WorkerKey *key = worker->desired->key;
    const char *name = worker->desired->launch ? worker->desired->launch->vault : NULL;
    char vault[1024];
    if (!saves_vault(saves, name, vault, sizeof(vault)))
        return NULL;
    struct save *save = NEW(struct save);
    memcpy(save->tag, worker->tag, sizeof(save->tag));
    save->key = (Pb__WorkerKey *)message_copy(&key->base);
    save->step = step;
    save->samples = samples;
    (void)snprintf(save->vault_name, sizeof(save->vault_name), "%s", name);
    (void)snprintf(save->vault, sizeof(save->vault), "%s", vault);
    vault_checkpoint_path(key, step, save->path, sizeof(save->path));
    save->slot = -1;
    save->made_us = loop_now_us(saves->agent->loop);
    list_add_last(&saves->saves, &save->node);
    return save;
}

/* --- asks */

static bool may_save(const struct worker *worker)
{
    const Pb__Launch *launch = worker->desired->launch;
    return !launch || !launch->checkpoint ||
           launch->checkpoint->writers != PB__CHECKPOINT_POLICY__WRITERS__RANK_ZERO ||
           worker->desired->key->rank == 0;
}

static void save_dir_done(void *arg, enum status st, const struct error *err, struct vault_job *job)
{
    struct save_op *op = arg;
    save_answer(op->saves, op->tag, op->connection, op->number, st, err ? err->text : "", job->dir);
    save_op_end(op);
}

static void ask_dir(struct saves *saves, struct worker *worker, uint64_t connection,
                    const Pb__WorkerAsk *ask)
{
    char vault[1024], path[256];
    const Pb__WorkerKey *key = worker->desired->key;
    const Pb__Launch *launch = worker->desired->launch;
    if (!saves_vault(saves, launch ? launch->vault : NULL, vault, sizeof(vault))) {
        save_answer(saves, worker->tag, connection, ask->number, STATUS_PRECONDITION,
                    "this node has no vault of that name", NULL);
        return;
    }
    vault_checkpoint_path(key, ask->step, path, sizeof(path));
    struct save_op *op = save_op_create(saves, NULL, worker->tag);
    struct vault_job *job =
        vault_job_create(VAULT_JOB_PART_CREATE, vault, path, key->role, key->rank);
    op->connection = connection;
    op->number = ask->number;
    job->uid = worker->user ? worker->user->uid : -1;
    job->gid = worker->user ? worker->user->gid : -1;
    vault_pool_run(saves->agent->options.vaults, job, save_dir_done, op);
}

static void ask_commit(struct saves *saves, struct worker *worker, uint64_t connection,
                       const Pb__WorkerAsk *ask)
{
    struct save *save = save_find(saves, worker->tag, ask->step);
    if (save && save->error) { /* given up, or failed; now it tries again */
        list_remove(&save->node);
        save_destroy(save);
        save = NULL;
    }
    if (save) { /* the same commit again: it is on its way */
        save_answer(saves, worker->tag, connection, ask->number, STATUS_OK, NULL, NULL);
        return;
    }
    save = save_create(saves, worker, ask->step, ask->has_samples ? ask->samples : -1);
    if (!save)
        save_answer(saves, worker->tag, connection, ask->number, STATUS_PRECONDITION,
                    "this node has no vault of that name", NULL);
    else
        commit_start(saves, save, connection, ask->number);
}

static void ask_abort(struct saves *saves, struct worker *worker, uint64_t connection,
                      const Pb__WorkerAsk *ask)
{
    if (!save_find(saves, worker->tag, ask->step)) {
        struct save *save = save_create(saves, worker, ask->step, -1);
        if (save)
            save_staged(saves, save, STATUS_CANCELLED,
                        ask->text && *ask->text ? ask->text : "the worker gave this save up");
    }
    save_answer(saves, worker->tag, connection, ask->number, STATUS_OK, NULL, NULL);
}

/* The vault's pool and the daemon are shared with other workers. */
static bool asks_too_much(const struct saves *saves, const struct worker *worker)
{
    size_t count = 0;
    const struct save_owner *owner = map_get_text(saves->owners, worker->tag);
    LIST_EACH((struct list *)(uintptr_t)&saves->saves, node)
    count += strcmp(LIST_ITEM(node, struct save, node)->tag, worker->tag) == 0;
    return count >= SAVES_MAX || (owner && owner->outstanding >= ASKS_MAX);
}

void saves_ask(struct saves *saves, struct worker *worker, uint64_t connection,
               const Pb__WorkerAsk *ask)
{
    if (!ask->has_step || ask->step < 0)
        save_answer(saves, worker->tag, connection, ask->number, STATUS_INVALID, "no step", NULL);
    else if (!may_save(worker))
        save_answer(saves, worker->tag, connection, ask->number, STATUS_PRECONDITION,
                    "checkpoint.writers says that rank 0 alone writes", NULL);
    else if (asks_too_much(saves, worker))
        save_answer(saves, worker->tag, connection, ask->number, STATUS_EXHAUSTED,
                    "too many saves of this worker are under way", NULL);
    else if (ask->kind == PB__WORKER_ASK__KIND__SAVE_DIR)
        ask_dir(saves, worker, connection, ask);
    else if (ask->kind == PB__WORKER_ASK__KIND__COMMIT)
        ask_commit(saves, worker, connection, ask);
    else if (ask->kind == PB__WORKER_ASK__KIND__STAGE)
        save_slot_ask(saves, worker, connection, ask);
    else if (ask->kind == PB__WORKER_ASK__KIND__STAGED)
        save_persist_ask(saves, worker, connection, ask);
    else
        ask_abort(saves, worker, connection, ask);
}

/* --- programs without the SDK */

static bool is_seen(const struct save_owner *owner, int64_t step)
{
    for (size_t i = 0; i < owner->seen_count; i++)
        if (owner->seen[i] == step)
            return true;
    return false;
}

static void see(struct save_owner *owner, int64_t step)
{
    if (is_seen(owner, step))
        return;
    owner->seen = mem_resize(owner->seen, owner->seen_count + 1, sizeof(*owner->seen));
    owner->seen[owner->seen_count++] = step;
}

static void save_import_done(void *arg, enum status st, const struct error *err,
                             struct vault_job *job)
{
    struct save_op *op = arg;
    (void)job;
    op->save->job = NULL;
    if (st == STATUS_OK)
        commit_start(op->saves, op->save, 0, 0);
    else
        save_staged(op->saves, op->save, st, err->text);
    save_op_end(op);
}

static void import_start(struct saves *saves, const struct worker *worker, int64_t step,
                         const char *below)
{
    struct save *save = save_create(saves, worker, step, worker->samples);
    if (!save)
        return;
    save->watched = true;
    struct vault_job *job = vault_job_create(VAULT_JOB_IMPORT, save->vault, save->path,
                                             save->key->role, save->key->rank);
    job->source = mem_strdup(worker->attempt_dir);
    job->below = mem_strdup(below);
    job->uid = worker->user ? worker->user->uid : -1;
    job->gid = worker->user ? worker->user->gid : -1;
    save_read_start(saves, save, job, save_import_done);
}

static void save_scan_done(void *arg, enum status st, const struct error *err,
                           struct vault_job *job)
{
    struct save_op *op = arg;
    struct saves *saves = op->saves;
    const struct worker *worker = worker_find(saves->agent, op->tag);
    struct save_owner *owner = save_owner_get(saves, op->tag);
    owner->scanning = false;
    if (st != STATUS_OK)
        log_warn("save.watch", log_str("worker", op->tag), log_err(err));
    for (size_t i = 0; worker && st == STATUS_OK && i < job->steps_count; i++) {
        if (is_seen(owner, job->steps[i]))
            continue;
        see(owner, job->steps[i]);
        import_start(saves, worker, job->steps[i], job->step_dirs[i]);
    }
    save_op_end(op);
}

/* One rank looks for all: the directory is the attempt's. */
void saves_watch(struct saves *saves, struct worker *worker)
{
    const Pb__Launch *launch = worker->desired->launch;
    const Pb__CheckpointWatch *watch =
        launch && launch->checkpoint ? launch->checkpoint->watch : NULL;
    if (!watch || !watch->pattern || launch->global_rank != 0 || !worker->attempt_dir)
        return;
    struct save_owner *owner = save_owner_get(saves, worker->tag);
    if (owner->scanning)
        return;
    owner->scanning = true;
    struct save_op *op = save_op_create(saves, NULL, worker->tag);
    struct vault_job *job = vault_job_create(VAULT_JOB_SCAN, NULL, NULL, NULL, 0);
    job->source = mem_strdup(worker->attempt_dir);
    job->pattern = mem_strdup(watch->pattern);
    job->marker = mem_strdup(watch->marker);
    vault_pool_run(saves->agent->options.vaults, job, save_scan_done, op);
}

void saves_finish(struct saves *saves, struct worker *worker)
{
    struct save_owner *owner = save_owner_get(saves, worker->tag);
    owner->outstanding++; /* so that the release comes after the last look was begun */
    owner->finishing = true;
    saves_watch(saves, worker);
    if (saves->slot_dir)
        save_persist_given(saves, worker);
    save_owner_done(saves, worker->tag);
}

void saves_stop(struct saves *saves, const struct worker *worker)
{
    struct save_owner *owner = save_owner_get(saves, worker->tag);
    if (owner->stopped)
        return;
    owner->stopped = true;
    LIST_EACH(&saves->saves, node)
    {
        struct save *save = LIST_ITEM(node, struct save, node);
        if (save->job && strcmp(save->tag, worker->tag) == 0)
            atomic_store(&save->job->stop, true);
    }
}

void saves_adopt(struct saves *saves, struct worker *worker, char *const *names, size_t count)
{
    struct save_owner *owner = save_owner_get(saves, worker->tag);
    for (size_t i = 0; i < count; i++) {
        int64_t step;
        const char *dot = strchr(names[i], '.');
        if (!dot || !text_to_i64(dot + 1, 0, INT64_MAX, &step))
            continue;
        bool commit = strncmp(names[i], "commit.", 7) == 0;
        if (!commit && strncmp(names[i], "staged.", 7) != 0)
            continue;
        see(owner, step);
        struct save *save = commit ? save_create(saves, worker, step, worker->samples) : NULL;
        if (save)
            digest_start(saves, save);
    }
    save_persist_adopt(saves, worker, names, count);
}

/* --- reports */

int64_t saves_waiting_since(const struct saves *saves, const Pb__WorkerKey *key)
{
    int64_t since = 0;
    LIST_EACH((struct list *)(uintptr_t)&saves->saves, node)
    {
        const struct save *save = LIST_ITEM(node, struct save, node);
        if (save->key->job == key->job && save->key->attempt == key->attempt &&
            save->key->incarnation == key->incarnation && !save->error &&
            (!since || save->made_us < since))
            since = save->made_us;
    }
    return since;
}

static void fill_staged(struct save *save)
{
    Pb__ActualStaged *out = &save->message;
    pb__actual_staged__init(out);
    out->key = save->key;
    out->has_step = true;
    out->step = save->step;
    out->part = save->part;
    out->error = save->error;
    out->vault = save->vault_name;
    out->path = save->path;
}

static bool fill_saves(struct saves *saves, Pb__ActualReport *report)
{
    size_t bytes = 0;
    LIST_EACH(&saves->saves, node)
    {
        struct save *save = LIST_ITEM(node, struct save, node);
        if (save->state != SAVE_STAGED || save->sent_seq)
            continue;
        fill_staged(save);
        bytes += pb__actual_staged__get_packed_size(&save->message);
        if (report->n_staged && bytes > FILL_BYTES_MAX)
            return true;
        report->staged = mem_resize(report->staged, report->n_staged + 1, sizeof(void *));
        report->staged[report->n_staged++] = &save->message;
        save->sent_seq = SAVE_SEQ_FILLING;
    }
    return false;
}

static void fill_tasks(struct saves *saves, Pb__ActualReport *report)
{
    LIST_EACH(&saves->tasks, node)
    {
        struct save_task *task = LIST_ITEM(node, struct save_task, node);
        if (task->state != SAVE_TASK_DONE || task->sent_seq)
            continue;
        if (task->kind == VAULT_JOB_SEAL) {
            pb__actual_sealed__init(&task->sealed);
            task->sealed.has_checkpoint = true;
            task->sealed.checkpoint = task->checkpoint;
            task->sealed.manifest_digest = task->digest;
            task->sealed.error = task->error;
            report->sealed = mem_resize(report->sealed, report->n_sealed + 1, sizeof(void *));
            report->sealed[report->n_sealed++] = &task->sealed;
        } else if (!task->error) {
            pb__actual_deleted__init(&task->deleted);
            task->deleted.has_checkpoint = true;
            task->deleted.checkpoint = task->checkpoint;
            report->deleted = mem_resize(report->deleted, report->n_deleted + 1, sizeof(void *));
            report->deleted[report->n_deleted++] = &task->deleted;
        }
        task->sent_seq = SAVE_SEQ_FILLING;
    }
}

bool saves_fill(struct saves *saves, Pb__ActualReport *report)
{
    fill_tasks(saves, report);
    save_audit_fill(saves, report);
    save_fetch_fill(saves, report);
    return fill_saves(saves, report);
}

void saves_sent(struct saves *saves, Pb__ActualReport *report, uint64_t seq)
{
    LIST_EACH(&saves->saves, node)
    {
        struct save *save = LIST_ITEM(node, struct save, node);
        if (save->sent_seq == SAVE_SEQ_FILLING)
            save->sent_seq = seq;
    }
    LIST_EACH(&saves->tasks, at)
    {
        struct save_task *task = LIST_ITEM(at, struct save_task, node);
        if (task->sent_seq == SAVE_SEQ_FILLING)
            task->sent_seq = seq;
    }
    save_audit_sent(saves, report, seq);
    save_fetch_sent(saves, report, seq);
    mem_free(report->staged);
    mem_free(report->sealed);
    mem_free(report->deleted);
}

/* A watched step stays known, so that it is not taken again while the program keeps it. */
static void forget_commit(struct saves *saves, const struct save *save)
{
    SCOPED_TEXT char *name = save_record_path(save, "commit");
    SCOPED_TEXT char *path = mem_printf("%s/%s", saves->agent->work_dir, name);
    struct files_batch *batch = files_batch_create();
    const struct worker *worker = worker_find(saves->agent, save->tag);
    const Pb__Launch *launch = worker ? worker->desired->launch : NULL;
    bool watched = launch && launch->checkpoint && launch->checkpoint->watch;
    struct files_step *step = files_step_add(batch, watched ? FILES_RENAME : FILES_REMOVE, path);
    if (watched) {
        SCOPED_TEXT char *kept = save_record_path(save, "staged");
        step->to = mem_printf("%s/%s", saves->agent->work_dir, kept);
        step->missing_ok = true;
    }
    files_run(saves->agent->files, batch, NULL, NULL);
}

void saves_acked(struct saves *saves, uint64_t seq)
{
    save_fetch_acked(saves, seq);
    LIST_EACH(&saves->saves, node)
    {
        struct save *save = LIST_ITEM(node, struct save, node);
        if (save->sent_seq == 0 || save->sent_seq > seq)
            continue;
        if (save->slot >= 0 || save->recorded)
            save_persist_acked(saves, save);
        else
            forget_commit(saves, save);
        list_remove(node);
        save_destroy(save);
    }
}

void saves_down(struct saves *saves)
{
    LIST_EACH(&saves->saves, node)
    LIST_ITEM(node, struct save, node)->sent_seq = 0;
    LIST_EACH(&saves->tasks, at)
    LIST_ITEM(at, struct save_task, node)->sent_seq = 0;
    save_audit_down(saves);
    save_fetch_down(saves);
}
