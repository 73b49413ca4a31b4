/* flow.h - the messages of one gRPC call: a bounded queue out, a bounded read-ahead in.
 *
 * Loop thread. Embedded first in its owner (a server's call or a client's stream). Counted: whoever
 * keeps it across a callback holds it; `released` runs when nobody does, and frees the owner. The
 * poller decodes incoming messages and reads on by itself until the read-ahead is full, so that one
 * wake-up of the loop brings many.
 *
 * Invariants: one sending batch at a time; `last` (status or half-close) goes after all messages;
 * nothing is delivered after rpc_flow_stop. */
#pragma once
#include "rpc/codec.h"
#include "rpc/queue.h"
#include <pthread.h>

#define RPC_FLOW_QUEUED_BYTES_MAX ((size_t)64 << 20)

struct rpc_flow;
struct rpc_flow_events {
    void (*message)(struct rpc_flow *flow, const ProtobufCMessage *message);
    void (*bad)(struct rpc_flow *flow, enum status st,
                const char *text); /* undecodable: no more comes */
    void (*ended)(struct rpc_flow *flow,
                  bool clean); /* no more comes; clean: the peer half-closed */
    void (*drained)(struct rpc_flow *flow);
    void (*overflow)(
        struct rpc_flow *flow); /* past RPC_FLOW_QUEUED_BYTES_MAX; the queue was dropped */
    void (*released)(struct rpc_flow *flow);
};

enum rpc_flow_reading { RPC_FLOW_IDLE, RPC_FLOW_READING, RPC_FLOW_STALLED, RPC_FLOW_ENDED };

struct rpc_flow {
    struct rpc_queue *queue;
    grpc_call *call; /* owned; NULL until there is one */
    const struct rpc_flow_events *events;
    const ProtobufCMessageDescriptor *incoming;
    atomic_int holds;

    /* out */
    struct rpc_op send_op;
    struct list sends; /* of struct send */
    grpc_byte_buffer *sending_bytes;
    size_t queued_bytes;
    bool sending, metadata_sent, drain_wanted, last_started;
    bool last_wanted;
    grpc_op last;
    grpc_slice last_text;

    /* in */
    struct rpc_op receive_op;
    grpc_byte_buffer *received;
    pthread_mutex_t lock; /* guards reading, ahead_* */
    enum rpc_flow_reading reading;
    unsigned ahead_count; /* decoded, not yet delivered */
    size_t ahead_bytes;
    struct list inbox; /* of struct inbound: came while paused; loop thread, as all below */
    struct mail resume_mail;
    bool paused, resuming, end_seen, stopped;
};

void rpc_flow_init(struct rpc_flow *flow, struct rpc_queue *queue,
                   const struct rpc_flow_events *events);
void rpc_flow_hold(struct rpc_flow *flow);
void rpc_flow_drop(struct rpc_flow *flow);
void rpc_flow_fini(struct rpc_flow *flow); /* by `released` */
/* Gives gRPC's call back before the flow goes. Only when stopped and nothing more can come in. */
void rpc_flow_forget_call(struct rpc_flow *flow);

/* Sends initial metadata now, if it has not gone yet. */
void rpc_flow_open(struct rpc_flow *flow);
/* Bytes that wait behind what the transport has taken. */
size_t rpc_flow_send(struct rpc_flow *flow, const ProtobufCMessage *message);
/* The end of this direction, after what is queued; a reply goes into the same batch. Only the first
 * end counts. */
void rpc_flow_finish(struct rpc_flow *flow, const ProtobufCMessage *reply, enum status st,
                     const char *text);
void rpc_flow_half_close(struct rpc_flow *flow);
void rpc_flow_drop_queued(struct rpc_flow *flow);

void rpc_flow_read(struct rpc_flow *flow); /* starts reading, once */
void rpc_flow_pause(struct rpc_flow *flow);
void rpc_flow_resume(struct rpc_flow *flow);     /* delivers later, not inside */
bool rpc_flow_is_reading(struct rpc_flow *flow); /* more may come, or waits here */
void rpc_flow_stop(struct rpc_flow *flow);       /* nothing more in or out */
