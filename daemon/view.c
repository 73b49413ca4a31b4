/* view.c - see view.h. */
#include "daemon/view.h"
#include <string.h>

#define VIEW_NODES_MAX   20000
#define VIEW_CHECK_COUNT 4

bool view_shows_env(const struct identity *who, const Pb__Job *job)
{
    const char *project = job->spec && job->spec->project ? job->spec->project : "default";

    if (!who)
        return false;
    if (who->roles & (IDENTITY_ADMIN | IDENTITY_DAEMON))
        return true;
    return (who->roles & IDENTITY_SUBMITTER) != 0 && identity_may_use(who, project);
}

bool view_job_is_ended(const Pb__Job *job)
{
    return job->state == PB__JOB__STATE__SUCCEEDED || job->state == PB__JOB__STATE__FAILED ||
           job->state == PB__JOB__STATE__CANCELLED;
}

static void *view_dup(struct arena *arena, const void *bytes, size_t size)
{
    void *copy = arena_alloc(arena, size);

    memcpy(copy, bytes, size);
    return copy;
}

/* The names stay: people look for which variables a job sets, not only for their values. */
static Pb__StringPair **view_env_names(struct arena *arena, const Pb__Role *role)
{
    Pb__StringPair **list = arena_alloc(arena, (role->n_env + 1) * sizeof(*list));

    for (size_t i = 0; i < role->n_env; i++) {
        list[i] = view_dup(arena, role->env[i], sizeof(*list[i]));
        list[i]->value = NULL;
    }
    return list;
}

static Pb__Role *view_role(struct arena *arena, const Pb__Role *role, bool brief)
{
    Pb__Role *copy = view_dup(arena, role, sizeof(*role));

    if (brief) {
        copy->n_env = 0;
        copy->env = NULL;
        copy->n_command = 0;
        copy->command = NULL;
    } else {
        copy->env = view_env_names(arena, role);
    }
    return copy;
}

/* Progress is fresher than the row, which only each transaction brings up to date. */
static void view_progress(const struct core *core, Pb__Job *job)
{
    int64_t step = 0, samples = 0;

    core_progress(core, job->id, &step, &samples);
    if (!step)
        return;
    job->has_step = job->has_samples = true;
    job->step = step;
    job->samples = samples;
}

Pb__Job *view_job(struct arena *arena, const struct core *core, const struct identity *who,
                  const Pb__Job *job, bool brief)
{
    Pb__Job *copy = view_dup(arena, job, sizeof(*job));
    const Pb__Reason *wait = core_job_wait(core, job->id);

    if (wait)
        copy->reason = (Pb__Reason *)(uintptr_t)wait;
    view_progress(core, copy);
    if (!job->spec || (!brief && view_shows_env(who, job)))
        return copy;
    copy->spec = view_dup(arena, job->spec, sizeof(*job->spec));
    copy->spec->roles = arena_alloc(arena, (job->spec->n_roles + 1) * sizeof(Pb__Role *));
    for (size_t i = 0; i < job->spec->n_roles; i++)
        copy->spec->roles[i] = view_role(arena, job->spec->roles[i], brief);
    return copy;
}

static bool view_same(const char *wanted, const char *got)
{
    return !wanted || !*wanted || (got && strcmp(wanted, got) == 0);
}

bool view_job_matches(const Pb__JobFilter *filter, const Pb__Job *job)
{
    bool found = false;

    if (!filter)
        return true;
    if (filter->active && view_job_is_ended(job))
        return false;
    if (!job->spec || !view_same(filter->project, job->spec->project) ||
        !view_same(filter->name, job->spec->name))
        return false;
    for (size_t i = 0; i < filter->n_ids && !found; i++)
        found = filter->ids[i] == job->id;
    if (filter->n_ids > 0 && !found)
        return false;
    found = false;
    for (size_t i = 0; i < filter->n_states && !found; i++)
        found = filter->states[i] == job->state;
    return filter->n_states == 0 || found;
}

/* The agent's word where there is one, else what the attempt's row kept. */
static void view_worker(const struct core *core, const Pb__Attempt *attempt,
                        const Pb__WorkerPlace *place, Pb__ShowWorker *out)
{
    const Pb__ActualWorker *actual =
        core_worker(core, attempt->job, place->role, place->rank, attempt->number);

    pb__show_worker__init(out);
    out->role = place->role;
    out->has_rank = true;
    out->rank = place->rank;
    out->node = place->node;
    out->message = place->message;
    out->has_incarnation = place->has_incarnation;
    out->incarnation = place->incarnation;
    out->has_exit_code = place->has_exit_code;
    out->exit_code = place->exit_code;
    out->has_signal = place->has_signal;
    out->signal = place->signal;
    out->has_step = place->has_step;
    out->step = place->step;
    out->has_samples = place->has_samples;
    out->samples = place->samples;
    out->state = place->ended ? "EXITED" : "PENDING";
    if (!actual)
        return;
    out->has_pid = actual->has_pid;
    out->pid = actual->pid;
    out->has_step = actual->has_step;
    out->step = actual->step;
    out->has_samples = actual->has_samples;
    out->samples = actual->samples;
    if (place->ended)
        return;
    const ProtobufCEnumValue *state = protobuf_c_enum_descriptor_get_value(
        &pb__actual_worker__state__descriptor, (int)actual->state);
    out->state = state ? (char *)state->name : "UNKNOWN";
    out->has_exit_code = actual->has_exit_code;
    out->exit_code = actual->exit_code;
    out->has_signal = actual->has_signal;
    out->signal = actual->signal;
    if (actual->message && *actual->message)
        out->message = actual->message;
    if (actual->key && actual->key->has_incarnation) {
        out->has_incarnation = true;
        out->incarnation = actual->key->incarnation;
    }
}

void view_workers(struct arena *arena, const struct core *core, const Pb__Attempt *attempt,
                  Pb__ShowJobReply *out)
{
    out->workers = arena_alloc(arena, (attempt->n_places + 1) * sizeof(*out->workers));
    for (size_t i = 0; i < attempt->n_places; i++) {
        out->workers[i] = arena_alloc(arena, sizeof(*out->workers[i]));
        view_worker(core, attempt, attempt->places[i], out->workers[i]);
    }
    out->n_workers = attempt->n_places;
}

void view_nodes(struct arena *arena, const struct core *core, Pb__ListNodesReply *out)
{
    size_t count = core_nodes(core, NULL, 0);
    if (count > VIEW_NODES_MAX)
        count = VIEW_NODES_MAX;
    const Pb__Node **nodes = arena_alloc(arena, (count + 1) * sizeof(*nodes));
    size_t got = core_nodes(core, nodes, count);

    if (got < count)
        count = got;
    out->nodes = arena_alloc(arena, (count + 1) * sizeof(*out->nodes));
    for (size_t i = 0; i < count; i++) {
        Pb__NodeUse *use = arena_alloc(arena, sizeof(*use));
        pb__node_use__init(use);
        use->node = (Pb__Node *)nodes[i];
        use->has_devices_used = use->has_workers = true;
        core_node_use(core, nodes[i]->name, &use->devices_used, &use->workers);
        out->nodes[out->n_nodes++] = use;
    }
}

static void view_check(struct arena *arena, Pb__StatusReply *out, const char *name, bool ok,
                       const char *text)
{
    Pb__StatusCheck *check = arena_alloc(arena, sizeof(*check));

    pb__status_check__init(check);
    check->name = (char *)name;
    check->has_ok = true;
    check->ok = ok;
    check->text = arena_strdup(arena, text);
    out->checks[out->n_checks++] = check;
    out->ready = out->ready && ok;
}

static const char *view_pass_text(const struct core_health *health, int64_t age_ms, bool ok)
{
    if (health->last_pass_us == 0)
        return "no scheduling pass has run yet";
    if (!ok)
        return age_ms < 0 ? "the last pass is in the future" : "no scheduling pass for too long";
    return "passes run";
}

static void view_checks(struct arena *arena, const struct core_health *health,
                        const struct view_limits *limits, Pb__StatusReply *out)
{
    int64_t age_ms = (limits->now_us - health->last_pass_us) / 1000;
    bool passed = health->last_pass_us != 0 && age_ms <= limits->pass_ms_max;

    out->checks = arena_alloc(arena, VIEW_CHECK_COUNT * sizeof(*out->checks));
    view_check(arena, out, "database", health->store_usable,
               health->store_usable    ? "usable"
               : health->store_text[0] ? health->store_text
                                       : "not connected");
    view_check(arena, out, "loaded", health->loaded,
               health->loaded ? "committed state is in memory" : "still loading");
    view_check(arena, out, "leader", health->term > 0 && !health->fenced,
               health->fenced     ? "a newer term leads"
               : health->term > 0 ? "this daemon leads"
                                  : "no leader yet");
    view_check(arena, out, "pass", passed, view_pass_text(health, age_ms, passed));
}

void view_status(struct arena *arena, const struct core *core, const struct view_limits *limits,
                 Pb__StatusReply *out)
{
    struct core_health health = {0};

    core_health(core, &health);
    out->has_ready = out->ready = true;
    view_checks(arena, &health, limits, out);
    out->version = RONDO_VERSION;
    out->cluster = arena_strdup(arena, health.cluster ? health.cluster : "");
    out->has_term = out->has_nodes_healthy = out->has_nodes = true;
    out->term = health.term;
    out->nodes_healthy = health.nodes_healthy;
    out->nodes = health.nodes;
    out->has_jobs_active = out->has_jobs_queued = out->has_uptime_ms = true;
    out->jobs_active = health.jobs_active;
    out->jobs_queued = health.jobs_queued;
    out->uptime_ms = (limits->now_us - limits->started_us) / 1000;
}
