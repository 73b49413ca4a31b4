/* layout_class.h - one entry of "layouts" in memory. For layout*.c and plan*.c only.
 *
 * Its items are what can be held: cells of a grid in row-major order, else distinct boxes or
 * ranges sorted by where they begin (boxes: on `axis`). holders say who has an item and as which
 * of its pieces; seats say the same from the side of the ranks. Empty items have no holders; empty
 * boxes and ranges are no items. Immutable once made. */
#pragma once
#include "base/mem.h"
#include "checkpoint/layout_build.h"

enum layout_kind { LAYOUT_GRID, LAYOUT_BOXES, LAYOUT_FLAT };
#define LAYOUT_DIMS_ANY UINT32_MAX /* boxes of which there is none */

struct layout_holder {
    uint32_t rank, piece; /* flat: which of the rank's ranges; each is one or more pieces */
};
struct layout_seat {
    uint32_t rank, item;
};
struct layout_class {
    enum layout_kind kind;
    uint32_t dims;     /* of grid and boxes */
    uint64_t *extent;  /* grid, boxes: the end on each dim */
    uint64_t unit;     /* grid, boxes: divides all cuts of the last dim; 0: all are 0 */
    uint64_t *cuts;    /* grid: all dims' vectors, one behind the other */
    uint32_t *cuts_at; /* grid: dims + 1 */
    uint32_t items;
    uint32_t axis;                 /* boxes: the dim by which they are sorted */
    uint64_t *corners;             /* boxes: dims begins, dims ends; flat: begin, end */
    uint64_t *reach;               /* boxes, flat: highest end on axis of the items so far */
    uint32_t *holders_at;          /* items + 1 */
    struct layout_holder *holders; /* of each item, by rank */
    struct layout_seat *seats;     /* by rank, then piece */
    uint32_t seats_count;
};

/* Each fills a class whose arrays lie in the arena. */
enum status layout_class_grid(struct arena *arena, uint32_t world, const struct layout_grid *grid,
                              struct layout_class *out, struct error *err) MUST_CHECK;
enum status layout_class_boxes(struct arena *arena, uint32_t world,
                               const struct layout_boxes *boxes, struct layout_class *out,
                               struct error *err) MUST_CHECK;
enum status layout_class_flat(struct arena *arena, uint32_t world, const struct layout_flat *flat,
                              struct layout_class *out, struct error *err) MUST_CHECK;

static inline uint32_t layout_class_intervals(const struct layout_class *class, uint32_t dim)
{
    return class->cuts_at[dim + 1] - class->cuts_at[dim] - 1;
}
static inline uint32_t layout_class_holders(const struct layout_class *class, uint32_t item)
{
    return class->holders_at[item + 1] - class->holders_at[item];
}
/* Of a grid or of boxes. False: it is empty. */
bool layout_class_box(const struct layout_class *class, uint32_t item, struct layout_box *out);
/* Do they say the same? Equal ones have equal hashes. */
bool layout_class_equal(const struct layout_class *a, const struct layout_class *b);
uint64_t layout_class_hash(const struct layout_class *class);
/* The rank's seats are [returned, *end). */
uint32_t layout_class_seats(const struct layout_class *class, uint32_t rank, uint32_t *end);
