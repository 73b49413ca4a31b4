/* serve_control.c - the calls of Control with short handlers: cancel, hold, set node, and all
 * reads. */
#include "base/text.h"
#include "daemon/serve_hub.h"
#include <string.h>

#define SERVE_TEXT_MAX 1000

/* Holds a submitter to his projects. A job that memory no longer knows has ended: the core says so.
 */
static bool serve_control_may_change(struct serve *serve, struct rpc_call *call, int64_t job)
{
    const struct identity *who = rpc_call_identity(call);
    const Pb__Job *row = core_job(serve->options.core, job);
    const char *project = row && row->spec && row->spec->project ? row->spec->project : "default";

    if (!row || (who->roles & IDENTITY_ADMIN) || identity_may_use(who, project))
        return true;
    rpc_call_fail(call, STATUS_DENIED, "this job belongs to a project that is not yours");
    return false;
}

static bool serve_control_checked(struct rpc_call *call, const char *request_id, const char *text)
{
    if (!serve_reply_request_id_ok(request_id)) {
        rpc_call_fail(call, STATUS_INVALID,
                      "request_id: 8 to 64 characters of A-Z a-z 0-9 . : _ -, new for each change");
        return false;
    }
    if (text && (strlen(text) > SERVE_TEXT_MAX || !text_is_utf8(text, strlen(text)))) {
        rpc_call_fail(call, STATUS_INVALID, "the text is longer than 1,000 bytes or not UTF-8");
        return false;
    }
    return true;
}

static void serve_control_call(struct serve *serve, struct rpc_call *call, const char *name,
                               int64_t job, const ProtobufCMessage *request)
{
    char actor[300];

    identity_text(rpc_call_identity(call), actor, sizeof(actor));
    core_call(serve->options.core, actor, request, serve_reply_done,
              serve_reply_open(call, name, job));
}

void serve_control_cancel(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    const Pb__CancelRequest *request = (const Pb__CancelRequest *)(const void *)message;

    if (serve_control_checked(call, request->request_id, request->why) &&
        serve_control_may_change(arg, call, request->job))
        serve_control_call(arg, call, "call.cancel", request->job, message);
}

void serve_control_hold(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    const Pb__HoldRequest *request = (const Pb__HoldRequest *)(const void *)message;

    if (serve_control_checked(call, request->request_id, NULL) &&
        serve_control_may_change(arg, call, request->job))
        serve_control_call(arg, call, request->release ? "call.release" : "call.hold", request->job,
                           message);
}

void serve_control_set_node(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    const Pb__SetNodeRequest *request = (const Pb__SetNodeRequest *)(const void *)message;

    if (!serve_control_checked(call, request->request_id, request->note))
        return;
    if (!request->node || !*request->node || strlen(request->node) > 253) {
        rpc_call_fail(call, STATUS_INVALID, "node: the name of a node is needed");
        return;
    }
    serve_control_call(arg, call, "call.set-node", 0, message);
}

/* A checkpoint is its job's. */
static void serve_control_checkpoint(struct serve *serve, struct rpc_call *call, const char *name,
                                     const char *request_id, const char *text, int64_t checkpoint,
                                     const ProtobufCMessage *request)
{
    const Pb__Checkpoint *row = core_checkpoint(serve->options.core, checkpoint);
    int64_t job = row ? row->job : 0;

    if (serve_control_checked(call, request_id, text) &&
        (!row || serve_control_may_change(serve, call, job)))
        serve_control_call(serve, call, name, job, request);
}

void serve_control_pin_checkpoint(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    const Pb__PinCheckpointRequest *request = (const Pb__PinCheckpointRequest *)message;

    serve_control_checkpoint(arg, call,
                             request->unpin ? "call.unpin-checkpoint" : "call.pin-checkpoint",
                             request->request_id, request->note, request->checkpoint, message);
}

void serve_control_verify_checkpoint(void *arg, struct rpc_call *call,
                                     const ProtobufCMessage *message)
{
    const Pb__VerifyCheckpointRequest *request = (const Pb__VerifyCheckpointRequest *)message;

    serve_control_checkpoint(arg, call, "call.verify-checkpoint", request->request_id, NULL,
                             request->checkpoint, message);
}

void serve_control_hold_checkpoint(void *arg, struct rpc_call *call,
                                   const ProtobufCMessage *message)
{
    const Pb__HoldCheckpointRequest *request = (const Pb__HoldCheckpointRequest *)message;

    serve_control_checkpoint(arg, call, "call.hold-checkpoint", request->request_id,
                             request->holder, request->checkpoint, message);
}

void serve_control_read(void *arg, struct rpc_call *call, const ProtobufCMessage *request)
{
    struct serve *serve = arg;

    reader_ask(serve->options.reader, rpc_call_identity(call), request, serve_reply_done,
               serve_reply_open(call, NULL, 0));
}
