/* save_slot.c - slots: two files in tmpfs a worker, in which it hands its part over and goes on.
 *
 * Here: giving them out, and dropping them when nobody needs them. What was handed over goes into
 * the vault by save_persist.c. */
#include "agent/save_inner.h"
#include "agent/vault_slot.h"
#include "agent/worker_part.h"
#include "base/log.h"
#include "checkpoint/digest.h"
#include "checkpoint/slot.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_US        1000000
#define SWEEP_US       30000000
#define SLOT_BYTES_MAX ((uint64_t)1 << 50)

struct save_slot_job { /* a job that has or had workers here: its slots are kept for a while */
    int64_t job, seen_us;
    uint64_t bytes; /* in slots whose worker has left the table */
};

static void save_slot_tick(void *arg);

/* NULL: none are given out. */
static char *find_dir(const struct agent *agent)
{
    const char *dir = agent->config->slot_dir;
    char digest[65];
    if (dir && *dir)
        return strcmp(dir, "none") == 0 ? NULL : mem_strdup(dir);
    digest_sha256(agent->work_dir, strlen(agent->work_dir), digest);
    return mem_printf("/dev/shm/rondo-%.16s", digest);
}

void save_slot_begin(struct saves *saves)
{
    saves->slot_dir = find_dir(saves->agent);
    saves->kept_jobs = map_create();
    saves->slot_timer = loop_timer_create(saves->agent->loop, save_slot_tick, saves);
    saves->slots_since_us = loop_now_us(saves->agent->loop);
    if (saves->slot_dir)
        loop_timer_set(saves->slot_timer, TICK_US);
}

void save_slot_end(struct saves *saves)
{
    size_t at = 0;
    struct save_slot_job *kept;
    while ((kept = map_next(saves->kept_jobs, &at)))
        mem_free(kept);
    map_destroy(saves->kept_jobs);
    loop_timer_destroy(saves->slot_timer);
    mem_free(saves->slot_dir);
}

static struct save_slot_job *kept_job(struct saves *saves, int64_t job)
{
    struct save_slot_job *kept = map_get(saves->kept_jobs, (uint64_t)job);
    if (!kept) {
        kept = NEW(struct save_slot_job);
        kept->job = job;
        (void)map_put(saves->kept_jobs, (uint64_t)job, kept);
    }
    kept->seen_us = loop_now_us(saves->agent->loop);
    return kept;
}

struct vault_job *save_slot_job_create(const struct saves *saves, enum vault_job_kind kind,
                                       const Pb__WorkerKey *key, const char *name)
{
    char path[256];
    vault_slot_dir(key, path, sizeof(path));
    struct vault_job *job = vault_job_create(kind, saves->slot_dir, path, NULL, 0);
    job->below = mem_strdup(name);
    return job;
}

char *save_slot_path(const struct saves *saves, const Pb__WorkerKey *key, const char *name)
{
    char path[256];
    vault_slot_dir(key, path, sizeof(path));
    return mem_printf("%s/%s/%s", saves->slot_dir, path, name);
}

char *saves_resume_shm(const struct saves *saves, const Pb__ResumePoint *resume)
{
    int64_t job, step;
    uint32_t attempt, incarnation = 1;
    if (!saves->slot_dir || !resume || !resume->path ||
        resume->format != PB__CHECKPOINT__FORMAT__SHARDED)
        return NULL;
    if (sscanf(resume->path, "job-%" SCNd64 "/step-%" SCNd64 ".%" SCNu32 ".%" SCNu32, &job, &step,
               &attempt, &incarnation) < 3)
        return NULL;
    return mem_printf("%s/job-%" PRId64 "/%" PRIu32 ".%" PRIu32, saves->slot_dir, job, attempt,
                      incarnation);
}

/* --- giving one out */

static uint64_t owner_bytes(const struct save_owner *owner)
{
    return owner->slots[0].bytes + owner->slots[1].bytes;
}

static uint64_t all_bytes(const struct saves *saves)
{
    uint64_t bytes = 0;
    size_t at = 0;
    const struct save_owner *owner;
    const struct save_slot_job *kept;
    while ((owner = map_next(saves->owners, &at)))
        bytes += owner_bytes(owner);
    at = 0;
    while ((kept = map_next(saves->kept_jobs, &at)))
        bytes += kept->bytes;
    return bytes;
}

static uint64_t most_bytes(const struct agent *agent)
{
    if (agent->config->slot_mib_max)
        return agent->config->slot_mib_max << 20;
    return agent->options.memory_mib ? (agent->options.memory_mib << 20) / 2 : SLOT_BYTES_MAX;
}

/* Over-written next: one with nothing in it (best one that is not there yet), else the older. */
static struct save_slot *free_slot(struct save_owner *owner)
{
    struct save_slot *best = NULL;
    for (size_t i = 0; i < COUNT_OF(owner->slots); i++) {
        struct save_slot *slot = &owner->slots[i];
        if (slot->state != SAVE_SLOT_NONE && slot->state != SAVE_SLOT_KEPT)
            continue;
        if (!best || slot->step < best->step ||
            (slot->step == best->step && slot->state < best->state))
            best = slot;
    }
    return best;
}

static struct save_slot *given_slot(struct save_owner *owner, int64_t step)
{
    for (size_t i = 0; i < COUNT_OF(owner->slots); i++)
        if (owner->slots[i].state == SAVE_SLOT_GIVEN && (step < 0 || owner->slots[i].step == step))
            return &owner->slots[i];
    return NULL;
}

static void refuse(struct saves *saves, const struct worker *worker, uint64_t connection,
                   const Pb__WorkerAsk *ask, enum status st, const char *text)
{
    save_answer(saves, worker->tag, connection, ask->number, st, text, NULL);
}

static bool are_written(struct saves *saves, const struct worker *worker)
{
    size_t count = 0;
    LIST_EACH(&saves->saves, node)
    {
        const struct save *save = LIST_ITEM(node, struct save, node);
        count += save->job && save->slot >= 0 && strcmp(save->tag, worker->tag) == 0;
    }
    return count >= SLOT_PLACES;
}

/* The worker trains on without this save; that there was to be one is told as with any that failed.
 * Asked again, it stays skipped. */
static void skip(struct saves *saves, const struct worker *worker, struct save_owner *owner,
                 uint64_t connection, const Pb__WorkerAsk *ask)
{
    static const char why[] = "skipped: both slots are still being written into the vault";
    bool told = owner->skipped == ask->step + 1 || save_find(saves, worker->tag, ask->step);
    struct save *save = told ? NULL : save_create(saves, worker, ask->step, -1);
    owner->skipped = ask->step + 1;
    if (save)
        save_staged(saves, save, STATUS_CANCELLED, why);
    refuse(saves, worker, connection, ask, STATUS_CANCELLED, why);
}

/* Old copies of jobs that run elsewhere or nowhere make room first. True: some did. */
static bool make_room(struct saves *saves)
{
    size_t at = 0;
    struct save_slot_job *kept;
    while ((kept = map_next(saves->kept_jobs, &at)))
        if (kept->bytes) {
            kept->bytes = 0;
            kept->seen_us = 0; /* swept with the next tick */
            saves->slots_swept_us = 0;
            return true;
        }
    return false;
}

static enum status may_have(struct saves *saves, const struct worker *worker,
                            const struct save_slot *slot, uint64_t bytes, struct error *err)
{
    const Pb__Launch *launch = worker->desired->launch;
    uint64_t limit =
        launch && launch->resources ? launch->resources->memory_mib << 20 : (uint64_t)0;
    if (bytes < SLOT_HEAD_BYTES || bytes > SLOT_BYTES_MAX)
        return error_set(err, STATUS_INVALID, "a slot of %" PRIu64 " bytes", bytes);
    if (limit && bytes > limit)
        return error_set(err, STATUS_EXHAUSTED,
                         "a slot of %" PRIu64 " MiB is more than the %" PRIu64
                         " MiB of memory that the job asks for each worker",
                         bytes >> 20, limit >> 20);
    uint64_t other = all_bytes(saves) - slot->bytes, most = most_bytes(saves->agent);
    if (other < most && bytes <= most - other)
        return STATUS_OK;
    if (make_room(saves))
        return error_set(err, STATUS_UNAVAILABLE, "slots of ended jobs make room first");
    return error_set(err, STATUS_EXHAUSTED,
                     "slots of this node hold %" PRIu64 " MiB of %" PRIu64 " (slot_mib_max)",
                     other >> 20, most >> 20);
}

static void save_slot_made(void *arg, enum status st, const struct error *err,
                           struct vault_job *job)
{
    struct save_op *op = arg;
    struct save_owner *owner = save_owner_get(op->saves, op->tag);
    struct save_slot *slot = &owner->slots[op->slot];
    slot->state = st == STATUS_OK ? SAVE_SLOT_GIVEN : SAVE_SLOT_NONE;
    if (st != STATUS_OK) {
        slot->bytes = 0;
        slot->step = -1;
        log_warn("save.slot", log_str("worker", op->tag), log_err(err));
    }
    save_answer(op->saves, op->tag, op->connection, op->number, st, err ? err->text : "",
                st == STATUS_OK ? job->dir : NULL);
    save_op_end(op);
}

/* A file of another size is another file: a worker may have mapped the one before. */
static void make(struct saves *saves, const struct worker *worker, struct save_owner *owner,
                 struct save_slot *slot, uint64_t connection, const Pb__WorkerAsk *ask)
{
    int index = (int)(slot - owner->slots);
    if (slot->made)
        (void)snprintf(slot->name, sizeof(slot->name), "slot-%d.%" PRIu64, index, slot->made);
    else
        (void)snprintf(slot->name, sizeof(slot->name), "slot-%d", index);
    slot->made++;
    slot->state = SAVE_SLOT_MAKING;
    slot->bytes = ask->bytes;
    slot->step = ask->step;
    struct vault_job *job =
        save_slot_job_create(saves, VAULT_JOB_SLOT_MAKE, worker->desired->key, slot->name);
    job->bytes = ask->bytes;
    job->uid = worker->user ? worker->user->uid : -1;
    job->gid = worker->user ? worker->user->gid : -1;
    struct save_op *op = save_op_create(saves, NULL, worker->tag);
    op->connection = connection;
    op->number = ask->number;
    op->slot = index;
    vault_pool_run(saves->agent->options.vaults, job, save_slot_made, op);
}

static void give(struct saves *saves, const struct worker *worker, const struct save_slot *slot,
                 uint64_t connection, const Pb__WorkerAsk *ask)
{
    SCOPED_TEXT char *path = save_slot_path(saves, worker->desired->key, slot->name);
    save_answer(saves, worker->tag, connection, ask->number, STATUS_OK, NULL, path);
}

void save_slot_ask(struct saves *saves, struct worker *worker, uint64_t connection,
                   const Pb__WorkerAsk *ask)
{
    struct save_owner *owner = save_owner_get(saves, worker->tag);
    struct error err = {STATUS_OK, ""};
    char vault[1024];
    const Pb__Launch *launch = worker->desired->launch;
    struct save_slot *slot = given_slot(owner, ask->step);
    if (!saves->slot_dir) {
        refuse(saves, worker, connection, ask, STATUS_EXHAUSTED, "slots are off here (slot_dir)");
    } else if (!saves_vault(saves, launch ? launch->vault : NULL, vault, sizeof(vault))) {
        refuse(saves, worker, connection, ask, STATUS_PRECONDITION,
               "this node has no vault of that name");
    } else if (owner->looking) {
        refuse(saves, worker, connection, ask, STATUS_UNAVAILABLE,
               "what an earlier agent left is being looked at");
    } else if (slot && slot->bytes == ask->bytes) {
        give(saves, worker, slot, connection, ask);
    } else if (given_slot(owner, -1)) { /* filled, and STAGED did not arrive? */
        save_persist_given(saves, worker);
        refuse(saves, worker, connection, ask, STATUS_UNAVAILABLE, "the save before is looked at");
    } else if (ask->no_wait && (owner->skipped == ask->step + 1 || are_written(saves, worker))) {
        skip(saves, worker, owner, connection, ask);
    } else if (!(slot = free_slot(owner))) {
        refuse(saves, worker, connection, ask, STATUS_UNAVAILABLE,
               "both slots are still being written into the vault");
    } else if (slot->state == SAVE_SLOT_KEPT && slot->bytes == ask->bytes) {
        slot->state = SAVE_SLOT_GIVEN;
        slot->step = ask->step;
        give(saves, worker, slot, connection, ask);
    } else if (may_have(saves, worker, slot, ask->bytes, &err) != STATUS_OK) {
        refuse(saves, worker, connection, ask, err.code, err.text);
    } else {
        make(saves, worker, owner, slot, connection, ask);
    }
}

/* --- dropping */

static void save_slot_dropped(void *arg, enum status st, const struct error *err,
                              struct vault_job *job)
{
    struct save_op *op = arg;
    (void)job;
    if (st != STATUS_OK)
        log_warn("save.slots", log_str("worker", op->tag), log_err(err));
    save_op_end(op);
}

void save_slot_drop_before(struct saves *saves, const struct save *save)
{
    struct save_owner *owner = save_owner_get(saves, save->tag);
    char path[64];
    if (owner->began_new)
        return;
    owner->began_new = true;
    (void)snprintf(path, sizeof(path), "job-%" PRId64, save->key->job);
    struct vault_job *job = vault_job_create(VAULT_JOB_SLOT_DROP, saves->slot_dir, path, NULL, 0);
    job->pattern = mem_printf("%" PRIu32 ".%" PRIu32, save->key->attempt,
                              save->key->incarnation ? save->key->incarnation : 1);
    kept_job(saves, save->key->job)->bytes = 0;
    vault_pool_run(saves->agent->options.vaults, job, save_slot_dropped,
                   save_op_create(saves, NULL, save->tag));
}

void save_slot_forget(struct saves *saves, const struct save_owner *owner)
{
    int64_t job = strtoll(owner->tag, NULL, 10);
    if (saves->slot_dir && job > 0 && owner_bytes(owner))
        kept_job(saves, job)->bytes += owner_bytes(owner);
}

static void save_slot_swept(void *arg, enum status st, const struct error *err,
                            struct vault_job *job)
{
    struct saves *saves = *(struct saves **)arg;
    (void)job;
    if (st != STATUS_OK)
        log_warn("save.slots", log_err(err));
    saves->sweeping = false;
    pending_destroy(arg);
}

/* Jobs of the table stay, and others for a while: the next attempt may come to this node. Until
 * that long after our start, everything stays. */
static void sweep(struct saves *saves, int64_t now)
{
    const struct agent *agent = saves->agent;
    int64_t keep_us = (int64_t)agent->config->slot_keep_s * 1000000;
    struct text names;
    size_t at = 0;
    const struct worker *worker;
    struct save_slot_job *kept;
    while ((worker = map_next(agent->workers, &at)))
        (void)kept_job(saves, worker->desired->key->job);
    text_init(&names, 0);
    at = 0;
    while ((kept = map_next(saves->kept_jobs, &at))) {
        if (now - kept->seen_us < keep_us) {
            text_addf(&names, "job-%" PRId64 "\n", kept->job);
            continue;
        }
        (void)map_remove(saves->kept_jobs, (uint64_t)kept->job);
        mem_free(kept);
    }
    struct vault_job *job = vault_job_create(VAULT_JOB_SLOT_DROP, saves->slot_dir, "", NULL, 0);
    job->pattern = mem_strdup(text_get(&names));
    text_fini(&names);
    struct saves **op = PENDING(&saves->agent->pending, struct saves *);
    *op = saves;
    saves->sweeping = true;
    vault_pool_run(agent->options.vaults, job, save_slot_swept, op);
}

const char *saves_slot_dir(const struct saves *saves)
{
    return saves->slot_dir;
}

bool saves_keeps_slots(const struct saves *saves, const char *path)
{
    long long job = 0;
    const struct worker *worker;
    size_t at = 0;
    if (sscanf(path, "job-%lld/", &job) != 1 || map_get(saves->kept_jobs, (uint64_t)job))
        return true;
    while ((worker = map_next(saves->agent->workers, &at)))
        if (worker->desired->key->job == job)
            return true;
    return false;
}

void saves_leave(struct saves *saves)
{
    if (!saves->slot_dir)
        return;
    struct vault_job *job = vault_job_create(VAULT_JOB_SLOT_DROP, saves->slot_dir, "", NULL, 0);
    struct error err;
    if (vault_job_run(job, &err) != STATUS_OK)
        log_warn("save.slots", log_err(&err));
    vault_job_destroy(job);
    (void)rmdir(saves->slot_dir); /* a mount stays */
}

static void save_slot_tick(void *arg)
{
    struct saves *saves = arg;
    int64_t now = loop_now_us(saves->agent->loop);
    int64_t keep_us = (int64_t)saves->agent->config->slot_keep_s * 1000000;
    save_persist_tick(saves, now);
    if (!saves->sweeping && now - saves->slots_since_us >= keep_us &&
        now - saves->slots_swept_us >= SWEEP_US) {
        saves->slots_swept_us = now;
        sweep(saves, now);
    }
    loop_timer_set(saves->slot_timer, TICK_US);
}
