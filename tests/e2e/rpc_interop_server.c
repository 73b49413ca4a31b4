/* rpc_interop_server.c - a server with fake handlers, for clients written in another language.
 *
 * rpc_interop_server DIR: makes DIR/ca with certificates for user ada (admin), user vera (viewer)
 * and agent node-7 in DIR, serves Control and Agents by mTLS, prints "port N", ends when stdin
 * closes. Submit echoes the request id, Cancel fails, Hold never answers, ListJobs answers `before`
 * jobs, Watch streams `after_seq` events, PutCode counts bytes, Agents.Control echoes seq. */
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/pb.h"
#include "rpc/ca.h"
#include "rpc/server.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

static void submit(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    const Pb__SubmitRequest *request = (const Pb__SubmitRequest *)message;
    Pb__SubmitReply reply = PB__SUBMIT_REPLY__INIT;

    (void)arg;
    reply.has_job = 1;
    reply.job = INT64_MAX;
    reply.note = request->request_id;
    rpc_call_reply(call, &reply.base);
}

static void fail(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    (void)arg;
    (void)message;
    rpc_call_fail(call, STATUS_PRECONDITION,
                  "schon vor\xc3\xbc"
                  "ber \xe2\x80\x94 ended");
}

static void closed(void *arg, struct rpc_call *call)
{
    (void)arg;
    (void)call;
}

static void hold(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    (void)arg;
    (void)message;
    rpc_call_on_closed(call, closed, NULL);
}

static void list_jobs(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    const Pb__ListJobsRequest *request = (const Pb__ListJobsRequest *)message;
    size_t count = request->before > 0 && request->before < 100000 ? (size_t)request->before : 0;
    Pb__Job job = PB__JOB__INIT;
    Pb__Job **list = mem_array(count + 1, sizeof *list);
    Pb__ListJobsReply reply = PB__LIST_JOBS_REPLY__INIT;

    (void)arg;
    job.has_id = 1;
    job.id = 7;
    for (size_t i = 0; i < count; i++)
        list[i] = &job;
    reply.n_jobs = count;
    reply.jobs = list;
    rpc_call_reply(call, &reply.base);
    mem_free(list);
}

static void watch(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    const Pb__WatchRequest *request = (const Pb__WatchRequest *)message;

    (void)arg;
    for (int64_t i = 0; i < request->after_seq; i++) {
        Pb__WatchReply reply = PB__WATCH_REPLY__INIT;
        reply.has_caught_up = 1;
        reply.caught_up = i + 1 == request->after_seq;
        rpc_call_send(call, &reply.base);
    }
    rpc_call_end(call, STATUS_OK, NULL);
}

static uint64_t code_bytes;

static void code_piece(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    Pb__PutCodeReply reply = PB__PUT_CODE_REPLY__INIT;

    (void)arg;
    if (message) {
        code_bytes += ((const Pb__PutCodeRequest *)message)->data.len;
        return;
    }
    reply.has_bytes = 1;
    reply.bytes = code_bytes;
    rpc_call_reply(call, &reply.base);
}

static void put_code(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    (void)arg;
    (void)message;
    code_bytes = 0;
    rpc_call_on_message(call, code_piece, NULL);
}

static void control_up(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    Pb__AgentDown down = PB__AGENT_DOWN__INIT;

    (void)arg;
    if (!message) {
        rpc_call_end(call, STATUS_OK, NULL);
        return;
    }
    down.has_ack_seq = 1;
    down.ack_seq = ((const Pb__AgentUp *)message)->seq;
    rpc_call_send(call, &down.base);
}

static void control(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    (void)arg;
    (void)message;
    rpc_call_on_message(call, control_up, NULL);
}

#define ALL (IDENTITY_ANY_USER | IDENTITY_AGENT)
static const struct rpc_method control_methods[] = {
    {"Submit", RPC_UNARY, ALL, submit},
    {"SubmitMany", RPC_UNARY, ALL, fail},
    {"Cancel", RPC_UNARY, ALL, fail},
    {"Hold", RPC_UNARY, ALL, hold},
    {"ListJobs", RPC_UNARY, ALL, list_jobs},
    {"ShowJob", RPC_UNARY, IDENTITY_ADMIN, fail},
    {"Watch", RPC_SERVER_STREAM, ALL, watch},
    {"ListEvents", RPC_UNARY, ALL, fail},
    {"Logs", RPC_SERVER_STREAM, ALL, fail},
    {"Metrics", RPC_UNARY, ALL, fail},
    {"ListCheckpoints", RPC_UNARY, ALL, fail},
    {"ShowCheckpoint", RPC_UNARY, ALL, fail},
    {"PinCheckpoint", RPC_UNARY, ALL, fail},
    {"VerifyCheckpoint", RPC_UNARY, ALL, fail},
    {"HoldCheckpoint", RPC_UNARY, ALL, fail},
    {"PlanRetention", RPC_UNARY, ALL, fail},
    {"Fsck", RPC_SERVER_STREAM, ALL, fail},
    {"ListNodes", RPC_UNARY, ALL, fail},
    {"SetNode", RPC_UNARY, ALL, fail},
    {"HaveCode", RPC_UNARY, ALL, fail},
    {"PutCode", RPC_CLIENT_STREAM, ALL, put_code},
    {"Status", RPC_UNARY, ALL, fail},
    {NULL, RPC_UNARY, 0, NULL},
};
static const struct rpc_method agents_methods[] = {
    {"Control", RPC_BIDI, IDENTITY_AGENT, control},
    {"Bulk", RPC_BIDI, IDENTITY_AGENT, fail},
    {"FetchCode", RPC_SERVER_STREAM, IDENTITY_AGENT, fail},
    {NULL, RPC_UNARY, 0, NULL},
};

static void must(enum status st, const struct error *err)
{
    if (st == STATUS_OK)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static void issue(const char *ca, const char *dir, const char *kind, const char *name,
                  const char *unit)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1"};
    struct ca_request request = {kind, name, unit, hosts, COUNT_OF(hosts), 1};
    struct error err;

    must(ca_issue(ca, &request, dir, name, &err), &err);
}

static void stdin_closed(uv_poll_t *poll, int status, int events)
{
    char byte;

    (void)events;
    if (status < 0 || read(0, &byte, 1) <= 0)
        uv_stop(poll->loop);
}

int main(int argc, char **argv)
{
    struct rpc_service services[] = {{&pb__control__descriptor, control_methods, NULL},
                                     {&pb__agents__descriptor, agents_methods, NULL}};
    struct loop *loop = loop_uv_create();
    struct rpc_server *server = NULL;
    struct error err = {0};
    uv_poll_t input;

    if (argc != 2)
        return 2;
    SCOPED_TEXT char *ca_dir = mem_printf("%s/ca", argv[1]);
    SCOPED_TEXT char *cert = mem_printf("%s/main.pem", argv[1]);
    SCOPED_TEXT char *key = mem_printf("%s/main.key", argv[1]);
    SCOPED_TEXT char *ca = mem_printf("%s/ca.pem", argv[1]);
    must(ca_init(ca_dir, "interop", &err), &err);
    issue(ca_dir, argv[1], "daemon", "main", NULL);
    issue(ca_dir, argv[1], "user", "ada", "role=admin,project=*");
    issue(ca_dir, argv[1], "user", "vera", "role=viewer");
    issue(ca_dir, argv[1], "agent", "node-7", NULL);
    struct rpc_server_options options = {
        .listen = "127.0.0.1:0", .cert = cert, .key = key, .ca = ca};
    must(rpc_server_create(loop, &options, services, COUNT_OF(services), &server, &err), &err);
    printf("port %u\n", rpc_server_port(server));
    fflush(stdout);
    uv_poll_init(loop_uv_handle(loop), &input, 0);
    uv_poll_start(&input, UV_READABLE, stdin_closed);
    loop_uv_run(loop);
    rpc_server_destroy(server, 200);
    loop_uv_destroy(loop);
    return 0;
}
