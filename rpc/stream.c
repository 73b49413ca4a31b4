/* stream.c - the client's streams: their one end, and what gRPC reports to it.
 *
 * A stream is on its client's list until `closed` has run, which waits for
 * both the status and the last message; the memory goes when all batches are back. */
#include "rpc/stream.h"
#include "base/mem.h"
#include "rpc/client_state.h"
#include "rpc/flow.h"
#include "rpc/method.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

struct rpc_stream {
    struct rpc_flow flow; /* first */
    struct rpc_client *client;
    struct list node;
    struct rpc_op metadata_op, status_op;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    bool status_known;
    enum status own_status; /* not OK: why we ended it ourselves */
    char own_text[256];
    struct rpc_stream_events events;
    void *arg;
};

static struct rpc_stream *stream_of_flow(struct rpc_flow *flow)
{
    return CONTAINER_OF(flow, struct rpc_stream, flow);
}

static void stream_closed(struct rpc_stream *stream)
{
    int code = (int)stream->status;
    SCOPED_TEXT char *text = mem_printf("%.*s", (int)GRPC_SLICE_LENGTH(stream->details),
                                        (const char *)GRPC_SLICE_START_PTR(stream->details));

    if (code < 0 || code > (int)STATUS_UNAUTHENTICATED)
        code = (int)STATUS_UNKNOWN;
    rpc_flow_stop(&stream->flow);
    rpc_flow_forget_call(&stream->flow); /* `closed` may destroy the client, and gRPC with it */
    list_remove(&stream->node);
    if (stream->own_status != STATUS_OK)
        stream->events.closed(stream->arg, stream->own_status, stream->own_text);
    else
        stream->events.closed(stream->arg, (enum status)code, text);
    rpc_flow_drop(&stream->flow); /* the open stream's hold */
}

/* After a good end all messages come first; after a bad one what is still on the way is dropped by
 * gRPC, too. */
static void stream_check_closed(struct rpc_stream *stream)
{
    if (stream->status_known && !stream->flow.stopped && !rpc_flow_is_reading(&stream->flow))
        stream_closed(stream);
}

static void flow_message(struct rpc_flow *flow, const ProtobufCMessage *message)
{
    struct rpc_stream *stream = stream_of_flow(flow);

    if (stream->events.message && stream->own_status == STATUS_OK)
        stream->events.message(stream->arg, message);
}

static void stream_give_up(struct rpc_stream *stream, enum status st, const char *text)
{
    if (stream->own_status == STATUS_OK) {
        stream->own_status = st;
        snprintf(stream->own_text, sizeof stream->own_text, "%s", text);
    }
    if (stream->flow.call)
        grpc_call_cancel(stream->flow.call, NULL);
}

static void flow_bad(struct rpc_flow *flow, enum status st, const char *text)
{
    stream_give_up(stream_of_flow(flow), st, text);
    stream_check_closed(stream_of_flow(flow));
}

static void flow_ended(struct rpc_flow *flow, bool clean)
{
    (void)clean; /* the status tells */
    stream_check_closed(stream_of_flow(flow));
}

static void flow_drained(struct rpc_flow *flow)
{
    struct rpc_stream *stream = stream_of_flow(flow);

    if (stream->events.drained && stream->own_status == STATUS_OK)
        stream->events.drained(stream->arg);
}

static void flow_overflow(struct rpc_flow *flow)
{
    stream_give_up(stream_of_flow(flow), STATUS_EXHAUSTED, "the reader is too slow: 64 MiB wait");
}

static void flow_released(struct rpc_flow *flow)
{
    struct rpc_stream *stream = stream_of_flow(flow);

    rpc_flow_fini(flow);
    grpc_slice_unref(stream->details);
    grpc_metadata_array_destroy(&stream->initial);
    grpc_metadata_array_destroy(&stream->trailing);
    mem_free(stream);
}

static const struct rpc_flow_events flow_events = {
    flow_message, flow_bad, flow_ended, flow_drained, flow_overflow, flow_released,
};

static void metadata_done(struct rpc_op *op)
{
    rpc_flow_drop(&CONTAINER_OF(op, struct rpc_stream, metadata_op)->flow);
}

static void status_done(struct rpc_op *op)
{
    struct rpc_stream *stream = CONTAINER_OF(op, struct rpc_stream, status_op);

    stream->status_known = true;
    stream_check_closed(stream);
    rpc_flow_drop(&stream->flow);
}

static void stream_start(struct rpc_stream *stream)
{
    struct rpc_queue *queue = stream->client->queue;
    grpc_op batch = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};

    batch.data.recv_status_on_client.trailing_metadata = &stream->trailing;
    batch.data.recv_status_on_client.status = &stream->status;
    batch.data.recv_status_on_client.status_details = &stream->details;
    rpc_flow_hold(&stream->flow);
    rpc_queue_start(queue, stream->flow.call, &batch, 1, &stream->status_op);
    rpc_flow_open(&stream->flow);
    memset(&batch, 0, sizeof batch);
    batch.op = GRPC_OP_RECV_INITIAL_METADATA;
    batch.data.recv_initial_metadata.recv_initial_metadata = &stream->initial;
    rpc_flow_hold(&stream->flow);
    rpc_queue_start(queue, stream->flow.call, &batch, 1, &stream->metadata_op);
    rpc_flow_read(&stream->flow);
}

struct rpc_stream *rpc_client_stream(struct rpc_client *client,
                                     const ProtobufCServiceDescriptor *service, const char *method,
                                     int64_t timeout_ms, const struct rpc_stream_events *events,
                                     void *arg)
{
    const ProtobufCMethodDescriptor *descriptor = rpc_method_find(service, method);
    struct rpc_stream *stream = NEW(struct rpc_stream);

    assert(descriptor);
    rpc_flow_init(&stream->flow, client->queue, &flow_events);
    stream->flow.incoming = descriptor->output;
    stream->client = client;
    stream->events = *events;
    stream->arg = arg;
    stream->details = grpc_empty_slice();
    grpc_metadata_array_init(&stream->initial);
    grpc_metadata_array_init(&stream->trailing);
    stream->metadata_op.fn = metadata_done;
    stream->status_op.fn = status_done;
    list_add_last(&client->streams, &stream->node);
    if (client->closing) {
        stream_give_up(stream, STATUS_CANCELLED, "the client is closing");
        rpc_flow_hold(&stream->flow);
        rpc_queue_tag(client->queue, &stream->status_op);
        rpc_queue_post(client->queue, &stream->status_op.mail);
        return stream;
    }
    stream->flow.call = rpc_client_begin(client, service, descriptor, timeout_ms);
    stream_start(stream);
    return stream;
}

size_t rpc_stream_send(struct rpc_stream *stream, const ProtobufCMessage *message)
{
    return stream->flow.call ? rpc_flow_send(&stream->flow, message) : 0;
}

void rpc_stream_end_sending(struct rpc_stream *stream)
{
    rpc_flow_half_close(&stream->flow);
}

void rpc_stream_cancel(struct rpc_stream *stream)
{
    stream_give_up(stream, STATUS_CANCELLED, "cancelled by us");
}

void rpc_stream_cancel_all(struct rpc_client *client)
{
    LIST_EACH(&client->streams, node)
    stream_give_up(LIST_ITEM(node, struct rpc_stream, node), STATUS_CANCELLED,
                   "the client is closing");
}
