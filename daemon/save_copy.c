/* save_copy.c - see save_copy.h. */
#include "daemon/save_copy.h"
#include "daemon/save_chore.h"
#include "daemon/save_inner.h"

#define COPIES_MAX 262144 /* of one checkpoint: four of each part of the largest */

bool save_copy_is_of(const Pb__ShardCopy *copy, const Pb__CheckpointPart *part)
{
    return copy->rank == part->rank && copy->role && !strcmp(copy->role, part->role);
}

static bool is_nodes_own(const Pb__ShardCopy *copy)
{
    return copy->durability == PB__SHARD_COPY__DURABILITY__NODE ||
           copy->durability == PB__SHARD_COPY__DURABILITY__MEMORY;
}

Pb__ShardCopy__Durability save_copy_durability(const struct hub *hub, const char *node_name,
                                               const char *vault)
{
    const struct node *node = node_name ? map_get_text(hub->nodes, node_name) : NULL;
    const Pb__NodeInventory *inventory =
        node && (node->entry.row || node->entry.draft) ? node_view(node)->inventory : NULL;

    for (size_t i = 0; inventory && i < inventory->n_vaults; i++) {
        if (!inventory->vaults[i]->name || strcmp(inventory->vaults[i]->name, vault) != 0)
            continue;
        if (inventory->vaults[i]->class_ == PB__VAULT__CLASS__OBJECT)
            return PB__SHARD_COPY__DURABILITY__OBJECT;
        return inventory->vaults[i]->class_ == PB__VAULT__CLASS__SHARED
                   ? PB__SHARD_COPY__DURABILITY__SHARED
                   : PB__SHARD_COPY__DURABILITY__NODE;
    }
    return PB__SHARD_COPY__DURABILITY__NODE;
}

static void copy_add_take(Pb__Checkpoint *row, Pb__ShardCopy *copy)
{
    row->copies = mem_resize(row->copies, row->n_copies + 1, sizeof(*row->copies));
    row->copies[row->n_copies++] = copy;
}

void save_copy_staged(struct save *save, const Pb__CheckpointPart *part)
{
    const struct hub *hub = save->job->hub;
    Pb__Checkpoint *row = save_edit(save);
    Pb__ShardCopy *copy = NEW(Pb__ShardCopy);

    pb__shard_copy__init(copy);
    copy->role = mem_strdup(part->role);
    copy->node = mem_strdup(part->node);
    copy->vault = mem_strdup(row->vault);
    copy->has_rank = copy->has_durability = copy->has_bytes = copy->has_made_us = true;
    copy->rank = part->rank;
    copy->durability = save_copy_durability(hub, part->node, row->vault);
    for (size_t i = 0; i < part->n_files; i++)
        copy->bytes += part->files[i]->bytes;
    copy->made_us = loop_wall_us(hub->loop);
    copy_add_take(row, copy);
}

static Pb__ShardCopy *find_copy(const Pb__Checkpoint *row, const Pb__ShardCopy *said,
                                const char *node)
{
    for (size_t i = 0; i < row->n_copies; i++) {
        Pb__ShardCopy *copy = row->copies[i];
        if (copy->rank == said->rank && !strcmp(copy->role, said->role) &&
            copy->durability == said->durability && !strcmp(copy->node, node))
            return copy;
    }
    return NULL;
}

static bool has_part(const Pb__Checkpoint *row, const Pb__ShardCopy *copy)
{
    for (size_t i = 0; i < row->n_parts; i++)
        if (save_copy_is_of(copy, row->parts[i]))
            return true;
    return false;
}

/* Once a checkpoint and node, with what was seen on the way. */
static void tell(const struct node *node, const struct save *save, const char *note)
{
    char text[200];

    snprintf(text, sizeof(text), "is on node %.60s now: %.120s", node_view(node)->name, note);
    save_event(save, "checkpoint.fetched", 0, text);
}

void save_copy_run(struct node *node, const Pb__ActualCopy *said)
{
    struct save *save = map_get(node->hub->saves, (uint64_t)said->checkpoint);
    const Pb__ShardCopy *copy = said->copy;

    if (!save || !copy || !copy->role || !has_part(save_view(save), copy))
        return;
    if (said->note && *said->note)
        tell(node, save, said->note);
    node->desired_dirty = true; /* it need not be fetched any more */
    Pb__Checkpoint *row = save_edit(save);
    Pb__ShardCopy *known = find_copy(row, copy, node_view(node)->name);
    if (known) {
        known->has_lost = true;
        known->lost = copy->lost;
        return;
    }
    if (copy->lost || row->n_copies >= COPIES_MAX)
        return;
    known = (Pb__ShardCopy *)message_copy(&copy->base);
    draft_text(&known->node, node_view(node)->name);
    copy_add_take(row, known);
    if (row->state == SAVE_STATE(DELETED)) /* it came while the others went */
        save_set_state(save, SAVE_STATE(EXPIRED), "another copy of it was found");
    else
        save_chore_update(save);
}

bool save_copy_is_apart(const Pb__Checkpoint *row)
{
    const char *first = NULL;

    for (size_t i = 0; i < row->n_copies; i++) {
        if (row->copies[i]->durability != PB__SHARD_COPY__DURABILITY__NODE)
            continue;
        if (first && strcmp(first, row->copies[i]->node) != 0)
            return true;
        first = row->copies[i]->node;
    }
    return false;
}

bool save_copy_is_on(const Pb__Checkpoint *row, size_t part, const char *node)
{
    bool known = false;

    for (size_t i = 0; i < row->n_copies; i++) {
        const Pb__ShardCopy *copy = row->copies[i];
        if (!save_copy_is_of(copy, row->parts[part]))
            continue;
        known = true;
        if (!copy->lost && copy->durability != PB__SHARD_COPY__DURABILITY__MEMORY &&
            (!is_nodes_own(copy) || !strcmp(copy->node, node)))
            return true;
    }
    return !known; /* written before copies were kept: what it is is in the vault's class */
}

bool save_copy_serves(const struct node *node)
{
    const Pb__NodeInventory *inventory =
        node && node->link && node->entry.row ? node_view(node)->inventory : NULL;

    return inventory && inventory->peer_port && inventory->address && *inventory->address;
}

const struct node *save_copy_source(const struct hub *hub, const Pb__Checkpoint *row, size_t part)
{
    for (size_t i = 0; i < row->n_copies; i++) {
        const Pb__ShardCopy *copy = row->copies[i];
        if (copy->lost || copy->durability == PB__SHARD_COPY__DURABILITY__MEMORY ||
            !save_copy_is_of(copy, row->parts[part]))
            continue;
        const struct node *node = map_get_text(hub->nodes, copy->node);
        if (save_copy_serves(node))
            return node;
    }
    return NULL;
}

bool save_copy_all_served(const struct hub *hub, const Pb__Checkpoint *row)
{
    for (size_t i = 0; i < row->n_parts; i++)
        if (!save_copy_source(hub, row, i))
            return false;
    return row->n_parts > 0;
}
