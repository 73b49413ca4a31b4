/* call.c - mutating calls. See call.h. */
#include "daemon/call.h"
#include "base/log.h"
#include "checkpoint/digest.h"
#include "daemon/call_checkpoint.h"
#include "daemon/call_fsck.h"
#include "daemon/job.h"
#include "daemon/node.h"
#include "daemon/turn.h"
#include "daemon/watch.h"

struct request { /* an answer that is kept */
    struct hub *hub;
    struct entry entry; /* Pb__RequestRow */
    struct list node;   /* in hub->requests_order */
    char *id;
};

/* --- kept answers */
static void request_destroy(struct request *request)
{
    map_remove_text(request->hub->requests, request->id);
    list_remove(&request->node);
    entry_fini(&request->entry);
    mem_free(request->id);
    mem_free(request);
}

static void request_settled(struct entry *entry, bool committed, void *arg)
{
    (void)entry;
    if (!committed)
        request_destroy(arg);
}

static struct request *request_add(struct hub *hub, const char *id)
{
    struct request *request = NEW(struct request);

    request->hub = hub;
    request->id = mem_strdup(id);
    entry_init(&request->entry, CHANGE_REQUEST, request_settled, request);
    map_put_text(hub->requests, id, request);
    list_add_last(&hub->requests_order, &request->node);
    if (map_count(hub->requests) > HUB_REQUESTS_MAX) {
        struct request *oldest = LIST_ITEM(hub->requests_order.next, struct request, node);
        if (oldest->entry.row && !oldest->entry.draft)
            request_destroy(oldest);
    }
    return request;
}

void call_load_take(struct hub *hub, Pb__RequestRow *row_take)
{
    if (!row_take->id || map_get_text(hub->requests, row_take->id)) {
        protobuf_c_message_free_unpacked(&row_take->base, NULL);
        return;
    }
    request_add(hub, row_take->id)->entry.row = &row_take->base;
}

static void message_digest(const ProtobufCMessage *message, char out[65])
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = mem_alloc(size + 1);

    protobuf_c_message_pack(message, bytes);
    digest_sha256(bytes, size, out);
    mem_free(bytes);
}

/* Sets *reply when the id was answered before. */
static enum status request_recall(struct hub *hub, const char *id, const ProtobufCMessage *message,
                                  const ProtobufCMessageDescriptor *reply_type,
                                  ProtobufCMessage **reply, struct error *err)
{
    const struct request *request = map_get_text(hub->requests, id);
    char digest[65];

    if (!request)
        return STATUS_OK;
    const Pb__RequestRow *row = (const Pb__RequestRow *)draft_view(&request->entry);
    message_digest(message, digest);
    if (row->digest.len != 64 || memcmp(row->digest.data, digest, 64) != 0)
        return error_set(err, STATUS_EXISTS,
                         "request id %.64s was used before, for another request", id);
    *reply = protobuf_c_message_unpack(reply_type, NULL, row->reply.len, row->reply.data);
    return *reply ? STATUS_OK : error_set(err, STATUS_INTERNAL, "stored answer is damaged");
}

static void request_keep(struct hub *hub, const char *id, const char *actor,
                         const ProtobufCMessage *message, const ProtobufCMessage *reply)
{
    struct request *request = request_add(hub, id);
    Pb__RequestRow *row = NEW(Pb__RequestRow);
    char digest[65];

    pb__request_row__init(row);
    message_digest(message, digest);
    row->id = mem_strdup(id);
    row->actor = mem_strdup(actor);
    row->method = mem_strdup(message->descriptor->short_name);
    row->has_at_us = row->has_digest = row->has_reply = true;
    row->at_us = loop_wall_us(hub->loop);
    row->digest = (ProtobufCBinaryData){64, mem_dup(digest, 64)};
    row->reply.len = protobuf_c_message_get_packed_size(reply);
    row->reply.data = mem_alloc(row->reply.len + 1);
    protobuf_c_message_pack(reply, row->reply.data);
    draft_add_take(&hub->drafts, &request->entry, &row->base);
}

/* --- the calls */
static enum status submit_one(struct hub *hub, const char *actor, const Pb__SubmitRequest *request,
                              ProtobufCMessage **reply, struct error *err)
{
    Pb__SubmitReply out = PB__SUBMIT_REPLY__INIT;

    if (!request->spec || !request->request_id)
        return error_set(err, STATUS_INVALID, "submit: spec and request_id are needed");
    enum status st = request_recall(hub, request->request_id, &request->base,
                                    &pb__submit_reply__descriptor, reply, err);
    if (st != STATUS_OK || *reply)
        return st;
    out.has_job = true;
    if (request->dry_run) {
        out.note = (char *)"valid; nothing was submitted";
        *reply = message_copy(&out.base);
        return STATUS_OK;
    }
    if (hub->queue_count >= hub->options.queued_max)
        return error_set(err, STATUS_EXHAUSTED,
                         "submit: %zu jobs are queued, the limit is %u (queued_max)",
                         hub->queue_count, hub->options.queued_max);
    out.job = job_submit(hub, request->spec, actor);
    request_keep(hub, request->request_id, actor, &request->base, &out.base);
    *reply = message_copy(&out.base);
    return STATUS_OK;
}

static enum status submit_many(struct hub *hub, struct call *call)
{
    const Pb__SubmitManyRequest *many = (const Pb__SubmitManyRequest *)call->request;
    Pb__SubmitManyReply *reply = NEW(Pb__SubmitManyReply);

    pb__submit_many_reply__init(reply);
    reply->results = mem_array(many->n_requests + 1, sizeof(*reply->results));
    for (size_t i = 0; i < many->n_requests; i++) {
        Pb__SubmitResult *result = NEW(Pb__SubmitResult);
        ProtobufCMessage *one = NULL;
        struct error err = {0};
        pb__submit_result__init(result);
        result->has_status = true;
        result->status = (int32_t)submit_one(hub, call->actor, many->requests[i], &one, &err);
        if (one) {
            result->has_job = true;
            result->job = ((Pb__SubmitReply *)one)->job;
            protobuf_c_message_free_unpacked(one, NULL);
        } else {
            result->error = mem_strdup(err.text);
        }
        reply->results[reply->n_results++] = result;
    }
    call->reply = &reply->base;
    return STATUS_OK;
}

static struct job *find_job(struct hub *hub, int64_t id, struct error *err)
{
    struct job *job = id > 0 ? map_get(hub->jobs, (uint64_t)id) : NULL;

    if (!job)
        error_set(err, STATUS_NOT_FOUND, "no job %lld, or it ended long ago", (long long)id);
    return job;
}

static ProtobufCMessage *job_reply(const struct job *job)
{
    Pb__JobReply reply = PB__JOB_REPLY__INIT;

    reply.job = job_view(job);
    return message_copy(&reply.base);
}

static enum status cancel(struct hub *hub, struct call *call)
{
    const Pb__CancelRequest *request = (const Pb__CancelRequest *)call->request;
    struct job *job = find_job(hub, request->job, &call->err);

    if (!job)
        return STATUS_NOT_FOUND;
    enum status st = job_cancel(job, call->actor, request->why, request->now, &call->err);
    if (st == STATUS_OK)
        call->reply = job_reply(job);
    return st;
}

static enum status hold(struct hub *hub, struct call *call)
{
    const Pb__HoldRequest *request = (const Pb__HoldRequest *)call->request;
    struct job *job = find_job(hub, request->job, &call->err);

    if (!job)
        return STATUS_NOT_FOUND;
    enum status st = job_hold(job, call->actor, request->release, &call->err);
    if (st == STATUS_OK)
        call->reply = job_reply(job);
    return st;
}

#define NAMES_MAX 4096 /* of nodes, for "did you mean" */

static enum status no_node(const struct hub *hub, const char *name, struct error *err)
{
    const char **names = mem_array(NAMES_MAX, sizeof(*names));
    size_t count = 0, at = 0;

    for (struct node *node; count < NAMES_MAX && (node = map_next(hub->nodes, &at));)
        if (node->entry.row)
            names[count++] = ((const Pb__Node *)node->entry.row)->name;
    const char *near = text_nearest(name, names, count);
    mem_free(names);
    return error_set(err, STATUS_NOT_FOUND, "no node '%.80s'%s%.80s%s", name,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static enum status set_node(struct hub *hub, struct call *call)
{
    const Pb__SetNodeRequest *request = (const Pb__SetNodeRequest *)call->request;
    struct node *node = request->node ? map_get_text(hub->nodes, request->node) : NULL;
    Pb__SetNodeReply reply = PB__SET_NODE_REPLY__INIT;

    if (!node)
        return no_node(hub, request->node ? request->node : "", &call->err);
    enum status st = node_set_admin(node, request->admin, request->note, call->actor, &call->err);
    if (st != STATUS_OK)
        return st;
    reply.node = node_view(node);
    call->reply = message_copy(&reply.base);
    return STATUS_OK;
}

static enum status put_code(struct hub *hub, struct call *call)
{
    struct entry *entry = NEW(struct entry);
    Pb__PutCodeReply reply = PB__PUT_CODE_REPLY__INIT;

    entry_init(entry, CHANGE_CODE, call_code_settled, entry);
    draft_add_take(&hub->drafts, entry, message_copy(call->request));
    reply.has_bytes = true;
    reply.bytes = ((const Pb__CodeRow *)call->request)->data.len;
    call->reply = message_copy(&reply.base);
    return STATUS_OK;
}

/* Code lives in the store only. */
void call_code_settled(struct entry *entry, bool committed, void *arg)
{
    (void)committed;
    entry_fini(entry);
    mem_free(arg);
}

static enum status submit(struct hub *hub, struct call *call)
{
    return submit_one(hub, call->actor, (const Pb__SubmitRequest *)call->request, &call->reply,
                      &call->err);
}

static const struct call_kind {
    const ProtobufCMessageDescriptor *request, *reply;
    enum status (*decide)(struct hub *hub, struct call *call);
    bool keeps; /* the answer is kept under the request id here (submits do it themselves) */
} call_kinds[] = {
    {&pb__submit_request__descriptor, &pb__submit_reply__descriptor, submit, false},
    {&pb__submit_many_request__descriptor, &pb__submit_many_reply__descriptor, submit_many, false},
    {&pb__cancel_request__descriptor, &pb__job_reply__descriptor, cancel, true},
    {&pb__hold_request__descriptor, &pb__job_reply__descriptor, hold, true},
    {&pb__set_node_request__descriptor, &pb__set_node_reply__descriptor, set_node, true},
    {&pb__code_row__descriptor, &pb__put_code_reply__descriptor, put_code, false},
    {&pb__pin_checkpoint_request__descriptor, &pb__checkpoint_reply__descriptor,
     call_checkpoint_pin, true},
    {&pb__verify_checkpoint_request__descriptor, &pb__checkpoint_reply__descriptor,
     call_checkpoint_verify, true},
    {&pb__hold_checkpoint_request__descriptor, &pb__checkpoint_reply__descriptor,
     call_checkpoint_hold, true},
    {&pb__fsck_repair__descriptor, &pb__checkpoint_reply__descriptor, call_fsck_repair, false},
};

static const char *call_request_id(const struct call *call)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(call->request->descriptor, "request_id");

    return field ? *(char *const *)((const char *)call->request + field->offset) : NULL;
}

static enum status run_kind(struct hub *hub, struct call *call, const struct call_kind *kind)
{
    const char *id = kind->keeps ? call_request_id(call) : NULL;

    if (!kind->keeps)
        return kind->decide(hub, call);
    if (!id)
        return error_set(&call->err, STATUS_INVALID, "request_id is needed");
    enum status st = request_recall(hub, id, call->request, kind->reply, &call->reply, &call->err);
    if (st != STATUS_OK || call->reply)
        return st;
    st = kind->decide(hub, call);
    if (st == STATUS_OK)
        request_keep(hub, id, call->actor, call->request, call->reply);
    return st;
}

void call_run(struct hub *hub, struct call *call)
{
    call->err = (struct error){0};
    for (size_t i = 0; i < COUNT_OF(call_kinds); i++)
        if (call->request->descriptor == call_kinds[i].request) {
            call->st = run_kind(hub, call, &call_kinds[i]);
            return;
        }
    call->st = error_set(&call->err, STATUS_UNIMPLEMENTED, "not a changing call");
}

size_t call_weight(const struct call *call)
{
    if (call->request->descriptor != &pb__submit_many_request__descriptor)
        return 1;
    return ((const Pb__SubmitManyRequest *)call->request)->n_requests + 1;
}

void call_rewind(struct call *call)
{
    if (call->reply)
        protobuf_c_message_free_unpacked(call->reply, NULL);
    call->reply = NULL;
    call->st = STATUS_OK;
}

void call_finish_take(struct hub *hub, struct call *call, enum status st, const struct error *err)
{
    (void)hub;
    if (st == STATUS_OK && call->st != STATUS_OK)
        call->done(call->arg, call->st, &call->err, NULL);
    else
        call->done(call->arg, st, err, st == STATUS_OK ? call->reply : NULL);
    call_rewind(call);
    protobuf_c_message_free_unpacked(call->request, NULL);
    mem_free(call->actor);
    mem_free(call);
}

static void refuse_all(void *arg)
{
    struct hub *hub = arg;
    struct list refused;

    list_init(&refused);
    for (struct list *item; (item = list_take_first(&hub->refused));)
        list_add_last(&refused, item);
    for (struct list *item; (item = list_take_first(&refused));) {
        struct call *call = LIST_ITEM(item, struct call, node);
        call_finish_take(NULL, call, call->err.code, &call->err);
    }
}

void call_fini(struct hub *hub)
{
    refuse_all(hub);
    loop_timer_destroy(hub->refuse_timer);
    while (!list_is_empty(&hub->requests_order))
        request_destroy(LIST_ITEM(hub->requests_order.next, struct request, node));
}

/* --- the way in */
static void refuse_later(struct hub *hub, struct call *call)
{
    list_add_last(&hub->refused, &call->node);
    loop_timer_set(hub->refuse_timer, 0);
}

void call_init(struct hub *hub)
{
    list_init(&hub->calls);
    list_init(&hub->turn_calls);
    list_init(&hub->refused);
    hub->refuse_timer = loop_timer_create(hub->loop, refuse_all, hub);
}

void core_call(struct core *core, const char *actor, const ProtobufCMessage *request,
               core_done done, void *arg)
{
    struct hub *hub = (struct hub *)core;
    struct call *call = NEW(struct call);

    call->request = message_copy(request);
    call->actor = mem_strdup(actor ? actor : "");
    call->done = done;
    call->arg = arg;
    if (!hub->loaded || !hub->usable || hub->fenced) {
        error_set(&call->err, STATUS_UNAVAILABLE,
                  "the database is away (%.120s): nothing was changed; retry with the same "
                  "request id in a second",
                  hub->store_text);
        refuse_later(hub, call);
        return;
    }
    if (hub->calls_count >= HUB_CALLS_MAX) {
        error_set(&call->err, STATUS_EXHAUSTED, "%zu calls are waiting: try again later",
                  hub->calls_count);
        refuse_later(hub, call);
        return;
    }
    list_add_last(&hub->calls, &call->node);
    hub->calls_count++;
    turn_wake(hub);
}
