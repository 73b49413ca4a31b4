/* server_state.h - what server.c (life of the server) and server_call.c (life of a call) share.
 *
 * Loop thread. Included by these two alone. */
#pragma once
#include "rpc/flow.h"
#include "rpc/peer.h"
#include "rpc/server.h"
#include "rpc/socket_lock.h"

/* A method as registered with gRPC. The last route of a server has no row: unknown methods. */
struct rpc_route {
    const struct rpc_method *row;
    const ProtobufCMethodDescriptor *descriptor;
    void *arg;     /* for the handler */
    void *handle;  /* gRPC's */
    unsigned owed; /* request slots not posted while the server was full */
};

struct rpc_server {
    struct loop *loop;
    struct rpc_queue *queue;
    grpc_server *server;
    grpc_resource_quota *quota;
    struct rpc_peers *peers;
    struct rpc_crl *crl;
    struct loop_timer *crl_timer;
    struct rpc_socket_lock *socket_lock;
    struct rpc_route *routes;
    size_t routes_count;
    uint16_t port;
    bool stopping;
    struct list calls; /* of struct rpc_call: arrived and not yet closed */
    struct list held;  /* closed, but the handler has not answered */
    size_t slots;      /* posted, waiting for a call */
    uint64_t calls_count, refused_count, open_count;
};

/* Posts one slot: the next call of the route arrives in it. */
void rpc_server_call_request(struct rpc_server *server, struct rpc_route *route);
/* Ends each call with STATUS_UNAVAILABLE, dropping what is queued. */
void rpc_server_call_shut(struct rpc_server *server);
/* Gives up what handlers still hold. */
void rpc_server_call_abandon(struct rpc_server *server);
/* Cancels the calls of peers that are no longer welcome. */
void rpc_server_call_recheck(struct rpc_server *server);
