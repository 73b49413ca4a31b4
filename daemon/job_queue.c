/* job_queue.c - jobs by id and in scheduling order, made and destroyed. See job_queue.h, job.h. */
#include "daemon/job_queue.h"
#include "base/log.h"
#include "daemon/attempt.h"
#include "daemon/job.h"
#include "daemon/save.h"
#include "daemon/save_chore.h"
#include "daemon/turn.h"
#include "daemon/watch.h"
#include "proto/text/job_check.h"

static int queue_compare(const struct job *a, const struct job *b)
{
    const Pb__Job *x = job_view(a), *y = job_view(b);

    if (x->spec->priority != y->spec->priority)
        return x->spec->priority > y->spec->priority ? -1 : 1;
    if (x->submitted_us != y->submitted_us)
        return x->submitted_us < y->submitted_us ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Where the job is, or would be. */
static size_t queue_find(const struct hub *hub, const struct job *job)
{
    size_t low = 0, high = hub->queue_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (queue_compare(hub->queue[middle], job) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void queue_add(struct hub *hub, struct job *job)
{
    size_t at = queue_find(hub, job);

    if (hub->queue_count == hub->queue_cap) {
        hub->queue_cap = hub->queue_cap ? hub->queue_cap * 2 : 256;
        hub->queue = mem_resize(hub->queue, hub->queue_cap, sizeof(struct job *));
    }
    memmove(&hub->queue[at + 1], &hub->queue[at], (hub->queue_count - at) * sizeof(struct job *));
    hub->queue[at] = job;
    hub->queue_count++;
}

static void queue_remove(struct hub *hub, struct job *job)
{
    size_t at = queue_find(hub, job);

    hub->queue_count--;
    memmove(&hub->queue[at], &hub->queue[at + 1], (hub->queue_count - at) * sizeof(struct job *));
}

void job_queue_update(struct job *job)
{
    bool wanted =
        (job->entry.draft || job->entry.row) && job_view(job)->state == PB__JOB__STATE__QUEUED;

    if (wanted == job->queued)
        return;
    job->queued = wanted;
    if (wanted) {
        queue_add(job->hub, job);
        job->wait.has_code = false;
        job->hub->pass_needed = true;
    } else {
        queue_remove(job->hub, job);
    }
}

void job_queue_rebuild(struct hub *hub)
{
    for (size_t i = 0; i < hub->queue_count; i++)
        hub->queue[i]->queued = false;
    hub->queue_count = 0;
    for (size_t i = 0; i < hub->order_count; i++)
        job_queue_update(hub->order[i]);
}

/* --- by id */
static void order_add(struct hub *hub, struct job *job)
{
    if (hub->order_count == hub->order_cap) {
        hub->order_cap = hub->order_cap ? hub->order_cap * 2 : 256;
        hub->order = mem_resize(hub->order, hub->order_cap, sizeof(struct job *));
    }
    hub->order[hub->order_count++] = job;
}

static void order_remove(struct hub *hub, const struct job *job)
{
    for (size_t i = hub->order_count; i-- > 0;)
        if (hub->order[i] == job) {
            hub->order_count--;
            memmove(&hub->order[i], &hub->order[i + 1],
                    (hub->order_count - i) * sizeof(struct job *));
            return;
        }
}

void job_queue_trim(struct hub *hub)
{
    size_t ended = 0, kept = 0;
    size_t max = hub->options.ended_max;

    for (size_t i = 0; i < hub->order_count; i++)
        ended += job_fsm_ended(job_view(hub->order[i])->state);
    if (ended <= max + max / 8 + 64) /* in batches: a trim walks them all */
        return;
    size_t surplus = ended - max, count = hub->order_count;
    struct job **old = hub->order;
    hub->order = mem_array(hub->order_cap, sizeof(struct job *));
    hub->order_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct job *job = old[i];
        if (surplus && job_fsm_ended(job_view(job)->state) && !job->entry.draft &&
            !save_chore_is_due(job)) {
            surplus--;
            job->id_listed = false;
            job_destroy(job);
            continue;
        }
        hub->order[kept++] = job;
    }
    hub->order_count = kept;
    mem_free(old);
}

/* --- made and destroyed */
static void job_timer(void *arg)
{
    struct job *job = arg;

    turn_job(job->hub, job);
}

static void job_settled(struct entry *entry, bool committed, void *arg)
{
    struct job *job = arg;

    if (!committed && !entry->row)
        job_destroy(job);
}

static struct job *job_new(struct hub *hub, int64_t id)
{
    struct job *job = NEW(struct job);

    job->hub = hub;
    job->id = id;
    entry_init(&job->entry, CHANGE_JOB, job_settled, job);
    list_init(&job->attempts);
    list_init(&job->saves);
    list_init(&job->due);
    pb__reason__init(&job->wait);
    job->wait.text = job->wait_text;
    map_put(hub->jobs, (uint64_t)id, job);
    order_add(hub, job);
    job->id_listed = true;
    return job;
}

struct loop_timer *job_timer_get(struct job *job)
{
    if (!job->timer)
        job->timer = loop_timer_create(job->hub->loop, job_timer, job);
    return job->timer;
}

void job_destroy(struct job *job)
{
    struct hub *hub = job->hub;

    if (job->queued) {
        for (size_t i = 0; i < hub->queue_count;
             i++) /* the draft may be gone: no order to search by */
            if (hub->queue[i] == job) {
                hub->queue_count--;
                memmove(&hub->queue[i], &hub->queue[i + 1],
                        (hub->queue_count - i) * sizeof(struct job *));
                break;
            }
    }
    if (job->id_listed)
        order_remove(hub, job);
    map_remove(hub->jobs, (uint64_t)job->id);
    list_remove(&job->due);
    loop_timer_destroy(job->timer);
    for (struct list *item; (item = list_take_first(&job->attempts));)
        attempt_destroy(LIST_ITEM(item, struct attempt, node));
    save_destroy_all(job);
    mem_free(job->live);
    entry_fini(&job->entry);
    mem_free(job);
}

struct project {
    struct entry entry; /* Pb__ProjectRow */
    struct hub *hub;
    char *name;
};

static void project_destroy(struct project *project)
{
    map_remove_text(project->hub->projects, project->name);
    entry_fini(&project->entry);
    mem_free(project->name);
    mem_free(project);
}

static void project_settled(struct entry *entry, bool committed, void *arg)
{
    if (!committed && !entry->row)
        project_destroy(arg);
}

static struct project *project_new(struct hub *hub, const char *name)
{
    struct project *project = NEW(struct project);

    project->hub = hub;
    project->name = mem_strdup(name);
    entry_init(&project->entry, CHANGE_PROJECT, project_settled, project);
    map_put_text(hub->projects, name, project);
    return project;
}

static void project_obtain(struct hub *hub, const char *name)
{
    if (map_get_text(hub->projects, name))
        return;
    Pb__ProjectRow *row = NEW(Pb__ProjectRow);
    pb__project_row__init(row);
    row->name = mem_strdup(name);
    row->has_created_us = true;
    row->created_us = loop_wall_us(hub->loop);
    draft_add_take(&hub->drafts, &project_new(hub, name)->entry, &row->base);
}

void job_load_project_take(struct hub *hub, Pb__ProjectRow *row_take)
{
    if (!row_take->name || map_get_text(hub->projects, row_take->name)) {
        protobuf_c_message_free_unpacked(&row_take->base, NULL);
        return;
    }
    project_new(hub, row_take->name)->entry.row = &row_take->base;
}

const char *job_user(const struct job *job)
{
    const struct project *project = map_get_text(job->hub->projects, job_view(job)->spec->project);
    const Pb__ProjectRow *row =
        project ? (const Pb__ProjectRow *)draft_view(&project->entry) : NULL;

    return row ? row->user : NULL;
}

void job_projects_fini(struct hub *hub)
{
    size_t at = 0;

    for (struct project *project; (project = map_next(hub->projects, &at));)
        project_destroy(project);
}

int64_t job_submit(struct hub *hub, const Pb__JobSpec *spec, const char *actor)
{
    struct job *job = job_new(hub, hub->job_next++);
    Pb__Job *row = NEW(Pb__Job);
    Pb__Event *event;

    pb__job__init(row);
    row->spec = (Pb__JobSpec *)message_copy(&spec->base);
    job_check_fill(row->spec);
    row->has_id = row->has_state = row->has_version = row->has_submitted_us = true;
    row->has_attempt = row->has_restarts_used = true;
    row->id = job->id;
    row->state = spec->hold ? PB__JOB__STATE__HELD : PB__JOB__STATE__QUEUED;
    row->version = 1;
    row->submitted_us = loop_wall_us(hub->loop);
    row->submitter = mem_strdup(actor);
    row->reason = NEW(Pb__Reason);
    pb__reason__init(row->reason);
    row->reason->has_code = true;
    row->reason->code = PB__REASON__CODE__SUBMITTED;
    draft_add_take(&hub->drafts, &job->entry, &row->base);
    project_obtain(hub, row->spec->project);
    event = watch_event(hub, "job.state");
    event->has_job = true;
    event->job = job->id;
    event->from = mem_strdup("");
    event->to = mem_strdup(HUB_NAME(job__state, row->state));
    event->reason = mem_strdup("SUBMITTED");
    event->text = mem_strdup(row->spec->name);
    event->actor = mem_strdup(actor);
    job_queue_update(job);
    return job->id;
}

struct job *job_load_take(struct hub *hub, Pb__Job *row_take)
{
    struct job *job;

    if (map_get(hub->jobs, (uint64_t)row_take->id)) {
        protobuf_c_message_free_unpacked(&row_take->base, NULL);
        return NULL;
    }
    job = job_new(hub, row_take->id);
    job->entry.row = &row_take->base;
    if (row_take->id >= hub->job_next)
        hub->job_next = row_take->id + 1;
    if (row_take->spec)
        job_check_fill(row_take->spec);
    return job;
}

struct job *job_fenced(struct hub *hub, const Pb__WorkerKey *key)
{
    struct job *job =
        key && key->role && key->job > 0 ? map_get(hub->jobs, (uint64_t)key->job) : NULL;

    if (!job || !attempt_is_open(job) || attempt_view(job->attempt)->number != key->attempt)
        return NULL;
    return job;
}
