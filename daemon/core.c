/* core.c - the daemon's heart: made, loaded, read. See core.h; hub.h for what it is made of. */
#include "daemon/core.h"
#include "base/log.h"
#include "daemon/attempt.h"
#include "daemon/call.h"
#include "daemon/hub.h"
#include "daemon/job.h"
#include "daemon/job_queue.h"
#include "daemon/node.h"
#include "daemon/reports.h"
#include "daemon/save.h"
#include "daemon/save_chore.h"
#include "daemon/save_keep.h"
#include "daemon/save_source.h"
#include "daemon/turn.h"
#include "daemon/watch.h"

#define AUDIT_US 30000000 /* use is counted from the rows this often, and compared */
#define TICK_US  2000000  /* a pass at least this often: readiness is judged by it */

static struct hub *hub_of(const struct core *core)
{
    return (struct hub *)(uintptr_t)core;
}

static void on_state(void *arg, bool usable, bool fenced, const char *text)
{
    turn_store_state(arg, usable, fenced, text);
}

static void tick(void *arg)
{
    struct hub *hub = arg;

    job_queue_trim(hub);
    if (!hub->committing && loop_now_us(hub->loop) - hub->audited_us > AUDIT_US) {
        hub->audited_us = loop_now_us(hub->loop);
        hub->health.drifts += node_audit(hub);
        hub->health.audits++;
    }
    save_keep_tick(hub);
    save_source_tick(hub);
    turn_pass(hub);
    loop_timer_set(hub->tick, TICK_US);
}

struct core *core_create(const struct core_options *options)
{
    struct hub *hub = NEW(struct hub);

    hub->options = *options;
    if (!hub->options.default_vault)
        hub->options.default_vault = "default";
    hub->loop = options->loop;
    loop_random(hub->loop, hub->ticket_root, sizeof(hub->ticket_root));
    hub->store = options->store;
    hub->jobs = map_create();
    hub->nodes = map_create();
    hub->saves = map_create();
    hub->projects = map_create();
    hub->requests = map_create();
    list_init(&hub->requests_order);
    list_init(&hub->chores);
    list_init(&hub->turn_nodes);
    list_init(&hub->news);
    list_init(&hub->due);
    list_init(&hub->watches);
    draft_set_init(&hub->drafts);
    hub->events = mem_array(HUB_EVENTS_MAX, sizeof(*hub->events));
    hub->job_next = hub->save_next = hub->event_next = 1;
    hub->tick = loop_timer_create(hub->loop, tick, hub);
    call_init(hub);
    turn_init(hub);
    reports_init(hub);
    hub->store->on_state = on_state;
    hub->store->on_state_arg = hub;
    return (struct core *)hub;
}

/* --- loading */
static void load_attempt_take(struct hub *hub, Pb__Attempt *row_take)
{
    struct job *job = map_get(hub->jobs, (uint64_t)row_take->job);

    if (job)
        attempt_load_take(job, row_take);
    else
        pb__attempt__free_unpacked(row_take, NULL);
}

static void load_row(void *arg, enum change_kind kind, ProtobufCMessage *row_take)
{
    struct hub *hub = arg;

    switch (kind) {
    case CHANGE_JOB:
        job_load_take(hub, (Pb__Job *)row_take);
        break;
    case CHANGE_ATTEMPT:
        load_attempt_take(hub, (Pb__Attempt *)row_take);
        break;
    case CHANGE_NODE:
        node_load_take(hub, (Pb__Node *)row_take);
        break;
    case CHANGE_CHECKPOINT:
        save_load_take(hub, (Pb__Checkpoint *)row_take);
        break;
    case CHANGE_EVENT:
        watch_load_take(hub, (Pb__Event *)row_take);
        break;
    case CHANGE_REQUEST:
        call_load_take(hub, (Pb__RequestRow *)row_take);
        break;
    case CHANGE_MARK:
        node_load_mark_take(hub, (Pb__MarkRow *)row_take);
        break;
    case CHANGE_PROJECT:
        job_load_project_take(hub, (Pb__ProjectRow *)row_take);
        break;
    default:
        protobuf_c_message_free_unpacked(row_take, NULL);
        break;
    }
}

static int order_compare(const void *a, const void *b)
{
    const struct job *x = *(struct job *const *)a, *y = *(struct job *const *)b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static void load_done(void *arg, enum status st, const struct error *err, uint64_t term,
                      const char *cluster)
{
    struct hub *hub = arg;

    if (st != STATUS_OK) {
        hub->started(hub->started_arg, st, err);
        return;
    }
    hub->term = term;
    hub->cluster = mem_strdup(cluster);
    if (hub->order_count)
        qsort(hub->order, hub->order_count, sizeof(*hub->order), order_compare);
    hub->usable = hub->loaded = true;
    node_recount(hub);
    save_chore_recount(hub);
    for (size_t i = 0; i < hub->order_count; i++)
        job_loaded(hub->order[i]);
    node_leases_full(hub);
    hub->usable_since_us = loop_now_us(hub->loop);
    log_info("core.loaded", log_int("term", (int64_t)term),
             log_int("jobs", (int64_t)hub->order_count),
             log_int("nodes", (int64_t)map_count(hub->nodes)));
    tick(hub);
    hub->started(hub->started_arg, STATUS_OK, NULL);
}

void core_start(struct core *core, void (*done)(void *arg, enum status st, const struct error *err),
                void *arg)
{
    struct hub *hub = hub_of(core);

    hub->started = done;
    hub->started_arg = arg;
    hub->store->ops->lead(hub->store, hub->options.ended_max, load_row, load_done, hub);
}

static void answer_cancelled(struct hub *hub, struct list *calls)
{
    struct error err;

    error_set(&err, STATUS_UNAVAILABLE,
              "the daemon is stopping: whether this was done is answered by a retry with the same "
              "request id");
    for (struct list *item; (item = list_take_first(calls));)
        call_finish_take(hub, LIST_ITEM(item, struct call, node), STATUS_UNAVAILABLE, &err);
}

void core_destroy(struct core *core)
{
    struct hub *hub = hub_of(core);
    size_t at = 0;

    if (!hub)
        return;
    hub->fenced = true;
    answer_cancelled(hub, &hub->calls);
    answer_cancelled(hub, &hub->turn_calls);
    draft_abort(&hub->drafts);
    watch_settle(hub, false);
    reports_fini(hub);
    while (hub->order_count)
        job_destroy(hub->order[hub->order_count - 1]);
    for (struct node *node; (node = map_next(hub->nodes, &at));)
        node_destroy(node);
    call_fini(hub);
    job_projects_fini(hub);
    watch_fini(hub);
    loop_timer_destroy(hub->tick);
    loop_timer_destroy(hub->turn_timer);
    map_destroy(hub->jobs);
    map_destroy(hub->nodes);
    map_destroy(hub->saves);
    map_destroy(hub->projects);
    map_destroy(hub->requests);
    mem_free(hub->order);
    mem_free(hub->queue);
    mem_free(hub->changes);
    mem_free(hub->cluster);
    mem_free(hub);
}

/* --- reading: committed rows only */
const Pb__Job *core_job(const struct core *core, int64_t id)
{
    const struct job *job = id > 0 ? map_get(hub_of(core)->jobs, (uint64_t)id) : NULL;

    return job ? (const Pb__Job *)job->entry.row : NULL;
}

const Pb__Reason *core_job_wait(const struct core *core, int64_t id)
{
    const struct job *job = id > 0 ? map_get(hub_of(core)->jobs, (uint64_t)id) : NULL;

    return job && job->queued && job->wait.has_code ? &job->wait : NULL;
}

const Pb__Job *core_job_before(const struct core *core, int64_t id)
{
    const struct hub *hub = hub_of(core);
    size_t low = 0, high = hub->order_count;

    while (id > 0 && low < high) { /* first with an id that is not below */
        size_t middle = (low + high) / 2;
        if (hub->order[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = id > 0 ? low : hub->order_count; i-- > 0;)
        if (hub->order[i]->entry.row)
            return (const Pb__Job *)hub->order[i]->entry.row;
    return NULL;
}

const Pb__Attempt *core_attempt(const struct core *core, int64_t id, uint32_t number)
{
    const struct job *job = id > 0 ? map_get(hub_of(core)->jobs, (uint64_t)id) : NULL;

    if (!job)
        return NULL;
    LIST_EACH((struct list *)(uintptr_t)&job->attempts, item)
    {
        const struct attempt *attempt = LIST_ITEM(item, struct attempt, node);
        const Pb__Attempt *row = (const Pb__Attempt *)attempt->entry.row;
        if (row && row->number == number)
            return row;
    }
    return NULL;
}

size_t core_attempts(const struct core *core, int64_t id, const Pb__Attempt **out, size_t max)
{
    const struct job *job = id > 0 ? map_get(hub_of(core)->jobs, (uint64_t)id) : NULL;
    size_t count = 0;

    if (!job)
        return 0;
    LIST_EACH((struct list *)(uintptr_t)&job->attempts, item)
    {
        const struct attempt *attempt = LIST_ITEM(item, struct attempt, node);
        if (!attempt->entry.row)
            continue;
        if (count < max)
            out[count] = (const Pb__Attempt *)attempt->entry.row;
        count++;
    }
    return count;
}

size_t core_checkpoints(const struct core *core, int64_t id, const Pb__Checkpoint **out, size_t max)
{
    const struct job *job = id > 0 ? map_get(hub_of(core)->jobs, (uint64_t)id) : NULL;
    size_t count = 0;

    if (!job)
        return 0;
    for (const struct list *item = job->saves.prev; item != &job->saves; item = item->prev) {
        const struct save *save = LIST_ITEM((struct list *)(uintptr_t)item, struct save, node);
        if (!save->entry.row)
            continue;
        if (count < max)
            out[count] = (const Pb__Checkpoint *)save->entry.row;
        count++;
    }
    return count;
}

const Pb__Checkpoint *core_checkpoint(const struct core *core, int64_t id)
{
    const struct save *save = id > 0 ? map_get(hub_of(core)->saves, (uint64_t)id) : NULL;

    return save ? (const Pb__Checkpoint *)save->entry.row : NULL;
}

bool core_checkpoint_due(const struct core *core, int64_t id)
{
    const struct save *save = id > 0 ? map_get(hub_of(core)->saves, (uint64_t)id) : NULL;

    return save && !list_is_empty(&save->chore);
}

uint32_t core_job_open(const struct core *core, int64_t id)
{
    const struct job *job = id > 0 ? map_get(hub_of(core)->jobs, (uint64_t)id) : NULL;

    return job && attempt_is_open(job) ? attempt_view(job->attempt)->number : 0;
}

size_t core_retention(const struct core *core, int64_t id, const Pb__Checkpoint **rows, bool *keep,
                      const char **why, size_t max)
{
    const struct job *job = id > 0 ? map_get(hub_of(core)->jobs, (uint64_t)id) : NULL;
    SCOPED(mem_free) void *memory = mem_array(max + 1, sizeof(enum retain_why));
    enum retain_why *verdicts = memory;

    if (!job || !job->entry.row)
        return 0;
    size_t count = save_keep_plan(job, rows, verdicts, max);
    for (size_t i = 0; i < count && i < max; i++) {
        keep[i] = verdicts[i] != RETAIN_LET_GO && verdicts[i] != RETAIN_UNUSABLE;
        why[i] = retain_why_text(verdicts[i]);
    }
    return count;
}

size_t core_nodes(const struct core *core, const Pb__Node **out, size_t max)
{
    size_t count = 0, at = 0;

    for (struct node *node; (node = map_next(hub_of(core)->nodes, &at));) {
        if (!node->entry.row)
            continue;
        if (count < max)
            out[count] = (const Pb__Node *)node->entry.row;
        count++;
    }
    return count;
}

static const struct node *find_node(const struct core *core, const char *name)
{
    return name ? map_get_text(hub_of(core)->nodes, name) : NULL;
}

const Pb__ActualWorker *core_worker(const struct core *core, int64_t id, const char *role,
                                    uint32_t rank, uint32_t number)
{
    const Pb__Attempt *row = core_attempt(core, id, number);
    long place = row && role ? attempt_place(row, role, rank) : -1;
    const struct node *node = place >= 0 ? find_node(core, row->places[place]->node) : NULL;
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;

    if (!node)
        return NULL;
    key.job = id;
    key.role = row->places[place]->role;
    key.rank = rank;
    key.attempt = number;
    const struct actual *actual = node_actual(node, &key);
    return actual ? actual->said : NULL;
}

void core_node_use(const struct core *core, const char *name, uint32_t *devices_used,
                   uint32_t *workers)
{
    const struct node *node = find_node(core, name);
    size_t at = 0;

    *devices_used = *workers = 0;
    if (!node)
        return;
    for (size_t i = 0; i < node->slots_count; i++)
        *devices_used += node->slots[i].owner != 0;
    for (struct job *job; (job = map_next(node->residents, &at));) {
        const Pb__Attempt *row = attempt_view(job->attempt);
        for (size_t i = 0; i < row->n_places; i++)
            *workers += !row->places[i]->ended && !strcmp(row->places[i]->node, name);
    }
}

struct agent_link *core_node_link(const struct core *core, const char *name)
{
    const struct node *node = find_node(core, name);

    return node ? node->link : NULL;
}

void core_progress(const struct core *core, int64_t id, int64_t *step, int64_t *samples)
{
    const struct job *job = id > 0 ? map_get(hub_of(core)->jobs, (uint64_t)id) : NULL;

    *step = job ? job->step : 0;
    *samples = job ? job->samples : 0;
}

void core_health(const struct core *core, struct core_health *out)
{
    const struct hub *hub = hub_of(core);
    size_t at = 0;

    *out = hub->health;
    out->loaded = hub->loaded;
    out->store_usable = hub->usable;
    out->fenced = hub->fenced;
    snprintf(out->store_text, sizeof(out->store_text), "%s", hub->store_text);
    out->term = hub->term;
    out->cluster = hub->cluster;
    out->stale_ms = hub->usable ? 0 : (loop_now_us(hub->loop) - hub->unusable_since_us) / 1000;
    out->inputs_waiting = hub->calls_count;
    for (struct node *node; (node = map_next(hub->nodes, &at));) {
        const Pb__Node *row = (const Pb__Node *)node->entry.row;
        out->nodes += row != NULL;
        out->persists += node->link ? node->persists : 0;
        out->persist_bytes_left += node->link ? node->persist_bytes_left : 0;
        out->nodes_healthy += row && row->seen == PB__NODE__SEEN__HEALTHY && node->link;
    }
    for (size_t i = 0; i < hub->order_count; i++) {
        const Pb__Job *row = (const Pb__Job *)hub->order[i]->entry.row;
        out->jobs_active += row && job_fsm_active(row->state);
        out->jobs_queued += row && row->state == PB__JOB__STATE__QUEUED;
    }
}
