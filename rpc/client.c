#include "rpc/client.h"
#include "base/mem.h"
#include "rpc/client_state.h"
#include "rpc/codec.h"
#include "rpc/method.h"
#include "rpc/runtime.h"
#include "rpc/stream.h"
#include "rpc/tls.h"
#include <assert.h>
#include <grpc/support/alloc.h>
#include <string.h>

#define TIMEOUT_MS_DEFAULT 10000
#define BACKOFF_MS_FIRST   200
#define BACKOFF_MS_MAX     2000
/* What gRPC calls the least back-off is how long one attempt to connect may take, handshake
 * included: long enough for a server on which every agent calls at once. A refusal is still retried
 * soon. */
#define CONNECT_MS_MAX 10000

/* One unary call. Freed when its only batch has come back. */
struct unary {
    struct rpc_op op;
    struct rpc_client *client;
    struct list node;
    grpc_call *call; /* NULL: the client was closing */
    const ProtobufCMessageDescriptor *output;
    grpc_byte_buffer *request, *reply;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    struct rpc_decoded decoded;
    struct error err;
    rpc_done done;
    void *arg;
};

static void error_from_slice(struct error *err, grpc_status_code status, grpc_slice details)
{
    int code = (int)status;

    if (code < 0 || code > (int)STATUS_UNAUTHENTICATED)
        code = (int)STATUS_UNKNOWN;
    error_set(err, (enum status)code, "%.*s", (int)GRPC_SLICE_LENGTH(details),
              (const char *)GRPC_SLICE_START_PTR(details));
}

/* Poller thread. */
static bool unary_polled(struct rpc_op *op)
{
    struct unary *unary = CONTAINER_OF(op, struct unary, op);

    if (unary->status != GRPC_STATUS_OK)
        error_from_slice(&unary->err, unary->status, unary->details);
    else if (!unary->reply)
        error_set(&unary->err, STATUS_INTERNAL, "the server sent no message");
    else
        unary->err.code =
            rpc_codec_unpack(unary->output, unary->reply, &unary->decoded, &unary->err);
    return true;
}

/* gRPC's objects go first: `done` may destroy the client, and with it the library. */
static void unary_done(struct rpc_op *op)
{
    struct unary *unary = CONTAINER_OF(op, struct unary, op);
    bool good = unary->err.code == STATUS_OK;

    list_remove(&unary->node);
    grpc_slice_unref(unary->details);
    grpc_metadata_array_destroy(&unary->initial);
    grpc_metadata_array_destroy(&unary->trailing);
    grpc_byte_buffer_destroy(unary->request);
    grpc_byte_buffer_destroy(unary->reply);
    if (unary->call)
        grpc_call_unref(unary->call);
    unary->done(unary->arg, unary->err.code, good ? NULL : &unary->err, unary->decoded.message);
    rpc_decoded_fini(&unary->decoded);
    mem_free(unary);
}

static void unary_start(struct unary *unary)
{
    grpc_op batch[6];

    memset(batch, 0, sizeof batch);
    batch[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    batch[1].op = GRPC_OP_SEND_MESSAGE;
    batch[1].data.send_message.send_message = unary->request;
    batch[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    batch[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    batch[3].data.recv_initial_metadata.recv_initial_metadata = &unary->initial;
    batch[4].op = GRPC_OP_RECV_MESSAGE;
    batch[4].data.recv_message.recv_message = &unary->reply;
    batch[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    batch[5].data.recv_status_on_client.trailing_metadata = &unary->trailing;
    batch[5].data.recv_status_on_client.status = &unary->status;
    batch[5].data.recv_status_on_client.status_details = &unary->details;
    rpc_queue_start(unary->client->queue, unary->call, batch, COUNT_OF(batch), &unary->op);
}

grpc_call *rpc_client_begin(struct rpc_client *client, const ProtobufCServiceDescriptor *service,
                            const ProtobufCMethodDescriptor *method, int64_t timeout_ms)
{
    gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    char path[RPC_METHOD_PATH_MAX];

    if (timeout_ms > 0)
        deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
    rpc_method_path(service, method, path);
    grpc_slice name = grpc_slice_from_copied_string(path);
    grpc_call *call =
        grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                 rpc_queue_handle(client->queue), name, NULL, deadline, NULL);
    grpc_slice_unref(name);
    return call;
}

void rpc_client_call(struct rpc_client *client, const ProtobufCServiceDescriptor *service,
                     const char *method, const ProtobufCMessage *request, int64_t timeout_ms,
                     rpc_done done, void *arg)
{
    const ProtobufCMethodDescriptor *descriptor = rpc_method_find(service, method);
    struct unary *unary = NEW(struct unary);
    size_t size;

    assert(descriptor && request->descriptor == descriptor->input);
    unary->client = client;
    unary->output = descriptor->output;
    unary->op.fn = unary_done;
    unary->done = done;
    unary->arg = arg;
    unary->details = grpc_empty_slice();
    grpc_metadata_array_init(&unary->initial);
    grpc_metadata_array_init(&unary->trailing);
    list_add_last(&client->unaries, &unary->node);
    if (client->closing) {
        error_set(&unary->err, STATUS_CANCELLED, "the client is closing");
        rpc_queue_tag(client->queue, &unary->op);
        rpc_queue_post(client->queue, &unary->op.mail);
        return;
    }
    unary->op.polled = unary_polled;
    unary->request = rpc_codec_pack(request, &size);
    unary->call = rpc_client_begin(client, service, descriptor,
                                   timeout_ms > 0 ? timeout_ms : TIMEOUT_MS_DEFAULT);
    unary_start(unary);
}

/* --- waiting */

struct wait {
    struct loop *loop;
    bool done;
    enum status st;
    struct error *err;
    ProtobufCMessage *reply;
};

/* Through the wire form: the loan lives in blocks of its own, the copy in the default allocator. */
static ProtobufCMessage *reply_copy(const ProtobufCMessage *reply)
{
    size_t len = protobuf_c_message_get_packed_size(reply);
    SCOPED(mem_free) void *bytes = mem_alloc(len + 1);

    protobuf_c_message_pack(reply, bytes);
    return protobuf_c_message_unpack(reply->descriptor, NULL, len, bytes);
}

static void wait_done(void *arg, enum status st, const struct error *err,
                      const ProtobufCMessage *reply)
{
    struct wait *wait = arg;

    wait->done = true;
    wait->st = st;
    if (st != STATUS_OK)
        error_set(wait->err, st, "%s", err->text);
    else if (!(wait->reply = reply_copy(reply)))
        wait->st = error_set(wait->err, STATUS_INTERNAL, "the reply cannot be copied");
    loop_uv_stop(wait->loop);
}

enum status rpc_client_call_wait(struct rpc_client *client,
                                 const ProtobufCServiceDescriptor *service, const char *method,
                                 const ProtobufCMessage *request, int64_t timeout_ms,
                                 ProtobufCMessage **reply, struct error *err)
{
    struct wait wait = {.loop = client->loop, .err = err};

    rpc_client_call(client, service, method, request, timeout_ms, wait_done, &wait);
    while (!wait.done)
        loop_uv_run(client->loop);
    if (wait.st == STATUS_OK)
        *reply = wait.reply;
    return wait.st;
}

/* --- the channel */

static enum status credentials_create(const struct rpc_client_options *options,
                                      grpc_channel_credentials **out, struct error *err)
{
    struct rpc_tls_files files = {options->cert, options->key, options->ca, NULL};

    if (strncmp(options->target, "unix:", 5) != 0)
        return rpc_tls_client(&files, out, err);
    *out = grpc_insecure_credentials_create();
    return STATUS_OK;
}

static grpc_channel *channel_create(const struct rpc_client_options *options,
                                    grpc_channel_credentials *credentials)
{
    struct rpc_args args = {.count = 0};
    grpc_channel_args list;

    rpc_args_common(&args, options->message_bytes_max);
    rpc_args_int(&args, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    rpc_args_int(&args, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    rpc_args_int(&args, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, BACKOFF_MS_FIRST);
    rpc_args_int(&args, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_MS_MAX);
    rpc_args_int(&args, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, BACKOFF_MS_MAX);
    rpc_args_int(&args, GRPC_ARG_ENABLE_RETRIES, 0);
    rpc_args_int(&args, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    if (options->server_name && strncmp(options->target, "unix:", 5) != 0)
        rpc_args_text(&args, GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, options->server_name);
    list = rpc_args_get(&args);
    return grpc_channel_create(options->target, credentials, &list);
}

enum status rpc_client_create(struct loop *loop, const struct rpc_client_options *options,
                              struct rpc_client **out, struct error *err)
{
    grpc_channel_credentials *credentials = NULL;
    enum status st;

    rpc_runtime_acquire();
    st = credentials_create(options, &credentials, err);
    if (st != STATUS_OK) {
        rpc_runtime_release();
        return st;
    }
    struct rpc_client *client = NEW(struct rpc_client);
    client->loop = loop;
    list_init(&client->unaries);
    list_init(&client->streams);
    client->queue = rpc_queue_create(loop);
    client->channel = channel_create(options, credentials);
    grpc_channel_credentials_release(credentials);
    *out = client;
    return STATUS_OK;
}

void rpc_client_destroy(struct rpc_client *client)
{
    if (!client)
        return;
    client->closing = true;
    LIST_EACH(&client->unaries, node)
    {
        struct unary *unary = LIST_ITEM(node, struct unary, node);
        if (unary->call)
            grpc_call_cancel(unary->call, NULL);
    }
    rpc_stream_cancel_all(client);
    while (!list_is_empty(&client->unaries) || !list_is_empty(&client->streams))
        rpc_queue_pump(client->queue, 50);
    grpc_channel_destroy(client->channel);
    rpc_queue_destroy(client->queue);
    mem_free(client);
    rpc_runtime_release();
}
