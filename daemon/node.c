/* node.c - the nodes we know, and their leases. See node.h. */
#include "daemon/node.h"
#include "base/log.h"
#include "daemon/attempt.h"
#include "daemon/job.h"
#include "daemon/restart.h"
#include "daemon/save.h"
#include "daemon/session.h"
#include "daemon/turn.h"
#include "daemon/watch.h"

#define SEEN(value)  HUB_NAME(node__seen, value)
#define ADMIN(value) HUB_NAME(node__admin, value)

/* --- life */
static void lease_ran_out(void *arg)
{
    struct node *node = arg;

    if (!node->hub->usable) /* leases are frozen while the store is away */
        return;
    node->lost_due = true;
    turn_node(node->hub, node);
}

static struct node *node_new(struct hub *hub, const char *name)
{
    struct node *node = NEW(struct node);

    node->hub = hub;
    entry_init(&node->entry, CHANGE_NODE, NULL, NULL);
    entry_init(&node->mark, CHANGE_MARK, NULL, NULL);
    node->actual = map_create();
    node->ports = map_create();
    node->residents = map_create();
    node->launched = map_create();
    list_init(&node->staged);
    list_init(&node->sealed);
    list_init(&node->deleted);
    list_init(&node->verified);
    list_init(&node->copies);
    list_init(&node->gangs);
    list_init(&node->news);
    list_init(&node->in_turn);
    list_init(&node->bulk);
    list_init(&node->bulk_flying);
    node->lease = loop_timer_create(hub->loop, lease_ran_out, node);
    map_put_text(hub->nodes, name, node);
    return node;
}

struct node *node_load_take(struct hub *hub, Pb__Node *row_take)
{
    struct node *node = node_new(hub, row_take->name);

    node->entry.row = &row_take->base;
    node_build_slots(node);
    return node;
}

void node_load_mark_take(struct hub *hub, Pb__MarkRow *row_take)
{
    struct node *node = row_take->node ? map_get_text(hub->nodes, row_take->node) : NULL;

    if (!node || node->mark.row) {
        protobuf_c_message_free_unpacked(&row_take->base, NULL);
        return;
    }
    node->mark.row = &row_take->base;
    node->bulk_acked = row_take->bulk_seq;
}

struct node *node_obtain(struct hub *hub, const char *name)
{
    struct node *node = map_get_text(hub->nodes, name);

    return node ? node : node_new(hub, name);
}

void node_destroy(struct node *node)
{
    if (!node)
        return;
    if (node->link)
        node->link->node = NULL;
    loop_timer_destroy(node->lease);
    session_forget(node);
    list_remove(&node->news);
    list_remove(&node->in_turn);
    map_destroy(node->actual);
    map_destroy(node->ports);
    map_destroy(node->residents);
    map_destroy(node->launched);
    mem_free(node->slots);
    entry_fini(&node->entry);
    entry_fini(&node->mark);
    mem_free(node);
}

/* --- leases */
void node_heard(struct node *node)
{
    node->lease_until_us =
        loop_now_us(node->hub->loop) + (int64_t)node->hub->options.lease_ms * 1000;
    loop_timer_set(node->lease, (int64_t)node->hub->options.lease_ms * 1000);
}

void node_leases_full(struct hub *hub)
{
    size_t at = 0;

    for (struct node *node; (node = map_next(hub->nodes, &at));)
        if (node->entry.row && node_view(node)->seen != PB__NODE__SEEN__LOST)
            node_heard(node);
}

/* --- state */
static void node_event(struct node *node, const char *kind, const char *from, const char *to,
                       const char *text, const char *actor)
{
    Pb__Event *event = watch_event(node->hub, kind);

    event->node = mem_strdup(node_view(node)->name);
    event->from = mem_strdup(from);
    event->to = mem_strdup(to);
    event->text = mem_strdup(text);
    event->actor = mem_strdup(actor);
    log_info(kind, log_str("node", node_view(node)->name), log_str("from", from), log_str("to", to),
             log_str("why", text));
}

static void node_set_seen(struct node *node, Pb__Node__Seen seen, const char *text)
{
    Pb__Node__Seen from = node_view(node)->seen;

    if (from == seen)
        return;
    Pb__Node *row = (Pb__Node *)draft_edit(&node->hub->drafts, &node->entry);
    row->has_seen = row->has_version = row->has_seen_us = true;
    row->seen = seen;
    row->seen_us = loop_wall_us(node->hub->loop);
    row->version++;
    draft_text(&row->note, text);
    node_event(node, "node.seen", SEEN(from), SEEN(seen), text, NULL);
}

enum status node_set_admin(struct node *node, Pb__Node__Admin admin, const char *note,
                           const char *actor, struct error *err)
{
    Pb__Node__Admin from = node_view(node)->admin;

    if (admin == PB__NODE__ADMIN__DRAINING || admin == PB__NODE__ADMIN__DRAINED)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "admin: this daemon drains no nodes: set CORDONED (nothing new starts, "
                         "what runs runs on), then hold or cancel the jobs that run there");
    if (admin != PB__NODE__ADMIN__IN_SERVICE && admin != PB__NODE__ADMIN__CORDONED)
        return error_set(err, STATUS_INVALID, "admin: IN_SERVICE or CORDONED is needed");
    if (from == admin)
        return STATUS_OK;
    Pb__Node *row = (Pb__Node *)draft_edit(&node->hub->drafts, &node->entry);
    row->has_admin = row->has_version = true;
    row->admin = admin;
    row->version++;
    draft_text(&row->note, note);
    node_event(node, "node.admin", ADMIN(from), ADMIN(admin), note, actor);
    node->hub->pass_needed = true;
    return STATUS_OK;
}

/* Once a turn, after the news of all nodes: thousands of them may tell of one gang. */
static void review_due(struct job *job)
{
    if (list_is_empty(&job->due))
        list_add_last(&job->hub->due, &job->due);
}

/* --- hello */
static void places_lost(struct node *node, Pb__Reason__Code code, const char *text)
{
    size_t at = 0;

    for (struct job *job; (job = map_next(node->residents, &at));) {
        Pb__Attempt *row = attempt_view(job->attempt);
        for (size_t i = 0; i < row->n_places; i++) {
            row = attempt_view(job->attempt);
            if (!row->places[i]->ended && !strcmp(row->places[i]->node, node_view(node)->name))
                attempt_end_place(job, i, NULL, code, text);
        }
        job_break(job, code, text);
        review_due(job);
    }
}

static void hello_new_row(struct node *node, const Pb__Hello *hello)
{
    Pb__Node *row = NEW(Pb__Node);

    pb__node__init(row);
    row->name = mem_strdup(hello->node);
    row->has_admin = row->has_seen = row->has_joined_us = row->has_version = true;
    row->admin = PB__NODE__ADMIN__IN_SERVICE;
    row->seen = PB__NODE__SEEN__JOINING;
    row->joined_us = loop_wall_us(node->hub->loop);
    draft_add_take(&node->hub->drafts, &node->entry, &row->base);
}

static bool inventory_equal(const Pb__NodeInventory *a, const Pb__NodeInventory *b)
{
    size_t size = a ? pb__node_inventory__get_packed_size(a) : 0;
    bool equal = false;

    if (!a || !b || size != pb__node_inventory__get_packed_size(b))
        return false;
    uint8_t *one = mem_alloc(size + 1), *two = mem_alloc(size + 1);
    pb__node_inventory__pack(a, one);
    pb__node_inventory__pack(b, two);
    equal = !memcmp(one, two, size);
    mem_free(one);
    mem_free(two);
    return equal;
}

static void hello_run(struct node *node)
{
    const Pb__Hello *hello = node->hello;
    bool rebooted;

    if (!node->entry.row && !node->entry.draft)
        hello_new_row(node, hello);
    rebooted = node_view(node)->boot_id && hello->boot_id &&
               strcmp(node_view(node)->boot_id, hello->boot_id) != 0;
    if (rebooted)
        places_lost(node, PB__REASON__CODE__NODE_LOST, "the node was started again");
    if (rebooted || !inventory_equal(node_view(node)->inventory, hello->inventory) ||
        !node_view(node)->spool_id || strcmp(node_view(node)->spool_id, hello->spool_id) != 0) {
        Pb__Node *row = (Pb__Node *)draft_edit(&node->hub->drafts, &node->entry);
        draft_text(&row->boot_id, hello->boot_id);
        draft_text(&row->spool_id, hello->spool_id);
        if (row->inventory)
            pb__node_inventory__free_unpacked(row->inventory, NULL);
        row->inventory = (Pb__NodeInventory *)message_copy(&hello->inventory->base);
        row->version++;
        node_recount(node->hub);
    }
    node_set_seen(node, PB__NODE__SEEN__HEALTHY, "agent connected");
    node->hub->pass_needed = true;
}

/* --- what agents say of workers */
static bool counts_as_ended(Pb__ActualWorker__State state)
{
    return state == PB__ACTUAL_WORKER__STATE__EXITED || state == PB__ACTUAL_WORKER__STATE__LOST ||
           state == PB__ACTUAL_WORKER__STATE__UNKILLABLE;
}

static Pb__Reason__Code exit_class(const Pb__ActualWorker *said)
{
    if (said->has_class_)
        return said->class_;
    if (said->state == PB__ACTUAL_WORKER__STATE__LOST)
        return PB__REASON__CODE__SHIM_LOST;
    if (said->state == PB__ACTUAL_WORKER__STATE__UNKILLABLE)
        return PB__REASON__CODE__DEVICE_FAULT;
    if (said->signal)
        return PB__REASON__CODE__WORKER_SIGNALLED;
    return said->exit_code ? PB__REASON__CODE__USER_ERROR : PB__REASON__CODE__CODE_UNSPECIFIED;
}

/* Some ends are those of workers that never ran. */
static bool has_run(const Pb__ActualWorker *said)
{
    Pb__Reason__Code class = exit_class(said);

    return said->state == PB__ACTUAL_WORKER__STATE__EXITED &&
           class != PB__REASON__CODE__LAUNCH_FAILED && class != PB__REASON__CODE__NODE_EXHAUSTED &&
           class != PB__REASON__CODE__CHECKPOINT_ERROR && class != PB__REASON__CODE__SOURCE_LOST;
}

static void worker_run(struct node *node, const Pb__ActualWorker *said)
{
    struct job *job = job_fenced(node->hub, said->key);

    if (!job) /* of a superseded attempt: not desired, so the agent lets go of it */
        return;
    const Pb__Attempt *row = attempt_view(job->attempt);
    long place = attempt_place(row, said->key->role, said->key->rank);
    if (place < 0 || strcmp(row->places[place]->node, node_view(node)->name) != 0 ||
        said->key->incarnation != attempt_incarnation(row))
        return;
    struct live *live = &job->live[place];
    live->up |= said->state == PB__ACTUAL_WORKER__STATE__RUNNING || has_run(said);
    live->joined = said->joined;
    live->saving = said->saving;
    live->gate_number = said->gate_number;
    live->gate_phase = (int)said->gate_phase;
    live->gate_step = said->gate_step;
    live->step = said->step;
    if (said->fetched > live->fetched) { /* as long as bytes come it is no start that hangs */
        live->fetched = said->fetched;
        job_start_goes_on(job);
    }
    if (counts_as_ended(said->state) && !row->places[place]->ended)
        attempt_end_place(job, (size_t)place, said, exit_class(said), said->message);
    review_due(job);
}

/* A worker that ran and is missing from a whole report is gone. */
static void missing_run(struct node *node)
{
    size_t at = 0;

    for (struct job *job; (job = map_next(node->residents, &at));) {
        const Pb__Attempt *row = attempt_view(job->attempt);
        bool was_up = job_view(job)->state != PB__JOB__STATE__STARTING;
        for (size_t i = 0; i < row->n_places; i++, row = attempt_view(job->attempt)) {
            const Pb__WorkerPlace *place = row->places[i];
            Pb__WorkerKey key = PB__WORKER_KEY__INIT;
            key.job = row->job;
            key.role = place->role;
            key.rank = place->rank;
            key.attempt = row->number;
            if (place->ended || strcmp(place->node, node_view(node)->name) != 0 ||
                node_actual(node, &key) || (!was_up && !job->live[i].up))
                continue;
            attempt_end_place(job, i, NULL, PB__REASON__CODE__SHIM_LOST,
                              "the agent knows nothing of it any more");
        }
        review_due(job);
    }
}

static void actual_run(struct node *node)
{
    size_t at = 0;
    bool whole = node->whole_news;

    node->whole_news = false;
    for (struct actual *actual; (actual = map_next(node->actual, &at));) {
        if (whole || actual->news)
            worker_run(node, actual->said);
        actual->news = false;
        if (counts_as_ended(actual->said->state) && !job_fenced(node->hub, actual->said->key))
            session_drop_actual(node, actual); /* nobody waits for it any more */
    }
    if (whole && node->heard_whole)
        missing_run(node);
}

void node_run(struct node *node)
{
    node->seq_turn = node->seq_heard;
    node->hello_in_turn = node->hello != NULL;
    if (node->hello)
        hello_run(node);
    if (!node->entry.row && !node->entry.draft)
        return;
    if (node->gone_due && !node->link)
        node_set_seen(node, PB__NODE__SEEN__SUSPECT, "connection lost; its lease runs");
    node->gone_due = false;
    if (node->lost_due && node_view(node)->seen != PB__NODE__SEEN__LOST) {
        node_set_seen(node, PB__NODE__SEEN__LOST, "silent for longer than its lease");
        places_lost(node, PB__REASON__CODE__NODE_LOST, "node lost: silent beyond its lease");
        if (node->link)
            node->link->ops->close(node->link, "lease ran out");
    }
    node->lost_due = false;
    if (node->devices_news)
        session_devices_run(node);
    restart_run(node);      /* before what the new incarnations and the old ones say is judged */
    save_run_reports(node); /* first: a save that is whole keeps its job from ending without it */
    actual_run(node);
    node->hub->pass_needed |= node->stale_seen;
    node->stale_seen = false;
}

void node_settle(struct node *node, bool committed)
{
    if (!committed)
        return;
    save_drop_reports(node, node->seq_turn);
    session_notes_drop(&node->gangs, node->seq_turn);
    session_drop_tracebacks(node); /* the one to be shown is in its job's row now */
    session_settle(node);
}

void node_review(struct node *node)
{
    node->whole_news = true;
    if (node->lease_until_us && node->lease_until_us < loop_now_us(node->hub->loop))
        node->lost_due = true;
    if (list_is_empty(&node->news))
        list_add_last(&node->hub->news, &node->news);
}

bool node_is_open(const struct node *node)
{
    const Pb__Node *row = node->entry.row || node->entry.draft ? node_view(node) : NULL;

    return row && node->link && node->heard_whole && row->inventory &&
           row->admin == PB__NODE__ADMIN__IN_SERVICE && row->seen == PB__NODE__SEEN__HEALTHY &&
           !session_has_stale(node);
}
