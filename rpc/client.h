/* client.h - the only gRPC client: one channel, unary calls and streams, over mTLS.
 *
 * Loop thread. Reconnects by itself (back-off 0.2 s to 2 s); keepalive 10 s / 5 s; no HTTP proxy.
 * Every unary call has a deadline. Callbacks fire exactly once, on the loop, never before the call
 * returns, also on cancel and destroy. */
#pragma once
#include "base/error.h"
#include "base/loop.h"
#include <protobuf-c/protobuf-c.h>

struct rpc_client;
struct rpc_stream;

struct rpc_client_options {
    const char *target;          /* "host:port", or "unix:/path" (plain) */
    const char *cert, *key, *ca; /* PEM files; reloaded when they change */
    const char *server_name;     /* expected in the server's certificate; NULL: host of target */
    uint32_t message_bytes_max;  /* 0: 8 MiB */
};
/* reply is a loan until the callback returns; NULL when st is not OK. */
typedef void (*rpc_done)(void *arg, enum status st, const struct error *err,
                         const ProtobufCMessage *reply);

enum status rpc_client_create(struct loop *loop, const struct rpc_client_options *options,
                              struct rpc_client **out, struct error *err) MUST_CHECK;
void rpc_client_destroy(struct rpc_client *client); /* ends all calls (their callbacks run); blocks
                                                       shortly; NULL is fine */

/* service and method as in the .proto: rpc_client_call(c, &pb__control__descriptor, "Submit", ...).
 */
void rpc_client_call(struct rpc_client *client, const ProtobufCServiceDescriptor *service,
                     const char *method, const ProtobufCMessage *request, int64_t timeout_ms,
                     rpc_done done, void *arg);
/* The same, waiting: runs the loop inside. For programs with nothing else to do (rondoctl). *reply
 * is unpacked with the default allocator; free it with protobuf_c_message_free_unpacked(reply,
 * NULL). */
enum status rpc_client_call_wait(struct rpc_client *client,
                                 const ProtobufCServiceDescriptor *service, const char *method,
                                 const ProtobufCMessage *request, int64_t timeout_ms,
                                 ProtobufCMessage **reply, struct error *err) MUST_CHECK;

struct rpc_stream_events {
    void (*message)(void *arg, const ProtobufCMessage *message); /* loan */
    void (*closed)(void *arg, enum status st,
                   const char *text); /* last; the stream is gone after it */
    void (*drained)(void *arg);       /* send queue fell to 0; NULL: not wanted */
};
/* For server streams send one request, then rpc_stream_end_sending. timeout_ms 0: none. */
struct rpc_stream *rpc_client_stream(struct rpc_client *client,
                                     const ProtobufCServiceDescriptor *service, const char *method,
                                     int64_t timeout_ms, const struct rpc_stream_events *events,
                                     void *arg);
size_t rpc_stream_send(struct rpc_stream *stream,
                       const ProtobufCMessage *message); /* bytes now queued */
void rpc_stream_end_sending(struct rpc_stream *stream);
void rpc_stream_cancel(struct rpc_stream *stream); /* closed still comes, once */
