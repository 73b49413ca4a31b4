/* serve_submit.c - Submit and SubmitMany: checks on the loop, code that is named must be stored,
 * then one call of the core.
 *
 * Every problem of a spec is reported in one answer. Entries of SubmitMany stand alone: a bad one
 * harms no other, and the results keep the order of the requests. */
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/serve_hub.h"
#include "proto/text/job_check.h"
#include "proto/text/message.h"
#include <stdio.h>
#include <string.h>

#define SERVE_SUBMIT_MANY_MAX 1000
#define SERVE_PROBLEMS_BYTES  3000 /* gRPC puts them into a header */

/* Cuts at the end of a line and says how many lines are missing. */
static void serve_submit_problems(const char *problems, char *out, size_t cap)
{
    size_t len = strlen(problems), more = 0;

    while (len > 0 && problems[len - 1] == '\n')
        len--;
    if (len < cap) {
        memcpy(out, problems, len);
        out[len] = '\0';
        return;
    }
    size_t cut = cap - 40;
    while (cut > 0 && problems[cut] != '\n')
        cut--;
    for (size_t i = cut; i < len; i++)
        more += problems[i] == '\n';
    snprintf(out, cap, "%.*s\n(and %zu more)", (int)cut, problems, more);
}

static enum status serve_submit_check(const struct identity *who, const Pb__SubmitRequest *request,
                                      char *out, size_t cap)
{
    struct text problems;
    const char *project;

    if (!serve_reply_request_id_ok(request->request_id)) {
        snprintf(out, cap,
                 "request_id: 8 to 64 characters of A-Z a-z 0-9 . : _ -, new for each "
                 "submit");
        return STATUS_INVALID;
    }
    if (!request->spec) {
        snprintf(out, cap, "spec: missing");
        return STATUS_INVALID;
    }
    project = request->spec->project ? request->spec->project : "default";
    if (!(who->roles & IDENTITY_ADMIN) && !identity_may_use(who, project)) {
        snprintf(out, cap, "project '%.200s' is not one that you may use", project);
        return STATUS_DENIED;
    }
    text_init(&problems, 0);
    enum status st = job_check(request->spec, &problems);
    if (st != STATUS_OK)
        serve_submit_problems(text_get(&problems), out, cap);
    text_fini(&problems);
    return st;
}

static void serve_submit_dry(const struct serve *serve, struct rpc_call *call,
                             const Pb__SubmitRequest *request)
{
    Pb__SubmitReply reply = PB__SUBMIT_REPLY__INIT;
    char why[400], note[440];

    reply.note = "checked; nothing is stored";
    if (!core_fits(serve->options.core, request->spec, why, sizeof(why))) {
        snprintf(note, sizeof(note), "fits nowhere: %s", why);
        reply.note = note;
    }
    rpc_call_reply(call, &reply.base);
}

/* A submit that waits for the answer whether its code is stored. */
struct serve_submit_held {
    struct serve *serve;
    struct serve_reply *reply;
    Pb__SubmitRequest *request; /* a copy */
    char actor[300];
};

static void serve_submit_held_done(void *arg, enum status st, const struct error *err,
                                   const bool *missing)
{
    struct serve_submit_held *held = arg;
    struct error refused = {.code = STATUS_PRECONDITION};

    if (st == STATUS_OK && missing[0]) {
        serve_code_use_text(held->request->spec, refused.text, sizeof(refused.text));
        serve_reply_done(held->reply, STATUS_PRECONDITION, &refused, NULL);
    } else if (st != STATUS_OK) {
        serve_reply_done(held->reply, st, err, NULL);
    } else {
        core_call(held->serve->options.core, held->actor, &held->request->base, serve_reply_done,
                  held->reply);
    }
    protobuf_c_message_free_unpacked(&held->request->base, NULL);
    mem_free(held);
}

static void serve_submit_hold(struct serve *serve, struct rpc_call *call,
                              const Pb__SubmitRequest *request)
{
    struct serve_submit_held *held = NEW(struct serve_submit_held);

    held->serve = serve;
    held->request = (Pb__SubmitRequest *)(void *)message_copy(&request->base);
    identity_text(rpc_call_identity(call), held->actor, sizeof(held->actor));
    held->reply = serve_reply_open(call, "call.submit", 0);
    serve_code_use(serve, (const Pb__JobSpec *const *)&held->request->spec, 1,
                   serve_submit_held_done, held);
}

void serve_submit(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct serve *serve = arg;
    const Pb__SubmitRequest *request = (const Pb__SubmitRequest *)(const void *)message;
    char problems[SERVE_PROBLEMS_BYTES];
    enum status st =
        serve_submit_check(rpc_call_identity(call), request, problems, sizeof(problems));

    if (st != STATUS_OK)
        rpc_call_fail(call, st, problems);
    else if (request->dry_run)
        serve_submit_dry(serve, call,
                         request); /* ctl uploads code only for a submit that is meant */
    else
        serve_submit_hold(serve, call, request);
}

/* --- many */

struct serve_submits {
    struct serve *serve;
    struct serve_reply *reply;
    Pb__SubmitManyRequest *request; /* a copy */
    size_t count;
    Pb__SubmitResult *results; /* those that failed the check are filled; the core fills the rest */
    bool *passed;
    const Pb__JobSpec **specs; /* of those that passed; NULL else */
    char actor[300];
};

static void serve_submits_destroy(struct serve_submits *submits)
{
    for (size_t i = 0; i < submits->count; i++)
        if (!submits->passed[i])
            mem_free(submits->results[i].error);
    mem_free(submits->results);
    mem_free(submits->passed);
    mem_free(submits->specs);
    protobuf_c_message_free_unpacked(&submits->request->base, NULL);
    mem_free(submits);
}

/* Results of the core go, in order, to the entries that passed the check. */
static void serve_submits_done(void *arg, enum status st, const struct error *err,
                               const ProtobufCMessage *message)
{
    struct serve_submits *submits = arg;
    const Pb__SubmitManyReply *got = (const Pb__SubmitManyReply *)(const void *)message;
    Pb__SubmitManyReply reply = PB__SUBMIT_MANY_REPLY__INIT;
    Pb__SubmitResult **list = mem_array(submits->count + 1, sizeof(*list));
    size_t next = 0;

    for (size_t i = 0; i < submits->count && st == STATUS_OK; i++) {
        list[i] = &submits->results[i];
        if (submits->passed[i] && got && next < got->n_results)
            list[i] = got->results[next++];
    }
    reply.results = list;
    reply.n_results = submits->count;
    serve_reply_done(submits->reply, st, err, &reply.base);
    mem_free(list);
    serve_submits_destroy(submits);
}

static void serve_submits_refuse(struct serve_submits *submits, size_t at, enum status st,
                                 const char *text)
{
    Pb__SubmitResult *result = &submits->results[at];

    submits->passed[at] = false;
    result->has_status = true;
    result->status = (int32_t)st;
    result->error = text ? mem_strdup(text) : NULL;
}

static void serve_submits_check(const struct identity *who, struct serve_submits *submits)
{
    char problems[SERVE_PROBLEMS_BYTES];

    for (size_t i = 0; i < submits->count; i++) {
        const Pb__SubmitRequest *request = submits->request->requests[i];
        Pb__SubmitResult *result = &submits->results[i];
        enum status st = serve_submit_check(who, request, problems, sizeof(problems));
        pb__submit_result__init(result);
        submits->passed[i] = st == STATUS_OK && !request->dry_run;
        if (!submits->passed[i]) {
            serve_submits_refuse(submits, i, st, st == STATUS_OK ? NULL : problems);
            continue;
        }
        submits->specs[i] = request->spec;
        result->error = "no answer"; /* the core answers every entry */
        result->has_status = true;
        result->status = STATUS_INTERNAL;
    }
}

static void serve_submits_call(void *arg, enum status st, const struct error *err,
                               const bool *missing)
{
    struct serve_submits *submits = arg;
    Pb__SubmitManyRequest checked = PB__SUBMIT_MANY_REQUEST__INIT;
    char text[240];

    if (st != STATUS_OK) {
        serve_submits_done(submits, st, err, NULL);
        return;
    }
    checked.requests = mem_array(submits->count, sizeof(*checked.requests));
    for (size_t i = 0; i < submits->count; i++) {
        if (submits->passed[i] && missing[i]) {
            serve_code_use_text(submits->specs[i], text, sizeof(text));
            serve_submits_refuse(submits, i, STATUS_PRECONDITION, text);
        }
        if (submits->passed[i])
            checked.requests[checked.n_requests++] = submits->request->requests[i];
    }
    Pb__SubmitRequest **good = checked.requests;
    if (checked.n_requests == 0)
        serve_submits_done(submits, STATUS_OK, NULL, NULL);
    else
        core_call(submits->serve->options.core, submits->actor, &checked.base, serve_submits_done,
                  submits);
    mem_free(good);
}

void serve_submit_many(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct serve *serve = arg;
    const Pb__SubmitManyRequest *request = (const Pb__SubmitManyRequest *)(const void *)message;

    if (request->n_requests == 0 || request->n_requests > SERVE_SUBMIT_MANY_MAX) {
        rpc_call_fail(call, STATUS_INVALID, "requests: 1 to 1,000 entries a call");
        return;
    }
    struct serve_submits *submits = NEW(struct serve_submits);
    submits->serve = serve;
    submits->request = (Pb__SubmitManyRequest *)(void *)message_copy(message);
    submits->count = request->n_requests;
    submits->results = mem_array(submits->count, sizeof(*submits->results));
    submits->passed = mem_array(submits->count, sizeof(*submits->passed));
    submits->specs = mem_array(submits->count, sizeof(*submits->specs));
    identity_text(rpc_call_identity(call), submits->actor, sizeof(submits->actor));
    serve_submits_check(rpc_call_identity(call), submits);
    submits->reply = serve_reply_open(call, "call.submit-many", 0);
    serve_code_use(serve, submits->specs, submits->count, serve_submits_call, submits);
}
