/* plan_overlap.h - which items of a layout a box of the tensor meets, and the bytes that they have
 * in common. For plan*.c only. Pure. */
#pragma once
#include "checkpoint/layout_table.h"
#include "checkpoint/plan.h"

/* One box of the source that meets the asked one. */
struct plan_overlap {
    uint32_t item, sub;       /* flat: sub is which box of the range; else 0 */
    struct layout_box source; /* whole */
    struct layout_box common;
};
typedef enum status (*plan_overlap_fn)(void *arg, const struct plan_overlap *overlap,
                                       struct error *err);
/* Calls fn for each box of the tensor's layout that meets wanted; stops at its first failure.
 * Grids: O(cuts found), boxes and ranges: O(log + candidates). */
enum status plan_overlap_each(const struct layout_class *class, const struct layout_tensor *tensor,
                              const struct layout_box *wanted, plan_overlap_fn fn, void *arg,
                              struct error *err) MUST_CHECK;
/* Fills offsets, bytes and loops. */
void plan_overlap_run(const struct plan_overlap *overlap, const struct layout_box *wanted,
                      const struct layout_tensor *tensor, struct plan_run *out);
/* The holders of an item that cost the least; out has room for all. Returns how many. */
uint32_t plan_overlap_nearest(const struct layout_class *class, uint32_t item,
                              const struct plan_options *options, struct layout_holder *out);
/* Whose turn it is among equals: no state, so that any rank's plan, and the totals of all, agree.
 */
static inline uint32_t plan_overlap_turn(uint32_t ordinal, uint32_t target_rank, uint32_t item,
                                         uint32_t count)
{
    return (uint32_t)(((uint64_t)ordinal + target_rank + item) % count);
}
