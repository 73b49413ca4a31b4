/* layout_split.c - see layout_split.h. */
#include "checkpoint/layout_split.h"

#include <string.h>

#include "checkpoint/layout_rule.h"

/* The holder of a part of an item. */
static uint32_t writer_of(const struct layout_class *class, const struct layout_split *split,
                          uint32_t item, uint32_t part)
{
    uint32_t at = class->holders_at[item], count = layout_class_holders(class, item);
    return class->holders[at + (split->first + part) % count].rank;
}

static uint32_t parts_of(const struct layout_class *class, const struct layout_split *split,
                         uint32_t item)
{
    uint32_t count = layout_class_holders(class, item);
    return count < split->parts ? count : split->parts;
}

/* The first dim along which there is a unit for each part, else the longest. */
static uint32_t split_dim(const uint64_t *sizes, uint32_t dims, uint64_t unit, uint32_t parts)
{
    uint32_t longest = 0;

    for (uint32_t d = 0; d < dims; d++) {
        uint64_t units = sizes[d] / (d + 1 == dims ? unit : 1);
        if (units >= parts)
            return d;
        if (sizes[d] > sizes[longest])
            longest = d;
    }
    return longest;
}

/* --- grids */

/* The shortest interval of each dim that is not empty. */
static void shortest_intervals(const struct layout_class *class, uint64_t *out)
{
    for (uint32_t d = 0; d < class->dims; d++) {
        const uint64_t *cuts = class->cuts + class->cuts_at[d];
        out[d] = 0;
        for (uint32_t i = 0; i < layout_class_intervals(class, d); i++) {
            uint64_t size = cuts[i + 1] - cuts[i];
            if (size && (!out[d] || size < out[d]))
                out[d] = size;
        }
    }
}

static uint64_t *finer_cuts(const struct layout_class *class, const struct layout_split *split,
                            uint32_t dim, uint32_t parts)
{
    const uint64_t *cuts = class->cuts + class->cuts_at[dim];
    uint32_t intervals = layout_class_intervals(class, dim);
    uint64_t *made = mem_array((size_t)intervals * parts + 1, sizeof *made);

    for (uint32_t i = 0; i < intervals; i++)
        for (uint32_t part = 0; part < parts; part++)
            made[i * parts + part] =
                cuts[i] + layout_rule_begin(LAYOUT_RULE_BALANCED, cuts[i + 1] - cuts[i],
                                            dim + 1 == class->dims ? split->unit : 1, parts, part);
    made[intervals * parts] = cuts[intervals];
    return made;
}

/* Cells of the finer grid, and for each its writer: at has cells + 1. */
static void seat_finer(const struct layout_class *class, const struct layout_split *split,
                       uint32_t dim, uint32_t parts, uint32_t *at, uint32_t *ranks)
{
    uint32_t inner = 1, cells = class->items * parts, seated = 0;

    for (uint32_t d = dim + 1; d < class->dims; d++)
        inner *= layout_class_intervals(class, d);
    for (uint32_t cell = 0; cell < cells; cell++) {
        uint32_t slab = cell / inner; /* counts the dims up to dim */
        uint32_t item = slab / parts * inner + cell % inner;
        at[cell] = seated;
        if (layout_class_holders(class, item))
            ranks[seated++] = writer_of(class, split, item, slab % parts);
    }
    at[cells] = seated;
}

static enum status build_grid(const struct layout_class *class, const struct layout_split *split,
                              struct layout_build *build, uint32_t *out, struct error *err)
{
    uint64_t shortest[LAYOUT_DIMS_MAX];
    struct layout_grid grid = {.dims = class->dims};
    uint32_t parts = class->dims ? split->parts : 1, cells;

    if (__builtin_mul_overflow(class->items, parts, &cells) || cells >= LAYOUT_CELLS_MAX)
        return error_set(err, STATUS_EXHAUSTED, "too many cells");
    SCOPED(mem_free) void *ranks = mem_array((size_t)cells + 1, 2 * sizeof(uint32_t));
    uint32_t *at = (uint32_t *)ranks + cells;
    shortest_intervals(class, shortest);
    uint32_t dim = split_dim(shortest, class->dims, split->unit, parts);
    for (uint32_t d = 0; d < class->dims; d++) {
        grid.cuts[d] = class->cuts + class->cuts_at[d];
        grid.counts[d] = layout_class_intervals(class, d) + 1;
    }
    SCOPED(mem_free) void *finer = parts > 1 ? finer_cuts(class, split, dim, parts) : NULL;
    if (finer) {
        grid.cuts[dim] = finer;
        grid.counts[dim] = layout_class_intervals(class, dim) * parts + 1;
    }
    seat_finer(class, split, dim, parts, at, ranks);
    grid.ranks_at = at;
    grid.ranks = ranks;
    return layout_build_grid(build, &grid, out, err);
}

static bool has_even_holders(const struct layout_class *class)
{
    uint32_t even = 0;

    for (uint32_t item = 0; item < class->items; item++) {
        uint32_t count = layout_class_holders(class, item);
        if (count && even && count != even)
            return false;
        even = count ? count : even;
    }
    return true;
}

/* --- boxes and ranges */

struct parts_list {
    uint32_t *ranks;
    uint64_t *numbers;
    size_t count, room;
};

static void add_box(const struct layout_class *class, const struct layout_split *split,
                    uint32_t item, struct parts_list *list)
{
    uint32_t dims = class->dims, parts = parts_of(class, split, item);
    struct layout_box box = {0};

    if (!layout_class_box(class, item, &box))
        return;
    uint32_t dim = split_dim(box.size, dims, split->unit, parts);
    uint64_t unit = dims && dim + 1 == dims ? split->unit : 1, size = box.size[dim];
    uint64_t offset = box.offset[dim];
    for (uint32_t part = 0; part < (dims ? parts : 1); part++) {
        uint64_t *numbers = list->numbers + list->count * 2 * dims;
        if (dims) {
            uint64_t begin = layout_rule_begin(LAYOUT_RULE_BALANCED, size, unit, parts, part);
            box.offset[dim] = offset + begin;
            box.size[dim] =
                layout_rule_begin(LAYOUT_RULE_BALANCED, size, unit, parts, part + 1) - begin;
            memcpy(numbers, box.offset, dims * sizeof *numbers);
            memcpy(numbers + dims, box.size, dims * sizeof *numbers);
        }
        list->ranks[list->count++] = writer_of(class, split, item, part);
    }
}

static void add_range(const struct layout_class *class, const struct layout_split *split,
                      uint32_t item, struct parts_list *list)
{
    const uint64_t *range = class->corners + 2 * (size_t)item;
    uint32_t parts = parts_of(class, split, item);

    for (uint32_t part = 0; part < parts; part++) {
        uint64_t *numbers = list->numbers + list->count * 2;
        numbers[0] = range[0] + layout_rule_begin(LAYOUT_RULE_BALANCED, range[1] - range[0],
                                                  split->unit, parts, part);
        numbers[1] = range[0] + layout_rule_begin(LAYOUT_RULE_BALANCED, range[1] - range[0],
                                                  split->unit, parts, part + 1);
        list->ranks[list->count++] = writer_of(class, split, item, part);
    }
}

enum status layout_split_build(const struct layout_class *class, const struct layout_split *split,
                               struct layout_build *build, uint32_t *out, struct error *err)
{
    struct parts_list list = {0};
    uint32_t dims = class->kind == LAYOUT_FLAT       ? 1
                    : class->dims == LAYOUT_DIMS_ANY ? 0
                                                     : class->dims;
    size_t count = 0;

    if (class->kind == LAYOUT_GRID && (split->parts == 1 || has_even_holders(class)))
        return build_grid(class, split, build, out, err);
    for (uint32_t item = 0; item < class->items; item++)
        count += parts_of(class, split, item);
    SCOPED(mem_free) void *ranks = list.ranks = mem_array(count, sizeof(uint32_t));
    SCOPED(mem_free) void *numbers = list.numbers = mem_array(count, 2 * dims * sizeof(uint64_t));
    for (uint32_t item = 0; item < class->items; item++)
        if (class->kind == LAYOUT_FLAT)
            add_range(class, split, item, &list);
        else if (layout_class_holders(class, item))
            add_box(class, split, item, &list);
    if (class->kind == LAYOUT_FLAT) {
        struct layout_flat flat = {list.count, ranks, numbers};
        return layout_build_flat(build, &flat, out, err);
    }
    struct layout_boxes boxes = {dims, list.count, ranks, numbers};
    return layout_build_boxes(build, &boxes, out, err);
}
