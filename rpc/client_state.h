/* client_state.h - what client.c (life of the channel, unary calls) and stream.c (streams) share.
 *
 * Loop thread. Included by these two alone. */
#pragma once
#include "rpc/client.h"
#include "rpc/queue.h"

struct rpc_client {
    struct loop *loop;
    struct rpc_queue *queue;
    grpc_channel *channel;
    bool closing;
    struct list unaries; /* of struct unary; open */
    struct list streams; /* of struct rpc_stream; open */
};

/* A gRPC call to the method, with a deadline from now; timeout_ms 0: none. */
grpc_call *rpc_client_begin(struct rpc_client *client, const ProtobufCServiceDescriptor *service,
                            const ProtobufCMethodDescriptor *method, int64_t timeout_ms);
