/* serve.c - the one table of all methods: kind, who may call, who answers. See serve.h. */
#include "base/mem.h"
#include "daemon/serve_hub.h"

#define ADMIN  IDENTITY_ADMIN
#define SUBMIT (IDENTITY_ADMIN | IDENTITY_SUBMITTER)
#define READ   (IDENTITY_ANY_USER | IDENTITY_DAEMON)
#define AGENT  IDENTITY_AGENT

/* A submitter is further held to his projects, by the handlers. */
static const struct rpc_method serve_control_methods[] = {
    {"Submit", RPC_UNARY, SUBMIT, serve_submit},
    {"SubmitMany", RPC_UNARY, SUBMIT, serve_submit_many},
    {"Cancel", RPC_UNARY, SUBMIT, serve_control_cancel},
    {"Hold", RPC_UNARY, SUBMIT, serve_control_hold},
    {"ListJobs", RPC_UNARY, READ, serve_control_read},
    {"ShowJob", RPC_UNARY, READ, serve_control_read},
    {"Watch", RPC_SERVER_STREAM, READ, serve_watch},
    {"ListEvents", RPC_UNARY, READ, serve_control_read},
    {"Logs", RPC_SERVER_STREAM, READ, serve_logs},
    {"Metrics", RPC_UNARY, READ, serve_control_read},
    {"ListCheckpoints", RPC_UNARY, READ, serve_control_read},
    {"ShowCheckpoint", RPC_UNARY, READ, serve_control_read},
    {"PinCheckpoint", RPC_UNARY, SUBMIT, serve_control_pin_checkpoint},
    {"VerifyCheckpoint", RPC_UNARY, SUBMIT, serve_control_verify_checkpoint},
    {"HoldCheckpoint", RPC_UNARY, SUBMIT, serve_control_hold_checkpoint},
    {"PlanRetention", RPC_UNARY, READ, serve_control_read},
    {"Fsck", RPC_SERVER_STREAM, ADMIN, serve_fsck},
    {"ListNodes", RPC_UNARY, READ, serve_control_read},
    {"SetNode", RPC_UNARY, ADMIN, serve_control_set_node},
    {"HaveCode", RPC_UNARY, SUBMIT, serve_control_read},
    {"PutCode", RPC_CLIENT_STREAM, SUBMIT, serve_code_put},
    {"Status", RPC_UNARY, READ | AGENT, serve_control_read},
    {NULL, RPC_UNARY, IDENTITY_NONE, NULL},
};
/* An agent speaks for the node in its certificate only, which the handlers see to. */
static const struct rpc_method serve_agents_methods[] = {
    {"Control", RPC_BIDI, AGENT, serve_agents_control},
    {"Bulk", RPC_BIDI, AGENT, serve_agents_bulk},
    {"FetchCode", RPC_SERVER_STREAM, AGENT, serve_code_fetch},
    {NULL, RPC_UNARY, IDENTITY_NONE, NULL},
};

struct serve *serve_create(const struct serve_options *options)
{
    struct serve *serve = NEW(struct serve);

    serve->options = *options;
    serve->log_asks = map_create();
    serve->agents_by_key = map_create();
    list_init(&serve->log_relays);
    list_init(&serve->code_blobs);
    serve->code_known = map_create();
    list_init(&serve->agents);
    list_init(&serve->fscks);
    serve->services[0] =
        (struct rpc_service){&pb__control__descriptor, serve_control_methods, serve};
    serve->services[1] = (struct rpc_service){&pb__agents__descriptor, serve_agents_methods, serve};
    return serve;
}

void serve_destroy(struct serve *serve)
{
    if (!serve)
        return;
    serve_code_fini(serve);
    serve_code_use_fini(serve);
    serve_fsck_fini(serve);
    map_destroy(serve->log_asks);
    map_destroy(serve->agents_by_key);
    mem_free(serve);
}

const struct rpc_service *serve_services(struct serve *serve, size_t *count)
{
    *count = COUNT_OF(serve->services);
    return serve->services;
}

void serve_counts(const struct serve *serve, struct serve_counts *out)
{
    *out = serve->counts;
}

/* The term of a core does not change; asking for its health costs a walk over all jobs. */
uint64_t serve_term(struct serve *serve)
{
    struct core_health health = {0};

    if (serve->term == 0) {
        core_health(serve->options.core, &health);
        serve->term = health.term;
    }
    return serve->term;
}
