/* pass.c - a scheduling pass. See pass.h. */
#include "daemon/pass.h"
#include "base/log.h"
#include "daemon/attempt.h"
#include "daemon/job.h"
#include "daemon/node.h"
#include "daemon/pass_avoid.h"
#include "daemon/save.h"
#include "daemon/save_copy.h"
#include "daemon/save_source.h"
#include "proto/text/job_check.h"
#include "proto/text/message.h"
#include "scheduler/place.h"

#define ARENA_MAX ((size_t)512 << 20)

struct pass {
    struct hub *hub;
    struct arena *arena;
    struct snapshot snapshot;
    struct node **nodes; /* by index of the snapshot */
    struct job **jobs;
};

/* --- nodes */
static struct snapshot_kind *kind_obtain(struct pass *pass, struct snapshot_node *out,
                                         const struct node *node, const char *name)
{
    for (size_t i = 0; i < out->kinds_count; i++)
        if (!strcmp(out->kinds[i].name, name))
            return &out->kinds[i];
    struct snapshot_kind *kind = &out->kinds[out->kinds_count++];
    kind->name = name;
    kind->free = arena_alloc(pass->arena, sizeof(uint32_t) * (node->slots_count + 1));
    return kind;
}

static size_t kinds_of(const struct node *node)
{
    size_t kinds = 0;

    for (size_t i = 0; i < node->slots_count; i++) /* devices of a kind are neighbours */
        kinds += i == 0 || strcmp(node->slots[i].kind, node->slots[i - 1].kind) != 0;
    return kinds;
}

static void snapshot_node(struct pass *pass, struct node *node)
{
    size_t index = pass->snapshot.nodes_count++;
    struct snapshot_node *out = &pass->snapshot.nodes[index];
    const Pb__NodeInventory *inventory = node_view(node)->inventory;

    pass->nodes[index] = node;
    out->name = node_view(node)->name;
    out->open = node_is_open(node);
    out->memory_mib = inventory->memory_mib;
    out->memory_free_mib = inventory->memory_mib > node->memory_used_mib
                               ? inventory->memory_mib - node->memory_used_mib
                               : 0;
    out->kinds = arena_alloc(pass->arena, sizeof(*out->kinds) * (kinds_of(node) + 1));
    for (size_t i = 0; i < node->slots_count; i++) {
        struct snapshot_kind *kind = kind_obtain(pass, out, node, node->slots[i].kind);
        kind->usable_count += node->slots[i].usable;
        if (node->slots[i].usable && !node->slots[i].owner)
            kind->free[kind->free_count++] = node->slots[i].index;
    }
    const char **vaults = arena_alloc(pass->arena, sizeof(char *) * (inventory->n_vaults + 1));
    for (size_t i = 0; i < inventory->n_vaults; i++)
        vaults[i] = inventory->vaults[i]->name ? inventory->vaults[i]->name : "";
    out->vaults = vaults;
    out->vaults_count = inventory->n_vaults;
}

/* --- jobs */
/* resume: what it continues from; NULL: from the start */
static void snapshot_roles(struct pass *pass, const Pb__JobSpec *spec, const struct save *resume,
                           struct snapshot_job *out)
{
    struct snapshot_role *roles = arena_alloc(pass->arena, sizeof(*roles) * (spec->n_roles + 1));
    bool fixed = spec->checkpoint && !spec->checkpoint->resizable && resume;

    for (size_t i = 0; i < spec->n_roles; i++) {
        const Pb__Role *role = spec->roles[i];
        roles[i].name = role->name;
        roles[i].device = role->resources->device;
        roles[i].workers = role->workers;
        roles[i].workers_min = role->workers_min && !fixed ? role->workers_min : role->workers;
        roles[i].devices = role->resources->devices;
        roles[i].cpus = role->resources->cpus;
        roles[i].memory_mib = role->resources->memory_mib;
    }
    if (fixed) /* opaque checkpoints load on the size that wrote them */
        roles[0].workers = roles[0].workers_min = save_view(resume)->world;
    out->roles = roles;
    out->roles_count = spec->n_roles;
}

static bool has_all(const Pb__Checkpoint *row, const char *node)
{
    for (size_t i = 0; i < row->n_parts; i++)
        if (!save_copy_is_on(row, i, node))
            return false;
    return row->n_parts > 0;
}

/* A checkpoint on nodes' own disks can only be loaded where it is, unless their agents serve it. */
static const char *only_node(const struct pass *pass, const struct save *save)
{
    const Pb__Checkpoint *row = save ? save_view(save) : NULL;

    if (!row || !row->n_copies || !row->n_parts ||
        row->copies[0]->durability != PB__SHARD_COPY__DURABILITY__NODE ||
        save_copy_all_served(pass->hub, row))
        return NULL;
    for (size_t i = 0; i < row->n_copies; i++) {
        const struct node *node = map_get_text(pass->hub->nodes, row->copies[i]->node);
        if (node && node->link && !row->copies[i]->lost && has_all(row, row->copies[i]->node))
            return node_view(node)->name;
    }
    return row->parts[0]->node;
}

/* A job that asks for no checkpoints runs on nodes without a vault, too. */
static const char *vault_needed(const struct hub *hub, const Pb__JobSpec *spec,
                                const struct save *resume)
{
    const Pb__CheckpointPolicy *policy = spec->checkpoint;

    if (!policy)
        return NULL;
    if (policy->vault && *policy->vault)
        return policy->vault;
    return policy->every_steps || policy->every_s || policy->watch || resume
               ? hub->options.default_vault
               : NULL;
}

static bool job_is_ready(struct job *job, int64_t now)
{
    int64_t wait = save_wait_until(job);

    if (wait > now && wait > job->not_before_us)
        job->not_before_us = wait;
    if (job->not_before_us > now) {
        job_arm(job);
        return false;
    }
    return true;
}

static void snapshot_jobs(struct pass *pass)
{
    struct hub *hub = pass->hub;
    int64_t now = loop_now_us(hub->loop);
    struct snapshot_job *jobs = arena_alloc(pass->arena, sizeof(*jobs) * (HUB_PASS_DEPTH + 1));

    pass->jobs = arena_alloc(pass->arena, sizeof(struct job *) * (HUB_PASS_DEPTH + 1));
    for (size_t i = 0; i < hub->queue_count && pass->snapshot.jobs_count < HUB_PASS_DEPTH; i++) {
        struct job *job = hub->queue[i];
        if (!job_is_ready(job, now))
            continue;
        struct snapshot_job *out = &jobs[pass->snapshot.jobs_count];
        pass->jobs[pass->snapshot.jobs_count++] = job;
        out->id = job_view(job)->id;
        out->vault = vault_needed(hub, job_view(job)->spec, save_resume(job));
        out->only_node = only_node(pass, save_resume(job));
        out->avoids_count = pass_avoid(job, pass->snapshot.now_us, pass->arena, &out->avoids);
        snapshot_roles(pass, job_view(job)->spec, save_resume(job), out);
    }
    pass->snapshot.jobs = jobs;
}

/* --- the applier: what the plan takes must be free now */
static bool recheck(const struct pass *pass, const struct plan_entry *entry)
{
    for (size_t i = 0; i < entry->workers_count; i++) {
        const struct plan_worker *worker = &entry->workers[i];
        const struct node *node = pass->nodes[worker->node];
        if (!node_is_open(node))
            return false;
    }
    return true;
}

/* A checkpoint of several nodes needs a vault that they share, whoever decides when to save: asked
 * at the first start, so that no later one is refused for it. */
static bool vault_is_safe(const struct pass *pass, const struct job *job,
                          const struct plan_entry *entry)
{
    const Pb__CheckpointPolicy *policy = job_view(job)->spec->checkpoint;
    const struct snapshot_job *wanted = &pass->snapshot.jobs[entry->job];
    const struct node *first = pass->nodes[entry->workers[0].node];
    const Pb__NodeInventory *inventory = node_view(first)->inventory;
    const char *vault = wanted->vault ? wanted->vault : pass->hub->options.default_vault;
    bool several = false;

    if (!policy || policy->allow_node_vault)
        return true;
    for (size_t i = 1; i < entry->workers_count; i++)
        several |= entry->workers[i].node != entry->workers[0].node;
    for (size_t i = 0; several && vault && i < inventory->n_vaults; i++)
        if (inventory->vaults[i]->name && !strcmp(inventory->vaults[i]->name, vault))
            return inventory->vaults[i]->class_ != PB__VAULT__CLASS__NODE;
    return true;
}

static void set_wait(struct job *job, Pb__Reason__Code code, const char *text)
{
    job->wait.has_code = true;
    job->wait.code = code;
    snprintf(job->wait_text, sizeof(job->wait_text), "%s", text);
}

static void wait_for(const struct pass *pass, struct job *job, const struct plan_entry *entry)
{
    bool never = entry->answer == PLAN_UNSATISFIABLE;
    char text[200] = "";

    if (pass->snapshot.jobs[entry->job].only_node)
        save_source_explain(pass->hub, save_view(save_resume(job)), text, sizeof(text));
    set_wait(job, never ? PB__REASON__CODE__UNSATISFIABLE : PB__REASON__CODE__NO_ROOM,
             *text ? text : entry->text);
}

static void apply_start(struct pass *pass, struct job *job, const struct plan_entry *entry)
{
    struct hub *hub = pass->hub;
    char text[160];

    if (!vault_is_safe(pass, job, entry)) {
        set_wait(job, PB__REASON__CODE__UNSATISFIABLE,
                 "needs several nodes, but its vault lives and dies with one node: name a shared "
                 "vault or set checkpoint.allow_node_vault");
        return;
    }
    struct attempt *attempt = attempt_create(job, entry, pass->nodes);
    Pb__Job *row = (Pb__Job *)draft_edit(&hub->drafts, &job->entry);
    const struct save *resume = save_resume(job);
    row->has_attempt = row->has_step = row->has_samples = true;
    row->attempt = attempt_view(attempt)->number;
    row->step = resume ? save_view(resume)->step : 0; /* no longer the last attempt's */
    row->samples = resume ? save_view(resume)->samples : 0;
    row->has_next = false;
    snprintf(text, sizeof(text), "%zu workers, first on %.100s", entry->workers_count,
             attempt_view(attempt)->places[0]->node);
    job_started(job);
    struct error err;
    if (job_apply(job, JOB_EV_PLACED, PB__REASON__CODE__PLACED, text, &err) != STATUS_OK)
        log_error("pass.refused", log_int("job", row->id), log_err(&err));
    job_arm(job);
}

static void snapshot_nodes(struct pass *pass)
{
    const struct hub *hub = pass->hub;
    size_t count = map_count(hub->nodes), at = 0;

    pass->nodes = arena_alloc(pass->arena, sizeof(struct node *) * (count + 1));
    pass->snapshot.nodes = arena_alloc(pass->arena, sizeof(struct snapshot_node) * (count + 1));
    for (struct node *node; (node = map_next(hub->nodes, &at));)
        if ((node->entry.row || node->entry.draft) && node_view(node)->inventory)
            snapshot_node(pass, node);
    pass->snapshot.now_us = loop_wall_us(hub->loop);
}

void pass_run(struct hub *hub)
{
    struct pass pass = {.hub = hub};

    hub->health.passes++;
    hub->health.last_pass_us = loop_now_us(hub->loop);
    if (!hub->queue_count)
        return;
    pass.arena = arena_create(ARENA_MAX);
    snapshot_nodes(&pass);
    snapshot_jobs(&pass);
    struct plan plan = place_pass(&pass.snapshot, pass.arena);
    for (size_t i = 0; i < plan.entries_count; i++) {
        const struct plan_entry *entry = &plan.entries[i];
        struct job *job = pass.jobs[entry->job];
        if (entry->answer == PLAN_START && entry->workers_count && recheck(&pass, entry))
            apply_start(&pass, job, entry);
        else
            wait_for(&pass, job, entry);
    }
    arena_destroy(pass.arena);
}

bool core_fits(const struct core *core, const Pb__JobSpec *spec, char *why, size_t cap)
{
    struct pass pass = {.hub = (struct hub *)(uintptr_t)core, .arena = arena_create(ARENA_MAX)};
    Pb__JobSpec *whole = (Pb__JobSpec *)message_copy(&spec->base);
    struct snapshot_job wanted = {0};

    job_check_fill(whole);
    snapshot_nodes(&pass);
    wanted.vault = vault_needed(pass.hub, whole, NULL);
    snapshot_roles(&pass, whole, NULL, &wanted);
    pass.snapshot.jobs = &wanted;
    pass.snapshot.jobs_count = 1;
    struct plan plan = place_pass(&pass.snapshot, pass.arena);
    bool fits = plan.entries[0].answer != PLAN_UNSATISFIABLE;
    snprintf(why, cap, "%s", fits ? "" : plan.entries[0].text);
    arena_destroy(pass.arena);
    protobuf_c_message_free_unpacked(&whole->base, NULL);
    return fits;
}
