/* link_rpc.c - see link_rpc.h. */
#include "agent/link_rpc.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/client.h"

#define FETCH_MS 600000

struct link_rpc {
    struct uplink base;
    struct loop *loop;
    struct rpc_client **clients; /* one a daemon; a channel connects when it is first used */
    size_t clients_count, current;
    const struct uplink_events *events;
    void *arg;
    struct rpc_stream *streams[2];
    bool control_heard, dropped;
};
struct fetch {
    struct link_rpc *link;
    const struct uplink_fetch_events *events;
    void *arg;
    struct rpc_stream *stream;
};

static void control_message(void *arg, const ProtobufCMessage *message)
{
    struct link_rpc *self = arg;
    self->control_heard = true;
    if (!self->dropped)
        self->events->control(self->arg, (const Pb__AgentDown *)message);
}

static void bulk_message(void *arg, const ProtobufCMessage *message)
{
    struct link_rpc *self = arg;
    if (!self->dropped)
        self->events->bulk(self->arg, (const Pb__BulkDown *)message);
}

static void control_closed(void *arg, enum status st, const char *text)
{
    struct link_rpc *self = arg;
    self->streams[UPLINK_CONTROL] = NULL;
    if (!self->control_heard) {
        log_debug("link.try", log_int("daemon", (int64_t)self->current),
                  log_str("err", text ? text : ""));
        self->current = (self->current + 1) % self->clients_count;
    }
    if (!self->dropped)
        self->events->closed(self->arg, UPLINK_CONTROL, st, text);
}

static void bulk_closed(void *arg, enum status st, const char *text)
{
    struct link_rpc *self = arg;
    self->streams[UPLINK_BULK] = NULL;
    if (!self->dropped)
        self->events->closed(self->arg, UPLINK_BULK, st, text);
}

static void control_drained(void *arg)
{
    struct link_rpc *self = arg;
    if (!self->dropped)
        self->events->drained(self->arg, UPLINK_CONTROL);
}

static void bulk_drained(void *arg)
{
    struct link_rpc *self = arg;
    if (!self->dropped)
        self->events->drained(self->arg, UPLINK_BULK);
}

static const struct rpc_stream_events control_events = {control_message, control_closed,
                                                        control_drained};
static const struct rpc_stream_events bulk_events = {bulk_message, bulk_closed, bulk_drained};

static void link_rpc_listen(struct uplink *uplink, const struct uplink_events *events, void *arg)
{
    struct link_rpc *self = CONTAINER_OF(uplink, struct link_rpc, base);
    self->events = events;
    self->arg = arg;
}

static void link_rpc_open(struct uplink *uplink, enum uplink_stream stream)
{
    struct link_rpc *self = CONTAINER_OF(uplink, struct link_rpc, base);
    bool control = stream == UPLINK_CONTROL;
    if (control)
        self->control_heard = false;
    self->streams[stream] = rpc_client_stream(self->clients[self->current], &pb__agents__descriptor,
                                              control ? "Control" : "Bulk", 0,
                                              control ? &control_events : &bulk_events, self);
}

static size_t link_rpc_control(struct uplink *uplink, const Pb__AgentUp *message)
{
    struct link_rpc *self = CONTAINER_OF(uplink, struct link_rpc, base);
    struct rpc_stream *stream = self->streams[UPLINK_CONTROL];
    return stream ? rpc_stream_send(stream, &message->base) : 0;
}

static size_t link_rpc_bulk(struct uplink *uplink, const Pb__BulkUp *message)
{
    struct link_rpc *self = CONTAINER_OF(uplink, struct link_rpc, base);
    struct rpc_stream *stream = self->streams[UPLINK_BULK];
    return stream ? rpc_stream_send(stream, &message->base) : 0;
}

static void link_rpc_close(struct uplink *uplink, enum uplink_stream stream)
{
    struct link_rpc *self = CONTAINER_OF(uplink, struct link_rpc, base);
    if (self->streams[stream])
        rpc_stream_cancel(self->streams[stream]);
}

static void fetch_message(void *arg, const ProtobufCMessage *message)
{
    struct fetch *fetch = arg;
    const Pb__CodeChunk *chunk = (const Pb__CodeChunk *)message;
    if (!fetch->link->dropped)
        fetch->events->chunk(fetch->arg, chunk->total, chunk->data.data, chunk->data.len);
}

static void fetch_closed(void *arg, enum status st, const char *text)
{
    struct fetch *fetch = arg;
    if (!fetch->link->dropped)
        fetch->events->done(fetch->arg, st, text);
    mem_free(fetch);
}

static const struct rpc_stream_events fetch_events = {fetch_message, fetch_closed, NULL};

static void link_rpc_fetch(struct uplink *uplink, const char *digest,
                           const struct uplink_fetch_events *events, void *arg)
{
    struct link_rpc *self = CONTAINER_OF(uplink, struct link_rpc, base);
    Pb__CodeAsk ask = PB__CODE_ASK__INIT;
    struct fetch *fetch = NEW(struct fetch);
    fetch->link = self;
    fetch->events = events;
    fetch->arg = arg;
    ask.digest = (char *)(uintptr_t)digest;
    fetch->stream = rpc_client_stream(self->clients[self->current], &pb__agents__descriptor,
                                      "FetchCode", FETCH_MS, &fetch_events, fetch);
    (void)rpc_stream_send(fetch->stream, &ask.base);
    rpc_stream_end_sending(fetch->stream);
}

static void link_rpc_destroy(struct uplink *uplink)
{
    struct link_rpc *self = CONTAINER_OF(uplink, struct link_rpc, base);
    self->dropped = true;
    for (size_t i = 0; i < self->clients_count; i++)
        rpc_client_destroy(self->clients[i]);
    mem_free(self->clients);
    mem_free(self);
}

static const struct uplink_ops link_rpc_ops = {
    link_rpc_listen, link_rpc_open,  link_rpc_control, link_rpc_bulk,
    link_rpc_close,  link_rpc_fetch, link_rpc_destroy,
};

enum status link_rpc_create(const struct link_rpc_options *options, struct uplink **out,
                            struct error *err)
{
    const struct option_list *daemons = options->daemons;
    if (daemons->count == 0)
        return error_set(err, STATUS_INVALID, "no daemon is named: set daemon");
    struct link_rpc *self = NEW(struct link_rpc);
    self->base.ops = &link_rpc_ops;
    self->loop = options->loop;
    self->clients = mem_array(daemons->count, sizeof(*self->clients));
    for (size_t i = 0; i < daemons->count; i++) {
        struct rpc_client_options client = {
            .target = daemons->items[i],
            .cert = options->cert,
            .key = options->key,
            .ca = options->ca,
            .server_name =
                options->server_name && *options->server_name ? options->server_name : NULL,
            .message_bytes_max = 64u << 20,
        };
        enum status st =
            rpc_client_create(options->loop, &client, &self->clients[self->clients_count], err);
        if (st != STATUS_OK) {
            link_rpc_destroy(&self->base);
            return error_wrap(err, "daemon %s", daemons->items[i]);
        }
        self->clients_count++;
    }
    *out = &self->base;
    return STATUS_OK;
}
