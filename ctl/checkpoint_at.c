#include "ctl/checkpoint_at.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/vault_list.h"
#include "ctl/job_arg.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A lease is renewed while bytes move; one that lapses lets retention go on soon after a reader
 * died. */
enum { HOLD_S = 1800, RENEW_MS = 300 * 1000, RENEW_PATIENCE_MS = 5000 };

struct connect *checkpoint_at_connect(struct checkpoint_at_source *source, int *code)
{
    if (!source->connect)
        source->connect = connect_open(&source->flags->connect, code);
    return source->connect;
}

void checkpoint_at_end(struct checkpoint_at_source *source)
{
    connect_close(source->connect);
    source->connect = NULL;
}

void checkpoint_at_fini(struct checkpoint_at *at)
{
    if (at->row)
        pb__checkpoint__free_unpacked(at->row, NULL);
    mem_free(at->dir);
    mem_free(at->path);
    mem_free(at->away);
    *at = (struct checkpoint_at){0};
}

int checkpoint_at_fail(const char *verb, enum status st, const char *text)
{
    if (st == STATUS_CANCELLED)
        return VERB_BROKEN;
    output_error("%s: %s", verb, text);
    switch (st) {
    case STATUS_DATA_LOSS:
        return VERB_NEGATIVE;
    case STATUS_NOT_FOUND:
    case STATUS_INVALID:
    case STATUS_EXISTS:
    case STATUS_DENIED:
    case STATUS_PRECONDITION:
        return VERB_REFUSED;
    default:
        return VERB_BROKEN;
    }
}

bool checkpoint_at_is_place(const char *word)
{
    struct stat st;
    return strchr(word, '/') || word[0] == '.' ||
           (strspn(word, "0123456789") < strlen(word) && !strchr(word, '@') &&
            stat(word, &st) == 0 && S_ISDIR(st.st_mode));
}

bool checkpoint_at_usable(const Pb__Checkpoint *row)
{
    return row->state == PB__CHECKPOINT__STATE__COMMITTED ||
           row->state == PB__CHECKPOINT__STATE__VERIFIED;
}

/* --- without a daemon */

static int take_place(const char *vault, const char *path, struct checkpoint_at *out)
{
    struct error err = {0};
    enum status st = vault_list_one(vault, path, &out->row, &err);
    if (st == STATUS_NOT_FOUND)
        return checkpoint_at_fail(*path ? path : vault, st,
                                  "no sealed checkpoint is there (no manifest.json)");
    if (st != STATUS_OK)
        return checkpoint_at_fail(*path ? path : vault, st, err.text);
    out->offline = true;
    out->dir = mem_strdup(vault);
    out->path = mem_strdup(path);
    if (!*path) {
        mem_free(out->row->path);
        out->row->path = mem_strdup(vault);
    }
    return VERB_OK;
}

/* "7@120", "7@": *step -1 for the newest. */
static bool parse_numbers(const char *word, int64_t *job, int64_t *step)
{
    const char *sign = strchr(word, '@');
    SCOPED_TEXT char *name = sign ? mem_printf("%.*s", (int)(sign - word), word) : NULL;
    *step = -1;
    return name && text_to_i64(name, 0, INT64_MAX, job) &&
           (!sign[1] || text_to_i64(sign + 1, 0, INT64_MAX, step));
}

static int take_from_vault(const char *vault, const char *word, struct checkpoint_at *out)
{
    SCOPED(vault_list_destroy) struct vault_list *list = NULL;
    const struct vault_list_entry *best = NULL;
    struct error err = {0};
    int64_t id = 0, job = 0, step = -1;
    bool by_id = text_to_i64(word, 1, INT64_MAX, &id);
    if (!by_id && !parse_numbers(word, &job, &step))
        return take_place(vault, word, out);
    enum status st = vault_list_read(vault, false, &list, &err);
    if (st != STATUS_OK)
        return checkpoint_at_fail(vault, st, err.text);
    for (size_t i = 0; i < list->count; i++) {
        const Pb__Checkpoint *row = list->entries[i].row;
        if (row && (by_id ? row->id == id : row->job == job && (step < 0 || row->step == step)) &&
            (!best || row->id >= best->row->id))
            best = &list->entries[i];
    }
    if (best)
        return take_place(vault, best->path, out);
    output_error("no sealed checkpoint of %s is called '%s' (see `rondoctl checkpoint list "
                 "--vault %s`)",
                 vault, word, vault);
    return VERB_REFUSED;
}

/* --- by the daemon */

static int show(struct connect *connect, int64_t id, struct checkpoint_at *out)
{
    Pb__ShowCheckpointRequest request = PB__SHOW_CHECKPOINT_REQUEST__INIT;
    Pb__CheckpointReply *reply;
    request.has_checkpoint = 1;
    request.checkpoint = id;
    int code = connect_ask(connect, "ShowCheckpoint", &request.base, (ProtobufCMessage **)&reply);
    if (code != VERB_OK)
        return code;
    out->row = TAKE(reply->checkpoint);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return out->row ? VERB_OK : VERB_BROKEN;
}

int checkpoint_at_list(struct connect *connect, const char *job, uint32_t limit, int64_t *id,
                       Pb__ListCheckpointsReply **reply)
{
    Pb__ListCheckpointsRequest request = PB__LIST_CHECKPOINTS_REQUEST__INIT;
    request.has_job = request.has_limit = 1;
    request.limit = limit;
    int code = job_arg_find(connect, job, true, &request.job);
    if (code == VERB_OK)
        code = connect_ask(connect, "ListCheckpoints", &request.base, (ProtobufCMessage **)reply);
    if (code == VERB_OK && id)
        *id = request.job;
    return code;
}

static int find_of_job(struct connect *connect, const char *name, int64_t step,
                       struct checkpoint_at *out)
{
    Pb__ListCheckpointsReply *reply;
    int64_t best = 0;
    int code = checkpoint_at_list(connect, name, CHECKPOINT_AT_LIST_MAX, NULL, &reply);
    if (code != VERB_OK)
        return code;
    for (size_t i = 0; i < reply->n_checkpoints; i++) {
        const Pb__Checkpoint *row = reply->checkpoints[i];
        if (checkpoint_at_usable(row) && (step < 0 || row->step == step) && row->id > best)
            best = row->id;
    }
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    if (best)
        return show(connect, best, out);
    output_error("job '%s' has no usable checkpoint%s (see `rondoctl checkpoint list %s`)", name,
                 step < 0 ? "" : " of that step", name);
    return VERB_REFUSED;
}

static int find_online(struct connect *connect, const char *word, struct checkpoint_at *out)
{
    const char *sign = strchr(word, '@');
    int64_t id, step = -1;
    if (!sign && text_to_i64(word, 1, INT64_MAX, &id))
        return show(connect, id, out);
    if (sign && sign[1] && !text_to_i64(sign + 1, 0, INT64_MAX, &step)) {
        output_error("'%s': behind the '@' stands a step", word);
        return VERB_USAGE;
    }
    SCOPED_TEXT char *name = mem_printf("%.*s", sign ? (int)(sign - word) : 4096, word);
    return find_of_job(connect, name, step, out);
}

int checkpoint_at_find(struct checkpoint_at_source *source, const char *word,
                       struct checkpoint_at *out)
{
    int code = VERB_OK;
    *out = (struct checkpoint_at){.source = source};
    if (*source->flags->vault)
        code = take_from_vault(source->flags->vault, word, out);
    else if (checkpoint_at_is_place(word))
        code = take_place(word, "", out);
    else if (checkpoint_at_connect(source, &code))
        code = find_online(source->connect, word, out);
    if (code != VERB_OK)
        checkpoint_at_fini(out);
    return code;
}

/* --- the bytes of one that the daemon knows */

static bool is_here(const char *vault, const Pb__Checkpoint *row)
{
    Pb__Checkpoint *found = NULL;
    if (vault_list_one(vault, row->path, &found, NULL) != STATUS_OK)
        return false;
    bool same = row->manifest_digest && strcmp(found->manifest_digest, row->manifest_digest) == 0;
    pb__checkpoint__free_unpacked(found, NULL);
    return same;
}

/* Where nodes have the vault: one of these places may be on this machine. */
static int find_place(struct connect *connect, struct checkpoint_at *at)
{
    Pb__ListNodesRequest request = PB__LIST_NODES_REQUEST__INIT;
    Pb__ListNodesReply *reply;
    const char *seen = NULL, *node = NULL;
    int code = connect_ask(connect, "ListNodes", &request.base, (ProtobufCMessage **)&reply);
    if (code != VERB_OK)
        return code;
    for (size_t i = 0; i < reply->n_nodes && !at->dir; i++) {
        const Pb__Node *known = reply->nodes[i]->node;
        for (size_t k = 0; known && known->inventory && k < known->inventory->n_vaults; k++) {
            const Pb__Vault *vault = known->inventory->vaults[k];
            if (!vault->path || strcmp(vault->name ? vault->name : "", at->row->vault) != 0 ||
                (at->row->node && *at->row->node && strcmp(known->name, at->row->node) != 0))
                continue;
            seen = vault->path;
            node = known->name;
            if (!is_here(vault->path, at->row))
                continue;
            at->dir = mem_strdup(vault->path);
            at->path = mem_strdup(at->row->path);
            break;
        }
    }
    if (!at->dir)
        at->away = seen ? mem_printf("its bytes are not on this machine; on %s they are %s/%s",
                                     node, seen, at->row->path)
                        : mem_printf("no node has its vault '%s' now", at->row->vault);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return VERB_OK;
}

struct hold {
    Pb__HoldCheckpointRequest request;
    char id[CONNECT_ID_SIZE], holder[CONNECT_ID_SIZE + 16];
};

static void hold_fill(struct hold *hold, struct connect *connect, const struct checkpoint_at *at,
                      uint32_t seconds)
{
    pb__hold_checkpoint_request__init(&hold->request);
    connect_request_id(connect, hold->id);
    (void)snprintf(hold->holder, sizeof hold->holder, "rondoctl %s", at->hold);
    hold->request.request_id = hold->id;
    hold->request.holder = hold->holder;
    hold->request.has_checkpoint = hold->request.has_lease_s = 1;
    hold->request.checkpoint = at->row->id;
    hold->request.lease_s = seconds;
}

static int hold_ask(struct connect *connect, const struct checkpoint_at *at, uint32_t seconds)
{
    struct hold hold;
    ProtobufCMessage *reply;
    hold_fill(&hold, connect, at, seconds);
    int code = connect_ask(connect, "HoldCheckpoint", &hold.request.base, &reply);
    if (code == VERB_OK)
        protobuf_c_message_free_unpacked(reply, NULL);
    return code;
}

/* One short try: what is read goes on without the daemon, and the lease outlives a restart of it.
 */
static void hold_renew(struct connect *connect, const struct checkpoint_at *at)
{
    struct hold hold;
    ProtobufCMessage *reply;
    hold_fill(&hold, connect, at, HOLD_S);
    if (rpc_client_call_wait(connect_client(connect), &pb__control__descriptor, "HoldCheckpoint",
                             &hold.request.base, RENEW_PATIENCE_MS, &reply, NULL) == STATUS_OK)
        protobuf_c_message_free_unpacked(reply, NULL);
}

void checkpoint_at_renew(void *arg)
{
    struct checkpoint_at_source *source = arg;
    if (!source->held_count)
        return;
    int64_t now_ms = connect_now_ms(source->connect);
    if (now_ms < source->renew_ms)
        return;
    for (size_t i = 0; i < source->held_count; i++)
        hold_renew(source->connect, source->held[i]);
    source->renew_ms = connect_now_ms(source->connect) + RENEW_MS;
}

int checkpoint_at_locate(struct checkpoint_at_source *source, struct checkpoint_at *at)
{
    return at->dir ? VERB_OK : find_place(source->connect, at);
}

int checkpoint_at_open(struct checkpoint_at_source *source, struct checkpoint_at *at)
{
    if (at->dir)
        return VERB_OK;
    int code = find_place(source->connect, at);
    if (code == VERB_OK && !at->dir) {
        output_error("checkpoint %" PRId64 ": %s", at->row->id, at->away);
        return VERB_REFUSED;
    }
    if (code != VERB_OK)
        return code;
    connect_request_id(source->connect, at->hold);
    code = hold_ask(source->connect, at, HOLD_S);
    if (code != VERB_OK) {
        at->hold[0] = '\0';
        return code;
    }
    source->held[source->held_count++] = at;
    source->renew_ms = connect_now_ms(source->connect) + RENEW_MS;
    return VERB_OK;
}

void checkpoint_at_close(struct checkpoint_at_source *source, struct checkpoint_at *at)
{
    if (!at->hold[0])
        return;
    (void)hold_ask(source->connect, at, 0);
    at->hold[0] = '\0';
    for (size_t i = 0; i < source->held_count; i++)
        if (source->held[i] == at)
            source->held[i] = source->held[--source->held_count];
}
