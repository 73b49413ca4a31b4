/* layout_cover.h - do boxes fill a region, each element once? For layout*.c and plan*.c only. Pure.
 *
 * Splits the region at every plane that no box crosses, again and again: O(B log B) a level, and
 * nearly all layouts come apart entirely, so that the first hole is known exactly. What does not
 * come apart (pinwheels, overlaps) is swept pair by pair, within a bound. */
#pragma once
#include "base/mem.h"
#include "checkpoint/layout.h"

enum layout_cover {
    LAYOUT_COVER_EXACT,
    LAYOUT_COVER_HOLE,    /* where: it, or the least region known to have one */
    LAYOUT_COVER_OVERLAP, /* where: what two boxes have in common */
    LAYOUT_COVER_UNKNOWN, /* too many pairs to compare */
};
struct layout_cover_set {
    uint32_t dims, count;
    const uint64_t *corners; /* of each box: dims begins, dims ends; none is empty */
};
/* All boxes lie within the region, which is not empty. where may be NULL. */
enum layout_cover layout_cover_find(const struct layout_cover_set *set,
                                    const struct layout_box *region, struct layout_box *where);

#define LAYOUT_BOX_SHOWN 400
/* "[0:512,3:4]"; returns out. */
const char *layout_box_shown(const struct layout_box *box, uint32_t dims,
                             char out[LAYOUT_BOX_SHOWN]);
