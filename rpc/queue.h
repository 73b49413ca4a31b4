/* queue.h - one gRPC completion queue, its poller thread, and the way from there to the loop.
 *
 * Loop thread, but for `polled` functions and rpc_queue_post. An operation is embedded in the
 * object it belongs to, which must live until `fn` has run: it runs exactly once for each start, on
 * the loop. `polled` runs before it on the poller thread and may decode; it touches no state of the
 * loop. */
#pragma once
#include "base/mailbox.h"
#include <grpc/grpc.h>
#include <stdatomic.h>
#include <stdbool.h>

struct rpc_queue;
struct rpc_op {
    struct mail mail;
    struct rpc_queue *queue;
    bool (*polled)(struct rpc_op *op); /* NULL: none; false: fn shall not run this time */
    void (*fn)(struct rpc_op *op);
    bool ok;
    atomic_bool started; /* orders what the starter wrote before what the poller reads */
};

struct rpc_queue *rpc_queue_create(struct loop *loop);
grpc_completion_queue *rpc_queue_handle(struct rpc_queue *queue);
/* Starts a batch on the call; op is its tag. Poller thread too, for receiving batches. */
void rpc_queue_start(struct rpc_queue *queue, grpc_call *call, const grpc_op *batch, size_t count,
                     struct rpc_op *op);
/* To be called before handing op to gRPC as a tag in any other way. */
void *rpc_queue_tag(struct rpc_queue *queue, struct rpc_op *op);
void rpc_queue_post(struct rpc_queue *queue, struct mail *mail); /* any thread */
/* Delivers what waits; when nothing does, blocks until something comes, at most wait_ms. May be
 * called while a delivery of the same queue is on the stack. */
void rpc_queue_pump(struct rpc_queue *queue, int wait_ms);
/* All operations must have come back. Delivers what still waits. NULL is fine. */
void rpc_queue_destroy(struct rpc_queue *queue);
