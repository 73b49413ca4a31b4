/* serve_reply.c - a unary call between its request and its answer. See serve_hub.h. */
#include "base/log.h"
#include "base/mem.h"
#include "daemon/serve_hub.h"
#include <stdio.h>
#include <string.h>

#define SERVE_REQUEST_ID_MIN 8
#define SERVE_REQUEST_ID_MAX 64

struct serve_reply {
    struct rpc_call *call; /* NULL: the caller has left; what was asked for goes on */
    const char *name;
    int64_t job;
    char actor[300], peer[80];
};

bool serve_reply_request_id_ok(const char *id)
{
    size_t len = id ? strlen(id) : 0;

    if (len < SERVE_REQUEST_ID_MIN || len > SERVE_REQUEST_ID_MAX)
        return false;
    return strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:_-") == len;
}

void serve_reply_fail(struct rpc_call *call, enum status st, const char *text)
{
    char with_hint[320];

    if (st == STATUS_UNAVAILABLE && !strstr(text, "again") && !strstr(text, "retry")) {
        snprintf(with_hint, sizeof(with_hint),
                 "%.240s; try again in 1 s (a change with the same request id)", text);
        text = with_hint;
    }
    rpc_call_fail(call, st, text);
}

static void serve_reply_closed(void *arg, struct rpc_call *call)
{
    struct serve_reply *reply = arg;

    (void)call;
    reply->call = NULL;
}

struct serve_reply *serve_reply_open(struct rpc_call *call, const char *name, int64_t job)
{
    struct serve_reply *reply = NEW(struct serve_reply);

    reply->call = call;
    reply->name = name;
    reply->job = job;
    identity_text(rpc_call_identity(call), reply->actor, sizeof(reply->actor));
    snprintf(reply->peer, sizeof(reply->peer), "%s", rpc_call_peer(call));
    rpc_call_on_closed(call, serve_reply_closed, reply);
    return reply;
}

static void serve_reply_log(const struct serve_reply *reply, enum status st,
                            const struct error *err)
{
    enum log_level level = st == STATUS_OK ? LOG_INFO : LOG_WARN;
    const struct log_pair pairs[] = {
        log_str("actor", reply->actor),
        log_str("peer", reply->peer),
        log_int("job", reply->job),
        log_str("st", status_name(st)),
        log_str("err", st == STATUS_OK || !err ? "" : err->text),
    };

    log_write(level, reply->name, pairs, COUNT_OF(pairs) - (st == STATUS_OK ? 1 : 0));
}

void serve_reply_done(void *arg, enum status st, const struct error *err,
                      const ProtobufCMessage *message)
{
    struct serve_reply *reply = arg;

    if (reply->name) {
        if (st == STATUS_OK && message->descriptor == &pb__submit_reply__descriptor)
            reply->job = ((const Pb__SubmitReply *)(const void *)message)->job;
        serve_reply_log(reply, st, err);
    }
    if (reply->call) {
        struct rpc_call *call = reply->call;
        rpc_call_on_closed(call, NULL, NULL);
        if (st == STATUS_OK)
            rpc_call_reply(call, message);
        else
            serve_reply_fail(call, st, err ? err->text : status_name(st));
    }
    mem_free(reply);
}
