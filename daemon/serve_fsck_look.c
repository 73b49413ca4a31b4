/* serve_fsck_look.c - asks agents what lies in their vaults and slots, one after the other and a
 * piece at a time. See serve_fsck.h. */
#include "base/mem.h"
#include "daemon/serve_fsck.h"
#include <stdio.h>
#include <string.h>

#define NODES_MAX       20000u
#define FOUND_MAX       1000000u
#define FOUND_BYTES_MAX ((size_t)512 << 20)
#define WAIT_US         (120 * 1000000ll)
#define WAIT_DEEP_US    (900 * 1000000ll) /* saves go first */

static void look(struct serve_fsck *fsck);

/* --- asking */

static struct agent_link *link_of(const struct serve_fsck *fsck, const char *node)
{
    struct agent_link *link = core_node_link(fsck->serve->options.core, node);

    return link && serve_agents_bulk_is_up(link) ? link : NULL;
}

static void send(struct serve_fsck *fsck, struct agent_link *link, Pb__VaultAsk *ask)
{
    Pb__BulkDown down = PB__BULK_DOWN__INIT;

    ask->has_ask = ask->has_verb = true;
    ask->ask = fsck->ask;
    down.has_term = true;
    down.term = serve_term(fsck->serve);
    down.vault = ask;
    link->ops->bulk(link, &down);
}

static void failed(struct serve_fsck *fsck, const char *text);

static void serve_fsck_late(void *arg)
{
    failed(arg, "its agent does not answer");
}

bool serve_fsck_look_ask(struct serve_fsck *fsck, const char *node, Pb__VaultAsk *ask,
                         enum serve_fsck_asking what)
{
    struct agent_link *link = link_of(fsck, node);

    if (!link)
        return false;
    if (!fsck->timer)
        fsck->timer = loop_timer_create(fsck->serve->options.loop, serve_fsck_late, fsck);
    fsck->ask = ++fsck->serve->fsck_ask_last;
    fsck->asking = what;
    (void)snprintf(fsck->ask_node, sizeof(fsck->ask_node), "%s", node);
    loop_timer_set(fsck->timer, fsck->request->deep ? WAIT_DEEP_US : WAIT_US);
    send(fsck, link, ask);
    return true;
}

void serve_fsck_look_end(struct serve_fsck *fsck)
{
    Pb__VaultAsk ask = PB__VAULT_ASK__INIT;

    if (fsck->asking == SERVE_FSCK_LISTING && link_of(fsck, fsck->ask_node)) {
        ask.verb = PB__VAULT_ASK__VERB__END;
        send(fsck, link_of(fsck, fsck->ask_node), &ask);
    }
    fsck->asking = SERVE_FSCK_IDLE;
    if (fsck->timer)
        loop_timer_stop(fsck->timer);
}

/* --- what is to be looked at */

static struct serve_fsck_target *add_target(struct serve_fsck *fsck, const char *node,
                                            const char *vault, bool shared)
{
    fsck->targets = mem_resize(fsck->targets, fsck->targets_count + 1, sizeof(*fsck->targets));
    struct serve_fsck_target *target = &fsck->targets[fsck->targets_count++];
    *target = (struct serve_fsck_target){
        .node = mem_strdup(node), .vault = mem_strdup(vault), .shared = shared};
    return target;
}

static bool has_shared(const struct serve_fsck *fsck, const char *vault)
{
    for (size_t i = 0; i < fsck->targets_count; i++)
        if (fsck->targets[i].shared && !strcmp(fsck->targets[i].vault, vault))
            return true;
    return false;
}

static void add_node(struct serve_fsck *fsck, const Pb__Node *node)
{
    const Pb__NodeInventory *inventory = node->inventory;

    for (size_t i = 0; inventory && i < inventory->n_vaults; i++) {
        const Pb__Vault *vault = inventory->vaults[i];
        if (!vault->name || !*vault->name)
            continue;
        if (vault->class_ == PB__VAULT__CLASS__NODE)
            (void)add_target(fsck, node->name, vault->name, false);
        else if (vault->class_ == PB__VAULT__CLASS__SHARED && !has_shared(fsck, vault->name))
            (void)add_target(fsck, "", vault->name, true);
    }
    if (link_of(fsck, node->name)) {
        fsck->summary.nodes++;
        (void)add_target(fsck, node->name, "", false);
    }
}

static size_t nodes_of(const struct serve_fsck *fsck, const Pb__Node ***out)
{
    const struct core *core = fsck->serve->options.core;
    size_t count = core_nodes(core, NULL, 0);

    count = count < NODES_MAX ? count : NODES_MAX;
    *out = mem_array(count + 1, sizeof(void *));
    return core_nodes(core, *out, count);
}

void serve_fsck_look_begin(struct serve_fsck *fsck)
{
    const Pb__Node **nodes;
    size_t count = nodes_of(fsck, &nodes);

    for (size_t i = 0; i < count && i < NODES_MAX; i++)
        add_node(fsck, nodes[i]);
    mem_free(nodes);
    look(fsck);
}

/* The next connected node with that vault. */
static bool choose_node(struct serve_fsck *fsck, struct serve_fsck_target *target)
{
    const Pb__Node **nodes;
    size_t count = nodes_of(fsck, &nodes);
    bool chosen = false;

    while (!chosen && target->node_next < count) {
        const Pb__Node *node = nodes[target->node_next++];
        for (size_t i = 0; !chosen && node->inventory && i < node->inventory->n_vaults; i++)
            chosen = node->inventory->vaults[i]->name &&
                     !strcmp(node->inventory->vaults[i]->name, target->vault) &&
                     link_of(fsck, node->name);
        if (!chosen)
            continue;
        mem_free(target->node);
        target->node = mem_strdup(node->name);
    }
    mem_free(nodes);
    return chosen;
}

static bool begin(struct serve_fsck *fsck, struct serve_fsck_target *target)
{
    Pb__VaultAsk ask = PB__VAULT_ASK__INIT;
    char text[600];

    if (target->shared && !choose_node(fsck, target))
        return false;
    ask.verb = PB__VAULT_ASK__VERB__LIST;
    ask.vault = target->vault;
    ask.has_shared = ask.has_deep = ask.has_job = true;
    ask.shared = target->shared;
    ask.deep = fsck->request->deep && *target->vault;
    ask.job = fsck->request->job;
    (void)snprintf(text, sizeof(text), "looking at %s of %s",
                   *target->vault ? target->vault : "slots", target->node);
    serve_fsck_progress(fsck, text);
    return serve_fsck_look_ask(fsck, target->node, &ask, SERVE_FSCK_LISTING);
}

/* The targets one after the other. */
static void look(struct serve_fsck *fsck)
{
    for (; fsck->target < fsck->targets_count; fsck->target++) {
        struct serve_fsck_target *target = &fsck->targets[fsck->target];
        if (begin(fsck, target))
            return;
        if (!target->error)
            target->error = mem_strdup("no agent is connected that has it");
    }
    serve_fsck_looked(fsck);
}

static void target_reset(struct serve_fsck_target *target)
{
    for (size_t i = 0; i < target->count; i++)
        pb__vault_found__free_unpacked(target->found[i], NULL);
    mem_free(target->found);
    target->found = NULL;
    target->count = target->cap = 0;
}

/* --- answers */

static void listing_failed(struct serve_fsck *fsck, const char *text)
{
    struct serve_fsck_target *target = &fsck->targets[fsck->target];

    mem_free(target->error);
    target->error = mem_printf("%s: %s", target->node, text);
    target_reset(target);
    fsck->read_now = 0;
    if (target->shared && begin(fsck, target)) { /* another node looks */
        mem_free(target->error);
        target->error = NULL;
        return;
    }
    fsck->target++;
    look(fsck);
}

static void failed(struct serve_fsck *fsck, const char *text)
{
    enum serve_fsck_asking asked = fsck->asking;

    serve_fsck_look_end(fsck);
    if (asked == SERVE_FSCK_LISTING)
        listing_failed(fsck, text);
    else if (asked != SERVE_FSCK_IDLE)
        serve_fsck_repair_answered(fsck, NULL, text);
}

static void take(struct serve_fsck *fsck, struct serve_fsck_target *target,
                 const Pb__VaultFound *found)
{
    if (!found->path || strlen(found->path) > 4096)
        return;
    if (target->count == target->cap) {
        target->cap = target->cap ? 2 * target->cap : 64;
        target->found = mem_resize(target->found, target->cap, sizeof(void *));
    }
    target->found[target->count++] = (Pb__VaultFound *)message_copy(&found->base);
    fsck->found_bytes += pb__vault_found__get_packed_size(found);
}

/* An agent is believed in what it found, not in the form of it. */
static bool is_well_formed(const Pb__VaultFound *found)
{
    for (size_t i = 0; i < found->n_parts; i++)
        if (!found->parts[i]->role)
            return false;
    return found->kind != PB__VAULT_FOUND__KIND__SEALED ||
           (found->manifest && found->manifest_digest);
}

static void listed(struct serve_fsck *fsck, const Pb__VaultChunk *chunk)
{
    struct serve_fsck_target *target = &fsck->targets[fsck->target];
    Pb__VaultAsk ask = PB__VAULT_ASK__INIT;
    char text[600];

    for (size_t i = 0; i < chunk->n_found; i++)
        if (is_well_formed(chunk->found[i]))
            take(fsck, target, chunk->found[i]);
    fsck->read_now = chunk->bytes;
    target->others = chunk->others;
    if (target->count > FOUND_MAX || fsck->found_bytes > FOUND_BYTES_MAX) {
        serve_fsck_fail(fsck, STATUS_EXHAUSTED,
                        "too many directories for one run: narrow it by job");
        return;
    }
    (void)snprintf(text, sizeof(text), "looking at %s of %s",
                   *target->vault ? target->vault : "slots", target->node);
    serve_fsck_progress(fsck, text);
    if (chunk->end) {
        fsck->asking = SERVE_FSCK_IDLE;
        fsck->read_bytes += fsck->read_now;
        fsck->read_now = 0;
        loop_timer_stop(fsck->timer);
        fsck->target++;
        look(fsck);
        return;
    }
    ask.verb = PB__VAULT_ASK__VERB__MORE;
    loop_timer_set(fsck->timer, fsck->request->deep ? WAIT_DEEP_US : WAIT_US);
    if (link_of(fsck, fsck->ask_node))
        send(fsck, link_of(fsck, fsck->ask_node), &ask);
}

void serve_fsck_chunk(struct serve *serve, const char *node, const Pb__VaultChunk *chunk)
{
    struct serve_fsck *fsck = serve_fsck_now(serve);

    if (!fsck || fsck->asking == SERVE_FSCK_IDLE || chunk->ask != fsck->ask ||
        strcmp(node, fsck->ask_node) != 0)
        return;
    if (chunk->error && *chunk->error) {
        failed(fsck, chunk->error);
    } else if (fsck->asking == SERVE_FSCK_LISTING) {
        listed(fsck, chunk);
    } else {
        fsck->asking =
            fsck->asking == SERVE_FSCK_MANIFEST && !chunk->end ? fsck->asking : SERVE_FSCK_IDLE;
        serve_fsck_repair_answered(fsck, chunk, NULL);
    }
}

void serve_fsck_node_away(struct serve *serve, const char *node)
{
    struct serve_fsck *fsck = serve_fsck_now(serve);

    if (fsck && fsck->asking != SERVE_FSCK_IDLE && strcmp(node, fsck->ask_node) == 0)
        failed(fsck, "its agent went away");
}

void serve_fsck_look_fini(struct serve_fsck *fsck)
{
    for (size_t i = 0; i < fsck->targets_count; i++) {
        target_reset(&fsck->targets[i]);
        mem_free(fsck->targets[i].node);
        mem_free(fsck->targets[i].vault);
        mem_free(fsck->targets[i].error);
    }
    mem_free(fsck->targets);
}
