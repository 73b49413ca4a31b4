/* layout_split.h - a class of which each item is written by some of its holders, a part each. For
 * layout_assign.c only. */
#pragma once
#include "checkpoint/layout_class.h"

struct layout_split {
    uint32_t parts; /* of each item; fewer where it has fewer holders */
    uint32_t first; /* holder that takes the first part; the next ones follow, round about */
    uint64_t unit;  /* elements of the last dim that are whole bytes */
};
/* Items are cut along their first dim that is long enough. A grid stays a grid if all its cells
 * have as many holders. Gives the new layout's index. */
enum status layout_split_build(const struct layout_class *class, const struct layout_split *split,
                               struct layout_build *build, uint32_t *out,
                               struct error *err) MUST_CHECK;
