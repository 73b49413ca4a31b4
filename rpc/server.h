/* server.h - the only gRPC server. Methods are rows; the wire is mTLS (or a unix socket for tests).
 *
 * Loop thread for everything here. One poller thread (inside) takes completions, decodes messages
 * with a capped allocator and posts them to the loop. Handlers run on the loop. Answers
 * UNIMPLEMENTED to unknown methods, INVALID_ARGUMENT to garbage and to a missing message,
 * PERMISSION_DENIED to a role that the row does not list, all without calling a handler.
 *
 * A call is a loan named by pointer. Streams (server stream, bidi): valid until `closed` ran, which
 * it does exactly once, also after rpc_call_end, cancel, deadline and disconnect, never inside
 * another call of this file. Unary and client stream: valid until the answer was given; `closed`
 * runs only when the call ended before that (then no answer may be given), never after an answer. A
 * handler that keeps a call across callbacks must set on_closed. rpc_server_destroy ends all of
 * them. */
#pragma once
#include "base/error.h"
#include "base/loop.h"
#include "rpc/identity.h"
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

struct rpc_server;
struct rpc_call;

enum rpc_kind { RPC_UNARY, RPC_SERVER_STREAM, RPC_CLIENT_STREAM, RPC_BIDI };

struct rpc_handlers; /* per call, set by the handler for streams */
/* Unary and server stream: request is set (loan until the handler returns). Client stream and bidi:
 * request is NULL, messages come to on_message. */
typedef void (*rpc_handler)(void *arg, struct rpc_call *call, const ProtobufCMessage *request);
struct rpc_method {
    const char *name; /* as in the .proto: "Submit"; NULL ends the table */
    enum rpc_kind kind;
    unsigned roles; /* identities that may call */
    rpc_handler handler;
};
struct rpc_service {
    const ProtobufCServiceDescriptor *descriptor; /* path and codecs come from here */
    const struct rpc_method
        *methods; /* every method of the descriptor must be there, or start fails */
    void *arg;    /* for all handlers */
};
struct rpc_server_options {
    const char *listen;          /* "0.0.0.0:7411", port 0: any free one; NULL: none */
    const char *cert, *key, *ca; /* PEM files; reloaded when they change */
    const char *crl_dir;         /* NULL: none */
    const char *unix_path;      /* plain, for tests: every caller is admin user/local; NULL: none */
    uint32_t message_bytes_max; /* 0: 8 MiB */
};

/* Listens at once. Services are borrowed until destroy. Copies the options. */
enum status rpc_server_create(struct loop *loop, const struct rpc_server_options *options,
                              const struct rpc_service *services, size_t services_count,
                              struct rpc_server **out, struct error *err) MUST_CHECK;
uint16_t rpc_server_port(const struct rpc_server *server);
/* Stops accepting, ends what is open with STATUS_UNAVAILABLE (their closed callbacks run), gives
 * that grace_ms to reach the clients, then cuts; blocks. Not from a handler or callback of this
 * server. NULL is fine. */
void rpc_server_destroy(struct rpc_server *server, uint32_t grace_ms);
void rpc_server_counts(const struct rpc_server *server, uint64_t *calls, uint64_t *refused,
                       uint64_t *open);

const struct identity *rpc_call_identity(const struct rpc_call *call);
const char *rpc_call_peer(const struct rpc_call *call); /* address, for logs and audit */
int64_t
rpc_call_time_left_ms(const struct rpc_call *call); /* to the caller's deadline; INT64_MAX: none */

/* Unary and client stream: exactly one of these ends the call. The message is packed before return.
 */
void rpc_call_reply(struct rpc_call *call, const ProtobufCMessage *reply);
void rpc_call_fail(struct rpc_call *call, enum status st, const char *text);

/* Streams. send never blocks: it queues and returns the number of bytes now queued (0 when handed
 * to the transport): stop producing above your own limit and go on in on_drained. Past 64 MiB
 * queued the call is cancelled. */
size_t rpc_call_send(struct rpc_call *call, const ProtobufCMessage *message);
void rpc_call_end(struct rpc_call *call, enum status st,
                  const char *text); /* after what is queued */
void rpc_call_on_message(struct rpc_call *call,
                         void (*fn)(void *arg, struct rpc_call *call,
                                    const ProtobufCMessage *message),
                         void *arg); /* message NULL: the client has half-closed */
void rpc_call_on_drained(struct rpc_call *call, void (*fn)(void *arg, struct rpc_call *call),
                         void *arg);
void rpc_call_on_closed(struct rpc_call *call, void (*fn)(void *arg, struct rpc_call *call),
                        void *arg);
/* Flow control of what comes in: while paused, no further message is read (the transport then holds
 * the sender back). */
void rpc_call_pause(struct rpc_call *call);
void rpc_call_resume(struct rpc_call *call);
