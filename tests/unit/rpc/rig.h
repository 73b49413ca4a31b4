/* rig.h - what the tests of rpc/ share: a loop, a temporary folder, a CA, a server with fake
 * handlers for both services, and clients.
 *
 * Handlers: Submit answers with the request id; Cancel fails; Hold never answers and remembers the
 * call; Status is for daemons; ListJobs answers `before` jobs; Watch streams `after_seq` events;
 * Logs floods until it is cut; PutCode counts bytes; Agents.Control echoes seq as ack_seq;
 * Agents.Bulk reads nothing until it is resumed; FetchCode ends with an error after one chunk. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/pb.h"
#include "rpc/ca.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

struct rig {
    struct loop *loop;
    struct loop_timer *tick;
    char dir[64];
    char socket_path[128], unix_target[128], tls_target[64], ca_dir[96], crl_dir[128];
    struct rpc_server *server;
    struct rpc_client *client;

    /* what the handlers saw */
    struct rpc_call *held, *flood, *bulk;
    unsigned submits, closed, half_closed, streams_open, messages;
    size_t bytes, flood_queued_max;
    uint64_t last_seq;
    bool flood_limited; /* Logs waits for on_drained past 1 MiB, as it should */
    uint64_t flood_left;
    char identity[300];
};

#define RIG_UNTIL(rig, condition)                                                                  \
    do {                                                                                           \
        int64_t rig_end = loop_now_us((rig)->loop) + 60000000;                                     \
        while (!(condition)) {                                                                     \
            assert_true(loop_now_us((rig)->loop) < rig_end);                                       \
            uv_run(loop_uv_handle((rig)->loop), UV_RUN_ONCE);                                      \
        }                                                                                          \
    } while (0)

static inline void rig_tick(void *arg)
{
    struct rig *rig = arg;

    loop_timer_set(rig->tick, 10000);
}

/* --- handlers */

static inline void rig_submit(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct rig *rig = arg;
    const Pb__SubmitRequest *request = (const Pb__SubmitRequest *)message;
    Pb__SubmitReply reply = PB__SUBMIT_REPLY__INIT;

    rig->submits++;
    identity_text(rpc_call_identity(call), rig->identity, sizeof rig->identity);
    reply.has_job = 1;
    reply.job = (int64_t)rig->submits;
    reply.note = request->request_id;
    rpc_call_reply(call, &reply.base);
}

static inline void rig_cancel(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    (void)arg;
    (void)message;
    rpc_call_fail(call, STATUS_PRECONDITION, "job 7 has ended \xe2\x80\x94 nothing to cancel");
}

static inline void rig_on_closed(void *arg, struct rpc_call *call)
{
    struct rig *rig = arg;

    rig->closed++;
    if (rig->held == call)
        rig->held = NULL;
    if (rig->flood == call)
        rig->flood = NULL;
    if (rig->bulk == call)
        rig->bulk = NULL;
    if (rig->streams_open > 0)
        rig->streams_open--;
}

static inline void rig_hold(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct rig *rig = arg;

    (void)message;
    rig->held = call;
    rpc_call_on_closed(call, rig_on_closed, rig);
}

static inline void rig_list_jobs(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    const Pb__ListJobsRequest *request = (const Pb__ListJobsRequest *)message;
    size_t count = (size_t)request->before;
    Pb__ListJobsReply reply = PB__LIST_JOBS_REPLY__INIT;
    Pb__Job *jobs = mem_array(count + 1, sizeof *jobs);
    Pb__Job **list = mem_array(count + 1, sizeof *list);

    (void)arg;
    for (size_t i = 0; i < count; i++) {
        pb__job__init(&jobs[i]);
        jobs[i].has_id = 1;
        jobs[i].id = (int64_t)i;
        list[i] = &jobs[i];
    }
    reply.n_jobs = count;
    reply.jobs = list;
    rpc_call_reply(call, &reply.base);
    mem_free(jobs);
    mem_free(list);
}

static inline void rig_watch(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct rig *rig = arg;
    const Pb__WatchRequest *request = (const Pb__WatchRequest *)message;

    rpc_call_on_closed(call, rig_on_closed, rig);
    for (int64_t i = 0; i < request->after_seq; i++) {
        Pb__WatchReply reply = PB__WATCH_REPLY__INIT;
        reply.has_caught_up = 1;
        rpc_call_send(call, &reply.base);
    }
    rpc_call_end(call, STATUS_OK, NULL);
}

static inline void rig_flood_more(void *arg, struct rpc_call *call)
{
    static uint8_t block[65536];
    struct rig *rig = arg;
    Pb__LogsReply reply = PB__LOGS_REPLY__INIT;

    reply.has_data = 1;
    reply.data = (ProtobufCBinaryData){sizeof block, block};
    while (rig->flood_left > 0) {
        size_t queued = rpc_call_send(call, &reply.base);
        rig->flood_left--;
        if (queued > rig->flood_queued_max)
            rig->flood_queued_max = queued;
        if (rig->flood_limited && queued > (1u << 20))
            return;
    }
    rpc_call_end(call, STATUS_OK, NULL);
}

static inline void rig_logs(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct rig *rig = arg;

    (void)message;
    rig->flood = call;
    rpc_call_on_closed(call, rig_on_closed, rig);
    rpc_call_on_drained(call, rig_flood_more, rig);
    rig_flood_more(rig, call);
}

static inline void rig_code_piece(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct rig *rig = arg;
    const Pb__PutCodeRequest *piece = (const Pb__PutCodeRequest *)message;

    if (piece) {
        rig->bytes += piece->data.len;
        return;
    }
    Pb__PutCodeReply reply = PB__PUT_CODE_REPLY__INIT;
    reply.has_bytes = 1;
    reply.bytes = rig->bytes;
    rpc_call_reply(call, &reply.base);
}

static inline void rig_put_code(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    assert_null(message);
    rpc_call_on_message(call, rig_code_piece, arg);
}

static inline void rig_other(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    (void)arg;
    (void)message;
    rpc_call_fail(call, STATUS_UNKNOWN, "not used by the tests");
}

static inline void rig_control_up(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct rig *rig = arg;
    const Pb__AgentUp *up = (const Pb__AgentUp *)message;

    if (!up) {
        rig->half_closed++;
        rpc_call_end(call, STATUS_OK, "bye");
        return;
    }
    Pb__AgentDown down = PB__AGENT_DOWN__INIT;
    rig->messages++;
    rig->last_seq = up->seq;
    down.has_ack_seq = 1;
    down.ack_seq = up->seq;
    rpc_call_send(call, &down.base);
}

static inline void rig_control(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct rig *rig = arg;

    assert_null(message);
    rig->streams_open++;
    rpc_call_on_closed(call, rig_on_closed, rig);
    rpc_call_on_message(call, rig_control_up, rig);
}

static inline void rig_bulk_up(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct rig *rig = arg;
    const Pb__BulkUp *up = (const Pb__BulkUp *)message;

    if (!up) {
        rig->half_closed++;
        rpc_call_end(call, STATUS_OK, NULL);
        return;
    }
    rig->messages++;
    if (up->seq != rig->last_seq + 1)
        rig->last_seq = UINT64_MAX / 2; /* out of order: never matches again */
    else
        rig->last_seq = up->seq;
}

static inline void rig_bulk(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct rig *rig = arg;

    assert_null(message);
    rig->bulk = call;
    rpc_call_on_closed(call, rig_on_closed, rig);
    rpc_call_pause(call);
    rpc_call_on_message(call, rig_bulk_up, rig);
}

static inline void rig_fetch(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    Pb__CodeChunk chunk = PB__CODE_CHUNK__INIT;

    (void)message;
    rpc_call_on_closed(call, rig_on_closed, arg);
    chunk.has_total = 1;
    chunk.total = 5;
    rpc_call_send(call, &chunk.base);
    rpc_call_end(call, STATUS_DATA_LOSS, "digest");
}

#define RIG_ANY (IDENTITY_ANY_USER | IDENTITY_AGENT | IDENTITY_DAEMON)
static const struct rpc_method rig_control_methods[] = {
    {"Submit", RPC_UNARY, RIG_ANY, rig_submit},
    {"SubmitMany", RPC_UNARY, RIG_ANY, rig_other},
    {"Cancel", RPC_UNARY, RIG_ANY, rig_cancel},
    {"Hold", RPC_UNARY, RIG_ANY, rig_hold},
    {"ListJobs", RPC_UNARY, RIG_ANY, rig_list_jobs},
    {"ShowJob", RPC_UNARY, IDENTITY_ADMIN, rig_other},
    {"Watch", RPC_SERVER_STREAM, RIG_ANY, rig_watch},
    {"ListEvents", RPC_UNARY, RIG_ANY, rig_other},
    {"Logs", RPC_SERVER_STREAM, RIG_ANY, rig_logs},
    {"Metrics", RPC_UNARY, RIG_ANY, rig_other},
    {"ListCheckpoints", RPC_UNARY, RIG_ANY, rig_other},
    {"ShowCheckpoint", RPC_UNARY, RIG_ANY, rig_other},
    {"PinCheckpoint", RPC_UNARY, RIG_ANY, rig_other},
    {"VerifyCheckpoint", RPC_UNARY, RIG_ANY, rig_other},
    {"HoldCheckpoint", RPC_UNARY, RIG_ANY, rig_other},
    {"PlanRetention", RPC_UNARY, RIG_ANY, rig_other},
    {"Fsck", RPC_SERVER_STREAM, RIG_ANY, rig_other},
    {"ListNodes", RPC_UNARY, RIG_ANY, rig_other},
    {"SetNode", RPC_UNARY, RIG_ANY, rig_other},
    {"HaveCode", RPC_UNARY, RIG_ANY, rig_other},
    {"PutCode", RPC_CLIENT_STREAM, RIG_ANY, rig_put_code},
    {"Status", RPC_UNARY, IDENTITY_DAEMON, rig_other},
    {NULL, RPC_UNARY, 0, NULL},
};
static const struct rpc_method rig_agents_methods[] = {
    {"Control", RPC_BIDI, RIG_ANY, rig_control},
    {"Bulk", RPC_BIDI, RIG_ANY, rig_bulk},
    {"FetchCode", RPC_SERVER_STREAM, RIG_ANY, rig_fetch},
    {NULL, RPC_UNARY, 0, NULL},
};

/* --- life */

static inline struct rig *rig_create(void)
{
    struct rig *rig = NEW(struct rig);

    log_setup("test", LOG_ERROR, 2);
    snprintf(rig->dir, sizeof rig->dir, "/tmp/rpcXXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    snprintf(rig->socket_path, sizeof rig->socket_path, "%s/s", rig->dir);
    snprintf(rig->unix_target, sizeof rig->unix_target, "unix:%s/s", rig->dir);
    snprintf(rig->ca_dir, sizeof rig->ca_dir, "%s/ca", rig->dir);
    snprintf(rig->crl_dir, sizeof rig->crl_dir, "%s/ca/crl", rig->dir);
    rig->loop = loop_uv_create();
    rig->tick = loop_timer_create(rig->loop, rig_tick, rig);
    loop_timer_set(rig->tick, 10000);
    return rig;
}

static inline void rig_issue_from(struct rig *rig, const char *ca_dir, const char *kind,
                                  const char *name, const char *unit, uint32_t days)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1", "::1"};
    struct ca_request request = {kind, name, unit, hosts, COUNT_OF(hosts), days};
    struct error err = {0};

    if (ca_issue(ca_dir, &request, rig->dir, name, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static inline void rig_issue(struct rig *rig, const char *kind, const char *name, const char *unit)
{
    rig_issue_from(rig, rig->ca_dir, kind, name, unit, 30);
}

static inline const char *rig_path(struct rig *rig, const char *name, const char *suffix, char *out)
{
    snprintf(out, 160, "%s/%s%s", rig->dir, name, suffix);
    return out;
}

/* Makes a CA with a daemon, an admin, a viewer and an agent. */
static inline void rig_make_ca(struct rig *rig)
{
    struct error err = {0};

    if (ca_init(rig->ca_dir, "test", &err) != STATUS_OK)
        fail_msg("%s", err.text);
    rig_issue(rig, "daemon", "main", NULL);
    rig_issue(rig, "user", "ada", "role=admin,project=*");
    rig_issue(rig, "user", "vera", "role=viewer");
    rig_issue(rig, "agent", "node-7", NULL);
}

static inline enum status rig_serve_on(struct rig *rig, const char *listen, struct error *err)
{
    struct rpc_service services[] = {
        {&pb__control__descriptor, rig_control_methods, rig},
        {&pb__agents__descriptor, rig_agents_methods, rig},
    };
    char cert[160], key[160], ca[160];
    struct rpc_server_options options = {
        .listen = listen,
        .cert = rig_path(rig, "main", ".pem", cert),
        .key = rig_path(rig, "main", ".key", key),
        .ca = rig_path(rig, "ca", ".pem", ca),
        .crl_dir = rig->crl_dir,
        .unix_path = listen ? NULL : rig->socket_path,
        .message_bytes_max = 4 << 20,
    };
    enum status st =
        rpc_server_create(rig->loop, &options, services, COUNT_OF(services), &rig->server, err);

    if (st == STATUS_OK && listen)
        snprintf(rig->tls_target, sizeof rig->tls_target, "127.0.0.1:%u",
                 rpc_server_port(rig->server));
    return st;
}

static inline void rig_serve(struct rig *rig, const char *listen)
{
    struct error err = {0};

    if (rig_serve_on(rig, listen, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static inline struct rpc_client *rig_client(struct rig *rig, const char *who)
{
    char cert[160], key[160], ca[160];
    struct rpc_client_options options = {
        .target = who ? rig->tls_target : rig->unix_target,
        .cert = who ? rig_path(rig, who, ".pem", cert) : NULL,
        .key = who ? rig_path(rig, who, ".key", key) : NULL,
        .ca = who ? rig_path(rig, "ca", ".pem", ca) : NULL,
    };
    struct rpc_client *client = NULL;
    struct error err = {0};

    if (rpc_client_create(rig->loop, &options, &client, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return client;
}

static inline void rig_destroy(struct rig *rig)
{
    rpc_client_destroy(rig->client);
    rpc_server_destroy(rig->server, 1000);
    loop_timer_destroy(rig->tick);
    loop_uv_destroy(rig->loop);
    assert_int_equal(file_remove_tree(rig->dir, NULL), STATUS_OK);
    mem_free(rig);
}

/* --- calls */

struct rig_answer {
    unsigned times;
    enum status st;
    char text[240];
    int64_t job;
    char note[64];
    size_t jobs;
    uint64_t bytes;
};

static inline void rig_answered(void *arg, enum status st, const struct error *err,
                                const ProtobufCMessage *reply)
{
    struct rig_answer *answer = arg;

    answer->times++;
    answer->st = st;
    if (err)
        snprintf(answer->text, sizeof answer->text, "%s", err->text);
    if (reply && reply->descriptor == &pb__submit_reply__descriptor) {
        const Pb__SubmitReply *submit = (const Pb__SubmitReply *)reply;
        answer->job = submit->job;
        snprintf(answer->note, sizeof answer->note, "%s", submit->note ? submit->note : "");
    }
    if (reply && reply->descriptor == &pb__list_jobs_reply__descriptor)
        answer->jobs = ((const Pb__ListJobsReply *)reply)->n_jobs;
}

static inline void rig_submit_id(struct rig *rig, struct rpc_client *client, const char *id,
                                 struct rig_answer *answer)
{
    Pb__SubmitRequest request = PB__SUBMIT_REQUEST__INIT;

    (void)rig;
    request.request_id = (char *)(uintptr_t)id;
    rpc_client_call(client, &pb__control__descriptor, "Submit", &request.base, 20000, rig_answered,
                    answer);
}

/* A request of that method with nothing in it. */
static inline void rig_call_empty(struct rpc_client *client, const char *method, int64_t timeout_ms,
                                  struct rig_answer *answer)
{
    const ProtobufCMethodDescriptor *descriptor =
        protobuf_c_service_descriptor_get_method_by_name(&pb__control__descriptor, method);
    ProtobufCMessage *request = mem_alloc(descriptor->input->sizeof_message);

    protobuf_c_message_init(descriptor->input, request);
    rpc_client_call(client, &pb__control__descriptor, method, request, timeout_ms, rig_answered,
                    answer);
    mem_free(request);
}

struct rig_stream {
    struct rpc_stream *stream;
    unsigned messages, closed, drained;
    uint64_t ack;
    size_t bytes;
    enum status st;
    char text[240];
};

static inline void rig_stream_message(void *arg, const ProtobufCMessage *message)
{
    struct rig_stream *stream = arg;

    assert_int_equal(stream->closed, 0);
    stream->messages++;
    if (message->descriptor == &pb__agent_down__descriptor)
        stream->ack = ((const Pb__AgentDown *)message)->ack_seq;
    if (message->descriptor == &pb__logs_reply__descriptor)
        stream->bytes += ((const Pb__LogsReply *)message)->data.len;
}

static inline void rig_stream_closed(void *arg, enum status st, const char *text)
{
    struct rig_stream *stream = arg;

    stream->closed++;
    stream->st = st;
    snprintf(stream->text, sizeof stream->text, "%s", text);
}

static inline void rig_stream_drained(void *arg)
{
    struct rig_stream *stream = arg;

    stream->drained++;
}

static const struct rpc_stream_events rig_stream_events = {rig_stream_message, rig_stream_closed,
                                                           rig_stream_drained};

static inline void rig_stream_open(struct rpc_client *client,
                                   const ProtobufCServiceDescriptor *service, const char *method,
                                   struct rig_stream *stream)
{
    stream->stream = rpc_client_stream(client, service, method, 0, &rig_stream_events, stream);
}

static inline size_t rig_control_send(struct rig_stream *stream, uint64_t seq)
{
    Pb__AgentUp up = PB__AGENT_UP__INIT;

    up.has_seq = 1;
    up.seq = seq;
    return rpc_stream_send(stream->stream, &up.base);
}
