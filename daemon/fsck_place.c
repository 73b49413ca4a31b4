/* fsck_place.c - the bytes that rows claim, where they must be: in the vault that all share, or on
 * the nodes that have copies. See fsck.h. */
#include "base/mem.h"
#include "daemon/fsck_inner.h"
#include <stdio.h>
#include <string.h>

struct place { /* a listing in which a row has parts */
    const struct fsck_listing *listing;
    size_t index;
    bool whole; /* all parts are to be there; else those with a copy of that node */
};

static bool is_on_node(const Pb__ShardCopy *copy)
{
    return copy->durability == PB__SHARD_COPY__DURABILITY__NODE;
}

static const Pb__ShardCopy *copy_of(const Pb__Checkpoint *row, const char *role, uint32_t rank,
                                    const char *node)
{
    for (size_t i = 0; i < row->n_copies; i++) {
        const Pb__ShardCopy *copy = row->copies[i];
        if (is_on_node(copy) && copy->rank == rank && copy->role && role && copy->node && node &&
            strcmp(copy->role, role) == 0 && strcmp(copy->node, node) == 0)
            return copy;
    }
    return NULL;
}

/* Rows of a time before copies were kept have none: then a vault's class says where. */
static bool expects(const Pb__Checkpoint *row, const struct fsck_listing *listing)
{
    if (listing->slots || !row->vault || strcmp(row->vault, listing->vault) != 0)
        return false;
    if (listing->shared)
        return true;
    for (size_t i = 0; i < row->n_copies; i++)
        if (is_on_node(row->copies[i]) && !row->copies[i]->lost && row->copies[i]->node &&
            strcmp(row->copies[i]->node, listing->node) == 0)
            return true;
    for (size_t i = 0; !row->n_copies && i < row->n_parts; i++)
        if (row->parts[i]->node && strcmp(row->parts[i]->node, listing->node) == 0)
            return true;
    return false;
}

static bool expects_part(const Pb__Checkpoint *row, const struct fsck_listing *listing,
                         const char *role, uint32_t rank, const char *wrote)
{
    if (listing->shared)
        return true;
    if (!row->n_copies)
        return wrote && strcmp(wrote, listing->node) == 0;
    const Pb__ShardCopy *copy = copy_of(row, role, rank, listing->node);
    return copy && !copy->lost;
}

static bool is_gone(const struct fsck *fsck, const char *vault)
{
    for (size_t i = 0; i < fsck->input->gone_count; i++)
        if (strcmp(fsck->input->gone_vaults[i], vault) == 0)
            return true;
    return false;
}

static bool has_ours(const struct fsck_listing *listing)
{
    int64_t job, step;
    uint32_t attempt, incarnation;

    if (listing->others)
        return true;
    for (size_t i = 0; i < listing->count; i++)
        if (fsck_path_parse(listing->found[i]->path, &job, &step, &attempt, &incarnation))
            return true;
    return false;
}

void fsck_place_count(struct fsck *fsck)
{
    const struct fsck_input *input = fsck->input;

    for (size_t i = 0; i < input->listings_count; i++) {
        const struct fsck_listing *listing = &input->listings[i];
        for (size_t k = 0; k < input->rows_count; k++)
            fsck->unlooked_at[i] += !input->rows[k].changing &&
                                    fsck_is_usable(input->rows[k].row) &&
                                    expects(input->rows[k].row, listing);
        fsck->empty[i] = !listing->error && fsck->unlooked_at[i] > 0 && !has_ours(listing) &&
                         !is_gone(fsck, listing->vault);
    }
}

/* --- what is wrong at one place */

struct wrong {
    Pb__Difference__Kind kind;
    Pb__Difference__Repair repair;
    char text[300];
    bool parts; /* it is about single parts */
};

static void set(struct wrong *wrong, Pb__Difference__Kind kind, Pb__Difference__Repair repair,
                const char *text)
{
    wrong->kind = kind;
    wrong->repair = repair;
    (void)snprintf(wrong->text, sizeof(wrong->text), "%s", text);
}

static bool is_wrong_outside(const struct fsck_row *row, const Pb__VaultFound *found,
                             struct wrong *wrong)
{
    if (!found || found->kind == PB__VAULT_FOUND__KIND__TOMBSTONE)
        set(wrong, FSCK_KIND(MISSING), FSCK_REPAIR(MARK_DAMAGED),
            found ? "somebody began to delete it" : "its directory is not there");
    else if (found->kind == PB__VAULT_FOUND__KIND__UNSEALED)
        set(wrong, FSCK_KIND(MANIFEST_MISSING), FSCK_REPAIR(SEAL),
            "its directory is there, its manifest is not");
    else if (found->kind != PB__VAULT_FOUND__KIND__SEALED)
        set(wrong, FSCK_KIND(MANIFEST_BAD), FSCK_REPAIR(MARK_DAMAGED),
            found->problem ? found->problem : "its manifest cannot be read");
    else if (!row->row->manifest_digest || !found->manifest_digest ||
             strcmp(row->row->manifest_digest, found->manifest_digest) != 0)
        set(wrong, FSCK_KIND(MANIFEST_DIFFERS), FSCK_REPAIR(MARK_DAMAGED),
            "its manifest is not the one that was committed");
    else
        return false;
    return true;
}

/* Can the part be had from another place? A node that was not looked at may have it. */
static bool is_elsewhere(const struct fsck *fsck, const struct fsck_row *row, const char *role,
                         uint32_t rank, const char *node)
{
    for (size_t i = 0; i < row->row->n_copies; i++) {
        const Pb__ShardCopy *copy = row->row->copies[i];
        if (!is_on_node(copy) || copy->lost || copy->rank != rank || !copy->role || !role ||
            strcmp(copy->role, role) != 0 || !copy->node || strcmp(copy->node, node) == 0)
            continue;
        bool looked = false;
        for (size_t k = 0; k < fsck->input->listings_count; k++) {
            const struct fsck_listing *listing = &fsck->input->listings[k];
            if (listing->error || listing->slots || strcmp(listing->node, copy->node) != 0 ||
                strcmp(listing->vault, row->row->vault) != 0 || fsck->empty[k])
                continue;
            const Pb__VaultFound *found = fsck_found_at(fsck, k, row->row->path);
            looked = true;
            for (size_t p = 0; found && p < found->n_parts; p++)
                if (found->parts[p]->rank == rank && strcmp(found->parts[p]->role, role) == 0 &&
                    found->parts[p]->state == PB__VAULT_FOUND__PART_STATE__WHOLE)
                    return true;
        }
        if (!looked)
            return true;
    }
    return false;
}

static void tell(struct fsck *fsck, const struct fsck_row *row, const struct place *place,
                 const struct wrong *wrong, const char *role, uint32_t rank)
{
    Pb__Difference difference = fsck_difference(wrong->kind, wrong->repair);

    fsck_of_row(&difference, row->row);
    difference.node = (char *)(uintptr_t)place->listing->node;
    difference.role = (char *)(uintptr_t)role;
    difference.has_rank = role != NULL;
    difference.rank = rank;
    fsck_tell(fsck, &difference, wrong->text);
}

static void tell_copy(struct fsck *fsck, const struct fsck_row *row, const struct place *place,
                      const char *role, uint32_t rank, const char *what)
{
    struct wrong wrong = {.kind = FSCK_KIND(COPY_LOST), .repair = FSCK_REPAIR(LOSE_COPY)};

    (void)snprintf(wrong.text, sizeof(wrong.text), "the copy here is lost: %s", what);
    tell(fsck, row, place, &wrong, role, rank);
}

/* Every part that must be here is gone with the whole: is each one to be had elsewhere? */
static void whole_is_wrong(struct fsck *fsck, const struct fsck_row *row, const struct place *place,
                           const struct wrong *wrong)
{
    const Pb__Checkpoint *c = row->row;
    bool elsewhere = !place->listing->shared && wrong->repair == FSCK_REPAIR(MARK_DAMAGED);

    for (size_t i = 0; elsewhere && i < c->n_parts; i++)
        if (expects_part(c, place->listing, c->parts[i]->role, c->parts[i]->rank,
                         c->parts[i]->node) &&
            !is_elsewhere(fsck, row, c->parts[i]->role, c->parts[i]->rank, place->listing->node))
            elsewhere = false;
    if (!elsewhere) {
        tell(fsck, row, place, wrong, NULL, 0);
        return;
    }
    for (size_t i = 0; i < c->n_parts; i++)
        if (expects_part(c, place->listing, c->parts[i]->role, c->parts[i]->rank,
                         c->parts[i]->node))
            tell_copy(fsck, row, place, c->parts[i]->role, c->parts[i]->rank, wrong->text);
}

static void look_at_part(struct fsck *fsck, const struct fsck_row *row, const struct place *place,
                         const Pb__VaultFound__Part *part)
{
    struct wrong wrong = {0};

    if (part->state == PB__VAULT_FOUND__PART_STATE__WHOLE ||
        !expects_part(row->row, place->listing, part->role, part->rank, part->node))
        return;
    if (is_elsewhere(fsck, row, part->role, part->rank, place->listing->node)) {
        tell_copy(fsck, row, place, part->role, part->rank, part->text ? part->text : "");
        return;
    }
    bool missing = part->state == PB__VAULT_FOUND__PART_STATE__MISSING;
    set(&wrong, missing ? FSCK_KIND(PART_MISSING) : FSCK_KIND(PART_DAMAGED),
        FSCK_REPAIR(MARK_DAMAGED), part->text ? part->text : "a part is not there");
    tell(fsck, row, place, &wrong, part->role, part->rank);
}

/* A part here that no copy speaks of. One that was lost is believed when it was read. */
static void look_for_copy(struct fsck *fsck, const struct fsck_row *row, const struct place *place,
                          const Pb__VaultFound *found, const Pb__VaultFound__Part *part)
{
    const Pb__Checkpoint *c = row->row;
    struct wrong wrong = {0};

    if (place->listing->shared || !c->n_copies || part->state != PB__VAULT_FOUND__PART_STATE__WHOLE)
        return;
    const Pb__ShardCopy *copy = copy_of(c, part->role, part->rank, place->listing->node);
    bool was_read = found->read && part->node && strcmp(part->node, place->listing->node) == 0;
    if (copy && (!copy->lost || !was_read))
        return;
    set(&wrong, FSCK_KIND(COPY_UNKNOWN), FSCK_REPAIR(ADD_COPY),
        "this node has a part that the database does not say");
    tell(fsck, row, place, &wrong, part->role, part->rank);
}

static void look_at_place(struct fsck *fsck, const struct fsck_row *row, const struct place *place)
{
    const Pb__VaultFound *found = fsck_found_at(fsck, place->index, row->row->path);
    struct wrong wrong = {0};

    if (is_wrong_outside(row, found, &wrong)) {
        if (place->whole)
            whole_is_wrong(fsck, row, place, &wrong);
        return;
    }
    for (size_t i = 0; i < found->n_parts; i++) {
        look_at_part(fsck, row, place, found->parts[i]);
        look_for_copy(fsck, row, place, found, found->parts[i]);
    }
}

/* Said to be DAMAGED, and all of it was read and is whole. */
static void look_for_whole(struct fsck *fsck, const struct fsck_row *row, const struct place *place)
{
    const Pb__VaultFound *found = fsck_found_at(fsck, place->index, row->row->path);
    struct wrong wrong = {0};

    if (row->row->verify_asked || row->due || !found || !found->read || !place->whole ||
        is_wrong_outside(row, found, &wrong))
        return;
    for (size_t i = 0; i < found->n_parts; i++)
        if (found->parts[i]->state != PB__VAULT_FOUND__PART_STATE__WHOLE)
            return;
    set(&wrong, FSCK_KIND(WHOLE_AGAIN), FSCK_REPAIR(VERIFY),
        "said to be DAMAGED, and every byte of it is good");
    tell(fsck, row, place, &wrong, NULL, 0);
}

/* Copies on a node that was not listed at all: nobody knows it, or it has no such vault. */
static void look_for_nodes(struct fsck *fsck, const struct fsck_row *row)
{
    const Pb__Checkpoint *c = row->row;

    for (size_t i = 0; i < c->n_copies; i++) {
        const Pb__ShardCopy *copy = c->copies[i];
        bool listed = !is_on_node(copy) || copy->lost || !copy->node;
        for (size_t k = 0; !listed && k < fsck->input->listings_count; k++)
            listed = !fsck->input->listings[k].slots &&
                     strcmp(fsck->input->listings[k].vault, c->vault) == 0 &&
                     (fsck->input->listings[k].shared ||
                      strcmp(fsck->input->listings[k].node, copy->node) == 0);
        if (listed)
            continue;
        Pb__Difference difference = fsck_difference(FSCK_KIND(NOT_LOOKED_AT), FSCK_REPAIR(NOTHING));
        fsck_of_row(&difference, c);
        difference.node = copy->node;
        difference.role = copy->role;
        difference.has_rank = true;
        difference.rank = copy->rank;
        fsck_tell(fsck, &difference, "its copy is on a node that has no such vault now");
    }
}

void fsck_place_row(struct fsck *fsck, const struct fsck_row *row)
{
    const bool usable = fsck_is_usable(row->row);

    if (!usable && row->row->state != FSCK_STATE(DAMAGED))
        return;
    for (size_t i = 0; i < fsck->input->listings_count; i++) {
        const struct fsck_listing *listing = &fsck->input->listings[i];
        struct place place = {listing, i, expects(row->row, listing)};
        bool here = place.whole || (!listing->slots && row->row->vault &&
                                    strcmp(row->row->vault, listing->vault) == 0 &&
                                    fsck_found_at(fsck, i, row->row->path));
        if (!here || listing->error || fsck->empty[i])
            continue;
        if (usable)
            look_at_place(fsck, row, &place);
        else
            look_for_whole(fsck, row, &place);
    }
    if (usable)
        look_for_nodes(fsck, row);
}
