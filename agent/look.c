/* look.c - see look.h. */
#include "agent/look.h"
#include "agent/save.h"
#include "agent/vault_slot.h"
#include "agent/worker.h"
#include "base/log.h"
#include "checkpoint/vault_look.h"
#include <stdio.h>
#include <string.h>

#define PIECE_BYTES ((uint64_t)32 << 20) /* read in one piece */
#define BUSY_US     200000               /* a save is being written: looked again then */

struct looks {
    struct agent *agent;
    uint64_t ask; /* of the list under way; 0: none */
    bool running;
    struct vault_look_options options; /* of the list under way; its texts are owned */
    struct vault_look *look;           /* between two pieces */
    struct loop_timer *timer;
};
struct look_op {
    struct looks *looks;
    uint64_t ask;
};

struct looks *looks_create(struct agent *agent)
{
    struct looks *looks = NEW(struct looks);
    looks->agent = agent;
    return looks;
}

static void end(struct looks *looks)
{
    vault_look_destroy(looks->look);
    mem_free((char *)(uintptr_t)looks->options.vault);
    mem_free((char *)(uintptr_t)looks->options.path);
    looks->options = (struct vault_look_options){0};
    looks->look = NULL;
    looks->ask = 0;
    if (looks->timer)
        loop_timer_stop(looks->timer);
}

void looks_destroy(struct looks *looks)
{
    if (!looks)
        return;
    end(looks);
    loop_timer_destroy(looks->timer);
    mem_free(looks);
}

void looks_down(struct looks *looks)
{
    end(looks);
}

/* --- answers */

static void send_chunk(struct looks *looks, Pb__VaultChunk *chunk)
{
    Pb__BulkUp up = PB__BULK_UP__INIT;
    up.vault = chunk;
    (void)link_bulk(looks->agent->link, &up);
}

static void answer(struct looks *looks, uint64_t ask, const char *error)
{
    Pb__VaultChunk chunk = PB__VAULT_CHUNK__INIT;
    chunk.has_ask = chunk.has_end = true;
    chunk.ask = ask;
    chunk.end = true;
    chunk.error = (char *)(uintptr_t)error;
    send_chunk(looks, &chunk);
}

/* --- a list */

/* Has a worker of that attempt work here, or had it and is not forgotten? */
static bool is_lived_in(const struct looks *looks, const char *path)
{
    const struct agent *agent = looks->agent;
    size_t at = 0;
    const struct worker *worker;
    while ((worker = map_next(agent->workers, &at))) {
        const Pb__WorkerKey *key = worker->desired->key;
        char slots[64], job[64], attempt[32];
        vault_slot_dir(key, slots, sizeof(slots));
        (void)snprintf(job, sizeof(job), "job-%lld/", (long long)key->job);
        (void)snprintf(attempt, sizeof(attempt), ".%u", key->attempt);
        char *last = strrchr(slots, '/');
        if (last && strncmp(path, slots, (size_t)(last - slots)) == 0)
            return true;
        const char *step = strstr(path, "/step-"), *dot = step ? strchr(step, '.') : NULL;
        if (strncmp(path, job, strlen(job)) == 0 && dot &&
            strncmp(dot, attempt, strlen(attempt)) == 0 &&
            (dot[strlen(attempt)] == '\0' || dot[strlen(attempt)] == '.'))
            return true;
    }
    return false;
}

static void note_kept(const struct looks *looks, const struct vault_job *job)
{
    for (size_t i = 0; i < job->looked_count; i++) {
        Pb__VaultFound *found = job->looked[i];
        if (found->kind != PB__VAULT_FOUND__KIND__SLOT)
            continue;
        found->has_kept = true;
        found->kept = saves_keeps_slots(looks->agent->saves, found->path);
    }
}

static void look_listed(void *arg, enum status st, const struct error *err, struct vault_job *job)
{
    struct look_op *op = arg;
    struct looks *looks = op->looks;
    uint64_t ask = op->ask;
    Pb__VaultChunk chunk = PB__VAULT_CHUNK__INIT;
    pending_destroy(op);
    looks->running = false;
    if (ask != looks->ask) { /* ended meanwhile; the one after it may wait */
        if (looks->ask)
            loop_timer_set(looks->timer, 0);
        return;
    }
    if (st != STATUS_OK) {
        answer(looks, ask, err->text);
        end(looks);
        return;
    }
    looks->look = TAKE(job->look);
    note_kept(looks, job);
    chunk.has_ask = chunk.has_end = chunk.has_bytes = true;
    chunk.ask = ask;
    chunk.found = job->looked;
    chunk.n_found = job->looked_count;
    chunk.end = job->over;
    chunk.bytes = vault_look_bytes(looks->look);
    chunk.has_others = true;
    chunk.others = vault_look_has_others(looks->look);
    send_chunk(looks, &chunk);
    if (job->over)
        end(looks);
}

static void look_tick(void *arg)
{
    struct looks *looks = arg;
    uint32_t persists = 0;
    uint64_t left = 0;
    if (!looks->ask || looks->running)
        return;
    saves_persisting(looks->agent->saves, &persists, &left);
    if (looks->options.deep && persists > 0) {
        loop_timer_set(looks->timer, BUSY_US);
        return;
    }
    struct vault_job *job =
        vault_job_create(VAULT_JOB_LOOK, looks->options.vault, looks->options.path, NULL, 0);
    job->look_options = looks->options;
    job->node = mem_strdup(looks->options.node);
    job->look = TAKE(looks->look);
    job->bytes_max = PIECE_BYTES;
    struct look_op *op = PENDING(&looks->agent->pending, struct look_op);
    *op = (struct look_op){.looks = looks, .ask = looks->ask};
    looks->running = true;
    vault_pool_run(looks->agent->options.vaults, job, look_listed, op);
}

static void list(struct looks *looks, const Pb__VaultAsk *ask, const char *vault)
{
    end(looks);
    if (!looks->timer)
        looks->timer = loop_timer_create(looks->agent->loop, look_tick, looks);
    looks->ask = ask->ask;
    looks->options = (struct vault_look_options){
        .vault = mem_strdup(vault),
        .node = ask->shared ? NULL : looks->agent->node,
        .path = ask->path && *ask->path ? mem_strdup(ask->path) : NULL,
        .job = ask->job,
        .deep = ask->deep,
        .whole = ask->whole,
        .slots = !ask->vault || !*ask->vault,
    };
    loop_timer_set(looks->timer, 0);
}

/* --- repairs */

static void look_repaired(void *arg, enum status st, const struct error *err, struct vault_job *job)
{
    struct look_op *op = arg;
    struct looks *looks = op->looks;
    if (st != STATUS_OK)
        log_warn("look.repair", log_str("path", job->path), log_err(err));
    else
        log_info("look.repair", log_str("path", job->path), log_int("kind", (int64_t)job->kind));
    answer(looks, op->ask, st == STATUS_OK ? NULL : err->text);
    pending_destroy(op);
}

static void repair(struct looks *looks, const Pb__VaultAsk *ask, const char *vault)
{
    enum vault_job_kind kind = ask->verb == PB__VAULT_ASK__VERB__SEAL     ? VAULT_JOB_SEAL
                               : ask->verb == PB__VAULT_ASK__VERB__REMOVE ? VAULT_JOB_DELETE
                                                                          : VAULT_JOB_SET_ASIDE;
    if (!ask->path || !*ask->path) {
        answer(looks, ask->ask, "a path is needed");
        return;
    }
    if (kind != VAULT_JOB_SEAL && is_lived_in(looks, ask->path)) {
        answer(looks, ask->ask, "a worker of that attempt is still here");
        return;
    }
    struct vault_job *job = vault_job_create(kind, vault, ask->path, NULL, 0);
    if (kind == VAULT_JOB_SEAL) {
        job->manifest_len = ask->manifest.len;
        job->manifest = mem_dup(ask->manifest.data, ask->manifest.len);
    }
    struct look_op *op = PENDING(&looks->agent->pending, struct look_op);
    *op = (struct look_op){.looks = looks, .ask = ask->ask};
    vault_pool_run(looks->agent->options.vaults, job, look_repaired, op);
}

void looks_ask(struct looks *looks, const Pb__VaultAsk *ask)
{
    char path[1024];
    const char *vault = ask->vault && *ask->vault
                            ? saves_vault(looks->agent->saves, ask->vault, path, sizeof(path))
                            : saves_slot_dir(looks->agent->saves);
    switch (ask->verb) {
    case PB__VAULT_ASK__VERB__MORE:
        if (ask->ask == looks->ask)
            loop_timer_set(looks->timer, 0);
        return;
    case PB__VAULT_ASK__VERB__END:
        if (ask->ask == looks->ask)
            end(looks);
        return;
    default:
        break;
    }
    if (!vault && (!ask->vault || !*ask->vault))
        answer(looks, ask->ask, NULL); /* no slots are given out here: there are none */
    else if (!vault)
        answer(looks, ask->ask, "this node has no vault of that name");
    else if (ask->verb == PB__VAULT_ASK__VERB__LIST)
        list(looks, ask, vault);
    else
        repair(looks, ask, vault);
}
