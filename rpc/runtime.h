/* runtime.h - gRPC's process-wide part: start and stop, where its log lines go, common arguments.
 *
 * rpc_runtime_acquire and _release count; the loop thread calls them. Log lines of gRPC become ours
 * (any thread), failed handshakes at most one a second. TLS below 1.3 is made impossible here: no
 * older cipher suite that a peer could agree on is offered. */
#pragma once
#include <grpc/grpc.h>

#define RPC_MESSAGE_BYTES_DEFAULT ((size_t)8 << 20)
#define RPC_KEEPALIVE_MS          10000
#define RPC_KEEPALIVE_TIMEOUT_MS  5000

void rpc_runtime_acquire(void);
void rpc_runtime_release(void);

/* Channel arguments under construction; the list outlives neither the strings nor its owner. */
struct rpc_args {
    grpc_arg items[24];
    size_t count;
};
void rpc_args_int(struct rpc_args *args, const char *key, int value);
void rpc_args_text(struct rpc_args *args, const char *key, const char *value);
void rpc_args_quota(struct rpc_args *args, grpc_resource_quota *quota);
/* What server and client agree on: keepalive, message limits, bounded flow-control windows. */
void rpc_args_common(struct rpc_args *args, uint32_t message_bytes_max);
grpc_channel_args rpc_args_get(struct rpc_args *args);
