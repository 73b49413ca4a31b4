/* desired.c - the desired set of a node. See desired.h. */
#include "daemon/desired.h"
#include "daemon/attempt.h"
#include "daemon/gate.h"
#include "daemon/job.h"
#include "daemon/node.h"
#include "daemon/restart.h"
#include "daemon/save.h"
#include "daemon/save_chore.h"
#include "daemon/save_source.h"

#define ARENA_MAX ((size_t)256 << 20)

static char *arena_printf(struct arena *arena, const char *fmt, int64_t a, unsigned b)
{
    char text[96];

    snprintf(text, sizeof(text), fmt, (long long)a, b);
    return arena_strdup(arena, text);
}

struct fill { /* one worker being described */
    const struct job *job;
    const Pb__Attempt *attempt;
    const Pb__WorkerPlace *place;
    const Pb__Role *role;
    uint32_t role_index;
    struct arena *arena;
};

static Pb__RankPlace **fill_table(const struct fill *fill, Pb__Launch *launch)
{
    const Pb__Attempt *row = fill->attempt;

    launch->table = arena_alloc(fill->arena, sizeof(void *) * (row->n_places + 1));
    for (size_t i = 0; i < row->n_places; i++) {
        const Pb__WorkerPlace *place = row->places[i];
        const struct node *node = map_get_text(fill->job->hub->nodes, place->node);
        const Pb__NodeInventory *inventory =
            node && node->entry.row ? node_view(node)->inventory : NULL;
        uint32_t role = 0;
        Pb__RankPlace *entry = arena_alloc(fill->arena, sizeof(*entry));
        attempt_role(fill->job, place->role, &role);
        pb__rank_place__init(entry);
        entry->role = place->role;
        entry->node = place->node;
        entry->address = inventory ? inventory->address : NULL;
        entry->has_rank = entry->has_port = true;
        entry->rank = place->rank;
        entry->port = role < row->n_ports ? row->ports[role] : 0;
        launch->table[launch->n_table++] = entry;
    }
    return launch->table;
}

/* Sizes and indices among the workers of the role, and over all roles. */
static void fill_ranks(const struct fill *fill, Pb__Launch *launch)
{
    const Pb__Attempt *row = fill->attempt;
    const char *last = NULL;
    bool whole = true;

    for (size_t i = 0; i < row->n_places; i++) {
        const Pb__WorkerPlace *other = row->places[i];
        whole &= !strcmp(other->node, fill->place->node);
        if (other == fill->place)
            launch->global_rank = (uint32_t)i;
        if (strcmp(other->role, fill->place->role) != 0)
            continue;
        launch->world++;
        launch->local_world += !strcmp(other->node, fill->place->node);
        if (!last || strcmp(last, other->node) != 0) { /* workers of one node are neighbours */
            if (!strcmp(other->node, fill->place->node))
                launch->group_rank = launch->groups;
            launch->groups++;
            last = other->node;
        }
    }
    launch->global_world = (uint32_t)row->n_places;
    launch->local_rank = fill->place->local_rank;
    launch->whole_gang_here = whole;
    launch->has_world = launch->has_local_world = launch->has_group_rank = launch->has_groups =
        launch->has_global_rank = launch->has_global_world = launch->has_local_rank =
            launch->has_whole_gang_here = true;
}

static void fill_master(const struct fill *fill, Pb__Launch *launch)
{
    const Pb__Attempt *row = fill->attempt;

    for (size_t i = 0; i < row->n_places; i++) {
        const Pb__WorkerPlace *place = row->places[i];
        const struct node *node = map_get_text(fill->job->hub->nodes, place->node);
        if (place->rank != 0 || strcmp(place->role, fill->place->role) != 0)
            continue;
        const Pb__NodeInventory *inventory =
            node && node->entry.row ? node_view(node)->inventory : NULL;
        launch->master_addr =
            inventory && inventory->address ? inventory->address : row->master_addr;
    }
    launch->has_master_port = true;
    launch->master_port = fill->role_index < row->n_ports ? row->ports[fill->role_index] : 0;
}

static Pb__ResumePoint *fill_resume(const struct fill *fill, const struct save *save)
{
    const Pb__Checkpoint *row = save ? (const Pb__Checkpoint *)save->entry.row : NULL;

    if (!row)
        return NULL;
    Pb__ResumePoint *resume = arena_alloc(fill->arena, sizeof(*resume));
    pb__resume_point__init(resume);
    resume->has_checkpoint = resume->has_step = resume->has_samples = true;
    resume->checkpoint = row->id;
    resume->step = row->step;
    resume->samples = row->samples;
    resume->vault = row->vault;
    resume->path = row->path;
    resume->manifest_digest = row->manifest_digest;
    resume->has_format = row->has_format;
    resume->format = row->format;
    resume->has_fetch = true;
    resume->fetch = save_source_is_needed(row, fill->place->node);
    return resume;
}

static Pb__Launch *fill_launch(const struct fill *fill)
{
    Pb__Launch *launch = arena_alloc(fill->arena, sizeof(*launch));
    const Pb__JobSpec *spec = job_view(fill->job)->spec;
    const Pb__Role *role = fill->role;

    pb__launch__init(launch);
    launch->job_name = spec->name;
    launch->project = spec->project;
    launch->n_command = role->n_command;
    launch->command = role->command;
    launch->workdir = role->workdir;
    launch->n_env = role->n_env;
    launch->env = role->env;
    launch->code = spec->code;
    launch->user = (char *)(uintptr_t)job_user(fill->job);
    launch->resources = role->resources;
    launch->n_devices = fill->place->n_devices;
    launch->devices = fill->place->devices;
    launch->n_cpus = fill->place->n_cpus;
    launch->cpus = fill->place->cpus;
    fill_ranks(fill, launch);
    fill_master(fill, launch);
    fill_table(fill, launch);
    launch->has_restarts = launch->has_restarts_max = launch->has_grace_ms = true;
    launch->has_grace_ms_max = launch->has_on_unreachable = launch->has_delay_ms = true;
    launch->restarts = fill->attempt->number - 1;
    launch->restarts_max = spec->restart->budget;
    launch->grace_ms = spec->grace_ms;
    launch->grace_ms_max = spec->grace_ms_max;
    launch->on_unreachable = spec->on_unreachable;
    launch->run_id =
        arena_printf(fill->arena, "rondo-%lld.%u", fill->attempt->job, fill->attempt->number);
    launch->checkpoint = spec->checkpoint;
    launch->phases = spec->phases;
    launch->resume = fill_resume(
        fill, map_get(fill->job->hub->saves, (uint64_t)fill->attempt->resume_checkpoint));
    launch->allowance = restart_allowance(fill->job, fill->arena);
    launch->vault = spec->checkpoint && spec->checkpoint->vault && *spec->checkpoint->vault
                        ? spec->checkpoint->vault
                        : (char *)(uintptr_t)fill->job->hub->options.default_vault;
    launch->delay_ms = fill->place->rank ? 400 : 0;
    return launch;
}

static Pb__DesiredWorker__Want want_of(const struct job *job)
{
    if (job_view(job)->state != PB__JOB__STATE__STOPPING)
        return PB__DESIRED_WORKER__WANT__RUN;
    return PB__DESIRED_WORKER__WANT__STOP;
}

static Pb__DesiredWorker *fill_worker(struct node *node, const struct fill *fill)
{
    Pb__DesiredWorker *worker = arena_alloc(fill->arena, sizeof(*worker));
    Pb__WorkerKey *key = arena_alloc(fill->arena, sizeof(*key));
    char text[128];

    pb__desired_worker__init(worker);
    pb__worker_key__init(key);
    key->has_job = key->has_rank = key->has_attempt = true;
    key->job = fill->attempt->job;
    key->role = fill->place->role;
    key->rank = fill->place->rank;
    key->attempt = fill->attempt->number;
    worker->key = key;
    worker->has_want = true;
    worker->want = want_of(fill->job);
    if (worker->want != PB__DESIRED_WORKER__WANT__RUN) {
        worker->why = job_view(fill->job)->reason ? job_view(fill->job)->reason->text : NULL;
        worker->has_grace_ms = fill->job->stop_grace_ms != 0;
        worker->grace_ms = fill->job->stop_grace_ms;
    }
    Pb__Gate *gate = arena_alloc(fill->arena, sizeof(*gate));
    if (gate_fill(fill->job, gate))
        worker->gate = gate;
    if (restart_is_allowed(fill->attempt))
        worker->newest = fill_resume(fill, save_resume(fill->job));
    node_key_text(key, text, sizeof(text));
    if (!map_get_text(node->launched, text)) {
        map_put_text(node->launched, text, node);
        worker->launch = fill_launch(fill);
    }
    return worker;
}

static size_t places_here(const struct node *node, const Pb__Attempt *row)
{
    size_t count = 0;

    for (size_t i = 0; i < row->n_places; i++)
        count += !row->places[i]->ended && !strcmp(row->places[i]->node, node_view(node)->name);
    return count;
}

static void fill_job(struct node *node, const struct job *job, Pb__Desired *out,
                     struct arena *arena)
{
    struct fill fill = {.job = job, .attempt = attempt_view(job->attempt), .arena = arena};

    for (size_t i = 0; i < fill.attempt->n_places; i++) {
        fill.place = fill.attempt->places[i];
        if (fill.place->ended || strcmp(fill.place->node, node_view(node)->name) != 0)
            continue;
        fill.role = attempt_role(job, fill.place->role, &fill.role_index);
        out->workers[out->n_workers++] = fill_worker(node, &fill);
    }
}

/* Keys of workers that left the set need not be remembered. */
static void launched_trim(struct node *node, size_t in_use)
{
    if (map_count(node->launched) <= 2 * in_use + 256)
        return;
    map_destroy(node->launched);
    node->launched = map_create(); /* launches are sent once more: agents ignore what they know */
}

static void desired_send(struct node *node)
{
    Pb__AgentDown down = PB__AGENT_DOWN__INIT;
    Pb__Desired desired = PB__DESIRED__INIT;
    struct arena *arena = arena_create(ARENA_MAX);
    size_t count = 0, at = 0;

    for (struct job *job; (job = map_next(node->residents, &at));)
        count += places_here(node, attempt_view(job->attempt));
    desired.workers = arena_alloc(arena, sizeof(void *) * (count + 1));
    at = 0;
    for (struct job *job; (job = map_next(node->residents, &at));)
        fill_job(node, job, &desired, arena);
    save_chore_fill(node, &desired, arena);
    save_source_fill(node, &desired, arena);
    desired.has_revision = desired.has_heard_seq = true;
    desired.heard_seq = node->seq_turn;
    desired.revision = ++node->revision;
    down.has_term = true;
    down.term = node->hub->term;
    down.desired = &desired;
    node->link->ops->control(node->link, &down);
    launched_trim(node, count);
    arena_destroy(arena);
}

void desired_send_dirty(struct hub *hub)
{
    size_t at = 0;

    for (struct node *node; (node = map_next(hub->nodes, &at));) {
        if (!node->desired_dirty || !node->link || !node->welcomed)
            continue;
        node->desired_dirty = false;
        desired_send(node);
    }
}
