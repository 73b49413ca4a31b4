/* serve_logs.c - Logs: asks the node that holds the bytes, over its bulk stream, one piece at a
 * time.
 *
 * An ask is answered by one chunk; its number is then spent and the next ask goes on behind it, so
 * a late or repeated chunk finds no relay and is dropped. At most one ask is out per call: a reader
 * that stops costs one chunk. Bytes stay on nodes; the daemon keeps none. */
#include "base/mem.h"
#include "daemon/serve_hub.h"
#include <stdio.h>
#include <string.h>

#define SERVE_RELAYS_MAX    1000
#define SERVE_LOG_BYTES     (64u << 10)
#define SERVE_LOG_WAIT_US   (20 * 1000000ll)
#define SERVE_LOG_CHUNK_MAX ((size_t)1 << 20)

struct serve_relay {
    struct list node_; /* of serve->log_relays */
    struct serve *serve;
    struct rpc_call *call;
    struct loop_timer *timer;
    char node[256], role[256];
    int64_t job;
    uint32_t rank, attempt;
    bool is_stderr, follow, found, ended;
    int64_t offset;
    uint64_t ask; /* 0: none is out */
};

static void serve_relay_end(struct serve_relay *relay, enum status st, const char *text)
{
    if (relay->ended)
        return;
    relay->ended = true;
    if (relay->ask)
        map_remove(relay->serve->log_asks, relay->ask);
    relay->ask = 0;
    loop_timer_stop(relay->timer);
    rpc_call_end(relay->call, st, text);
}

static void serve_relay_away(struct serve_relay *relay)
{
    char text[400];

    snprintf(text, sizeof(text),
             "node %.250s is away and holds this log: try again when it is back", relay->node);
    serve_relay_end(relay, STATUS_UNAVAILABLE, text);
}

static void serve_relay_send_ask(struct serve_relay *relay, struct agent_link *link, bool cancel)
{
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;
    Pb__LogAsk ask = PB__LOG_ASK__INIT;
    Pb__BulkDown down = PB__BULK_DOWN__INIT;

    key.has_job = key.has_rank = key.has_attempt = key.has_incarnation = true;
    key.job = relay->job;
    key.role = relay->role;
    key.rank = relay->rank;
    key.attempt = relay->attempt;
    ask.key = &key;
    ask.has_ask = ask.has_stderr_ = ask.has_offset = ask.has_bytes_max = ask.has_follow = true;
    ask.ask = relay->ask;
    ask.stderr_ = relay->is_stderr;
    ask.offset = relay->offset;
    ask.bytes_max = SERVE_LOG_BYTES;
    ask.follow = relay->follow;
    ask.has_cancel = ask.cancel = cancel;
    down.has_term = true;
    down.term = serve_term(relay->serve);
    down.log = &ask;
    link->ops->bulk(link, &down);
}

static struct agent_link *serve_relay_link(const struct serve_relay *relay)
{
    struct agent_link *link = core_node_link(relay->serve->options.core, relay->node);

    return link && serve_agents_bulk_is_up(link) ? link : NULL;
}

static void serve_relay_ask(struct serve_relay *relay)
{
    struct agent_link *link = serve_relay_link(relay);

    if (relay->ended || relay->ask)
        return;
    if (!link) {
        serve_relay_away(relay);
        return;
    }
    relay->ask = ++relay->serve->log_ask_last;
    map_put(relay->serve->log_asks, relay->ask, relay);
    if (!relay->follow)
        loop_timer_set(relay->timer, SERVE_LOG_WAIT_US);
    serve_relay_send_ask(relay, link, false);
}

static void serve_relay_late(void *arg)
{
    struct serve_relay *relay = arg;
    char text[400];

    snprintf(text, sizeof(text), "node %.250s does not answer for this log: try again",
             relay->node);
    serve_relay_end(relay, STATUS_UNAVAILABLE, text);
}

static void serve_relay_chunk(struct serve_relay *relay, const Pb__LogChunk *chunk)
{
    Pb__LogsReply reply = PB__LOGS_REPLY__INIT;
    size_t len = chunk->has_data ? chunk->data.len : 0;
    size_t queued = 0;

    loop_timer_stop(relay->timer);
    if (chunk->error && *chunk->error) {
        serve_relay_end(relay, STATUS_NOT_FOUND, chunk->error);
        return;
    }
    if (len > SERVE_LOG_CHUNK_MAX || chunk->offset < 0) {
        serve_relay_end(relay, STATUS_INTERNAL, "the node sent a piece that cannot be");
        return;
    }
    relay->offset = chunk->offset + (int64_t)len;
    if (len > 0 || chunk->closed) {
        reply.has_offset = reply.has_data = reply.has_head = reply.has_closed = true;
        reply.offset = chunk->offset;
        reply.data = chunk->data;
        reply.head = chunk->head;
        reply.closed = chunk->closed;
        queued = rpc_call_send(relay->call, &reply.base);
    }
    if (chunk->closed || (chunk->end && !relay->follow))
        serve_relay_end(relay, STATUS_OK, "");
    else if (queued <= SERVE_QUEUE_BYTES)
        serve_relay_ask(relay);
}

void serve_logs_chunk(struct serve *serve, const char *node, const Pb__LogChunk *chunk)
{
    struct serve_relay *relay = map_get(serve->log_asks, chunk->ask);

    if (!relay || strcmp(relay->node, node) != 0)
        return;
    map_remove(serve->log_asks, chunk->ask);
    relay->ask = 0;
    serve_relay_chunk(relay, chunk);
}

void serve_logs_node_away(struct serve *serve, const char *node)
{
    LIST_EACH(&serve->log_relays, item)
    {
        struct serve_relay *relay = LIST_ITEM(item, struct serve_relay, node_);
        if (relay->ask && strcmp(relay->node, node) == 0)
            serve_relay_away(relay);
    }
}

static void serve_relay_drained(void *arg, struct rpc_call *call)
{
    struct serve_relay *relay = arg;

    (void)call;
    if (relay->found)
        serve_relay_ask(relay);
}

static void serve_relay_destroy(struct serve_relay *relay)
{
    loop_timer_destroy(relay->timer);
    list_remove(&relay->node_);
    relay->serve->counts.log_relays--;
    mem_free(relay);
}

static void serve_relay_closed(void *arg, struct rpc_call *call)
{
    struct serve_relay *relay = arg;
    struct agent_link *link = relay->ask ? serve_relay_link(relay) : NULL;

    (void)call;
    if (link)
        serve_relay_send_ask(relay, link, true);
    if (relay->ask)
        map_remove(relay->serve->log_asks, relay->ask);
    relay->ask = 0;
    relay->ended = true;
    relay->call = NULL;
    if (relay->found) /* else the reader's answer still comes and frees it */
        serve_relay_destroy(relay);
}

/* --- where the log is */

/* What the attempt has, for who asked for something else. */
static void serve_relay_no_place(struct serve_relay *relay, const Pb__Attempt *attempt)
{
    char text[400];
    size_t used = 0;

    used += (size_t)snprintf(text, sizeof(text), "attempt %u has no %.63s rank %u; it has",
                             attempt->number, relay->role, relay->rank);
    for (size_t i = 0; i < attempt->n_places && used < sizeof(text); i++) {
        const Pb__WorkerPlace *place = attempt->places[i];
        bool last = i + 1 == attempt->n_places || attempt->places[i + 1]->rank == 0;
        if (place->role && last)
            used += (size_t)snprintf(text + used, sizeof(text) - used, " %.63s 0..%u", place->role,
                                     place->rank);
    }
    serve_relay_end(relay, STATUS_NOT_FOUND, text);
}

static void serve_relay_place(struct serve_relay *relay, const Pb__Attempt *attempt)
{
    for (size_t i = 0; i < attempt->n_places; i++) {
        const Pb__WorkerPlace *place = attempt->places[i];
        if (place->rank != relay->rank || !place->role || !place->node)
            continue;
        if (relay->role[0] && strcmp(relay->role, place->role) != 0)
            continue;
        snprintf(relay->role, sizeof(relay->role), "%s", place->role);
        snprintf(relay->node, sizeof(relay->node), "%s", place->node);
        serve_relay_ask(relay);
        return;
    }
    serve_relay_no_place(relay, attempt);
}

static void serve_relay_show(struct serve_relay *relay, const Pb__ShowJobReply *show)
{
    if (!relay->role[0] && show->job->spec && show->job->spec->n_roles > 0)
        snprintf(relay->role, sizeof(relay->role), "%s", show->job->spec->roles[0]->name);
    if (relay->attempt == 0)
        relay->attempt = show->job->attempt;
    if (relay->attempt == 0) {
        serve_relay_end(relay, STATUS_PRECONDITION, "the job has not started yet: it has no log");
        return;
    }
    for (size_t i = 0; i < show->n_attempts; i++)
        if (show->attempts[i]->number == relay->attempt) {
            serve_relay_place(relay, show->attempts[i]);
            return;
        }
    char text[100];
    snprintf(text, sizeof(text), "job %lld has no attempt %u; its last is %u",
             (long long)relay->job, relay->attempt, show->job->attempt);
    serve_relay_end(relay, STATUS_NOT_FOUND, text);
}

static void serve_relay_found(void *arg, enum status st, const struct error *err,
                              const ProtobufCMessage *message)
{
    struct serve_relay *relay = arg;

    relay->found = true;
    if (!relay->call)
        serve_relay_destroy(relay);
    else if (st != STATUS_OK)
        serve_relay_end(relay, st, err ? err->text : status_name(st));
    else
        serve_relay_show(relay, (const Pb__ShowJobReply *)(const void *)message);
}

void serve_logs(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct serve *serve = arg;
    const Pb__LogsRequest *request = (const Pb__LogsRequest *)(const void *)message;
    Pb__ShowJobRequest show = PB__SHOW_JOB_REQUEST__INIT;

    if (request->role && strlen(request->role) >= sizeof(((struct serve_relay *)0)->role)) {
        rpc_call_end(call, STATUS_INVALID, "role: the name is too long");
        return;
    }
    if (serve->counts.log_relays >= SERVE_RELAYS_MAX) {
        rpc_call_end(call, STATUS_EXHAUSTED, "1,000 logs are being read: end one first");
        return;
    }
    struct serve_relay *relay = NEW(struct serve_relay);
    relay->serve = serve;
    relay->call = call;
    relay->timer = loop_timer_create(serve->options.loop, serve_relay_late, relay);
    relay->job = request->job;
    relay->rank = request->rank;
    relay->attempt = request->attempt;
    relay->is_stderr = request->stderr_;
    relay->follow = request->follow;
    relay->offset = request->offset;
    snprintf(relay->role, sizeof(relay->role), "%s", request->role ? request->role : "");
    list_add_last(&serve->log_relays, &relay->node_);
    serve->counts.log_relays++;
    rpc_call_on_closed(call, serve_relay_closed, relay);
    rpc_call_on_drained(call, serve_relay_drained, relay);
    show.has_job = true;
    show.job = request->job;
    reader_ask(serve->options.reader, rpc_call_identity(call), &show.base, serve_relay_found,
               relay);
}
