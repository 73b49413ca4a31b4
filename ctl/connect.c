#include "ctl/connect.h"
#include "base/mem.h"
#include "base/text.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TRY_MS_MIN = 1000, TRY_MS_MAX = 20000, SAY_AFTER_MS = 1500 };

struct connect {
    struct connect_target target;
    struct loop *loop;
    struct rpc_client *client;
    int64_t waiting_since_ms; /* 0: not waiting */
    bool said;
};

static const char *get_env(const char *name)
{
    return getenv(name);
}

static enum status open_client(struct connect *connect, struct error *err)
{
    const struct connect_target *target = &connect->target;
    bool plain = strncmp(target->server, "unix:", 5) == 0;
    if (!plain && (!*target->cert || !*target->key || !*target->ca))
        return error_set(err, STATUS_INVALID,
                         "no certificate is named: use --cert, --key and --ca, or --context");
    struct rpc_client_options options = {.target = target->server,
                                         .cert = plain ? NULL : target->cert,
                                         .key = plain ? NULL : target->key,
                                         .ca = plain ? NULL : target->ca,
                                         .message_bytes_max = 64u << 20};
    return rpc_client_create(connect->loop, &options, &connect->client, err);
}

struct connect *connect_open(const struct connect_flags *flags, int *exit_code)
{
    struct connect *connect = NEW(struct connect);
    struct error err;
    connect->loop = loop_uv_create();
    enum status st = connect_resolve(flags, get_env, &connect->target, &err);
    if (st == STATUS_OK)
        st = open_client(connect, &err);
    if (st == STATUS_OK)
        return connect;
    output_error("%s", err.text);
    *exit_code = st == STATUS_INVALID ? VERB_USAGE : VERB_UNREACHED;
    connect_close(connect);
    return NULL;
}

void connect_close(struct connect *connect)
{
    if (!connect)
        return;
    rpc_client_destroy(connect->client);
    loop_uv_destroy(connect->loop);
    connect_target_fini(&connect->target);
    mem_free(connect);
}

struct loop *connect_loop(struct connect *connect)
{
    return connect->loop;
}

struct rpc_client *connect_client(struct connect *connect)
{
    return connect->client;
}

int64_t connect_now_ms(const struct connect *connect)
{
    return loop_now_us(connect->loop) / 1000;
}

int64_t connect_timeout_ms(const struct connect *connect)
{
    return connect->target.timeout_ms;
}

bool connect_may_retry(enum status st)
{
    return st == STATUS_UNAVAILABLE || st == STATUS_DEADLINE;
}

void connect_pause(unsigned tries)
{
    int64_t ms = tries < 4 ? 100 << tries : 1000;
    struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

void connect_say_waiting(struct connect *connect, const char *text)
{
    int64_t now = connect_now_ms(connect);
    if (connect->waiting_since_ms == 0)
        connect->waiting_since_ms = now;
    if (connect->said || now - connect->waiting_since_ms < SAY_AFTER_MS)
        return;
    connect->said = true;
    output_error("waiting for %s: %s", connect->target.server, text);
}

enum status connect_call(struct connect *connect, const char *method,
                         const ProtobufCMessage *request, ProtobufCMessage **reply,
                         struct error *err)
{
    int64_t end = connect_now_ms(connect) + connect->target.timeout_ms;
    for (unsigned tries = 0;; tries++) {
        int64_t left = end - connect_now_ms(connect);
        left = left < TRY_MS_MIN ? TRY_MS_MIN : left > TRY_MS_MAX ? TRY_MS_MAX : left;
        enum status st = rpc_client_call_wait(connect->client, &pb__control__descriptor, method,
                                              request, left, reply, err);
        if (!connect_may_retry(st) || connect_now_ms(connect) >= end) {
            connect->waiting_since_ms = 0;
            connect->said = false;
            return st;
        }
        connect_say_waiting(connect, err->text);
        connect_pause(tries);
    }
}

int connect_exit_code(enum status st)
{
    switch (st) {
    case STATUS_OK:
        return VERB_OK;
    case STATUS_UNAVAILABLE:
    case STATUS_DEADLINE:
        return VERB_UNREACHED;
    case STATUS_INTERNAL:
    case STATUS_UNKNOWN:
    case STATUS_DATA_LOSS:
    case STATUS_UNIMPLEMENTED:
    case STATUS_CANCELLED:
        return VERB_BROKEN;
    default:
        return VERB_REFUSED;
    }
}

int connect_fail(const struct connect *connect, enum status st, const char *text)
{
    const char *server = connect->target.server;
    if (st == STATUS_UNAVAILABLE || st == STATUS_DEADLINE)
        output_error("cannot reach the daemon at %s: %s (is rondod running, and are --server and "
                     "--context right? --timeout waits longer)",
                     server, text);
    else if (st == STATUS_UNAUTHENTICATED)
        output_error("the daemon at %s does not know us: %s (is the certificate from its "
                     "authority? see --context)",
                     server, text);
    else if (st == STATUS_DENIED)
        output_error("not allowed: %s (ask an administrator for the role)", text);
    else if (st == STATUS_UNIMPLEMENTED)
        output_error("%s (rondoctl is %s: is the daemon older? try `rondoctl version`)", text,
                     RONDO_VERSION);
    else
        output_error("%s", *text ? text : status_name(st));
    return connect_exit_code(st);
}

int connect_ask(struct connect *connect, const char *method, const ProtobufCMessage *request,
                ProtobufCMessage **reply)
{
    struct error err = {0};
    enum status st = connect_call(connect, method, request, reply, &err);
    return st == STATUS_OK ? VERB_OK : connect_fail(connect, st, err.text);
}

/* --- streams */

struct reading {
    struct connect *connect;
    struct rpc_stream *stream;
    bool (*message)(void *arg, const ProtobufCMessage *message);
    void *arg;
    bool closed, cancelled;
    enum status st;
    struct error err;
};

static void stream_message(void *arg, const ProtobufCMessage *message)
{
    struct reading *reading = arg;
    if (reading->cancelled)
        return;
    reading->connect->waiting_since_ms = 0;
    reading->connect->said = false;
    if (!reading->message(reading->arg, message)) {
        reading->cancelled = true;
        rpc_stream_cancel(reading->stream);
    }
}

static void stream_closed(void *arg, enum status st, const char *text)
{
    struct reading *reading = arg;
    reading->closed = true;
    reading->st = reading->cancelled ? STATUS_CANCELLED : st;
    error_set(&reading->err, st, "%s", text ? text : status_name(st));
    loop_uv_stop(reading->connect->loop);
}

enum status connect_stream(struct connect *connect, const char *method,
                           const ProtobufCMessage *request,
                           bool (*message)(void *arg, const ProtobufCMessage *message), void *arg,
                           struct error *err)
{
    static const struct rpc_stream_events events = {.message = stream_message,
                                                    .closed = stream_closed};
    struct reading reading = {.connect = connect, .message = message, .arg = arg};
    reading.stream =
        rpc_client_stream(connect->client, &pb__control__descriptor, method, 0, &events, &reading);
    rpc_stream_send(reading.stream, request);
    rpc_stream_end_sending(reading.stream);
    while (!reading.closed)
        loop_uv_run(connect->loop);
    if (reading.st != STATUS_OK && err)
        *err = reading.err;
    return reading.st;
}

void connect_request_id(struct connect *connect, char out[CONNECT_ID_SIZE])
{
    unsigned char bytes[16];
    loop_random(connect->loop, bytes, sizeof bytes);
    text_to_hex(bytes, sizeof bytes, out);
}
