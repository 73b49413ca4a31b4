/* server_call.c - the life of one call: arrive, admit, serve, close.
 *
 * A call is held by: its request slot; the close operation; each sending and receiving batch (by
 * the flow); and, for unary and client-stream methods, the handler until it has answered. It is
 * freed when none is left. It is on the server's list from arrival to the close operation. */
#include "base/log.h"
#include "base/mem.h"
#include "rpc/server_state.h"
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <string.h>

#define OPEN_MAX 65536 /* calls being served; more wait inside gRPC */

struct rpc_call {
    struct rpc_flow flow; /* first */
    struct rpc_server *server;
    struct rpc_route *route;
    struct list node;
    struct rpc_op request_op, close_op;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_call_details details; /* unknown methods only */
    grpc_byte_buffer *payload;
    struct rpc_decoded request;
    struct error request_err;
    int cancelled;
    bool handler_holds; /* unary and client stream: not answered yet */
    bool closed;        /* off server->calls; on server->held while the handler holds it */
    struct rpc_peer *peer;
    char *peer_text;
    void (*on_message)(void *arg, struct rpc_call *call, const ProtobufCMessage *message);
    void (*on_drained)(void *arg, struct rpc_call *call);
    void (*on_closed)(void *arg, struct rpc_call *call);
    void *message_arg, *drained_arg, *closed_arg;
};

static struct rpc_call *call_of_flow(struct rpc_flow *flow)
{
    return CONTAINER_OF(flow, struct rpc_call, flow);
}

static bool takes_request(const struct rpc_route *route)
{
    return route->row && (route->row->kind == RPC_UNARY || route->row->kind == RPC_SERVER_STREAM);
}

static bool gives_reply(const struct rpc_route *route)
{
    return route->row && (route->row->kind == RPC_UNARY || route->row->kind == RPC_CLIENT_STREAM);
}

/* --- what the flow reports */

static void flow_message(struct rpc_flow *flow, const ProtobufCMessage *message)
{
    struct rpc_call *call = call_of_flow(flow);

    if (call->on_message)
        call->on_message(call->message_arg, call, message);
}

static void flow_ended(struct rpc_flow *flow, bool clean)
{
    if (clean)
        flow_message(flow, NULL); /* else the close operation tells */
}

static void call_answered(struct rpc_call *call)
{
    if (!call->handler_holds)
        return;
    call->handler_holds = false;
    if (call->closed)
        list_remove(&call->node);
    rpc_flow_drop(&call->flow);
}

static void flow_bad(struct rpc_flow *flow, enum status st, const char *text)
{
    struct rpc_call *call = call_of_flow(flow);

    call->server->refused_count++;
    rpc_flow_drop_queued(flow);
    rpc_flow_finish(flow, NULL, st, text);
    if (gives_reply(call->route) && call->handler_holds) { /* no answer is wanted any more */
        if (call->on_closed)
            call->on_closed(call->closed_arg, call);
        call->on_closed = NULL;
        call_answered(call);
    }
}

static void flow_drained(struct rpc_flow *flow)
{
    struct rpc_call *call = call_of_flow(flow);

    if (call->on_drained)
        call->on_drained(call->drained_arg, call);
}

static void flow_overflow(struct rpc_flow *flow)
{
    grpc_call_cancel_with_status(flow->call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                 "the reader is too slow: 64 MiB wait", NULL);
}

static void flow_released(struct rpc_flow *flow)
{
    struct rpc_call *call = call_of_flow(flow);

    rpc_flow_fini(flow);
    rpc_decoded_fini(&call->request);
    if (call->payload)
        grpc_byte_buffer_destroy(call->payload);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    rpc_peer_drop(call->peer);
    gpr_free(call->peer_text);
    mem_free(call);
}

static const struct rpc_flow_events flow_events = {
    flow_message, flow_bad, flow_ended, flow_drained, flow_overflow, flow_released,
};

/* --- the end of a call */

static void slots_repay(struct rpc_server *server)
{
    for (size_t i = 0; i < server->routes_count; i++)
        while (server->routes[i].owed > 0 && server->open_count < OPEN_MAX && !server->stopping) {
            server->routes[i].owed--;
            rpc_server_call_request(server, &server->routes[i]);
        }
}

static void close_done(struct rpc_op *op)
{
    struct rpc_call *call = CONTAINER_OF(op, struct rpc_call, close_op);
    struct rpc_server *server = call->server;
    bool was_full = server->open_count-- >= OPEN_MAX;

    call->closed = true;
    list_remove(&call->node);
    rpc_flow_stop(&call->flow);
    /* An answered unary call is forgotten by its handler; all else is told. */
    if (call->on_closed && (!gives_reply(call->route) || call->handler_holds)) {
        call->on_closed(call->closed_arg, call);
        call_answered(call);
    }
    if (call->handler_holds)
        list_add_last(&server->held, &call->node);
    if (was_full)
        slots_repay(server);
    rpc_flow_drop(&call->flow);
}

static void close_watch(struct rpc_call *call)
{
    grpc_op batch = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};

    batch.data.recv_close_on_server.cancelled = &call->cancelled;
    call->close_op.fn = close_done;
    rpc_flow_hold(&call->flow);
    rpc_queue_start(call->server->queue, call->flow.call, &batch, 1, &call->close_op);
}

/* --- the start of a call */

static void call_refuse(struct rpc_call *call, enum status st, const char *text)
{
    call->server->refused_count++;
    rpc_flow_finish(&call->flow, NULL, st, text);
}

static enum status call_admit(struct rpc_call *call, struct error *err)
{
    const struct rpc_method *row = call->route->row;
    enum status st = rpc_peers_of_call(call->server->peers, call->flow.call, &call->peer, err);

    if (st != STATUS_OK)
        return st;
    if (!row)
        return error_set(err, STATUS_UNIMPLEMENTED, "no such method");
    if (!(call->peer->identity.roles & row->roles))
        return error_set(err, STATUS_DENIED, "%s/%s may not call %s", call->peer->identity.kind,
                         call->peer->identity.name, row->name);
    if (call->request_err.code != STATUS_OK)
        return error_set(err, call->request_err.code, "%s", call->request_err.text);
    return STATUS_OK;
}

static void call_serve(struct rpc_call *call)
{
    const struct rpc_route *route = call->route;
    struct error err = {0};

    if (call_admit(call, &err) != STATUS_OK) {
        call_refuse(call, err.code, err.text);
        return;
    }
    if (gives_reply(route)) {
        call->handler_holds = true;
        rpc_flow_hold(&call->flow);
    }
    route->row->handler(route->arg, call, call->request.message);
    rpc_decoded_fini(&call->request);
    if (!gives_reply(route))
        rpc_flow_open(&call->flow);
}

static void request_arrived(struct rpc_op *op)
{
    struct rpc_call *call = CONTAINER_OF(op, struct rpc_call, request_op);
    struct rpc_server *server = call->server;

    server->slots--;
    if (!op->ok || server->stopping) { /* the server is going down */
        if (call->flow.call)
            grpc_call_cancel(call->flow.call, NULL);
        rpc_flow_drop(&call->flow);
        return;
    }
    server->open_count++;
    server->calls_count++;
    list_add_last(&server->calls, &call->node);
    if (server->open_count < OPEN_MAX)
        rpc_server_call_request(server, call->route);
    else
        call->route->owed++;
    close_watch(call);
    call_serve(call);
    rpc_flow_drop(&call->flow); /* the slot's hold */
}

/* Poller thread. */
static bool request_polled(struct rpc_op *op)
{
    struct rpc_call *call = CONTAINER_OF(op, struct rpc_call, request_op);

    if (!op->ok || !takes_request(call->route))
        return true;
    if (!call->payload) {
        error_set(&call->request_err, STATUS_INVALID, "the request holds no message");
        return true;
    }
    enum status st = rpc_codec_unpack(call->route->descriptor->input, call->payload, &call->request,
                                      &call->request_err);
    (void)st; /* kept in request_err, told to the caller on the loop */
    grpc_byte_buffer_destroy(call->payload);
    call->payload = NULL;
    return true;
}

void rpc_server_call_request(struct rpc_server *server, struct rpc_route *route)
{
    struct rpc_call *call = NEW(struct rpc_call);
    grpc_completion_queue *cq = rpc_queue_handle(server->queue);
    grpc_call_error error;

    rpc_flow_init(&call->flow, server->queue, &flow_events);
    call->server = server;
    call->route = route;
    list_init(&call->node);
    grpc_metadata_array_init(&call->metadata);
    grpc_call_details_init(&call->details);
    call->request_op.polled = request_polled;
    call->request_op.fn = request_arrived;
    void *tag = rpc_queue_tag(server->queue, &call->request_op);
    if (route->row) {
        call->flow.incoming = route->descriptor->input;
        error = grpc_server_request_registered_call(
            server->server, route->handle, &call->flow.call, &call->deadline, &call->metadata,
            takes_request(route) ? &call->payload : NULL, cq, cq, tag);
    } else {
        error = grpc_server_request_call(server->server, &call->flow.call, &call->details,
                                         &call->metadata, cq, cq, tag);
    }
    if (error == GRPC_CALL_OK) {
        server->slots++;
        return;
    }
    log_error("rpc.request", log_str("err", grpc_call_error_to_string(error)));
    rpc_flow_drop(&call->flow);
}

/* --- over all calls */

static struct rpc_call *call_of_node(struct list *node)
{
    return LIST_ITEM(node, struct rpc_call, node);
}

void rpc_server_call_shut(struct rpc_server *server)
{
    LIST_EACH(&server->calls, node)
    {
        struct rpc_flow *flow = &call_of_node(node)->flow;
        rpc_flow_drop_queued(flow);
        rpc_flow_finish(flow, NULL, STATUS_UNAVAILABLE, "the server is shutting down");
    }
}

void rpc_server_call_recheck(struct rpc_server *server)
{
    struct error err;

    LIST_EACH(&server->calls, node)
    {
        struct rpc_call *call = call_of_node(node);
        if (!call->peer || rpc_peers_check(server->peers, call->peer, &err) == STATUS_OK)
            continue;
        log_warn("rpc.cut", log_str("peer", rpc_call_peer(call)), log_err(&err));
        rpc_flow_drop_queued(&call->flow);
        rpc_flow_finish(&call->flow, NULL, err.code, err.text);
        if (!call->flow.last_started) /* a stalled message is in the way */
            grpc_call_cancel_with_status(call->flow.call, (grpc_status_code)err.code, err.text,
                                         NULL);
    }
}

void rpc_server_call_abandon(struct rpc_server *server)
{
    while (!list_is_empty(&server->held))
        call_answered(call_of_node(server->held.next));
}

/* --- for handlers */

const struct identity *rpc_call_identity(const struct rpc_call *call)
{
    return &call->peer->identity;
}

const char *rpc_call_peer(const struct rpc_call *call)
{
    struct rpc_call *cache = (struct rpc_call *)(uintptr_t)call;

    if (!cache->peer_text)
        cache->peer_text = grpc_call_get_peer(cache->flow.call);
    return cache->peer_text ? cache->peer_text : "";
}

int64_t rpc_call_time_left_ms(const struct rpc_call *call)
{
    if (gpr_time_cmp(call->deadline, gpr_inf_future(call->deadline.clock_type)) == 0)
        return INT64_MAX;
    gpr_timespec left = gpr_time_sub(call->deadline, gpr_now(call->deadline.clock_type));
    int64_t ms = left.tv_sec * 1000 + left.tv_nsec / 1000000;
    return ms > 0 ? ms : 0;
}

void rpc_call_reply(struct rpc_call *call, const ProtobufCMessage *reply)
{
    rpc_flow_finish(&call->flow, reply, STATUS_OK, NULL);
    call_answered(call);
}

void rpc_call_fail(struct rpc_call *call, enum status st, const char *text)
{
    rpc_flow_finish(&call->flow, NULL, st == STATUS_OK ? STATUS_INTERNAL : st, text);
    call_answered(call);
}

size_t rpc_call_send(struct rpc_call *call, const ProtobufCMessage *message)
{
    return rpc_flow_send(&call->flow, message);
}

void rpc_call_end(struct rpc_call *call, enum status st, const char *text)
{
    rpc_flow_finish(&call->flow, NULL, st, text);
}

void rpc_call_on_message(struct rpc_call *call,
                         void (*fn)(void *arg, struct rpc_call *call,
                                    const ProtobufCMessage *message),
                         void *arg)
{
    call->on_message = fn;
    call->message_arg = arg;
    if (fn && !takes_request(call->route))
        rpc_flow_read(&call->flow);
}

void rpc_call_on_drained(struct rpc_call *call, void (*fn)(void *arg, struct rpc_call *call),
                         void *arg)
{
    call->on_drained = fn;
    call->drained_arg = arg;
}

void rpc_call_on_closed(struct rpc_call *call, void (*fn)(void *arg, struct rpc_call *call),
                        void *arg)
{
    call->on_closed = fn;
    call->closed_arg = arg;
}

void rpc_call_pause(struct rpc_call *call)
{
    rpc_flow_pause(&call->flow);
}

void rpc_call_resume(struct rpc_call *call)
{
    rpc_flow_resume(&call->flow);
}
