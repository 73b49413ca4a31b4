/* session.c - an agent's connection. See session.h. */
#include "daemon/session.h"
#include "base/log.h"
#include "base/text.h"
#include "daemon/attempt.h"
#include "daemon/desired.h"
#include "daemon/job.h"
#include "daemon/node.h"
#include "daemon/reports.h"
#include "daemon/save_source.h"
#include "daemon/turn.h"
#include "rpc/ticket.h"

#define PROTOCOL 1
/* Ten thousand agents may fail at once, and one traceback is shown: those of all nodes that have
 * not had their turn are bounded together, each one by what the protocol says. */
#define TRACEBACKS_BYTES_MAX ((size_t)16 << 20)
#define TRACEBACK_BYTES_MAX  ((size_t)16 << 10)
#define MESSAGE_BYTES_MAX    ((size_t)4 << 10)

/* --- notes */
static void note_add(struct node *node, struct list *notes, uint64_t seq,
                     const ProtobufCMessage *message)
{
    struct session_note *note = NEW(struct session_note);

    (void)node;
    note->seq = seq;
    note->message = message_copy(message);
    list_add_last(notes, &note->node);
}

void session_notes_drop(struct list *notes, uint64_t through_seq)
{
    LIST_EACH(notes, item)
    {
        struct session_note *note = LIST_ITEM(item, struct session_note, node);
        if (note->seq > through_seq)
            continue;
        list_remove(&note->node);
        protobuf_c_message_free_unpacked(note->message, NULL);
        mem_free(note);
    }
}

static void said_drop_traceback(struct hub *hub, Pb__ActualWorker *said)
{
    if (!said->traceback)
        return;
    hub->traceback_bytes -= strlen(said->traceback);
    mem_free(said->traceback);
    said->traceback = NULL;
}

static Pb__ActualWorker *said_create(struct hub *hub, const Pb__ActualWorker *said)
{
    Pb__ActualWorker *copy = (Pb__ActualWorker *)message_copy(&said->base);

    if (copy->message)
        text_cut(copy->message, MESSAGE_BYTES_MAX);
    if (!copy->traceback)
        return copy;
    text_cut(copy->traceback, TRACEBACK_BYTES_MAX);
    hub->traceback_bytes += strlen(copy->traceback);
    if (hub->traceback_bytes > TRACEBACKS_BYTES_MAX)
        said_drop_traceback(hub, copy);
    return copy;
}

static void said_destroy(struct hub *hub, Pb__ActualWorker *said)
{
    said_drop_traceback(hub, said);
    pb__actual_worker__free_unpacked(said, NULL);
}

void session_drop_tracebacks(struct node *node)
{
    size_t at = 0;

    for (struct actual *actual; (actual = map_next(node->actual, &at));)
        if (!actual->news)
            said_drop_traceback(node->hub, actual->said);
}

static void actual_destroy(struct hub *hub, struct actual *actual)
{
    if (!actual)
        return;
    said_destroy(hub, actual->said);
    mem_free(actual);
}

void session_drop_actual(struct node *node, struct actual *actual)
{
    char key[128];

    node_key_text(actual->said->key, key, sizeof(key));
    map_remove_text(node->actual, key);
    actual_destroy(node->hub, actual);
    node->stale_seen = true; /* a place may have become free for others */
}

static void actual_clear(struct node *node)
{
    size_t at = 0;

    for (struct actual *actual; (actual = map_next(node->actual, &at));)
        actual_destroy(node->hub, actual);
    map_destroy(node->actual);
    node->actual = map_create();
}

void session_forget(struct node *node)
{
    actual_clear(node);
    session_notes_drop(&node->staged, UINT64_MAX);
    session_notes_drop(&node->sealed, UINT64_MAX);
    session_notes_drop(&node->deleted, UINT64_MAX);
    session_notes_drop(&node->verified, UINT64_MAX);
    session_notes_drop(&node->copies, UINT64_MAX);
    session_notes_drop(&node->gangs, UINT64_MAX);
    reports_forget(node);
    if (node->hello)
        pb__hello__free_unpacked(node->hello, NULL);
    node->hello = NULL;
}

/* --- hello */
static void refuse(struct agent_link *link, const char *node, const char *why)
{
    Pb__AgentDown down = PB__AGENT_DOWN__INIT;

    log_warn("node.refused", log_str("node", node), log_str("why", why));
    down.refused = (char *)why;
    link->ops->control(link, &down);
    link->ops->close(link, why);
}

static bool hello_is_valid(const char *name, const Pb__Hello *hello, const char **why)
{
    *why = NULL;
    if (hello->protocol != PROTOCOL)
        *why = "unknown protocol version: upgrade the daemon first, then the agents";
    else if (!hello->node || strcmp(hello->node, name) != 0)
        *why = "the hello names another node than the certificate";
    else if (!hello->instance || !*hello->instance || !hello->spool_id || !hello->boot_id ||
             !hello->inventory)
        *why = "the hello lacks instance, spool_id, boot_id or inventory";
    return !*why;
}

/* A second process that claims a name whose agent is alive is refused; the first stays untouched.
 */
static bool claimed_by_other(const struct node *node, const Pb__Hello *hello)
{
    const Pb__Node *row = node->entry.row ? node_view(node) : NULL;

    return node->link && strcmp(node->instance, hello->instance) != 0 && row && row->spool_id &&
           strcmp(row->spool_id, hello->spool_id) != 0;
}

void core_agent_hello(struct core *core, struct agent_link *link, const char *name,
                      const Pb__Hello *hello)
{
    struct hub *hub = (struct hub *)core;
    const char *why;

    if (!hub->loaded || hub->fenced) {
        refuse(link, name, "the daemon does not lead: try again");
        return;
    }
    if (!hello_is_valid(name, hello, &why)) {
        refuse(link, name, why);
        return;
    }
    if (hello->term_seen > hub->term) {
        refuse(link, name, "the agent has obeyed a newer term than this daemon's");
        return;
    }
    struct node *node = node_obtain(hub, name);
    if (claimed_by_other(node, hello)) {
        refuse(link, name, "another agent of that name is connected; stop it first");
        return;
    }
    if (node->link && node->link != link) { /* the same agent came back before its old link ended */
        struct agent_link *old = node->link;
        old->node = NULL;
        old->ops->close(old, "replaced by a newer connection of the same agent");
    }
    session_forget(node);
    node->link = link;
    link->node = node;
    snprintf(node->instance, sizeof(node->instance), "%s", hello->instance);
    node->hello = (Pb__Hello *)message_copy(&hello->base);
    node->heard_whole = node->whole_news = node->welcomed = false;
    /* A turn in flight knows nothing of this connection: it must not answer it. */
    node->seq_heard = node->seq_acked = node->seq_turn = 0;
    node->hello_in_turn = false;
    map_destroy(node->launched);
    node->launched = map_create();
    node_heard(node);
    turn_node(hub, node);
}

/* --- reports */
static void merge_worker(struct node *node, const Pb__ActualWorker *said)
{
    char key[128];

    if (!said->key || !said->key->role)
        return;
    node_key_text(said->key, key, sizeof(key));
    struct actual *actual = map_get_text(node->actual, key);
    if (!actual) {
        actual = NEW(struct actual);
        map_put_text(node->actual, key, actual);
    } else {
        if (said->key->incarnation < actual->said->key->incarnation)
            return; /* late news of an earlier incarnation */
        said_destroy(node->hub, actual->said);
    }
    actual->said = said_create(node->hub, said);
    actual->news = true;
}

/* A worker that was dropped from the desired set and that the agent no longer tells of is gone. */
static void merge_gone(struct node *node, const Pb__ActualReport *report)
{
    for (size_t i = 0; i < report->n_gone; i++) {
        char key[128];
        node_key_text(report->gone[i], key, sizeof(key));
        struct actual *actual = map_get_text(node->actual, key);
        if (actual && actual->said->key->incarnation <= report->gone[i]->incarnation)
            session_drop_actual(node, actual);
    }
}

static void merge_report(struct node *node, uint64_t seq, const Pb__ActualReport *report)
{
    if (report->whole) {
        actual_clear(node);
        node->heard_whole = node->whole_news = true;
        node->stale_seen = true;
    }
    for (size_t i = 0; i < report->n_workers; i++)
        merge_worker(node, report->workers[i]);
    merge_gone(node, report);
    for (size_t i = 0; i < report->n_gangs; i++)
        note_add(node, &node->gangs, seq, &report->gangs[i]->base);
    for (size_t i = 0; i < report->n_staged; i++)
        note_add(node, &node->staged, seq, &report->staged[i]->base);
    for (size_t i = 0; i < report->n_sealed; i++)
        note_add(node, &node->sealed, seq, &report->sealed[i]->base);
    for (size_t i = 0; i < report->n_deleted; i++)
        note_add(node, &node->deleted, seq, &report->deleted[i]->base);
    for (size_t i = 0; i < report->n_verified; i++)
        note_add(node, &node->verified, seq, &report->verified[i]->base);
    for (size_t i = 0; i < report->n_copies; i++)
        note_add(node, &node->copies, seq, &report->copies[i]->base);
    if (report->n_devices) {
        session_devices_keep(node, report);
        node->devices_news = true;
    }
}

void session_devices_keep(struct node *node, const Pb__ActualReport *report)
{
    if (node->devices)
        pb__actual_report__free_unpacked(node->devices, NULL);
    Pb__ActualReport only = PB__ACTUAL_REPORT__INIT;
    only.n_devices = report->n_devices;
    only.devices = report->devices;
    node->devices = (Pb__ActualReport *)message_copy(&only.base);
}

static void device_update(Pb__NodeInventory *inventory, const Pb__Device *said)
{
    for (size_t i = 0; i < inventory->n_devices; i++) {
        Pb__Device *device = inventory->devices[i];
        if (device->index != said->index || strcmp(device->kind, said->kind) != 0)
            continue;
        device->has_health = true;
        device->health = said->health;
        draft_text(&device->note, said->note);
    }
}

void session_devices_run(struct node *node)
{
    node->devices_news = false;
    if (!node->devices || !node_view(node)->inventory)
        return;
    Pb__Node *row = (Pb__Node *)draft_edit(&node->hub->drafts, &node->entry);
    for (size_t i = 0; i < node->devices->n_devices; i++)
        if (node->devices->devices[i]->kind)
            device_update(row->inventory, node->devices->devices[i]);
    row->version++;
    node_recount(node->hub);
    node->hub->pass_needed = true;
}

void core_agent_up(struct core *core, struct agent_link *link, const Pb__AgentUp *message)
{
    struct hub *hub = (struct hub *)core;
    struct node *node = link->node;

    if (!node || node->link != link)
        return;
    node_heard(node);
    if (message->hello)
        return; /* only the first message may be one */
    if (message->heartbeat) {
        node->persists = message->heartbeat->persists;
        node->persist_bytes_left = message->heartbeat->persist_bytes_left;
    }
    if (!message->report)
        return;
    if (message->seq > node->seq_heard)
        node->seq_heard = message->seq;
    merge_report(node, message->seq, message->report);
    turn_node(hub, node);
}

void session_settle(struct node *node)
{
    Pb__AgentDown down = PB__AGENT_DOWN__INIT;
    Pb__Welcome welcome = PB__WELCOME__INIT;
    struct hub *hub = node->hub;
    unsigned char key[TICKET_KEY_BYTES];
    bool first = node->hello && node->hello_in_turn;

    if (!node->link)
        return;
    if (first) {
        pb__hello__free_unpacked(node->hello, NULL);
        node->hello = NULL;
        node->welcomed = true;
        node->desired_dirty = true;
        const Pb__MarkRow *mark = (const Pb__MarkRow *)node->mark.row;
        welcome.has_protocol = welcome.has_lease_ms = welcome.has_heartbeat_ms = true;
        welcome.has_bulk_seq = true;
        welcome.protocol = PROTOCOL;
        welcome.lease_ms = hub->options.lease_ms;
        welcome.heartbeat_ms = hub->options.heartbeat_ms;
        welcome.bulk_seq = mark && mark->spool_id && node_view(node)->spool_id &&
                                   !strcmp(mark->spool_id, node_view(node)->spool_id)
                               ? mark->bulk_seq
                               : 0;
        welcome.cluster = hub->cluster;
        save_source_key(hub, node_view(node)->name, key);
        welcome.has_peer_key = true;
        welcome.peer_key.data = key;
        welcome.peer_key.len = sizeof(key);
        save_source_served(hub);
        down.welcome = &welcome;
    }
    if (!first && node->seq_turn <= node->seq_acked)
        return;
    node->seq_acked = node->seq_turn;
    down.has_term = true;
    down.term = hub->term;
    down.has_ack_seq = node->seq_turn > 0;
    down.ack_seq = node->seq_turn;
    node->link->ops->control(node->link, &down);
}

void core_agent_gone(struct core *core, struct agent_link *link)
{
    struct hub *hub = (struct hub *)core;
    struct node *node = link->node;

    link->node = NULL;
    if (!node || node->link != link)
        return;
    node->link = NULL;
    node->bulk_open = false;
    node->gone_due = true;
    turn_node(hub, node);
}

bool session_has_stale(const struct node *node)
{
    size_t at = 0;

    for (struct actual *actual; (actual = map_next(node->actual, &at));) {
        int state = (int)actual->said->state;
        if (state != PB__ACTUAL_WORKER__STATE__EXITED && state != PB__ACTUAL_WORKER__STATE__LOST &&
            state != PB__ACTUAL_WORKER__STATE__UNKILLABLE &&
            !job_fenced(node->hub, actual->said->key))
            return true;
    }
    return false;
}
