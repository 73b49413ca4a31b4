/* reports.c - points from agents to the store. See reports.h. */
#include "daemon/reports.h"
#include "base/log.h"
#include "daemon/attempt.h"
#include "daemon/job.h"
#include "daemon/save_keep.h"
#include "daemon/turn.h"

#define COMMIT_POINTS_MAX 200000 /* in one transaction */
#define NODE_POINTS_MAX                                                                            \
    4000000 /* waiting of one node: its link is closed, it sends them again later */

#define PACE_US 200000 /* measured over so much of the worker's time */

struct reports_item {
    struct list node;
    uint64_t seq;
    size_t points;
    Pb__BulkUp *message;
};

static void reports_run(void *arg);

void reports_init(struct hub *hub)
{
    hub->bulk_timer = loop_timer_create(hub->loop, reports_run, hub);
}

static void item_destroy(struct reports_item *item)
{
    list_remove(&item->node);
    pb__bulk_up__free_unpacked(item->message, NULL);
    mem_free(item);
}

static void reports_wake(struct hub *hub)
{
    if (hub->bulk_scheduled || hub->bulk_committing || !hub->usable || hub->fenced)
        return;
    hub->bulk_scheduled = true;
    loop_timer_set(hub->bulk_timer, 0);
}

static size_t count_points(const Pb__BulkUp *message)
{
    size_t points = 0;

    for (size_t i = 0; i < message->n_batches; i++)
        for (size_t r = 0; r < message->batches[i]->n_reports; r++)
            points += message->batches[i]->reports[r]->n_names;
    return points;
}

uint64_t core_agent_bulk_mark(struct core *core, struct agent_link *link, const char *spool_id)
{
    struct node *node = link->node;

    (void)core;
    if (!node || !spool_id)
        return 0;
    const Pb__MarkRow *mark = (const Pb__MarkRow *)node->mark.row;
    bool same = mark && mark->spool_id && !strcmp(mark->spool_id, spool_id);
    if (strcmp(node->bulk_spool, spool_id) != 0 || !same) {
        reports_forget(node);
        node->bulk_heard = same ? mark->bulk_seq : 0;
    }
    snprintf(node->bulk_spool, sizeof(node->bulk_spool), "%s", spool_id);
    node->bulk_open = true;
    return same ? mark->bulk_seq : 0;
}

void core_agent_bulk(struct core *core, struct agent_link *link, const Pb__BulkUp *message)
{
    struct hub *hub = (struct hub *)core;
    struct node *node = link->node;

    if (!node || node->link != link || !node->bulk_open || !message->n_batches)
        return;
    if (message->seq <= node->bulk_heard)
        return;
    struct reports_item *item = NEW(struct reports_item);
    item->seq = node->bulk_heard = message->seq;
    item->points = count_points(message);
    item->message = (Pb__BulkUp *)message_copy(&message->base);
    node->bulk_points += item->points;
    list_add_last(&node->bulk, &item->node);
    if (node->bulk_points > NODE_POINTS_MAX) {
        link->ops->close(link, "too many points are waiting to be stored");
        return;
    }
    reports_wake(hub);
}

/* --- a transaction */
static void change_add(struct hub *hub, enum change_kind kind, const ProtobufCMessage *row)
{
    struct batch *batch = &hub->bulk_batch;

    if (batch->count == hub->bulk_cap) {
        hub->bulk_cap = hub->bulk_cap ? hub->bulk_cap * 2 : 256;
        hub->bulk_changes = mem_resize(hub->bulk_changes, hub->bulk_cap, sizeof(struct change));
    }
    hub->bulk_changes[batch->count++] = (struct change){kind, row, NULL};
}

static void change_link(struct hub *hub)
{
    struct batch *batch = &hub->bulk_batch;

    for (size_t i = 0; i + 1 < batch->count; i++)
        hub->bulk_changes[i].next = &hub->bulk_changes[i + 1];
    batch->first = hub->bulk_changes;
    batch->last = &hub->bulk_changes[batch->count - 1];
}

static bool batch_is_valid(const Pb__ReportBatch *batch)
{
    for (size_t i = 0; i < batch->n_reports; i++)
        if (batch->reports[i]->n_names !=
            batch->reports[i]->n_values + batch->reports[i]->n_integers)
            return false;
    return batch->role && batch->job > 0;
}

static size_t gather_node(struct hub *hub, struct node *node, size_t points)
{
    uint64_t seq = 0;

    while (!list_is_empty(&node->bulk) && points < COMMIT_POINTS_MAX) {
        struct reports_item *item =
            LIST_ITEM(list_take_first(&node->bulk), struct reports_item, node);
        list_add_last(&node->bulk_flying, &item->node);
        for (size_t i = 0; i < item->message->n_batches; i++)
            if (batch_is_valid(item->message->batches[i]))
                change_add(hub, CHANGE_REPORTS, &item->message->batches[i]->base);
        points += item->points;
        seq = item->seq;
    }
    if (!seq)
        return points;
    Pb__MarkRow *mark = NEW(Pb__MarkRow);
    pb__mark_row__init(mark);
    mark->node = mem_strdup(((const Pb__Node *)node->entry.row)->name);
    mark->spool_id = mem_strdup(node->bulk_spool);
    mark->has_bulk_seq = true;
    mark->bulk_seq = seq;
    if (node->mark.draft)
        protobuf_c_message_free_unpacked(node->mark.draft, NULL);
    node->mark.draft = &mark->base; /* settled by this lane, never in hub->drafts */
    change_add(hub, CHANGE_MARK, &mark->base);
    return points;
}

/* --- its end */
/* By the worker's own clock: what was held up on its way comes in a rush, and would look like
 * speed. */
static void pace(struct job *job, const Pb__Report *last)
{
    int64_t passed_us = last->t_us - job->rate_us;

    if (job->rate_us && passed_us > PACE_US && last->step >= job->rate_step)
        job->steps_per_s = (double)(last->step - job->rate_step) * 1e6 / (double)passed_us;
    if (!job->rate_us || passed_us < 0 || passed_us > PACE_US) {
        job->rate_us = last->t_us > 0 ? last->t_us : 1;
        job->rate_step = last->step;
    }
}

/* For retention: values of the metric by which the job's best checkpoints are kept. */
static void best_metric(struct job *job, const Pb__ReportBatch *batch)
{
    const Pb__CheckpointPolicy *policy = job_view(job)->spec->checkpoint;

    if (!policy || !policy->keep_best || !policy->keep_metric)
        return;
    for (size_t i = 0; i < batch->n_reports; i++) {
        const Pb__Report *report = batch->reports[i];
        for (size_t k = 0; k < report->n_names; k++)
            if (!strcmp(report->names[k], policy->keep_metric))
                save_keep_metric(job, report->step,
                                 k < report->n_values
                                     ? report->values[k]
                                     : (double)report->integers[k - report->n_values]);
    }
}

static void progress(struct hub *hub, const Pb__ReportBatch *batch)
{
    struct job *job = map_get(hub->jobs, (uint64_t)batch->job);

    if (!job || !job->attempt || !batch->n_reports || batch->rank != 0 ||
        attempt_view(job->attempt)->number != batch->attempt ||
        batch->incarnation < attempt_incarnation(attempt_view(job->attempt)) ||
        strcmp(job_view(job)->spec->roles[0]->name, batch->role) != 0)
        return;
    best_metric(job, batch);
    const Pb__Report *last = batch->reports[batch->n_reports - 1];
    if (last->step >= job->step) {
        job->step = last->step;
        if (last->has_samples)
            job->samples = last->samples;
    }
    pace(job, last);
}

static void node_stored(struct node *node)
{
    Pb__BulkDown down = PB__BULK_DOWN__INIT;

    for (struct list *at; (at = list_take_first(&node->bulk_flying));) {
        struct reports_item *item = LIST_ITEM(at, struct reports_item, node);
        for (size_t i = 0; i < item->message->n_batches; i++)
            progress(node->hub, item->message->batches[i]);
        node->hub->health.points_stored += item->points;
        node->bulk_points -= item->points;
        item_destroy(item);
    }
    if (!node->mark.draft)
        return;
    if (node->mark.row)
        protobuf_c_message_free_unpacked(node->mark.row, NULL);
    node->mark.row = node->mark.draft;
    node->mark.draft = NULL;
    if (!node->link || !node->bulk_open)
        return;
    down.has_term = down.has_ack_seq = true;
    down.term = node->hub->term;
    down.ack_seq = ((const Pb__MarkRow *)node->mark.row)->bulk_seq;
    node->link->ops->bulk(node->link, &down);
}

static void node_unstored(struct node *node)
{
    while (!list_is_empty(&node->bulk_flying)) { /* back to the front, in order */
        struct list *last = node->bulk_flying.prev, *first = node->bulk.next;
        list_remove(last);
        last->next = first;
        last->prev = &node->bulk;
        first->prev = last;
        node->bulk.next = last;
    }
    if (node->mark.draft)
        protobuf_c_message_free_unpacked(node->mark.draft, NULL);
    node->mark.draft = NULL;
}

static void reports_outcome(void *arg, enum status st, const struct error *err)
{
    struct hub *hub = arg;
    size_t at = 0;

    if (st == STATUS_UNKNOWN) {
        hub->bulk_unknown = true;
        return;
    }
    hub->bulk_committing = hub->bulk_unknown = false;
    bool stored = st == STATUS_OK;
    if (!stored && st != STATUS_UNAVAILABLE) {
        log_error("reports.refused", log_str("st", status_name(st)), log_err(err));
        if (st == STATUS_ABORTED) {
            turn_store_state(hub, false, true, err ? err->text : "a newer term leads");
        } else { /* points that the database refuses are counted and let go: they would block all
                    others */
            hub->health.points_refused += hub->bulk_batch.count;
            stored = true;
        }
    }
    for (struct node *node; (node = map_next(hub->nodes, &at));) {
        if (stored)
            node_stored(node);
        else
            node_unstored(node);
    }
    if (stored)
        reports_wake(hub);
}

static void reports_asked(void *arg, enum status st, const struct error *err)
{
    struct hub *hub = arg;

    if (hub->bulk_unknown && st == STATUS_OK)
        reports_outcome(hub, STATUS_OK, NULL);
    else if (hub->bulk_unknown && st == STATUS_NOT_FOUND)
        reports_outcome(hub, STATUS_UNAVAILABLE, err);
    reports_wake(hub);
}

void reports_store_back(struct hub *hub)
{
    if (hub->bulk_unknown)
        hub->store->ops->batch_done(hub->store, STORE_BULK, hub->bulk_batch.term,
                                    hub->bulk_batch.number, reports_asked, hub);
    else
        reports_wake(hub);
}

static void reports_run(void *arg)
{
    struct hub *hub = arg;
    size_t at = 0, points = 0;

    hub->bulk_scheduled = false;
    if (hub->bulk_committing || !hub->usable || hub->fenced)
        return;
    hub->bulk_batch = (struct batch){.lane = STORE_BULK, .term = hub->term};
    for (struct node *node; (node = map_next(hub->nodes, &at));)
        if (node->entry.row)
            points = gather_node(hub, node, points);
    if (!hub->bulk_batch.count)
        return;
    change_link(hub);
    hub->bulk_batch.number = ++hub->batch_number[STORE_BULK];
    hub->bulk_committing = true;
    hub->store->ops->commit(hub->store, &hub->bulk_batch, reports_outcome, hub);
}

void reports_forget(struct node *node)
{
    for (struct list *at; (at = list_take_first(&node->bulk));) {
        struct reports_item *item = LIST_ITEM(at, struct reports_item, node);
        node->bulk_points -= item->points;
        item_destroy(item);
    }
    /* what flies stays heard; the agent's next bulk stream begins after the stored mark */
    node->bulk_heard = 0;
    LIST_EACH(&node->bulk_flying, flying)
    node->bulk_heard = LIST_ITEM(flying, struct reports_item, node)->seq;
    if (!node->bulk_heard && node->mark.row)
        node->bulk_heard = ((const Pb__MarkRow *)node->mark.row)->bulk_seq;
}

void reports_fini(struct hub *hub)
{
    size_t at = 0;

    for (struct node *node; (node = map_next(hub->nodes, &at));) {
        node_unstored(node);
        reports_forget(node);
    }
    loop_timer_destroy(hub->bulk_timer);
    mem_free(hub->bulk_changes);
}
