/* status_route.c - paths of the status endpoint: the same questions and messages as gRPC, as JSON.
 */
#include "base/mem.h"
#include "daemon/status_request.h"
#include <stdio.h>
#include <string.h>

#define STATUS_STATES_MAX 16

static const char *status_argument(const struct status_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

/* --- answers of the reader */

static unsigned status_http_code(enum status st)
{
    switch (st) {
    case STATUS_OK:
        return 200;
    case STATUS_NOT_FOUND:
        return 404;
    case STATUS_INVALID:
    case STATUS_OUT_OF_RANGE:
        return 400;
    case STATUS_EXHAUSTED:
        return 413;
    case STATUS_UNAVAILABLE:
    case STATUS_DEADLINE:
    case STATUS_CANCELLED:
        return 503;
    default:
        return 500;
    }
}

static void status_route_answered(void *arg, enum status st, const struct error *err,
                                  const ProtobufCMessage *reply)
{
    struct status_request *request = arg;

    if (!request->connection) { /* the client, or the whole endpoint, has gone */
        text_fini(&request->body);
        mem_free(request);
        return;
    }
    if (st == STATUS_OK)
        status_request_json(request, 200, reply);
    else
        status_request_error(request, status_http_code(st), "%s", err ? err->text : "no answer");
}

static void status_ask(struct status_request *request, const ProtobufCMessage *question)
{
    reader_ask(request->server->options.reader, NULL, question, status_route_answered, request);
}

/* --- routes */

static void status_healthz(struct status_request *request)
{
    text_add(&request->body, "{\"ok\":true}\n"); /* the loop runs: it has just answered */
    status_request_text(request, 200, "application/json");
}

static void status_readyz(struct status_request *request)
{
    SCOPED(arena_destroy) struct arena *arena = arena_create((size_t)1 << 20);
    Pb__StatusReply reply = PB__STATUS_REPLY__INIT;
    struct view_limits limits;

    reader_limits(request->server->options.reader, &limits);
    view_status(arena, request->server->options.core, &limits, &reply);
    status_request_json(request, reply.ready ? 200 : 503, &reply.base);
}

static void status_api_status(struct status_request *request)
{
    Pb__StatusRequest question = PB__STATUS_REQUEST__INIT;

    status_ask(request, &question.base);
}

static void status_api_nodes(struct status_request *request)
{
    Pb__ListNodesRequest question = PB__LIST_NODES_REQUEST__INIT;

    status_ask(request, &question.base);
}

/* "RUNNING,QUEUED" */
static bool status_states(const char *list, Pb__Job__State *out, size_t *count)
{
    char name[32];

    while (*list) {
        size_t len = strcspn(list, ",");
        if (len == 0 || len >= sizeof(name) || *count == STATUS_STATES_MAX)
            return false;
        snprintf(name, sizeof(name), "%.*s", (int)len, list);
        const ProtobufCEnumValue *value =
            protobuf_c_enum_descriptor_get_value_by_name(&pb__job__state__descriptor, name);
        if (!value)
            return false;
        out[(*count)++] = (Pb__Job__State)value->value;
        list += len;
        list += *list == ',';
    }
    return true;
}

static bool status_number(const struct status_request *request, const char *name, int64_t max,
                          int64_t *out)
{
    const char *text = status_argument(request, name);

    return !text || text_to_i64(text, 0, max, out);
}

static void status_api_jobs(struct status_request *request)
{
    Pb__ListJobsRequest question = PB__LIST_JOBS_REQUEST__INIT;
    Pb__JobFilter filter = PB__JOB_FILTER__INIT;
    Pb__Job__State states[STATUS_STATES_MAX];
    const char *wanted = status_argument(request, "state");
    int64_t before = 0, limit = 500, active = 0;

    if (!status_number(request, "before", INT64_MAX, &before) ||
        !status_number(request, "limit", 5000, &limit) ||
        !status_number(request, "active", 1, &active) ||
        (wanted && !status_states(wanted, states, &filter.n_states))) {
        status_request_error(request, 400,
                             "before, limit (1 to 5000), active (0 or 1), state (names, by comma), "
                             "project, name");
        return;
    }
    filter.project = (char *)status_argument(request, "project");
    filter.name = (char *)status_argument(request, "name");
    filter.has_active = filter.active = active == 1;
    filter.states = states;
    question.filter = &filter;
    question.has_before = question.has_limit = question.has_brief = question.brief = true;
    question.before = before;
    question.limit = (uint32_t)limit;
    status_ask(request, &question.base);
}

static void status_api_job(struct status_request *request, const char *rest)
{
    Pb__ShowJobRequest question = PB__SHOW_JOB_REQUEST__INIT;
    int64_t id;

    if (!text_to_i64(rest, 1, INT64_MAX, &id)) {
        status_request_error(request, 404, "a job's number is needed");
        return;
    }
    question.has_job = true;
    question.job = id;
    status_ask(request, &question.base);
}

static const struct status_path {
    const char *path;
    void (*answer)(struct status_request *request);
} status_paths[] = {
    {"/", status_page},
    {"/healthz", status_healthz},
    {"/readyz", status_readyz},
    {"/metrics", status_metrics},
    {"/api/v1/jobs", status_api_jobs},
    {"/api/v1/nodes", status_api_nodes},
    {"/api/v1/status", status_api_status},
};
#define STATUS_JOB_PREFIX "/api/v1/jobs/"

bool status_route(struct status_request *request, const char *path, enum MHD_Result *result)
{
    size_t prefix = strlen(STATUS_JOB_PREFIX);

    if (strcmp(path, "/events") == 0) {
        *result = status_events(request);
        return *result == MHD_YES && !request->ready;
    }
    for (size_t i = 0; i < COUNT_OF(status_paths); i++)
        if (strcmp(path, status_paths[i].path) == 0) {
            status_paths[i].answer(request);
            return false;
        }
    if (strncmp(path, STATUS_JOB_PREFIX, prefix) == 0)
        status_api_job(request, path + prefix);
    else
        status_request_error(request, 404, "no such page: / lists them");
    return false;
}
