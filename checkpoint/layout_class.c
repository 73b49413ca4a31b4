/* layout_class.c - see layout_class.h. */
#include "checkpoint/layout_class.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int number_order(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* --- who sits where */

/* Sorts seats by rank; those of one rank stay in their order. */
static void sort_seats(struct layout_seat *seats, uint32_t count)
{
    uint32_t sorted = 1;

    while (sorted < count && seats[sorted - 1].rank <= seats[sorted].rank)
        sorted++;
    if (sorted >= count)
        return;
    SCOPED(mem_free) void *memory = mem_array(count, sizeof(uint64_t) + sizeof *seats);
    uint64_t *keys = memory;
    struct layout_seat *old = (void *)(keys + count);
    memcpy(old, seats, count * sizeof *seats);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = (uint64_t)seats[i].rank << 32 | i;
    qsort(keys, count, sizeof *keys, number_order);
    for (uint32_t i = 0; i < count; i++)
        seats[i] = old[(uint32_t)keys[i]];
}

/* class->seats is filled, in listed order; makes the rest of it and the holders. */
static enum status seat_ranks(struct arena *arena, uint32_t world, struct layout_class *class,
                              struct error *err)
{
    uint32_t *at = arena_alloc(arena, ((size_t) class->items + 2) * sizeof *at);
    uint32_t piece = 0;

    sort_seats(class->seats, class->seats_count);
    for (uint32_t i = 0; i < class->seats_count; i++)
        at[class->seats[i].item + 2]++;
    for (uint32_t i = 1; i <= class->items; i++)
        at[i + 1] += at[i];
    class->holders = arena_alloc(arena, class->seats_count * sizeof *class->holders);
    for (uint32_t i = 0; i < class->seats_count; i++) {
        struct layout_seat seat = class->seats[i];
        uint32_t *next = &at[seat.item + 1];
        if (seat.rank >= world)
            return error_set(err, STATUS_INVALID, "rank %" PRIu32 " of a world of %" PRIu32,
                             seat.rank, world);
        piece = i && class->seats[i - 1].rank == seat.rank ? piece + 1 : 0;
        class->holders[(*next)++] = (struct layout_holder){seat.rank, piece};
    }
    class->holders_at = at;
    for (uint32_t item = 0; item < class->items; item++)
        for (uint32_t i = at[item] + 1; i < at[item + 1]; i++)
            if (class->holders[i].rank == class->holders[i - 1].rank)
                return error_set(err, STATUS_INVALID,
                                 "overlap: rank %" PRIu32 " holds a part twice",
                                 class->holders[i].rank);
    return STATUS_OK;
}

uint32_t layout_class_seats(const struct layout_class *class, uint32_t rank, uint32_t *end)
{
    uint32_t low = 0, high = class->seats_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (class->seats[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    for (*end = low; *end < class->seats_count && class->seats[*end].rank == rank;)
        ++*end;
    return low;
}

/* --- grids */

static enum status check_cuts(const struct layout_grid *grid, uint32_t *cells, size_t *numbers,
                              struct error *err)
{
    *cells = 1;
    *numbers = 0;
    if (grid->dims > LAYOUT_DIMS_MAX)
        return error_set(err, STATUS_INVALID, "more than %d dimensions", LAYOUT_DIMS_MAX);
    for (uint32_t d = 0; d < grid->dims; d++) {
        const uint64_t *cuts = grid->cuts[d];
        uint32_t count = grid->counts[d];
        if (count < 2 || cuts[0] != 0)
            return error_set(err, STATUS_INVALID, "cuts of dimension %" PRIu32 " begin with no 0",
                             d);
        for (uint32_t i = 1; i < count; i++)
            if (cuts[i] < cuts[i - 1])
                return error_set(err, STATUS_INVALID, "cuts of dimension %" PRIu32 " fall", d);
        if (__builtin_mul_overflow(*cells, count - 1, cells) || *cells > LAYOUT_CELLS_MAX)
            return error_set(err, STATUS_INVALID, "too many cells");
        *numbers += count;
    }
    return STATUS_OK;
}

static void take_cuts(struct arena *arena, const struct layout_grid *grid, size_t numbers,
                      struct layout_class *out)
{
    out->cuts = arena_alloc(arena, numbers * sizeof *out->cuts);
    out->cuts_at = arena_alloc(arena, (grid->dims + 1) * sizeof *out->cuts_at);
    out->extent = arena_alloc(arena, grid->dims * sizeof *out->extent);
    for (uint32_t d = 0; d < grid->dims; d++) {
        uint32_t count = grid->counts[d], at = out->cuts_at[d];
        memcpy(out->cuts + at, grid->cuts[d], count * sizeof *out->cuts);
        out->cuts_at[d + 1] = at + count;
        out->extent[d] = grid->cuts[d][count - 1];
        for (uint32_t i = 1; i < count && d + 1 == grid->dims && out->unit != 1; i++)
            out->unit = common_divisor(out->unit, grid->cuts[d][i]);
    }
}

static bool grid_box(const struct layout_class *class, uint32_t item, struct layout_box *out)
{
    bool full = true;

    for (uint32_t d = class->dims; d-- > 0;) {
        uint32_t intervals = layout_class_intervals(class, d);
        const uint64_t *cut = class->cuts + class->cuts_at[d] + item % intervals;
        item /= intervals;
        out->offset[d] = cut[0];
        out->size[d] = cut[1] - cut[0];
        full &= out->size[d] > 0;
    }
    return full;
}

static bool has_empty_cells(const struct layout_grid *grid)
{
    for (uint32_t d = 0; d < grid->dims; d++)
        for (uint32_t i = 1; i < grid->counts[d]; i++)
            if (grid->cuts[d][i] == grid->cuts[d][i - 1])
                return true;
    return false;
}

enum status layout_class_grid(struct arena *arena, uint32_t world, const struct layout_grid *grid,
                              struct layout_class *out, struct error *err)
{
    struct layout_class class = {.kind = LAYOUT_GRID, .dims = grid->dims};
    struct layout_box box;
    size_t numbers;
    enum status st = check_cuts(grid, &class.items, &numbers, err);

    if (st != STATUS_OK)
        return st;
    take_cuts(arena, grid, numbers, &class);
    bool all_full = !has_empty_cells(grid);
    class.seats = arena_alloc(arena, grid->ranks_at[class.items] * sizeof *class.seats);
    for (uint32_t cell = 0; cell < class.items; cell++) {
        uint32_t from = grid->ranks_at[cell], to = grid->ranks_at[cell + 1];
        if (from == to || !(all_full || grid_box(&class, cell, &box)))
            continue;
        for (uint32_t i = from; i < to; i++)
            class.seats[class.seats_count++] = (struct layout_seat){grid->ranks[i], cell};
    }
    st = seat_ranks(arena, world, &class, err);
    if (st == STATUS_OK)
        *out = class;
    return st;
}

/* --- boxes and ranges */

/* What sorting needs: corners in listed order. */
struct listed {
    const uint64_t *corners;
    uint32_t dims, axis;
};

static int corner_order(const void *a, const void *b, void *arg)
{
    const struct listed *listed = arg;
    uint32_t left_at = *(const uint32_t *)a, right_at = *(const uint32_t *)b;
    const uint64_t *left = listed->corners + (size_t)left_at * 2 * listed->dims;
    const uint64_t *right = listed->corners + (size_t)right_at * 2 * listed->dims;

    if (listed->dims && left[listed->axis] != right[listed->axis])
        return left[listed->axis] < right[listed->axis] ? -1 : 1;
    for (uint32_t i = 0; i < 2 * listed->dims; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return left_at < right_at ? -1 : left_at > right_at;
}

/* The dim on which the fewest boxes lie side by side: their lengths add up to the least part of the
 * extent. Whatever order they are listed in. */
static uint32_t best_axis(const uint64_t *corners, uint32_t count, uint32_t dims)
{
    double least = 0;
    uint32_t best = 0;

    for (uint32_t d = 0; d < dims; d++) {
        uint64_t sum = 0, extent = 0;
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t *corner = corners + (size_t)i * 2 * dims;
            sum += corner[dims + d] - corner[d];
            extent = corner[dims + d] > extent ? corner[dims + d] : extent;
        }
        double part = (double)sum / (double)extent;
        if (d == 0 || part < least) {
            least = part;
            best = d;
        }
    }
    return best;
}

/* Listed parts become items: sorted, equal ones once. seats hold ranks; gives them their items. */
static void make_items(struct arena *arena, const uint64_t *corners, struct layout_class *class)
{
    uint32_t count = class->seats_count, dims = class->kind == LAYOUT_FLAT ? 1 : class->dims;
    size_t width = 2 * (size_t)dims;
    SCOPED(mem_free) void *memory = mem_array(count, sizeof(uint32_t));
    uint32_t *order = memory;
    struct listed listed = {corners, dims, 0};

    listed.axis = class->axis = class->kind == LAYOUT_FLAT ? 0 : best_axis(corners, count, dims);
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    qsort_r(order, count, sizeof *order, corner_order, &listed);
    class->corners = arena_alloc(arena, count * width * sizeof *corners);
    class->reach = arena_alloc(arena, count * sizeof *class->reach);
    uint64_t *last = class->corners;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t *from = corners + order[i] * width;
        if (i == 0 || memcmp(last, from, width * sizeof *from) != 0) {
            uint64_t end = width ? from[dims + class->axis] : 0;
            last = class->corners + class->items * width;
            memcpy(last, from, width * sizeof *from);
            if (i && class->reach[class->items - 1] > end)
                end = class->reach[class->items - 1];
            class->reach[class->items++] = end;
        }
        class->seats[order[i]].item = class->items - 1;
    }
}

static void find_extent(struct arena *arena, const uint64_t *corners, struct layout_class *class)
{
    uint32_t dims = class->dims;

    class->extent = arena_alloc(arena, dims * sizeof *class->extent);
    for (uint32_t i = 0; i < class->seats_count && dims; i++, corners += 2 * (size_t)dims) {
        for (uint32_t d = 0; d < dims; d++)
            if (corners[dims + d] > class->extent[d])
                class->extent[d] = corners[dims + d];
        class->unit = common_divisor(class->unit, corners[dims - 1]);
        class->unit = common_divisor(class->unit, corners[2 * dims - 1]);
    }
}

/* The parts that are not empty, as corners in listed order; seats get their ranks. */
static enum status list_parts(uint32_t dims, const struct layout_boxes *parts, bool are_ranges,
                              uint64_t *corners, struct layout_class *class, struct error *err)
{
    for (size_t i = 0; i < parts->count; i++) {
        const uint64_t *from = parts->numbers + i * 2 * dims;
        bool empty = false;
        for (uint32_t d = 0; d < dims; d++) {
            uint64_t begin = from[d], end = from[dims + d];
            if (are_ranges ? end < begin : __builtin_add_overflow(begin, end, &end))
                return error_set(err, STATUS_INVALID, "part %zu ends before it begins", i);
            empty |= end == begin;
            corners[d] = begin;
            corners[dims + d] = end;
        }
        if (empty)
            continue;
        class->seats[class->seats_count++].rank = parts->ranks[i];
        corners += 2 * (size_t)dims;
    }
    return STATUS_OK;
}

static enum status make_parts(struct arena *arena, uint32_t world, uint32_t dims,
                              const struct layout_boxes *parts, struct layout_class *class,
                              struct error *err)
{
    if (parts->count > LAYOUT_CELLS_MAX)
        return error_set(err, STATUS_INVALID, "too many parts");
    SCOPED(mem_free) void *memory = mem_array(parts->count + 1, 2 * dims * sizeof(uint64_t));
    enum status st;
    class->seats = arena_alloc(arena, parts->count * sizeof *class->seats);
    st = list_parts(dims, parts, class->kind == LAYOUT_FLAT, memory, class, err);
    if (st != STATUS_OK)
        return st;
    if (class->seats_count)
        make_items(arena, memory, class);
    if (class->kind == LAYOUT_BOXES) {
        find_extent(arena, memory, class);
        if (class->seats_count == 0)
            class->dims = LAYOUT_DIMS_ANY;
    }
    return seat_ranks(arena, world, class, err);
}

enum status layout_class_boxes(struct arena *arena, uint32_t world,
                               const struct layout_boxes *boxes, struct layout_class *out,
                               struct error *err)
{
    struct layout_class class = {.kind = LAYOUT_BOXES, .dims = boxes->dims};

    if (boxes->dims > LAYOUT_DIMS_MAX)
        return error_set(err, STATUS_INVALID, "more than %d dimensions", LAYOUT_DIMS_MAX);
    enum status st = make_parts(arena, world, boxes->dims, boxes, &class, err);
    if (st == STATUS_OK)
        *out = class;
    return st;
}

enum status layout_class_flat(struct arena *arena, uint32_t world, const struct layout_flat *flat,
                              struct layout_class *out, struct error *err)
{
    struct layout_class class = {.kind = LAYOUT_FLAT};
    struct layout_boxes parts = {1, flat->count, flat->ranks, flat->numbers};
    enum status st = make_parts(arena, world, 1, &parts, &class, err);

    if (st == STATUS_OK)
        *out = class;
    return st;
}

bool layout_class_box(const struct layout_class *class, uint32_t item, struct layout_box *out)
{
    if (class->kind == LAYOUT_GRID)
        return grid_box(class, item, out);
    const uint64_t *corners = class->corners + (size_t)item * 2 * class->dims;
    for (uint32_t d = 0; d < class->dims; d++) {
        out->offset[d] = corners[d];
        out->size[d] = corners[class->dims + d] - corners[d];
    }
    return true;
}

/* --- comparing */

/* What a class says: its numbers, and its seats. */
static const uint64_t *class_numbers(const struct layout_class *class, size_t *count)
{
    bool any = class->dims == LAYOUT_DIMS_ANY;

    if (class->kind == LAYOUT_GRID) {
        *count = class->cuts_at[class->dims];
        return class->cuts;
    }
    *count = 2 * (size_t) class->items * (class->kind == LAYOUT_FLAT ? 1 : any ? 0 : class->dims);
    return class->corners;
}

bool layout_class_equal(const struct layout_class *a, const struct layout_class *b)
{
    size_t a_count, b_count;
    const uint64_t *a_numbers = class_numbers(a, &a_count), *b_numbers = class_numbers(b, &b_count);

    if (a->kind != b->kind || a->dims != b->dims || a_count != b_count || a->items != b->items ||
        a->seats_count != b->seats_count)
        return false;
    if (a->kind == LAYOUT_GRID &&
        memcmp(a->cuts_at, b->cuts_at, (a->dims + 1) * sizeof *a->cuts_at) != 0)
        return false;
    return (!a_count || memcmp(a_numbers, b_numbers, a_count * sizeof *a_numbers) == 0) &&
           (!a->seats_count || memcmp(a->seats, b->seats, a->seats_count * sizeof *a->seats) == 0);
}

uint64_t layout_class_hash(const struct layout_class *class)
{
    size_t count;
    const uint64_t *numbers = class_numbers(class, &count);
    uint64_t hash = XXH3_64bits(numbers, count * sizeof *numbers);

    return XXH3_64bits_withSeed(class->seats, class->seats_count * sizeof *class->seats, hash);
}
