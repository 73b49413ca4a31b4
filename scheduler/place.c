/* place.c - simple placement. See place.h. */
#include "scheduler/place.h"
#include "scheduler/avoid.h"
#include <stdio.h>
#include <string.h>

/* What is left while the pass goes on; `taken` counts devices at the front of each free list. */
struct room_kind {
    const struct snapshot_kind *kind;
    size_t taken;
};
struct room {
    const struct snapshot_node *node;
    struct room_kind *kinds;
    uint64_t memory_free_mib;
};
struct pass {
    const struct snapshot *snapshot;
    struct arena *arena;
    struct room *rooms, *before;        /* now, and when the job at hand was begun */
    struct plan_worker *workers;        /* of the job at hand: room for the largest */
    const struct snapshot_job **failed; /* shapes that found no room in this pass */
    size_t failed_count;
    bool anywhere; /* the job at hand has nowhere else to go: it avoids nothing */
};

static struct room_kind *room_find(struct room *room, const char *name)
{
    for (size_t i = 0; i < room->node->kinds_count; i++)
        if (!strcmp(room->kinds[i].kind->name, name))
            return &room->kinds[i];
    return NULL;
}

static size_t room_free(const struct room_kind *kind)
{
    return kind ? kind->kind->free_count - kind->taken : 0;
}

/* What keeps the job off the node for now; NULL: nothing. */
static const struct snapshot_avoid *find_avoid(const struct pass *pass,
                                               const struct snapshot_node *node,
                                               const struct snapshot_job *job)
{
    for (size_t i = 0; !pass->anywhere && i < job->avoids_count; i++)
        if (job->avoids[i].until_us > pass->snapshot->now_us &&
            !strcmp(job->avoids[i].node, node->name))
            return &job->avoids[i];
    return NULL;
}

static bool node_offers(const struct pass *pass, const struct snapshot_node *node,
                        const struct snapshot_job *job)
{
    if (!node->open || (job->only_node && strcmp(job->only_node, node->name)) ||
        find_avoid(pass, node, job))
        return false;
    if (!job->vault)
        return true;
    for (size_t i = 0; i < node->vaults_count; i++)
        if (!strcmp(node->vaults[i], job->vault))
            return true;
    return false;
}

/* How many workers of the role fit into these amounts. */
static uint64_t role_fits(const struct snapshot_role *role, size_t devices, size_t cpus,
                          uint64_t memory_mib)
{
    uint64_t fits = role->workers;

    if (role->devices && devices / role->devices < fits)
        fits = devices / role->devices;
    if (role->cpus && cpus / role->cpus < fits)
        fits = cpus / role->cpus;
    if (role->memory_mib && memory_mib / role->memory_mib < fits)
        fits = memory_mib / role->memory_mib;
    return fits;
}

/* A piece of the snapshot's own list. */
static uint32_t *take(struct room_kind *kind, uint32_t count)
{
    uint32_t *out = kind->kind->free + kind->taken;

    kind->taken += count;
    return out;
}

/* Puts as many workers as fit (at most `want`) on the node; returns how many. */
static uint32_t fill_node(struct pass *pass, size_t node, const struct snapshot_role *role,
                          uint32_t want, struct plan_worker *workers)
{
    struct room *room = &pass->rooms[node];
    struct room_kind *devices = room_find(room, role->device);
    struct room_kind *cpus = role->cpus ? room_find(room, "cpu") : NULL;
    uint64_t fits = role_fits(role, room_free(devices), room_free(cpus), room->memory_free_mib);
    uint32_t count = fits < want ? (uint32_t)fits : want;

    if (role->devices && !devices)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        workers[i] = (struct plan_worker){.node = node};
        if (role->devices) {
            workers[i].devices = take(devices, role->devices);
            workers[i].devices_count = role->devices;
        }
        if (role->cpus) {
            workers[i].cpus = take(cpus, role->cpus);
            workers[i].cpus_count = role->cpus;
        }
        room->memory_free_mib -= role->memory_mib;
    }
    return count;
}

/* The journal of one job: rooms are copied back when the gang does not fit whole. */
static void rooms_copy(const struct pass *pass, struct room *to, const struct room *from)
{
    for (size_t i = 0; i < pass->snapshot->nodes_count; i++) {
        to[i].memory_free_mib = from[i].memory_free_mib;
        for (size_t k = 0; k < from[i].node->kinds_count; k++)
            to[i].kinds[k] = from[i].kinds[k];
    }
}

static uint32_t place_role(struct pass *pass, const struct snapshot_job *job, uint32_t role_index,
                           struct plan_worker *workers)
{
    const struct snapshot_role *role = &job->roles[role_index];
    uint32_t placed = 0;

    for (size_t node = 0; node < pass->snapshot->nodes_count && placed < role->workers; node++)
        if (node_offers(pass, pass->rooms[node].node, job))
            placed += fill_node(pass, node, role, role->workers - placed, workers + placed);
    for (uint32_t rank = 0; rank < placed; rank++) {
        workers[rank].role = role_index;
        workers[rank].rank = rank;
    }
    return placed;
}

/* What does not fit takes no memory: as many as are queued may try in one pass. */
static bool place_job(struct pass *pass, const struct snapshot_job *job, struct plan_entry *entry)
{
    size_t count = 0;

    rooms_copy(pass, pass->before, pass->rooms);
    for (size_t i = 0; i < job->roles_count; i++) {
        uint32_t placed = place_role(pass, job, (uint32_t)i, pass->workers + count);
        if (placed < job->roles[i].workers_min) {
            rooms_copy(pass, pass->rooms, pass->before);
            return false;
        }
        count += placed;
    }
    entry->workers = arena_alloc(pass->arena, sizeof(*entry->workers) * (count ? count : 1));
    memcpy(entry->workers, pass->workers, sizeof(*entry->workers) * count);
    entry->workers_count = count;
    return true;
}

static bool shape_equal(const struct snapshot_job *a, const struct snapshot_job *b)
{
    if (a->roles_count != b->roles_count)
        return false;
    if ((a->only_node || b->only_node) || a->avoids_count || b->avoids_count ||
        (a->vault != b->vault && (!a->vault || !b->vault || strcmp(a->vault, b->vault))))
        return false;
    for (size_t i = 0; i < a->roles_count; i++) {
        const struct snapshot_role *x = &a->roles[i], *y = &b->roles[i];
        if (x->workers_min != y->workers_min || x->devices != y->devices || x->cpus != y->cpus ||
            x->memory_mib != y->memory_mib || strcmp(x->device, y->device))
            return false;
    }
    return true;
}

static bool shape_failed(const struct pass *pass, const struct snapshot_job *job)
{
    for (size_t i = 0; i < pass->failed_count; i++)
        if (shape_equal(pass->failed[i], job))
            return true;
    return false;
}

/* Would the role fit if every healthy device of the nodes it may use were free? */
static uint64_t role_ever(const struct pass *pass, const struct snapshot_job *job,
                          const struct snapshot_role *role)
{
    uint64_t total = 0;

    for (size_t i = 0; i < pass->snapshot->nodes_count; i++) {
        struct room *room = &pass->rooms[i];
        if (!node_offers(pass, room->node, job))
            continue;
        struct room_kind *devices = room_find(room, role->device);
        struct room_kind *cpus = room_find(room, "cpu");
        if (role->devices && !devices)
            continue;
        total += role_fits(role, devices ? devices->kind->usable_count : 0,
                           cpus ? cpus->kind->usable_count : 0, room->node->memory_mib);
    }
    return total;
}

/* The first role that the nodes could not hold even if idle; NULL: each would fit. */
static const struct snapshot_role *too_large(const struct pass *pass,
                                             const struct snapshot_job *job, uint64_t *ever)
{
    for (size_t i = 0; i < job->roles_count; i++) {
        *ever = role_ever(pass, job, &job->roles[i]);
        if (*ever < job->roles[i].workers_min)
            return &job->roles[i];
    }
    return NULL;
}

/* An open node that would offer itself if the job did not avoid it. */
static const struct snapshot_avoid *first_avoided(const struct pass *pass,
                                                  const struct snapshot_job *job)
{
    for (size_t i = 0; i < pass->snapshot->nodes_count; i++) {
        const struct snapshot_node *node = pass->rooms[i].node;
        if (node->open && find_avoid(pass, node, job))
            return find_avoid(pass, node, job);
    }
    return NULL;
}

static void explain(const struct pass *pass, const struct snapshot_job *job,
                    struct plan_entry *entry)
{
    char text[320];
    uint64_t ever = 0;
    const struct snapshot_role *role = too_large(pass, job, &ever);
    const struct snapshot_avoid *avoid = first_avoided(pass, job);

    long long seconds = avoid ? (avoid->until_us - pass->snapshot->now_us) / 1000000 + 1 : 0;
    entry->answer = role ? PLAN_UNSATISFIABLE : PLAN_NO_ROOM;
    entry->text = "waits for free devices";
    if (role)
        snprintf(text, sizeof(text),
                 "role %.63s needs %u worker%s of %u %.31s%s; nodes in service%s%.63s could hold "
                 "%llu even if idle",
                 role->name, role->workers_min, role->workers_min == 1 ? "" : "s", role->devices,
                 role->device, role->workers_min == 1 ? "" : " each",
                 job->vault ? " with vault " : "", job->vault ? job->vault : "",
                 (unsigned long long)ever);
    else if (avoid)
        snprintf(text, sizeof(text),
                 "waits for free devices; stays away from %.63s for %lld s more: %.150s",
                 avoid->node, seconds, avoid->why ? avoid->why : "it failed to start there");
    if (role || avoid)
        entry->text = arena_strdup(pass->arena, text);
}

static struct room *rooms_create(const struct snapshot *snapshot, struct arena *arena)
{
    struct room *rooms = arena_alloc(arena, sizeof(struct room) * (snapshot->nodes_count + 1));

    for (size_t i = 0; i < snapshot->nodes_count; i++) {
        const struct snapshot_node *node = &snapshot->nodes[i];
        rooms[i].node = node;
        rooms[i].memory_free_mib = node->memory_free_mib;
        rooms[i].kinds = arena_alloc(arena, sizeof(struct room_kind) * (node->kinds_count + 1));
        for (size_t k = 0; k < node->kinds_count; k++)
            rooms[i].kinds[k].kind = &node->kinds[k];
    }
    return rooms;
}

/* Workers of the largest job that waits: the daemon bounds what a job may ask for. */
static size_t workers_most(const struct snapshot *snapshot)
{
    size_t most = 0;

    for (size_t i = 0; i < snapshot->jobs_count; i++) {
        size_t total = 0;
        for (size_t k = 0; k < snapshot->jobs[i].roles_count; k++)
            total += snapshot->jobs[i].roles[k].workers;
        most = total > most ? total : most;
    }
    return most;
}

static void pass_init(struct pass *pass, const struct snapshot *snapshot, struct arena *arena)
{
    *pass = (struct pass){.snapshot = snapshot, .arena = arena};
    pass->rooms = rooms_create(snapshot, arena);
    pass->before = rooms_create(snapshot, arena);
    pass->workers = arena_alloc(arena, sizeof(struct plan_worker) * (workers_most(snapshot) + 1));
    pass->failed = arena_alloc(arena, sizeof(void *) * (snapshot->jobs_count + 1));
}

/* Has it waited long enough for room on nodes that it does not avoid? */
static bool waited_in_vain(const struct pass *pass, const struct snapshot_job *job)
{
    int64_t last_us = 0;

    for (size_t i = 0; i < job->avoids_count; i++)
        last_us = job->avoids[i].since_us > last_us ? job->avoids[i].since_us : last_us;
    return job->avoids_count && pass->snapshot->now_us - last_us >= AVOID_WAIT_US;
}

static bool place_somewhere(struct pass *pass, const struct snapshot_job *job,
                            struct plan_entry *entry)
{
    uint64_t ever;

    pass->anywhere = false;
    pass->anywhere = job->avoids_count && too_large(pass, job, &ever);
    if (place_job(pass, job, entry))
        return true;
    if (pass->anywhere || !waited_in_vain(pass, job))
        return false;
    pass->anywhere = true;
    return place_job(pass, job, entry);
}

struct plan place_pass(const struct snapshot *snapshot, struct arena *arena)
{
    struct pass pass;
    struct plan plan = {
        .entries = arena_alloc(arena, sizeof(struct plan_entry) * (snapshot->jobs_count + 1))};

    pass_init(&pass, snapshot, arena);
    for (size_t i = 0; i < snapshot->jobs_count; i++) {
        const struct snapshot_job *job = &snapshot->jobs[i];
        struct plan_entry *entry = &plan.entries[plan.entries_count++];
        entry->job = i;
        entry->answer = PLAN_START;
        entry->text = "nodes reserved";
        bool known = shape_failed(&pass, job);
        if (!known && place_somewhere(&pass, job, entry))
            continue;
        if (!known)
            pass.failed[pass.failed_count++] = job;
        explain(&pass, job, entry);
    }
    return plan;
}
