/* raw.h - one unary call by gRPC core itself, with any path and any bytes: what our own client
 * would never send. Over the rig's unix socket, blocking on a queue of its own while the rig's loop
 * turns. */
#pragma once
#include "rig.h"
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

struct raw_result {
    int status;
    char text[240];
    size_t reply_bytes;
};

struct raw_request {
    const char *path;
    const void *bytes; /* NULL: half-close without a message */
    size_t len;
};

static inline size_t raw_batch(grpc_op *ops, grpc_byte_buffer *message,
                               grpc_metadata_array *initial, grpc_byte_buffer **reply)
{
    size_t count = 0;

    memset(ops, 0, 6 * sizeof *ops);
    ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
    if (message) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = message;
    }
    ops[count++].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[count].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[count++].data.recv_initial_metadata.recv_initial_metadata = initial;
    ops[count].op = GRPC_OP_RECV_MESSAGE;
    ops[count++].data.recv_message.recv_message = reply;
    return count;
}

static inline void raw_wait(struct rig *rig, grpc_completion_queue *cq)
{
    int64_t end = loop_now_us(rig->loop) + 60000000;

    for (;;) {
        grpc_event event = grpc_completion_queue_next(cq, gpr_now(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type != GRPC_QUEUE_TIMEOUT)
            return;
        assert_true(loop_now_us(rig->loop) < end);
        uv_run(loop_uv_handle(rig->loop), UV_RUN_ONCE); /* the rig's tick bounds this */
    }
}

static inline struct raw_result raw_call(struct rig *rig, const struct raw_request *request)
{
    struct raw_result result = {0};
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(rig->unix_target, credentials, NULL);
    grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
    grpc_slice path = grpc_slice_from_copied_string(request->path);
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(30, GPR_TIMESPAN));
    grpc_call *call = grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq, path,
                                               NULL, deadline, NULL);
    grpc_metadata_array initial, trailing;
    grpc_byte_buffer *message = NULL, *reply = NULL;
    grpc_slice details = grpc_empty_slice();
    grpc_status_code status = GRPC_STATUS_OK;
    grpc_op ops[6];

    grpc_metadata_array_init(&initial);
    grpc_metadata_array_init(&trailing);
    if (request->bytes) {
        grpc_slice slice = grpc_slice_from_copied_buffer(request->bytes, request->len);
        message = grpc_raw_byte_buffer_create(&slice, 1);
        grpc_slice_unref(slice);
    }
    size_t count = raw_batch(ops, message, &initial, &reply);
    ops[count].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[count].data.recv_status_on_client.trailing_metadata = &trailing;
    ops[count].data.recv_status_on_client.status = &status;
    ops[count++].data.recv_status_on_client.status_details = &details;
    assert_int_equal(grpc_call_start_batch(call, ops, count, &status, NULL), GRPC_CALL_OK);
    raw_wait(rig, cq);
    result.status = (int)status;
    snprintf(result.text, sizeof result.text, "%.*s", (int)GRPC_SLICE_LENGTH(details),
             (const char *)GRPC_SLICE_START_PTR(details));
    result.reply_bytes = reply ? grpc_byte_buffer_length(reply) : 0;
    grpc_byte_buffer_destroy(reply);
    grpc_byte_buffer_destroy(message);
    grpc_slice_unref(details);
    grpc_slice_unref(path);
    grpc_metadata_array_destroy(&initial);
    grpc_metadata_array_destroy(&trailing);
    grpc_call_unref(call);
    grpc_completion_queue_shutdown(cq);
    raw_wait(rig, cq);
    grpc_completion_queue_destroy(cq);
    grpc_channel_destroy(channel);
    grpc_channel_credentials_release(credentials);
    return result;
}
