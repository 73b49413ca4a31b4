/* control.c - see control.h. */
#include "tests/bench/control.h"
#include "base/file.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CALL_MS  20000
#define CLEAR_MS 30000

struct control {
    struct bench *bench;
    char *server, *cert, *key, *ca;
    struct rpc_client **clients;
    size_t count;
    struct rpc_stream *watch;
    control_job fn;
    void *arg;
    bool caught_up, closed;
};

static enum status open_channel(struct control *control, struct error *err)
{
    const struct rpc_client_options options = {
        .target = control->server, .cert = control->cert, .key = control->key, .ca = control->ca};
    struct rpc_client *client;
    enum status st = rpc_client_create(control->bench->loop, &options, &client, err);

    if (st != STATUS_OK)
        return st;
    control->clients = mem_resize(control->clients, control->count + 1, sizeof(*control->clients));
    control->clients[control->count++] = client;
    return STATUS_OK;
}

enum status control_open(struct bench *bench, const char *context, struct control **out,
                         struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/server", context);
    char *server;
    size_t len;
    enum status st = file_read(path, 512, &server, &len, err);

    if (st != STATUS_OK)
        return st;
    server[strcspn(server, "\n")] = '\0';
    struct control *control = NEW(struct control);
    control->bench = bench;
    control->server = server;
    control->cert = mem_printf("%s/ctl.pem", context);
    control->key = mem_printf("%s/ctl.key", context);
    control->ca = mem_printf("%s/ca.pem", context);
    st = open_channel(control, err);
    if (st != STATUS_OK)
        control_close(control);
    else
        *out = control;
    return st;
}

void control_close(struct control *control)
{
    if (!control)
        return;
    control_unwatch(control);
    for (size_t i = 0; i < control->count; i++)
        rpc_client_destroy(control->clients[i]);
    mem_free(control->clients);
    mem_free(control->server);
    mem_free(control->cert);
    mem_free(control->key);
    mem_free(control->ca);
    mem_free(control);
}

struct rpc_client *control_client(struct control *control, size_t channel)
{
    return control->clients[channel % control->count];
}

/* --- calls */

struct answer {
    struct bench *bench;
    bool done;
    enum status st;
    struct error err;
    ProtobufCMessage *reply;
};

static void call_done(void *arg, enum status st, const struct error *err,
                      const ProtobufCMessage *reply)
{
    struct answer *answer = arg;

    answer->st = st;
    if (err)
        answer->err = *err;
    if (reply) { /* a copy: the loan ends here */
        size_t size = protobuf_c_message_get_packed_size(reply);
        uint8_t *bytes = mem_alloc(size + 1);
        protobuf_c_message_pack(reply, bytes);
        answer->reply = protobuf_c_message_unpack(reply->descriptor, NULL, size, bytes);
        mem_free(bytes);
    }
    answer->done = true;
    bench_wake(answer->bench);
}

/* The callback always comes, so that the answer may lie on the stack. */
static enum status call_on(struct control *control, size_t channel, const char *method,
                           const ProtobufCMessage *request, ProtobufCMessage **reply,
                           struct error *err)
{
    struct answer answer = {.bench = control->bench};

    rpc_client_call(control->clients[channel], &pb__control__descriptor, method, request, CALL_MS,
                    call_done, &answer);
    while (!answer.done)
        loop_uv_run(control->bench->loop);
    if (answer.st != STATUS_OK)
        return error_set(err, answer.st, "%s: %s", method, answer.err.text);
    if (reply)
        *reply = answer.reply;
    else
        protobuf_c_message_free_unpacked(answer.reply, NULL);
    return STATUS_OK;
}

enum status control_call(struct control *control, const char *method,
                         const ProtobufCMessage *request, ProtobufCMessage **reply,
                         struct error *err)
{
    return call_on(control, 0, method, request, reply, err);
}

enum status control_channels(struct control *control, size_t count, struct error *err)
{
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;
    enum status st = STATUS_OK;

    while (control->count < count && st == STATUS_OK) {
        st = open_channel(control, err);
        if (st == STATUS_OK)
            st = call_on(control, control->count - 1, "Status", &request.base, NULL, err);
    }
    return st;
}

enum status control_submit(struct control *control, const ProtobufCMessage *request, int64_t *job,
                           struct error *err)
{
    ProtobufCMessage *reply;
    enum status st = control_call(control, "Submit", request, &reply, err);

    if (st != STATUS_OK)
        return st;
    *job = ((Pb__SubmitReply *)(void *)reply)->job;
    protobuf_c_message_free_unpacked(reply, NULL);
    return STATUS_OK;
}

enum status control_cancel(struct control *control, int64_t job, struct error *err)
{
    Pb__CancelRequest request = PB__CANCEL_REQUEST__INIT;
    char id[64];

    snprintf(id, sizeof(id), "bench-%ld-cancel-%lld", (long)getpid(), (long long)job);
    request.request_id = id;
    request.has_job = request.has_now = 1;
    request.job = job;
    request.now = 1;
    return control_call(control, "Cancel", &request.base, NULL, err);
}

/* --- watching */

static void watch_message(void *arg, const ProtobufCMessage *message)
{
    struct control *control = arg;
    const Pb__WatchReply *reply = (const Pb__WatchReply *)(const void *)message;

    if (reply->caught_up) {
        control->caught_up = true;
        bench_wake(control->bench);
    }
    if (reply->event && reply->event->kind && strcmp(reply->event->kind, "job.state") == 0)
        control->fn(control->arg, reply->event->job, reply->event->to);
}

static void watch_closed(void *arg, enum status st, const char *text)
{
    struct control *control = arg;

    (void)st;
    (void)text;
    control->watch = NULL;
    control->closed = true;
    bench_wake(control->bench);
}

enum status control_watch(struct control *control, control_job fn, void *arg, struct error *err)
{
    static const struct rpc_stream_events events = {.message = watch_message,
                                                    .closed = watch_closed};
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;

    control_unwatch(control);
    control->fn = fn;
    control->arg = arg;
    control->caught_up = control->closed = false;
    control->watch = rpc_client_stream(control->clients[0], &pb__control__descriptor, "Watch", 0,
                                       &events, control);
    rpc_stream_send(control->watch, &request.base);
    rpc_stream_end_sending(control->watch);
    return bench_wait(control->bench, &control->caught_up, CALL_MS, "watch", err);
}

static void ignore_job(void *arg, int64_t job, const char *to)
{
    (void)arg;
    (void)job;
    (void)to;
}

void control_unwatch(struct control *control)
{
    control->fn = ignore_job;
    if (!control->watch)
        return;
    rpc_stream_cancel(control->watch);
    while (!control->closed)
        loop_uv_run(control->bench->loop);
}

/* --- nodes and jobs */

enum status control_nodes(struct control *control, uint32_t *healthy, struct error *err)
{
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    enum status st = control_call(control, "Status", &request.base, &reply, err);

    if (st != STATUS_OK)
        return st;
    *healthy = ((Pb__StatusReply *)(void *)reply)->nodes_healthy;
    protobuf_c_message_free_unpacked(reply, NULL);
    return STATUS_OK;
}

static enum status clear_once(struct control *control, size_t *left, struct error *err)
{
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    Pb__ListJobsRequest request = PB__LIST_JOBS_REQUEST__INIT;
    ProtobufCMessage *message;

    filter.has_active = filter.active = 1;
    request.filter = &filter;
    request.has_brief = request.brief = 1;
    enum status st = control_call(control, "ListJobs", &request.base, &message, err);
    if (st != STATUS_OK)
        return st;
    const Pb__ListJobsReply *reply = (const Pb__ListJobsReply *)(const void *)message;
    *left = reply->n_jobs;
    for (size_t i = 0; i < reply->n_jobs; i++)
        if (reply->jobs[i]->state != PB__JOB__STATE__HELD)
            (void)!control_cancel(control, reply->jobs[i]->id, NULL);
        else
            --*left; /* has no process */
    protobuf_c_message_free_unpacked(message, NULL);
    return STATUS_OK;
}

enum status control_clear(struct control *control, struct error *err)
{
    size_t left = 1;

    for (int tries = 0; left > 0; tries++) {
        enum status st = clear_once(control, &left, err);
        if (st != STATUS_OK)
            return st;
        if (left > 0 && tries > CLEAR_MS / 100)
            return error_set(err, STATUS_DEADLINE, "%zu jobs do not end", left);
        if (left > 0)
            bench_rest(control->bench, 100);
    }
    return STATUS_OK;
}
