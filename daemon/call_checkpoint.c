/* call_checkpoint.c - see call_checkpoint.h. */
#include "daemon/call_checkpoint.h"
#include "daemon/save_chore.h"
#include "daemon/save_keep.h"

#define LEASE_S_MAX 86400

static struct save *find(struct hub *hub, int64_t id, struct call *call)
{
    struct save *save = id > 0 ? map_get(hub->saves, (uint64_t)id) : NULL;

    if (!save)
        (void)error_set(&call->err, STATUS_NOT_FOUND,
                        "no checkpoint %lld of a job that is still known", (long long)id);
    return save;
}

static void reply(struct call *call, const struct save *save)
{
    Pb__CheckpointReply out = PB__CHECKPOINT_REPLY__INIT;

    out.checkpoint = save_view(save);
    call->reply = message_copy(&out.base);
}

enum status call_checkpoint_pin(struct hub *hub, struct call *call)
{
    const Pb__PinCheckpointRequest *request = (const Pb__PinCheckpointRequest *)call->request;
    struct save *save = find(hub, request->checkpoint, call);

    if (!save)
        return STATUS_NOT_FOUND;
    enum status st = save_keep_pin(save, !request->unpin, request->note, call->actor, &call->err);
    if (st == STATUS_OK)
        reply(call, save);
    return st;
}

enum status call_checkpoint_verify(struct hub *hub, struct call *call)
{
    const Pb__VerifyCheckpointRequest *request = (const Pb__VerifyCheckpointRequest *)call->request;
    struct save *save = find(hub, request->checkpoint, call);

    if (!save)
        return STATUS_NOT_FOUND;
    enum status st = save_chore_verify(save, call->actor, &call->err);
    if (st == STATUS_OK)
        reply(call, save);
    return st;
}

enum status call_checkpoint_hold(struct hub *hub, struct call *call)
{
    const Pb__HoldCheckpointRequest *request = (const Pb__HoldCheckpointRequest *)call->request;
    struct save *save = find(hub, request->checkpoint, call);
    char holder[400];

    if (!save)
        return STATUS_NOT_FOUND;
    if (request->lease_s > LEASE_S_MAX)
        return error_set(&call->err, STATUS_INVALID, "lease_s: 1 to %d, 0 ends it", LEASE_S_MAX);
    snprintf(holder, sizeof(holder), "%.150s %.200s", call->actor,
             request->holder ? request->holder : "");
    enum status st = save_keep_hold(save, holder, request->lease_s, &call->err);
    if (st == STATUS_OK)
        reply(call, save);
    return st;
}
