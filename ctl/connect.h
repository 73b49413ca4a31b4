/* connect.h - where the daemon is, who we are, and calls that outlive its restart.
 *
 * Loop thread (there is only one; the loop runs inside the calls). Where each value comes from, the
 * first that is set: flag, environment (RONDO_SERVER, RONDO_CERT, RONDO_KEY, RONDO_CA,
 * RONDO_CONTEXT, RONDO_TIMEOUT), the context directory. A context is a directory with `server`,
 * ctl.pem, ctl.key and ca.pem: --context, RONDO_CONTEXT, ~/.rondo/ctl, ./rondo-dev/ctl. */
#pragma once
#include "base/error.h"
#include "base/option.h"
#include "proto/pb.h"
#include "rpc/client.h"
#include <stddef.h>

struct connect_flags { /* first member of every verb's config */
    char *server, *cert, *key, *ca, *context, *timeout, *output;
};
#define CONNECT_AT(member) offsetof(struct connect_flags, member)
#define CONNECT_ROWS                                                                               \
    {                                                                                              \
        "server",                                                                                  \
        OPT_TEXT,                                                                                  \
        CONNECT_AT(server),                                                                        \
        NULL,                                                                                      \
        0,                                                                                         \
        0,                                                                                         \
        "HOST:PORT or unix:/path of the daemon."},                                                 \
        {"cert", OPT_TEXT, CONNECT_AT(cert), NULL, 0, 0, "Our certificate, a PEM file."},          \
        {"key", OPT_TEXT, CONNECT_AT(key), NULL, 0, 0, "Its key, a PEM file."},                    \
        {"ca", OPT_TEXT, CONNECT_AT(ca), NULL, 0, 0, "Certificate authority of the daemon."},      \
        {"context",                                                                                \
         OPT_TEXT,                                                                                 \
         CONNECT_AT(context),                                                                      \
         NULL,                                                                                     \
         0,                                                                                        \
         0,                                                                                        \
         "Directory with server, ctl.pem, ctl.key, ca.pem (default: $RONDO_CONTEXT, "              \
         "~/.rondo/ctl, ./rondo-dev/ctl)."},                                                       \
        {"timeout",                                                                                \
         OPT_TEXT,                                                                                 \
         CONNECT_AT(timeout),                                                                      \
         NULL,                                                                                     \
         0,                                                                                        \
         0,                                                                                        \
         "Keep trying to reach the daemon this long, e.g. 30s (default 15s)."},                    \
    {                                                                                              \
        "output", OPT_TEXT, CONNECT_AT(output), "table", 0, 0, "-o: table, json or yaml."          \
    }

struct connect_target { /* all texts are owned; "" when absent */
    char *server, *cert, *key, *ca;
    int64_t timeout_ms;
};
typedef const char *(*connect_env)(const char *name); /* getenv, or a test's own */

/* Pure but for reading the context's `server` file and looking which files exist. */
enum status connect_resolve(const struct connect_flags *flags, connect_env env,
                            struct connect_target *out, struct error *err) MUST_CHECK;
void connect_target_fini(struct connect_target *target);

struct connect;
/* NULL: the failure was said on stderr; *exit_code is what to return. */
struct connect *connect_open(const struct connect_flags *flags, int *exit_code);
void connect_close(struct connect *connect); /* NULL is fine */
struct loop *connect_loop(struct connect *connect);
struct rpc_client *connect_client(struct connect *connect);

/* Calls a method of Control, again while the daemon is UNAVAILABLE and --timeout lasts; the same
 * request each time, so that its request id makes it happen once. Free *reply with
 * protobuf_c_message_free_unpacked. */
enum status connect_call(struct connect *connect, const char *method,
                         const ProtobufCMessage *request, ProtobufCMessage **reply,
                         struct error *err) MUST_CHECK;
/* The same with the failure said on stderr: VERB_OK or the exit code to return. */
int connect_ask(struct connect *connect, const char *method, const ProtobufCMessage *request,
                ProtobufCMessage **reply);
/* Says the failure on stderr with what to do next; returns the exit code. */
int connect_fail(const struct connect *connect, enum status st, const char *text);
int connect_exit_code(enum status st);
/* Is a later try of the same worth it? */
bool connect_may_retry(enum status st);
/* Sleeps before the tries after the first, longer each time, 0.1 s to 1 s. */
void connect_pause(unsigned tries);
/* The first time, and once more than a second has passed, says that we wait. */
void connect_say_waiting(struct connect *connect, const char *text);
int64_t connect_now_ms(const struct connect *connect);
int64_t connect_timeout_ms(const struct connect *connect);

/* A server stream until it closes. message returns false to end it (STATUS_CANCELLED). */
enum status connect_stream(struct connect *connect, const char *method,
                           const ProtobufCMessage *request,
                           bool (*message)(void *arg, const ProtobufCMessage *message), void *arg,
                           struct error *err) MUST_CHECK;
/* 128 random bits in hex. */
enum { CONNECT_ID_SIZE = 33 };
void connect_request_id(struct connect *connect, char out[CONNECT_ID_SIZE]);
