/* attempt.c - one launch of a job's gang. See attempt.h. */
#include "daemon/attempt.h"
#include "base/text.h"
#include "daemon/gate.h"
#include "daemon/node.h"
#include "daemon/restart.h"
#include "daemon/save.h"

#define PLACE_MESSAGE_MAX 500 /* a row holds one for each of up to 100,000 places */

void attempt_destroy(struct attempt *attempt)
{
    if (!attempt)
        return;
    list_remove(&attempt->node);
    entry_fini(&attempt->entry);
    mem_free(attempt);
}

/* An attempt that never became durable leaves its job as it was. */
static void attempt_settled(struct entry *entry, bool committed, void *arg)
{
    struct job *job = arg;
    struct attempt *attempt = CONTAINER_OF(entry, struct attempt, entry);

    if (committed || entry->row)
        return;
    struct list *before = attempt->node.prev;
    job->attempt = before == &job->attempts ? NULL : LIST_ITEM(before, struct attempt, node);
    attempt_destroy(attempt);
    attempt_live_reset(job);
}

static struct attempt *attempt_new(struct job *job)
{
    struct attempt *attempt = NEW(struct attempt);

    entry_init(&attempt->entry, CHANGE_ATTEMPT, attempt_settled, job);
    list_add_last(&job->attempts, &attempt->node);
    job->attempt = attempt;
    return attempt;
}

struct attempt *attempt_load_take(struct job *job, Pb__Attempt *row_take)
{
    struct attempt *attempt = attempt_new(job);

    attempt->entry.row = &row_take->base;
    return attempt;
}

void attempt_live_reset(struct job *job)
{
    mem_free(job->live);
    job->live_count = job->attempt ? attempt_view(job->attempt)->n_places : 0;
    job->live = mem_array(job->live_count + 1, sizeof(*job->live));
    job->step = job->samples = 0;
    job->rate_us = 0;
    job->steps_per_s = 0;
    job->gates_refused = 0;
}

const Pb__Role *attempt_role(const struct job *job, const char *name, uint32_t *index)
{
    const Pb__JobSpec *spec = job_view(job)->spec;

    for (size_t i = 0; i < spec->n_roles; i++)
        if (!strcmp(spec->roles[i]->name, name)) {
            if (index)
                *index = (uint32_t)i;
            return spec->roles[i];
        }
    return NULL;
}

long attempt_place(const Pb__Attempt *row, const char *role, uint32_t rank)
{
    for (size_t i = 0; i < row->n_places; i++) { /* ordered by role, then rank */
        if (strcmp(row->places[i]->role, role) != 0)
            continue;
        size_t at = i + rank;
        if (at < row->n_places && row->places[at]->rank == rank &&
            !strcmp(row->places[at]->role, role))
            return (long)at;
        return -1;
    }
    return -1;
}

static Pb__WorkerPlace *place_create(const struct plan_worker *worker, const char *role,
                                     const char *node, uint32_t local_rank)
{
    Pb__WorkerPlace *place = NEW(Pb__WorkerPlace);

    pb__worker_place__init(place);
    place->role = mem_strdup(role);
    place->node = mem_strdup(node);
    place->has_rank = place->has_local_rank = true;
    place->rank = worker->rank;
    place->local_rank = local_rank;
    place->n_devices = worker->devices_count;
    if (place->n_devices)
        place->devices = mem_dup(worker->devices, sizeof(uint32_t) * place->n_devices);
    place->n_cpus = worker->cpus_count;
    if (place->n_cpus)
        place->cpus = mem_dup(worker->cpus, sizeof(uint32_t) * place->n_cpus);
    return place;
}

static uint32_t local_rank_of(const struct plan_entry *entry, size_t at)
{
    uint32_t before = 0;

    while (before < at && entry->workers[at - 1 - before].node == entry->workers[at].node &&
           entry->workers[at - 1 - before].role == entry->workers[at].role)
        before++;
    return before;
}

static void fill_places(struct job *job, Pb__Attempt *row, const struct plan_entry *entry,
                        struct node *const *nodes)
{
    const Pb__JobSpec *spec = job_view(job)->spec;

    row->n_places = entry->workers_count;
    row->places = mem_array(row->n_places + 1, sizeof(*row->places));
    for (size_t i = 0; i < row->n_places; i++) {
        const struct plan_worker *worker = &entry->workers[i];
        struct node *node = nodes[worker->node];
        const Pb__Role *role = spec->roles[worker->role];
        row->places[i] =
            place_create(worker, role->name, node_view(node)->name, local_rank_of(entry, i));
        node_take(node, job, role, row->places[i]);
    }
}

/* One port a role, on the node of its rank 0. */
static void fill_ports(struct job *job, Pb__Attempt *row, const struct plan_entry *entry,
                       struct node *const *nodes)
{
    row->ports = mem_array(job_view(job)->spec->n_roles + 1, sizeof(*row->ports));
    for (size_t i = 0; i < entry->workers_count; i++) {
        if (entry->workers[i].rank != 0)
            continue;
        struct node *node = nodes[entry->workers[i].node];
        row->ports[row->n_ports++] = node_take_port(node, job);
        if (row->n_ports == 1) {
            const Pb__NodeInventory *inventory = node_view(node)->inventory;
            row->master_addr = mem_strdup(inventory->address ? inventory->address : "127.0.0.1");
            row->has_master_port = true;
            row->master_port = row->ports[0];
        }
    }
}

struct attempt *attempt_create(struct job *job, const struct plan_entry *entry,
                               struct node *const *nodes)
{
    struct hub *hub = job->hub;
    Pb__Attempt *row = NEW(Pb__Attempt);
    const struct save *resume = save_resume(job);

    pb__attempt__init(row);
    row->has_job = row->has_number = row->has_placed_us = row->has_resume_checkpoint = true;
    row->job = job_view(job)->id;
    row->number = job_view(job)->attempt + 1;
    row->placed_us = loop_wall_us(hub->loop);
    row->resume_checkpoint = resume ? save_view(resume)->id : 0;
    fill_places(job, row, entry, nodes);
    restart_grant(job, row);
    fill_ports(job, row, entry, nodes);
    struct attempt *attempt = attempt_new(job);
    draft_add_take(&hub->drafts, &attempt->entry, &row->base);
    attempt_live_reset(job);
    node_residents_add(job);
    return attempt;
}

uint32_t attempt_incarnation(const Pb__Attempt *row)
{
    return row->incarnation ? row->incarnation : 1;
}

int64_t attempt_resume(const Pb__Attempt *row)
{
    return row->n_restarts ? row->restarts[row->n_restarts - 1]->resume_checkpoint
                           : row->resume_checkpoint;
}

bool attempt_is_open(const struct job *job)
{
    return job->attempt && !attempt_view(job->attempt)->has_ended_us;
}

uint32_t attempt_unended(const struct job *job)
{
    const Pb__Attempt *row = attempt_view(job->attempt);
    uint32_t count = 0;

    for (size_t i = 0; i < row->n_places; i++)
        count += !row->places[i]->ended;
    return count;
}

void attempt_end_place(struct job *job, size_t place_index, const Pb__ActualWorker *said,
                       Pb__Reason__Code code, const char *text)
{
    Pb__Attempt *row = (Pb__Attempt *)draft_edit(&job->hub->drafts, &job->attempt->entry);
    Pb__WorkerPlace *place = row->places[place_index];

    gate_place_ends(job, place_index);
    place->has_ended = place->ended = true;
    place->has_class_ = code != PB__REASON__CODE__CODE_UNSPECIFIED;
    place->class_ = code;
    if (said) {
        place->has_exit_code = said->has_exit_code;
        place->exit_code = said->exit_code;
        place->has_signal = said->has_signal;
        place->signal = said->signal;
        place->has_incarnation = true;
        place->incarnation = said->key->incarnation;
        place->has_answered = true;
        place->answered = said->answered > said->step ? said->answered : said->step;
        place->has_step = said->has_step;
        place->step = said->step;
        place->has_samples = said->has_samples;
        place->samples = said->samples;
    }
    if (text && *text)
        draft_text(&place->message, text);
    if (place->message)
        text_cut(place->message, PLACE_MESSAGE_MAX);
    node_desired_dirty(job->hub, place->node);
}

void attempt_close(struct job *job, Pb__Reason__Code code, const char *text)
{
    Pb__Attempt *row = (Pb__Attempt *)draft_edit(&job->hub->drafts, &job->attempt->entry);

    row->has_ended_us = true;
    row->ended_us = loop_wall_us(job->hub->loop);
    if (!row->end) {
        row->end = NEW(Pb__Reason);
        pb__reason__init(row->end);
    }
    row->end->has_code = true;
    row->end->code = code;
    draft_text(&row->end->text, text);
    save_attempt_ended(job);
    node_release(job);
}
