/* serve_fsck_repair.c - one difference after the other is repaired: by the core in its rows, by an
 * agent in a vault. What could have become untrue since is looked at again right before. See
 * serve_fsck.h. */
#include "base/mem.h"
#include "checkpoint/vault.h"
#include "daemon/serve_fsck.h"
#include <stdio.h>
#include <string.h>

static Pb__Difference *current(const struct serve_fsck *fsck)
{
    return fsck->differences[fsck->next];
}

/* --- the core */

static void serve_fsck_core_done(void *arg, enum status st, const struct error *err,
                                 const ProtobufCMessage *reply)
{
    struct serve_fsck *fsck = arg;
    const Pb__CheckpointReply *done = (const Pb__CheckpointReply *)(const void *)reply;
    Pb__Difference *difference = current(fsck);

    fsck->waiting--;
    if (st == STATUS_OK && done->checkpoint && !difference->has_checkpoint) {
        difference->has_checkpoint = true;
        difference->checkpoint = done->checkpoint->id;
    }
    serve_fsck_repaired(fsck, st, err ? err->text : "");
}

static void by_core(struct serve_fsck *fsck, Pb__Checkpoint *row)
{
    Pb__FsckRepair repair = PB__FSCK_REPAIR__INIT;
    Pb__Difference *difference = current(fsck);
    uint64_t version = (uintptr_t)map_get(fsck->versions, (uint64_t)difference->checkpoint);

    repair.difference = difference;
    repair.has_version = true;
    repair.version = version ? version - 1 : 0;
    repair.row = row;
    fsck->waiting++;
    core_call(fsck->serve->options.core, fsck->actor, &repair.base, serve_fsck_core_done, fsck);
}

static void row_by_core(struct serve_fsck *fsck)
{
    const Pb__Difference *difference = current(fsck);
    const struct core *core = fsck->serve->options.core;
    bool in_memory = core_checkpoint(core, difference->checkpoint) != NULL;
    const Pb__Checkpoint *row =
        in_memory ? NULL : serve_fsck_view_row(fsck, difference->checkpoint);

    by_core(fsck, (Pb__Checkpoint *)(uintptr_t)row);
}

/* --- an agent */

static void by_agent(struct serve_fsck *fsck, Pb__VaultAsk *ask, enum serve_fsck_asking what)
{
    const Pb__Difference *difference = current(fsck);

    ask->vault = difference->vault;
    ask->path = difference->path;
    if (!difference->path || !difference->node ||
        !serve_fsck_look_ask(fsck, difference->node, ask, what))
        serve_fsck_repaired(fsck, STATUS_UNAVAILABLE, "its agent is away");
}

/* Why the directory must stay; NULL: no row and no living attempt refers to it. */
static const char *refusal(const struct serve_fsck *fsck)
{
    const struct core *core = fsck->serve->options.core;
    const Pb__Difference *difference = current(fsck);
    int64_t job, step;
    uint32_t attempt, incarnation;

    if (!difference->path)
        return "it has no path";
    if (!fsck_path_parse(difference->path, &job, &step, &attempt, &incarnation))
        return NULL; /* slots, or what an export left: of no row */
    uint32_t open = core_job_open(core, job);
    if (open && attempt >= open)
        return "an attempt that lives may write there";
    size_t count = core_checkpoints(core, job, NULL, 0);
    SCOPED(mem_free) void *memory = mem_array(count + 1, sizeof(void *));
    const Pb__Checkpoint **rows = memory;
    count = core_checkpoints(core, job, rows, count);
    for (size_t i = 0; i < count; i++)
        if (rows[i]->path && rows[i]->vault && !strcmp(rows[i]->path, difference->path) &&
            !strcmp(rows[i]->vault, difference->vault) &&
            rows[i]->state != PB__CHECKPOINT__STATE__DELETED &&
            rows[i]->state != PB__CHECKPOINT__STATE__TORN)
            return "a checkpoint has its bytes there";
    return NULL;
}

static void move_away(struct serve_fsck *fsck)
{
    Pb__VaultAsk ask = PB__VAULT_ASK__INIT;
    const char *why = refusal(fsck);

    if (why) {
        serve_fsck_repaired(fsck, STATUS_PRECONDITION, why);
        return;
    }
    ask.verb = current(fsck)->repair == PB__DIFFERENCE__REPAIR__REMOVE
                   ? PB__VAULT_ASK__VERB__REMOVE
                   : PB__VAULT_ASK__VERB__SET_ASIDE;
    by_agent(fsck, &ask, SERVE_FSCK_REPAIRING);
}

/* The very bytes that were committed, or none. */
static void seal(struct serve_fsck *fsck)
{
    const Pb__Checkpoint *row = serve_fsck_view_row(fsck, current(fsck)->checkpoint);
    Pb__VaultAsk ask = PB__VAULT_ASK__INIT;
    struct text manifest;
    char digest[65];

    text_init(&manifest, 0);
    if (row)
        vault_manifest_build(row, &manifest, digest);
    if (!row || !row->manifest_digest || strcmp(digest, row->manifest_digest) != 0) {
        current(fsck)->repair = PB__DIFFERENCE__REPAIR__MARK_DAMAGED;
        row_by_core(fsck); /* what the manifest said is not known any more */
    } else {
        ask.verb = PB__VAULT_ASK__VERB__SEAL;
        ask.has_manifest = true;
        ask.manifest.data = (uint8_t *)(uintptr_t)text_get(&manifest);
        ask.manifest.len = manifest.len;
        by_agent(fsck, &ask, SERVE_FSCK_REPAIRING);
    }
    text_fini(&manifest);
}

static void ask_for_manifest(struct serve_fsck *fsck)
{
    Pb__VaultAsk ask = PB__VAULT_ASK__INIT;

    ask.verb = PB__VAULT_ASK__VERB__LIST;
    ask.has_whole = ask.has_shared = true;
    ask.whole = ask.shared = true;
    by_agent(fsck, &ask, SERVE_FSCK_MANIFEST);
}

static void register_again(struct serve_fsck *fsck, const Pb__VaultFound *found)
{
    Pb__Difference *difference = current(fsck);
    Pb__Checkpoint *row = found ? found->manifest : NULL;

    if (!row || found->kind != PB__VAULT_FOUND__KIND__SEALED || !found->manifest_digest ||
        row->job != difference->job) {
        serve_fsck_repaired(fsck, STATUS_ABORTED, "it has changed meanwhile: look again");
        return;
    }
    if (fsck->manifest)
        pb__checkpoint__free_unpacked(fsck->manifest, NULL);
    fsck->manifest = (Pb__Checkpoint *)message_copy(&row->base);
    row = fsck->manifest;
    mem_free(row->path);
    mem_free(row->vault);
    mem_free(row->manifest_digest);
    row->path = mem_strdup(difference->path);
    row->vault = mem_strdup(difference->vault);
    row->manifest_digest = mem_strdup(found->manifest_digest);
    if (map_get(fsck->stored, (uint64_t)row->id))
        row->id = 0; /* another one has it */
    by_core(fsck, row);
}

void serve_fsck_repair_answered(struct serve_fsck *fsck, const Pb__VaultChunk *chunk,
                                const char *error)
{
    if (error)
        serve_fsck_repaired(fsck, STATUS_UNAVAILABLE, error);
    else if (current(fsck)->repair == PB__DIFFERENCE__REPAIR__REGISTER)
        register_again(fsck, chunk->n_found ? chunk->found[0] : NULL);
    else
        by_core(fsck, NULL); /* it is done: the event */
}

void serve_fsck_repair_begin(struct serve_fsck *fsck, Pb__Difference *difference)
{
    switch (difference->repair) {
    case PB__DIFFERENCE__REPAIR__NOTHING:
        serve_fsck_repaired(fsck, STATUS_PRECONDITION, difference->note);
        break;
    case PB__DIFFERENCE__REPAIR__REMOVE:
    case PB__DIFFERENCE__REPAIR__SET_ASIDE:
        move_away(fsck);
        break;
    case PB__DIFFERENCE__REPAIR__SEAL:
        seal(fsck);
        break;
    case PB__DIFFERENCE__REPAIR__REGISTER:
        ask_for_manifest(fsck);
        break;
    default:
        row_by_core(fsck);
        break;
    }
}
