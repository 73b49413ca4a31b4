#include "rpc/flow.h"
#include "base/mem.h"
#include <string.h>

struct send {
    struct list node;
    grpc_byte_buffer *bytes;
    size_t size;
};

void rpc_flow_hold(struct rpc_flow *flow)
{
    atomic_fetch_add_explicit(&flow->holds, 1, memory_order_relaxed);
}

void rpc_flow_drop(struct rpc_flow *flow)
{
    if (atomic_fetch_sub_explicit(&flow->holds, 1, memory_order_acq_rel) == 1)
        flow->events->released(flow);
}

static void send_free(struct send *item)
{
    grpc_byte_buffer_destroy(item->bytes);
    mem_free(item);
}

void rpc_flow_drop_queued(struct rpc_flow *flow)
{
    struct list *node;

    while ((node = list_take_first(&flow->sends)))
        send_free(LIST_ITEM(node, struct send, node));
    flow->queued_bytes = 0;
    flow->drain_wanted = false;
}

void rpc_flow_forget_call(struct rpc_flow *flow)
{
    if (flow->call)
        grpc_call_unref(flow->call);
    flow->call = NULL;
}

void rpc_flow_fini(struct rpc_flow *flow)
{
    rpc_flow_drop_queued(flow);
    grpc_slice_unref(flow->last_text);
    rpc_flow_forget_call(flow);
    pthread_mutex_destroy(&flow->lock);
}

/* --- out */

static bool send_ready(const struct rpc_flow *flow)
{
    return flow->call && !flow->sending && !flow->stopped && !flow->last_started;
}

/* Starts what can go now: metadata, the next message, and the end when that message is the last. */
static void send_next(struct rpc_flow *flow, bool open)
{
    grpc_op batch[3];
    size_t count = 0;
    struct list *node;

    if (!send_ready(flow))
        return;
    memset(batch, 0, sizeof batch);
    node = list_take_first(&flow->sends);
    if (!flow->metadata_sent && (node || flow->last_wanted || open)) {
        batch[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
        flow->metadata_sent = true;
    }
    if (node) {
        struct send *item = LIST_ITEM(node, struct send, node);
        flow->queued_bytes -= item->size;
        flow->sending_bytes = item->bytes;
        batch[count].op = GRPC_OP_SEND_MESSAGE;
        batch[count].flags = list_is_empty(&flow->sends) ? 0 : GRPC_WRITE_BUFFER_HINT;
        batch[count++].data.send_message.send_message = item->bytes;
        mem_free(item);
    }
    if (flow->last_wanted && list_is_empty(&flow->sends)) {
        batch[count++] = flow->last;
        flow->last_started = true;
    }
    if (count == 0)
        return;
    flow->sending = true;
    rpc_flow_hold(flow);
    rpc_queue_start(flow->queue, flow->call, batch, count, &flow->send_op);
}

static void send_done(struct rpc_op *op)
{
    struct rpc_flow *flow = CONTAINER_OF(op, struct rpc_flow, send_op);

    flow->sending = false;
    if (flow->sending_bytes)
        grpc_byte_buffer_destroy(flow->sending_bytes);
    flow->sending_bytes = NULL;
    if (!op->ok)
        rpc_flow_drop_queued(flow); /* the call is dying: its end is on the way */
    else
        send_next(flow, false);
    if (flow->drain_wanted && !flow->stopped && list_is_empty(&flow->sends)) {
        flow->drain_wanted = false;
        flow->events->drained(flow);
    }
    rpc_flow_drop(flow);
}

static void send_append(struct rpc_flow *flow, const ProtobufCMessage *message)
{
    struct send *item = NEW(struct send);

    item->bytes = rpc_codec_pack(message, &item->size);
    flow->queued_bytes += item->size;
    list_add_last(&flow->sends, &item->node);
}

void rpc_flow_open(struct rpc_flow *flow)
{
    send_next(flow, true);
}

size_t rpc_flow_send(struct rpc_flow *flow, const ProtobufCMessage *message)
{
    if (flow->stopped || flow->last_wanted)
        return 0;
    send_append(flow, message);
    send_next(flow, false);
    if (flow->queued_bytes > RPC_FLOW_QUEUED_BYTES_MAX) {
        rpc_flow_drop_queued(flow);
        flow->events->overflow(flow);
        return 0;
    }
    if (!list_is_empty(&flow->sends))
        flow->drain_wanted = true;
    return flow->queued_bytes;
}

void rpc_flow_finish(struct rpc_flow *flow, const ProtobufCMessage *reply, enum status st,
                     const char *text)
{
    if (flow->stopped || flow->last_wanted)
        return;
    if (reply)
        send_append(flow, reply);
    flow->last_wanted = true;
    flow->last = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    flow->last.data.send_status_from_server.status = (grpc_status_code)st;
    if (text && *text) {
        flow->last_text = grpc_slice_from_copied_string(text);
        flow->last.data.send_status_from_server.status_details = &flow->last_text;
    }
    send_next(flow, false);
}

void rpc_flow_half_close(struct rpc_flow *flow)
{
    if (flow->stopped || flow->last_wanted)
        return;
    flow->last_wanted = true;
    flow->last = (grpc_op){.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    send_next(flow, false);
}

/* --- in */

#define AHEAD_COUNT_MAX 32
#define AHEAD_BYTES_MAX ((size_t)256 << 10)

/* What comes out of one receiving batch, on its way from the poller to the loop. Holds the flow:
 * for a message by a hold of its own, for the end by the one that reading had. */
struct inbound {
    struct mail mail; /* its node serves in the flow's inbox, too */
    struct rpc_flow *flow;
    enum { INBOUND_MESSAGE, INBOUND_BAD, INBOUND_END } kind;
    bool clean; /* END: the peer has half-closed */
    struct rpc_decoded decoded;
    struct error err;
};

static void receive_start(struct rpc_flow *flow)
{
    grpc_op batch = {.op = GRPC_OP_RECV_MESSAGE};

    batch.data.recv_message.recv_message = &flow->received;
    rpc_queue_start(flow->queue, flow->call, &batch, 1, &flow->receive_op);
}

static void inbound_free(struct inbound *in)
{
    struct rpc_flow *flow = in->flow;

    rpc_decoded_fini(&in->decoded);
    mem_free(in);
    rpc_flow_drop(flow);
}

/* A message has left the read-ahead: reads on when there is room again. */
static void inbound_account(struct rpc_flow *flow, const struct inbound *in)
{
    bool resume;

    pthread_mutex_lock(&flow->lock);
    flow->ahead_count--;
    flow->ahead_bytes -= in->decoded.wire_bytes;
    resume = flow->reading == RPC_FLOW_STALLED && flow->ahead_count <= AHEAD_COUNT_MAX / 2 &&
             flow->ahead_bytes <= AHEAD_BYTES_MAX / 2;
    if (resume)
        flow->reading = RPC_FLOW_READING;
    pthread_mutex_unlock(&flow->lock);
    if (resume)
        receive_start(flow);
}

static void inbound_handle(struct inbound *in)
{
    struct rpc_flow *flow = in->flow;

    if (in->kind == INBOUND_MESSAGE)
        inbound_account(flow, in);
    else
        flow->end_seen = true;
    if (!flow->stopped && in->kind == INBOUND_MESSAGE)
        flow->events->message(flow, in->decoded.message);
    else if (!flow->stopped && in->kind == INBOUND_BAD)
        flow->events->bad(flow, in->err.code, in->err.text);
    else if (!flow->stopped)
        flow->events->ended(flow, in->clean);
    inbound_free(in);
}

static void inbound_deliver(struct mail *mail)
{
    struct inbound *in = CONTAINER_OF(mail, struct inbound, mail);

    if (!in->flow->stopped && (in->flow->paused || !list_is_empty(&in->flow->inbox)))
        list_add_last(&in->flow->inbox, &mail->node);
    else
        inbound_handle(in);
}

/* Poller thread: decodes, posts, and reads on while the read-ahead has room. */
static bool receive_polled(struct rpc_op *op)
{
    struct rpc_flow *flow = CONTAINER_OF(op, struct rpc_flow, receive_op);
    struct inbound *in = NEW(struct inbound);
    bool more = false;

    in->mail.deliver = inbound_deliver;
    in->flow = flow;
    if (!op->ok || !flow->received) {
        in->kind = INBOUND_END;
        in->clean = op->ok && !grpc_call_failed_before_recv_message(flow->call);
    } else {
        if (rpc_codec_unpack(flow->incoming, flow->received, &in->decoded, &in->err) != STATUS_OK)
            in->kind = INBOUND_BAD;
        grpc_byte_buffer_destroy(flow->received);
        flow->received = NULL;
    }
    pthread_mutex_lock(&flow->lock);
    if (in->kind == INBOUND_MESSAGE) {
        rpc_flow_hold(flow);
        flow->ahead_count++;
        flow->ahead_bytes += in->decoded.wire_bytes;
        more = flow->ahead_count < AHEAD_COUNT_MAX && flow->ahead_bytes < AHEAD_BYTES_MAX;
        flow->reading = more ? RPC_FLOW_READING : RPC_FLOW_STALLED;
    } else {
        flow->reading = RPC_FLOW_ENDED;
    }
    pthread_mutex_unlock(&flow->lock);
    rpc_queue_post(flow->queue, &in->mail);
    if (more)
        receive_start(flow);
    return false;
}

void rpc_flow_read(struct rpc_flow *flow)
{
    bool start;

    pthread_mutex_lock(&flow->lock);
    start = flow->reading == RPC_FLOW_IDLE && !flow->stopped && flow->call;
    if (start)
        flow->reading = RPC_FLOW_READING;
    pthread_mutex_unlock(&flow->lock);
    if (!start)
        return;
    rpc_flow_hold(flow);
    receive_start(flow);
}

void rpc_flow_pause(struct rpc_flow *flow)
{
    flow->paused = true;
}

static void resume_deliver(struct mail *mail)
{
    struct rpc_flow *flow = CONTAINER_OF(mail, struct rpc_flow, resume_mail);
    struct list *node;

    flow->resuming = false;
    while (!flow->paused && (node = list_take_first(&flow->inbox)))
        inbound_handle(LIST_ITEM(node, struct inbound, mail.node));
    rpc_flow_drop(flow);
}

void rpc_flow_resume(struct rpc_flow *flow)
{
    flow->paused = false;
    if (flow->resuming || list_is_empty(&flow->inbox))
        return;
    flow->resuming = true;
    flow->resume_mail.deliver = resume_deliver;
    rpc_flow_hold(flow);
    rpc_queue_post(flow->queue, &flow->resume_mail);
}

bool rpc_flow_is_reading(struct rpc_flow *flow)
{
    pthread_mutex_lock(&flow->lock);
    bool begun = flow->reading != RPC_FLOW_IDLE;
    pthread_mutex_unlock(&flow->lock);
    return begun && !flow->end_seen;
}

void rpc_flow_stop(struct rpc_flow *flow)
{
    struct list *node;
    bool stalled;

    flow->stopped = true;
    rpc_flow_drop_queued(flow);
    pthread_mutex_lock(&flow->lock);
    stalled = flow->reading == RPC_FLOW_STALLED;
    if (stalled)
        flow->reading = RPC_FLOW_ENDED;
    pthread_mutex_unlock(&flow->lock);
    while ((node = list_take_first(&flow->inbox)))
        inbound_handle(LIST_ITEM(node, struct inbound, mail.node));
    if (stalled)
        rpc_flow_drop(flow); /* the hold of reading */
}

void rpc_flow_init(struct rpc_flow *flow, struct rpc_queue *queue,
                   const struct rpc_flow_events *events)
{
    flow->queue = queue;
    flow->events = events;
    atomic_init(&flow->holds, 1);
    list_init(&flow->sends);
    list_init(&flow->inbox);
    pthread_mutex_init(&flow->lock, NULL);
    flow->last_text = grpc_empty_slice();
    flow->send_op.fn = send_done;
    flow->receive_op.polled = receive_polled;
}
