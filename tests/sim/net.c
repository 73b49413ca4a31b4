/* net.c - the simulated network. See net.h. */
#include "tests/sim/net.h"
#include "base/mem.h"
#include "proto/text/text_format.h"
#include "tests/sim/cluster.h"
#include <string.h>

struct net_uplink {
    struct uplink uplink; /* first */
    struct list node;     /* in cluster->uplinks */
    struct host *host;
    struct sim_process *process;
    const struct uplink_events *events;
    void *arg;
    struct conn *conns[2];
    bool dead;
};
struct conn {               /* one stream */
    struct agent_link link; /* first; control streams only */
    struct list node;
    struct cluster *cluster;
    struct host *host;
    struct net_uplink *uplink;
    enum uplink_stream kind;
    struct sim_process *daemon; /* that it leads to */
    bool broken, known;         /* known: the daemon has had its hello */
    int64_t up_at, down_at;     /* last arrivals: order is kept */
};
struct packet {
    struct conn *conn;
    ProtobufCMessage *message;
};

static struct packet *packet_create(struct conn *conn, const ProtobufCMessage *message)
{
    struct packet *packet = NEW(struct packet);

    packet->conn = conn;
    packet->message = message_copy(message);
    return packet;
}

static void packet_destroy(struct packet *packet)
{
    protobuf_c_message_free_unpacked(packet->message, NULL);
    mem_free(packet);
}

static int64_t arrival(struct conn *conn, int64_t *last)
{
    struct sim *sim = conn->cluster->sim;
    int64_t delay = sim_between(sim, 30, 800);

    if (!conn->cluster->calm && sim_chance(sim, 10))
        delay += sim_between(sim, 1000, 300000);
    int64_t at = sim_now_us(sim) + delay;
    if (at <= *last)
        at = *last + 1;
    *last = at;
    return at - sim_now_us(sim);
}

static bool daemon_is_there(const struct conn *conn)
{
    return !conn->broken && conn->cluster->core && conn->cluster->daemon_process == conn->daemon;
}

static bool agent_is_there(const struct conn *conn)
{
    return !conn->uplink->dead && conn->uplink->conns[conn->kind] == conn;
}

/* --- ends */
static void agent_closed(void *arg)
{
    struct conn *conn = arg;

    if (!agent_is_there(conn))
        return;
    conn->uplink->conns[conn->kind] = NULL;
    conn->uplink->events->closed(conn->uplink->arg, conn->kind, STATUS_UNAVAILABLE, "broken");
}

static void daemon_closed(void *arg)
{
    struct conn *conn = arg;

    if (!conn->cluster->core || conn->cluster->daemon_process != conn->daemon ||
        conn->kind != UPLINK_CONTROL || !conn->known)
        return;
    conn->known = false;
    core_agent_gone(conn->cluster->core, &conn->link);
}

static void conn_break(struct conn *conn)
{
    struct sim *sim = conn->cluster->sim;

    if (conn->broken)
        return;
    conn->broken = true;
    if (agent_is_there(conn))
        sim_after(sim, conn->uplink->process, sim_between(sim, 100, 3000000), agent_closed, conn);
    sim_after(sim, NULL, sim_between(sim, 100, 3000000), daemon_closed, conn);
}

void net_break(struct host *host)
{
    LIST_EACH(&host->cluster->conns, item)
    {
        struct conn *conn = LIST_ITEM(item, struct conn, node);
        if (conn->host == host)
            conn_break(conn);
    }
}

void net_daemon_died(struct cluster *cluster)
{
    LIST_EACH(&cluster->conns, item)
    {
        struct conn *conn = LIST_ITEM(item, struct conn, node);
        if (conn->broken)
            continue;
        conn->broken = true;
        if (agent_is_there(conn))
            sim_after(cluster->sim, conn->uplink->process, sim_between(cluster->sim, 100, 5000),
                      agent_closed, conn);
    }
}

void net_fini(struct cluster *cluster)
{
    for (struct list *item; (item = list_take_first(&cluster->conns));)
        mem_free(LIST_ITEM(item, struct conn, node));
    for (struct list *item; (item = list_take_first(&cluster->uplinks));)
        mem_free(LIST_ITEM(item, struct net_uplink, node));
}

/* --- down */
static void arrive_down(void *arg)
{
    struct packet *packet = arg;
    struct conn *conn = packet->conn;

    if (!conn->broken && agent_is_there(conn)) {
        if (conn->kind == UPLINK_CONTROL)
            conn->uplink->events->control(conn->uplink->arg, (Pb__AgentDown *)packet->message);
        else
            conn->uplink->events->bulk(conn->uplink->arg, (Pb__BulkDown *)packet->message);
    }
    packet_destroy(packet);
}

static void send_down(struct conn *conn, const ProtobufCMessage *message)
{
    if (!conn->broken)
        sim_after(conn->cluster->sim, NULL, arrival(conn, &conn->down_at), arrive_down,
                  packet_create(conn, message));
}

static void link_control(struct agent_link *link, const Pb__AgentDown *message)
{
    send_down((struct conn *)link, &message->base);
}

static void link_bulk(struct agent_link *link, const Pb__BulkDown *message)
{
    struct conn *bulk = ((struct conn *)link)->uplink->conns[UPLINK_BULK];

    if (bulk)
        send_down(bulk, &message->base);
}

static void link_close(struct agent_link *link, const char *why)
{
    struct conn *conn = (struct conn *)link;

    sim_trace(conn->cluster->sim, "net: daemon closes %s: %s", conn->host->name, why);
    conn_break(conn);
    struct conn *bulk = conn->uplink->conns[UPLINK_BULK];
    if (bulk)
        conn_break(bulk);
}

static const struct agent_link_ops link_ops = {link_control, link_bulk, link_close};

/* --- up */
static void arrive_control(struct conn *conn, const Pb__AgentUp *up)
{
    if (up->hello) {
        conn->known = true;
        core_agent_hello(conn->cluster->core, &conn->link, conn->host->name, up->hello);
    } else if (conn->known) {
        core_agent_up(conn->cluster->core, &conn->link, up);
    }
}

static void arrive_bulk(struct conn *conn, const Pb__BulkUp *up)
{
    struct conn *control = conn->uplink->conns[UPLINK_CONTROL];
    Pb__BulkDown down = PB__BULK_DOWN__INIT;
    struct core_health health;

    if (!control || control->broken || !control->link.node) {
        conn_break(conn);
        return;
    }
    if (!up->hello) {
        core_agent_bulk(conn->cluster->core, &control->link, up);
        return;
    }
    core_health(conn->cluster->core, &health);
    down.has_term = down.has_ack_seq = true;
    down.term = health.term;
    down.ack_seq = core_agent_bulk_mark(conn->cluster->core, &control->link, up->hello->spool_id);
    send_down(conn, &down.base);
}

static void arrive_up(void *arg)
{
    struct packet *packet = arg;
    struct conn *conn = packet->conn;

    if (daemon_is_there(conn)) {
        if (conn->kind == UPLINK_CONTROL)
            arrive_control(conn, (Pb__AgentUp *)packet->message);
        else
            arrive_bulk(conn, (Pb__BulkUp *)packet->message);
    } else if (!conn->broken) {
        conn_break(conn);
    }
    packet_destroy(packet);
}

static size_t send_up(struct uplink *base, enum uplink_stream kind, const ProtobufCMessage *message)
{
    struct net_uplink *uplink = (struct net_uplink *)base;
    struct conn *conn = uplink->conns[kind];

    if (conn && !conn->broken)
        sim_after(conn->cluster->sim, NULL, arrival(conn, &conn->up_at), arrive_up,
                  packet_create(conn, message));
    return 0;
}

static size_t uplink_control(struct uplink *uplink, const Pb__AgentUp *message)
{
    return send_up(uplink, UPLINK_CONTROL, &message->base);
}

static size_t uplink_bulk(struct uplink *uplink, const Pb__BulkUp *message)
{
    return send_up(uplink, UPLINK_BULK, &message->base);
}

static void uplink_listen(struct uplink *base, const struct uplink_events *events, void *arg)
{
    struct net_uplink *uplink = (struct net_uplink *)base;

    uplink->events = events;
    uplink->arg = arg;
}

static void uplink_open(struct uplink *base, enum uplink_stream kind)
{
    struct net_uplink *uplink = (struct net_uplink *)base;
    struct conn *conn = NEW(struct conn);
    struct cluster *cluster = uplink->host->cluster;

    conn->link.ops = &link_ops;
    conn->cluster = cluster;
    conn->host = uplink->host;
    conn->uplink = uplink;
    conn->kind = kind;
    conn->daemon = cluster->daemon_process;
    uplink->conns[kind] = conn;
    list_add_last(&cluster->conns, &conn->node);
    if (!cluster->core || !cluster->core_started || uplink->host->partitioned)
        conn_break(conn);
}

static void uplink_close(struct uplink *base, enum uplink_stream kind)
{
    struct conn *conn = ((struct net_uplink *)base)->conns[kind];

    if (conn && conn->broken) /* its end is on its way */
        return;
    if (conn)
        conn_break(conn);
}

static void uplink_fetch(struct uplink *base, const char *digest,
                         const struct uplink_fetch_events *events, void *arg)
{
    (void)base;
    (void)digest;
    events->done(arg, STATUS_NOT_FOUND, "the simulator has no code");
}

static void uplink_destroy(struct uplink *base)
{
    struct net_uplink *uplink = (struct net_uplink *)base;

    uplink->dead = true;
    for (int kind = 0; kind < 2; kind++)
        if (uplink->conns[kind])
            conn_break(uplink->conns[kind]);
}

static const struct uplink_ops uplink_ops = {uplink_listen, uplink_open,  uplink_control,
                                             uplink_bulk,   uplink_close, uplink_fetch,
                                             uplink_destroy};

struct uplink *net_uplink_create(struct host *host, struct sim_process *process)
{
    struct net_uplink *uplink = NEW(struct net_uplink);

    uplink->uplink.ops = &uplink_ops;
    uplink->host = host;
    uplink->process = process;
    list_add_last(&host->cluster->uplinks, &uplink->node);
    return &uplink->uplink;
}
