/* serve_agents.c - service Agents: an agent's two streams become one struct agent_link of the core.
 *
 * The name in the certificate is the node that an agent may speak for. Control comes first; bulk
 * joins it by node and instance. What an agent has sent and the core has not acknowledged is
 * bounded: past the window its stream is not read, so the transport holds the agent back, not our
 * memory. */
#include "base/log.h"
#include "base/mem.h"
#include "daemon/serve_hub.h"
#include "daemon/window.h"
#include <stdio.h>
#include <string.h>

#define SERVE_HELLO_WAIT_US (10 * 1000000ll)
#define SERVE_AGENTS_MAX    20000
#define SERVE_DOWN_BYTES_MAX                                                                       \
    ((size_t)16 << 20) /* a slower reader is closed: it reconnects and gets the set anew */

struct serve_bulk;
struct serve_agent {
    struct list node_;
    struct agent_link link;
    struct serve *serve;
    struct rpc_call *control;
    struct serve_bulk *bulk;
    struct loop_timer *timer; /* the hello must come */
    char node[256];           /* from the certificate */
    char *key;                /* "node instance"; NULL before the hello */
    bool closing;
    struct window window;
};
struct serve_bulk {
    struct serve *serve;
    struct rpc_call *call;
    struct serve_agent *agent; /* NULL before its hello, and when control has ended */
    struct loop_timer *timer;
    bool ended;
    struct window window;
};

static void serve_bulk_end(struct serve_bulk *bulk, enum status st, const char *text)
{
    struct serve_agent *agent = bulk->agent;

    if (bulk->ended)
        return;
    bulk->ended = true;
    bulk->agent = NULL;
    loop_timer_stop(bulk->timer);
    if (agent) {
        agent->bulk = NULL;
        bulk->serve->counts.bulk_streams--;
        serve_logs_node_away(bulk->serve, agent->node);
        serve_fsck_node_away(bulk->serve, agent->node);
    }
    if (bulk->call)
        rpc_call_end(bulk->call, st, text);
}

/* --- what the core sends */

static void serve_agent_close(struct agent_link *link, const char *why)
{
    struct serve_agent *agent = CONTAINER_OF(link, struct serve_agent, link);

    if (agent->closing)
        return;
    agent->closing = true;
    log_info("agent.close", log_str("node", agent->node), log_str("why", why));
    rpc_call_end(agent->control, STATUS_ABORTED, why);
}

static void serve_agent_control(struct agent_link *link, const Pb__AgentDown *message)
{
    struct serve_agent *agent = CONTAINER_OF(link, struct serve_agent, link);

    if (agent->closing)
        return;
    if (message->has_ack_seq)
        window_ack(&agent->window, agent->control, message->ack_seq);
    if (rpc_call_send(agent->control, &message->base) > SERVE_DOWN_BYTES_MAX)
        serve_agent_close(link, "the agent reads too slowly");
}

static void serve_agent_bulk(struct agent_link *link, const Pb__BulkDown *message)
{
    struct serve_agent *agent = CONTAINER_OF(link, struct serve_agent, link);
    struct serve_bulk *bulk = agent->bulk;

    if (!bulk)
        return;
    if (message->has_ack_seq)
        window_ack(&bulk->window, bulk->call, message->ack_seq);
    if (rpc_call_send(bulk->call, &message->base) > SERVE_DOWN_BYTES_MAX)
        serve_bulk_end(bulk, STATUS_ABORTED, "the agent reads too slowly");
}

static const struct agent_link_ops serve_agent_ops = {
    serve_agent_control,
    serve_agent_bulk,
    serve_agent_close,
};

bool serve_agents_bulk_is_up(const struct agent_link *link)
{
    return CONTAINER_OF(link, struct serve_agent, link)->bulk != NULL;
}

/* --- control stream */

static void serve_agent_late(void *arg)
{
    struct serve_agent *agent = arg;

    serve_agent_close(&agent->link, "no hello within 10 s");
}

static void serve_agent_hello(struct serve_agent *agent, const Pb__Hello *hello)
{
    struct serve *serve = agent->serve;

    if (!hello->instance || !*hello->instance || strlen(hello->instance) > 64 || !hello->spool_id ||
        !*hello->spool_id || strlen(hello->spool_id) > 64) {
        serve_agent_close(&agent->link, "instance and spool_id: 1 to 64 characters are needed");
        return;
    }
    loop_timer_stop(agent->timer);
    agent->key = mem_printf("%s %s", agent->node, hello->instance);
    map_put_text(serve->agents_by_key, agent->key, agent);
    log_info("agent.hello", log_str("node", agent->node),
             log_str("peer", rpc_call_peer(agent->control)));
    core_agent_hello(serve->options.core, &agent->link, agent->node, hello);
}

static void serve_agent_message(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct serve_agent *agent = arg;
    const Pb__AgentUp *up = (const Pb__AgentUp *)(const void *)message;

    (void)call;
    if (agent->closing)
        return;
    if (!message) {
        agent->closing = true;
        rpc_call_end(agent->control, STATUS_OK, "");
    } else if (!agent->key != !!up->hello) {
        serve_agent_close(&agent->link, "the first message, and only the first, is a hello");
    } else if (up->hello) {
        serve_agent_hello(agent, up->hello);
    } else {
        window_add(&agent->window, agent->control, up->seq, window_up_bytes(up));
        core_agent_up(agent->serve->options.core, &agent->link, up);
    }
}

static void serve_agent_closed(void *arg, struct rpc_call *call)
{
    struct serve_agent *agent = arg;
    struct serve *serve = agent->serve;

    (void)call;
    agent->closing = true;
    if (agent->bulk)
        serve_bulk_end(agent->bulk, STATUS_UNAVAILABLE, "the control stream has ended");
    if (agent->key) {
        log_info("agent.gone", log_str("node", agent->node));
        core_agent_gone(serve->options.core, &agent->link);
        if (map_get_text(serve->agents_by_key, agent->key) == agent)
            map_remove_text(serve->agents_by_key, agent->key);
    }
    loop_timer_destroy(agent->timer);
    list_remove(&agent->node_);
    serve->counts.agents--;
    mem_free(agent->key);
    mem_free(agent);
}

void serve_agents_control(void *arg, struct rpc_call *call, const ProtobufCMessage *request)
{
    struct serve *serve = arg;
    const struct identity *who = rpc_call_identity(call);

    (void)request;
    if (serve->counts.agents >= SERVE_AGENTS_MAX) {
        rpc_call_end(call, STATUS_EXHAUSTED, "too many agents are connected");
        return;
    }
    struct serve_agent *agent = NEW(struct serve_agent);
    agent->link.ops = &serve_agent_ops;
    agent->serve = serve;
    agent->control = call;
    snprintf(agent->node, sizeof(agent->node), "%s", who->name);
    agent->timer = loop_timer_create(serve->options.loop, serve_agent_late, agent);
    loop_timer_set(agent->timer, SERVE_HELLO_WAIT_US);
    list_add_last(&serve->agents, &agent->node_);
    serve->counts.agents++;
    rpc_call_on_closed(call, serve_agent_closed, agent);
    rpc_call_on_message(call, serve_agent_message, agent);
}

/* --- bulk stream */

static void serve_bulk_late(void *arg)
{
    serve_bulk_end(arg, STATUS_DEADLINE, "no hello within 10 s");
}

static void serve_bulk_hello(struct serve_bulk *bulk, const Pb__BulkHello *hello)
{
    struct serve *serve = bulk->serve;
    const char *node = rpc_call_identity(bulk->call)->name;
    char key[256 + 66];
    Pb__BulkDown down = PB__BULK_DOWN__INIT;

    if (!hello->node || strcmp(hello->node, node) != 0) {
        serve_bulk_end(bulk, STATUS_DENIED, "an agent speaks for the node in its certificate only");
        return;
    }
    if (!hello->instance || strlen(hello->instance) > 64 || !hello->spool_id ||
        strlen(hello->spool_id) > 64) {
        serve_bulk_end(bulk, STATUS_INVALID, "instance and spool_id are needed");
        return;
    }
    snprintf(key, sizeof(key), "%s %s", node, hello->instance);
    struct serve_agent *agent = map_get_text(serve->agents_by_key, key);
    if (!agent || !agent->link.node) {
        serve_bulk_end(bulk, STATUS_UNAVAILABLE, "the control stream comes first: try again");
        return;
    }
    if (agent->bulk)
        serve_bulk_end(agent->bulk, STATUS_ABORTED, "a newer bulk stream took its place");
    loop_timer_stop(bulk->timer);
    bulk->agent = agent;
    agent->bulk = bulk;
    serve->counts.bulk_streams++;
    down.has_term = down.has_ack_seq = true;
    down.term = serve_term(serve);
    down.ack_seq = core_agent_bulk_mark(serve->options.core, &agent->link, hello->spool_id);
    bulk->window.acked = down.ack_seq;
    rpc_call_send(bulk->call, &down.base);
}

static void serve_bulk_message(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct serve_bulk *bulk = arg;
    const Pb__BulkUp *up = (const Pb__BulkUp *)(const void *)message;

    (void)call;
    if (bulk->ended)
        return;
    if (!message) {
        serve_bulk_end(bulk, STATUS_OK, "");
    } else if (!bulk->agent != !!up->hello) {
        serve_bulk_end(bulk, STATUS_INVALID, "the first message, and only the first, is a hello");
    } else if (up->hello) {
        serve_bulk_hello(bulk, up->hello);
    } else {
        if (up->log)
            serve_logs_chunk(bulk->serve, bulk->agent->node, up->log);
        if (up->vault)
            serve_fsck_chunk(bulk->serve, bulk->agent->node, up->vault);
        if (up->n_batches == 0)
            return;
        window_add(&bulk->window, bulk->call, up->seq, window_bulk_bytes(up));
        core_agent_bulk(bulk->serve->options.core, &bulk->agent->link, up);
    }
}

static void serve_bulk_closed(void *arg, struct rpc_call *call)
{
    struct serve_bulk *bulk = arg;

    (void)call;
    bulk->call = NULL;
    serve_bulk_end(bulk, STATUS_OK, "");
    loop_timer_destroy(bulk->timer);
    mem_free(bulk);
}

void serve_agents_bulk(void *arg, struct rpc_call *call, const ProtobufCMessage *request)
{
    struct serve *serve = arg;
    struct serve_bulk *bulk = NEW(struct serve_bulk);

    (void)request;
    bulk->serve = serve;
    bulk->call = call;
    bulk->timer = loop_timer_create(serve->options.loop, serve_bulk_late, bulk);
    loop_timer_set(bulk->timer, SERVE_HELLO_WAIT_US);
    rpc_call_on_closed(call, serve_bulk_closed, bulk);
    rpc_call_on_message(call, serve_bulk_message, bulk);
}
