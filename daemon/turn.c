/* turn.c - one turn at a time. See turn.h. */
#include "daemon/turn.h"
#include "base/log.h"
#include "daemon/call.h"
#include "daemon/desired.h"
#include "daemon/job.h"
#include "daemon/node.h"
#include "daemon/pass.h"
#include "daemon/reports.h"
#include "daemon/save.h"
#include "daemon/save_chore.h"
#include "daemon/watch.h"

static void turn_run(void *arg);

void turn_init(struct hub *hub)
{
    hub->turn_timer = loop_timer_create(hub->loop, turn_run, hub);
}

void turn_wake(struct hub *hub)
{
    if (hub->turn_scheduled || hub->committing || !hub->loaded || hub->fenced)
        return;
    hub->turn_scheduled = true;
    loop_timer_set(hub->turn_timer, 0);
}

void turn_node(struct hub *hub, struct node *node)
{
    if (list_is_empty(&node->news))
        list_add_last(&hub->news, &node->news);
    turn_wake(hub);
}

void turn_job(struct hub *hub, struct job *job)
{
    if (list_is_empty(&job->due))
        list_add_last(&hub->due, &job->due);
    turn_wake(hub);
}

void turn_pass(struct hub *hub)
{
    hub->pass_needed = true;
    turn_wake(hub);
}

/* --- what waits is worked in, at most `budget` units; returns how many were */
static size_t run_units(struct hub *hub, size_t budget)
{
    size_t used = 0;

    while (used < budget && !list_is_empty(&hub->calls)) {
        struct call *call = LIST_ITEM(list_take_first(&hub->calls), struct call, node);
        hub->calls_count--;
        list_add_last(&hub->turn_calls, &call->node);
        call_run(hub, call);
        used += call_weight(call);
    }
    while (used < budget && !list_is_empty(&hub->news)) {
        struct node *node = LIST_ITEM(list_take_first(&hub->news), struct node, news);
        list_add_last(&hub->turn_nodes, &node->in_turn);
        node_run(node);
        used++;
    }
    while (used < budget && !list_is_empty(&hub->due)) {
        struct job *job = LIST_ITEM(list_take_first(&hub->due), struct job, due);
        job_run(job);
        used++;
    }
    if (used < budget && hub->pass_needed) {
        hub->pass_needed = false;
        pass_run(hub);
        used++;
    }
    return used;
}

static bool units_wait(const struct hub *hub)
{
    return !list_is_empty(&hub->calls) || !list_is_empty(&hub->news) || !list_is_empty(&hub->due) ||
           hub->pass_needed;
}

/* --- the end of a turn */
static void release_calls(struct hub *hub, enum status st, const struct error *err)
{
    for (struct list *item; (item = list_take_first(&hub->turn_calls));)
        call_finish_take(hub, LIST_ITEM(item, struct call, node), st, err);
}

static void release_nodes(struct hub *hub, bool committed)
{
    for (struct list *item; (item = list_take_first(&hub->turn_nodes));)
        node_settle(LIST_ITEM(item, struct node, in_turn), committed);
}

static void turn_done(struct hub *hub)
{
    draft_commit(&hub->drafts);
    release_nodes(hub, true);
    desired_send_dirty(hub);
    release_calls(hub, STATUS_OK, NULL);
    watch_settle(hub, true);
    if (hub->single && hub->single_left == 0)
        hub->single = false;
    if (units_wait(hub))
        turn_wake(hub);
}

/* Nothing of the turn became durable: back to the committed rows. Level-triggered work is looked at
 * anew. */
static void turn_undo(struct hub *hub)
{
    draft_abort(&hub->drafts);
    release_nodes(hub, false);
    watch_settle(hub, false);
    node_recount(hub);
    save_chore_recount(hub);
    job_requeue_all(hub);
    size_t at = 0;
    for (struct node *node; (node = map_next(hub->nodes, &at));)
        node_review(node);
    hub->pass_needed = true;
}

static void turn_refused(struct hub *hub, enum status st, const struct error *err)
{
    bool alone = hub->single || hub->turn_units <= 1;

    log_error("turn.refused", log_int("units", (int64_t)hub->turn_units),
              log_str("st", status_name(st)), log_err(err));
    turn_undo(hub);
    if (alone) {
        release_calls(hub, st, err);
    } else { /* again, one by one, from the front */
        for (struct list *item = hub->turn_calls.prev; item != &hub->turn_calls;) {
            struct list *before = item->prev;
            list_remove(item);
            struct list *first = hub->calls.next;
            item->next = first;
            item->prev = &hub->calls;
            first->prev = item;
            hub->calls.next = item;
            hub->calls_count++;
            call_rewind(LIST_ITEM(item, struct call, node));
            item = before;
        }
        hub->single = true;
        hub->single_left = hub->turn_units + 1;
    }
    turn_wake(hub);
}

static void turn_unavailable(struct hub *hub, const struct error *err)
{
    turn_undo(hub);
    release_calls(hub, STATUS_UNAVAILABLE, err);
    if (hub->usable)
        turn_wake(hub);
}

static void turn_outcome(void *arg, enum status st, const struct error *err)
{
    struct hub *hub = arg;

    if (st == STATUS_UNKNOWN) { /* turn_store_state asks again */
        hub->outcome_unknown = true;
        log_warn("turn.outcome-unknown", log_int("batch", (int64_t)hub->batch.number),
                 log_err(err));
        return;
    }
    hub->committing = false;
    hub->outcome_unknown = false;
    hub->health.commit_us_last = (uint64_t)(loop_now_us(hub->loop) - hub->commit_since_us);
    if (st == STATUS_OK) {
        hub->health.commits++;
        hub->health.last_commit_us = loop_now_us(hub->loop);
        turn_done(hub);
        return;
    }
    hub->health.commit_failures++;
    if (st == STATUS_ABORTED) {
        turn_undo(hub);
        release_calls(hub, STATUS_UNAVAILABLE, err);
        turn_store_state(hub, false, true, err ? err->text : "a newer term leads");
        return;
    }
    if (st == STATUS_UNAVAILABLE)
        turn_unavailable(hub, err);
    else
        turn_refused(hub, st, err);
}

/* The store was asked whether the batch of unknown outcome is there. */
static void turn_asked(void *arg, enum status st, const struct error *err)
{
    struct hub *hub = arg;

    if (!hub->outcome_unknown)
        return;
    if (st == STATUS_OK)
        turn_outcome(hub, STATUS_OK, NULL);
    else if (st == STATUS_NOT_FOUND)
        turn_outcome(hub, STATUS_UNAVAILABLE, err);
    /* else: the store went away again; its next return asks again */
}

static void turn_commit(struct hub *hub)
{
    size_t count = 0;

    if (hub->drafts.count > hub->changes_cap) {
        hub->changes_cap = hub->drafts.count * 2;
        hub->changes = mem_resize(hub->changes, hub->changes_cap, sizeof(*hub->changes));
    }
    LIST_EACH(&hub->drafts.entries, item)
    {
        struct entry *entry = LIST_ITEM(item, struct entry, dirty);
        hub->changes[count] = (struct change){entry->kind, entry->draft, NULL};
        if (count)
            hub->changes[count - 1].next = &hub->changes[count];
        count++;
    }
    hub->batch = (struct batch){.lane = STORE_STATE,
                                .term = hub->term,
                                .number = ++hub->batch_number[STORE_STATE],
                                .first = hub->changes,
                                .last = &hub->changes[count - 1],
                                .count = count};
    hub->committing = true;
    hub->commit_since_us = loop_now_us(hub->loop);
    hub->store->ops->commit(hub->store, &hub->batch, turn_outcome, hub);
}

static void turn_refuse_calls(struct hub *hub)
{
    struct error err;

    error_set(&err, STATUS_UNAVAILABLE,
              "the database is away (%.150s): nothing was changed; retry with the same request id",
              hub->store_text);
    for (struct list *item; (item = list_take_first(&hub->calls));) {
        hub->calls_count--;
        call_finish_take(hub, LIST_ITEM(item, struct call, node), STATUS_UNAVAILABLE, &err);
    }
}

static void turn_run(void *arg)
{
    struct hub *hub = arg;

    hub->turn_scheduled = false;
    if (hub->committing || !hub->loaded || hub->fenced)
        return;
    if (!hub->usable) {
        turn_refuse_calls(hub);
        return;
    }
    hub->health.turns++;
    watch_begin(hub);
    hub->turn_units = run_units(hub, hub->single ? 1 : HUB_UNITS_MAX);
    if (hub->single_left)
        hub->single_left--;
    if (hub->drafts.count)
        turn_commit(hub);
    else
        turn_done(hub);
}

void turn_store_state(struct hub *hub, bool usable, bool fenced, const char *text)
{
    int64_t now = loop_now_us(hub->loop);

    snprintf(hub->store_text, sizeof(hub->store_text), "%s", text ? text : "");
    if (fenced && !hub->fenced) {
        hub->fenced = true;
        log_error("core.fenced", log_int("term", (int64_t)hub->term), log_str("err", text));
        turn_refuse_calls(hub);
        if (hub->options.on_fenced)
            hub->options.on_fenced(hub->options.on_fenced_arg);
        return;
    }
    if (usable == hub->usable)
        return;
    hub->usable = usable;
    if (!hub->loaded)
        return;
    if (!usable) {
        hub->unusable_since_us = now;
        log_warn("core.store-away", log_str("err", text));
        turn_refuse_calls(hub);
        return;
    }
    log_info("core.store-back", log_int("away_ms", (now - hub->unusable_since_us) / 1000));
    hub->usable_since_us = now;
    node_leases_full(hub);
    if (hub->outcome_unknown)
        hub->store->ops->batch_done(hub->store, STORE_STATE, hub->batch.term, hub->batch.number,
                                    turn_asked, hub);
    reports_store_back(hub);
    turn_wake(hub);
}
