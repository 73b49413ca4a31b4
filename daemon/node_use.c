/* node_use.c - what is used on the nodes: devices, memory, ports, residents. Derived from open
 * attempts. See node.h. */
#include "base/log.h"
#include "daemon/attempt.h"
#include "daemon/node.h"

void node_build_slots(struct node *node)
{
    const Pb__NodeInventory *inventory = node_view(node)->inventory;

    mem_free(node->slots);
    node->slots_count = inventory ? inventory->n_devices : 0;
    node->slots = mem_array(node->slots_count + 1, sizeof(*node->slots));
    for (size_t i = 0; i < node->slots_count; i++) {
        const Pb__Device *device = inventory->devices[i];
        struct slot *slot = &node->slots[i];
        snprintf(slot->kind, sizeof(slot->kind), "%s", device->kind ? device->kind : "");
        slot->index = device->index;
        slot->usable = device->health == PB__DEVICE__HEALTH__HEALTHY;
    }
}

static struct slot *slot_find(struct node *node, const char *kind, uint32_t index)
{
    for (size_t i = 0; i < node->slots_count; i++)
        if (node->slots[i].index == index && !strcmp(node->slots[i].kind, kind))
            return &node->slots[i];
    return NULL;
}

static void slots_own(struct node *node, const char *kind, const uint32_t *indices, size_t count,
                      int64_t owner)
{
    for (size_t i = 0; i < count; i++) {
        struct slot *slot = slot_find(node, kind, indices[i]);
        if (slot) /* a device that the node no longer has needs no owner */
            slot->owner = owner;
    }
}

void node_take(struct node *node, struct job *job, const Pb__Role *role,
               const Pb__WorkerPlace *place)
{
    int64_t id = job_view(job)->id;

    slots_own(node, role->resources->device, place->devices, place->n_devices, id);
    slots_own(node, "cpu", place->cpus, place->n_cpus, id);
    node->memory_used_mib += role->resources->memory_mib;
}

uint32_t node_take_port(struct node *node, struct job *job)
{
    const Pb__NodeInventory *inventory = node_view(node)->inventory;
    uint32_t first = inventory->port_first ? inventory->port_first : 20000;
    uint32_t last = inventory->port_last >= first ? inventory->port_last : first + 9999;
    uint32_t count = last - first + 1;

    for (uint32_t i = 0; i < count; i++) { /* round robin: a port rests before it is given again */
        uint32_t port = first + (node->port_next + i) % count;
        if (map_get(node->ports, port))
            continue;
        node->port_next = (port - first + 1) % count;
        map_put(node->ports, port, job);
        return port;
    }
    return first; /* more roles than ports: the clash is found at launch and retried */
}

static struct node *place_node(const struct job *job, const Pb__WorkerPlace *place)
{
    return map_get_text(job->hub->nodes, place->node);
}

void node_residents_add(struct job *job)
{
    const Pb__Attempt *row = attempt_view(job->attempt);

    for (size_t i = 0; i < row->n_places; i++) {
        struct node *node = place_node(job, row->places[i]);
        if (node && !map_get(node->residents, (uint64_t)row->job)) {
            map_put(node->residents, (uint64_t)row->job, job);
            node->desired_dirty = true;
        }
    }
}

static void ports_free(struct node *node, const struct job *job, const Pb__Attempt *row)
{
    for (size_t i = 0; i < row->n_ports; i++)
        if (map_get(node->ports, row->ports[i]) == job)
            map_remove(node->ports, row->ports[i]);
}

void node_release(struct job *job)
{
    const Pb__Attempt *row = attempt_view(job->attempt);

    for (size_t i = 0; i < row->n_places; i++) {
        const Pb__WorkerPlace *place = row->places[i];
        const Pb__Role *role = attempt_role(job, place->role, NULL);
        struct node *node = place_node(job, place);
        if (!node)
            continue;
        slots_own(node, role->resources->device, place->devices, place->n_devices, 0);
        slots_own(node, "cpu", place->cpus, place->n_cpus, 0);
        node->memory_used_mib -= role->resources->memory_mib;
        ports_free(node, job, row);
        map_remove(node->residents, (uint64_t)row->job);
        node->desired_dirty = true;
    }
    job->hub->pass_needed = true;
}

static void recount_ports(struct job *job, const Pb__Attempt *row)
{
    size_t port = 0;

    for (size_t i = 0; i < row->n_places && port < row->n_ports; i++) {
        if (row->places[i]->rank != 0)
            continue;
        struct node *node = place_node(job, row->places[i]);
        if (node)
            map_put(node->ports, row->ports[port], job);
        port++;
    }
}

void node_recount(struct hub *hub)
{
    size_t at = 0;

    for (struct node *node; (node = map_next(hub->nodes, &at));) {
        if (node->entry.row || node->entry.draft)
            node_build_slots(node);
        node->memory_used_mib = 0;
        map_destroy(node->ports);
        map_destroy(node->residents);
        node->ports = map_create();
        node->residents = map_create();
    }
    for (size_t i = 0; i < hub->order_count; i++) {
        struct job *job = hub->order[i];
        if (!attempt_is_open(job))
            continue;
        const Pb__Attempt *row = attempt_view(job->attempt);
        for (size_t p = 0; p < row->n_places; p++) {
            struct node *node = place_node(job, row->places[p]);
            if (node)
                node_take(node, job, attempt_role(job, row->places[p]->role, NULL), row->places[p]);
        }
        recount_ports(job, row);
        node_residents_add(job);
    }
}

/* What a count from the rows gives for one node: devices owned, memory, residents, ports. */
struct use {
    size_t owned, residents, ports;
    uint64_t memory_mib;
};

static struct use use_of(const struct node *node)
{
    struct use use = {.residents = map_count(node->residents),
                      .ports = map_count(node->ports),
                      .memory_mib = node->memory_used_mib};

    for (size_t i = 0; i < node->slots_count; i++)
        use.owned += node->slots[i].owner != 0;
    return use;
}

size_t node_audit(struct hub *hub)
{
    size_t count = map_count(hub->nodes), at = 0, differ = 0, i = 0;
    struct use *before = mem_array(count + 1, sizeof(*before));

    for (struct node *node; (node = map_next(hub->nodes, &at)); i++)
        before[i] = use_of(node);
    node_recount(hub);
    at = i = 0;
    for (struct node *node; (node = map_next(hub->nodes, &at)); i++) {
        struct use after = use_of(node);
        if (!memcmp(&after, &before[i], sizeof(after)))
            continue;
        differ++;
        log_error("node.drift", log_str("node", node->entry.row ? node_view(node)->name : ""),
                  log_int("devices", (int64_t)before[i].owned),
                  log_int("devices_counted", (int64_t)after.owned),
                  log_int("memory_mib", (int64_t)before[i].memory_mib),
                  log_int("memory_mib_counted", (int64_t)after.memory_mib));
    }
    mem_free(before);
    return differ;
}

void node_desired_dirty(struct hub *hub, const char *name)
{
    struct node *node = map_get_text(hub->nodes, name);

    if (node)
        node->desired_dirty = true;
}

void node_desired_dirty_job(struct job *job)
{
    const Pb__Attempt *row = attempt_view(job->attempt);

    for (size_t i = 0; i < row->n_places; i++)
        node_desired_dirty(job->hub, row->places[i]->node);
}

void node_key_text(const Pb__WorkerKey *key, char *out, size_t cap)
{
    snprintf(out, cap, "%lld.%u.%.63s.%u", (long long)key->job, key->attempt,
             key->role ? key->role : "", key->rank);
}

struct actual *node_actual(const struct node *node, const Pb__WorkerKey *key)
{
    char text[128];

    node_key_text(key, text, sizeof(text));
    return map_get_text(node->actual, text);
}
