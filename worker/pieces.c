/* pieces.c - see pieces.h. */
#include "worker/pieces.h"

#include <inttypes.h>

#include "base/mem.h"

struct walk {
    const struct layout_table *table;
    uint32_t rank;
    const struct rondo_piece *given;
    size_t count, at; /* the stretch that is being used up */
    uint64_t used;    /* bytes of it */
    struct layout_box *boxes;
    size_t boxes_cap;
    struct pieces made;
    size_t made_cap;
};

static void walk_fini(struct walk *walk)
{
    mem_free(walk->boxes);
    pieces_fini(&walk->made);
}

void pieces_fini(struct pieces *pieces)
{
    mem_free(pieces->memory);
    *pieces = (struct pieces){0};
}

static enum status misfit(const struct layout_tensor *tensor, struct error *err)
{
    return error_set(err, STATUS_INVALID, "%.*s: its memory is not what the layout gives this rank",
                     (int)(tensor->name_len > 150 ? 150 : tensor->name_len), tensor->name);
}

/* The memory of one box, from the stretch at hand. */
static bool take(struct walk *walk, size_t tensor, uint64_t bytes, void **out)
{
    const struct rondo_piece *given = walk->at < walk->count ? &walk->given[walk->at] : NULL;

    if (!given || given->tensor != tensor || !given->data || given->bytes - walk->used < bytes)
        return false;
    *out = (char *)given->data + walk->used;
    walk->used += bytes;
    if (walk->used == given->bytes) {
        walk->at++;
        walk->used = 0;
    }
    return true;
}

/* The boxes of this rank in a tensor, in walk->boxes, and room for as many pieces. */
static size_t boxes_of(struct walk *walk, size_t tensor)
{
    size_t count =
        layout_table_pieces(walk->table, tensor, walk->rank, walk->boxes, walk->boxes_cap);

    if (count > walk->boxes_cap) {
        walk->boxes = mem_resize(walk->boxes, count, sizeof *walk->boxes);
        walk->boxes_cap = count;
        (void)layout_table_pieces(walk->table, tensor, walk->rank, walk->boxes, count);
    }
    if (walk->made.count + count > walk->made_cap) {
        walk->made_cap = (walk->made.count + count) * 2;
        walk->made.memory =
            mem_resize(walk->made.memory, walk->made_cap, sizeof *walk->made.memory);
    }
    return count;
}

static enum status map_tensor(struct walk *walk, size_t tensor, struct error *err)
{
    const struct layout_tensor *what = layout_table_at(walk->table, tensor);
    size_t count = boxes_of(walk, tensor);

    for (size_t i = 0; i < count; i++)
        if (!take(walk, tensor, layout_box_bytes(&walk->boxes[i], what),
                  &walk->made.memory[walk->made.count++]))
            return misfit(what, err);
    if (walk->used || (walk->at < walk->count && walk->given[walk->at].tensor == tensor))
        return misfit(what, err);
    return STATUS_OK;
}

enum status pieces_map(const struct layout_table *table, uint32_t rank,
                       const struct rondo_piece *given, size_t given_count, struct pieces *out,
                       struct error *err)
{
    struct walk walk = {.table = table, .rank = rank, .given = given, .count = given_count};
    enum status st = STATUS_OK;

    for (size_t i = 0; st == STATUS_OK && i < layout_table_count(table); i++)
        st = map_tensor(&walk, i, err);
    if (st == STATUS_OK && walk.at < given_count)
        st = error_set(err, STATUS_INVALID,
                       "memory of tensor %" PRIu32 ": out of order, or not in the layout",
                       given[walk.at].tensor);
    if (st == STATUS_OK) {
        *out = walk.made;
        walk.made = (struct pieces){0};
    }
    walk_fini(&walk);
    return st;
}
