/* layout_cover.c - see layout_cover.h. */
#include "checkpoint/layout_cover.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64
/* Work in proportion to the boxes, so that whoever wrote the file cannot ask for more: boxes sorted
 * until the rest is swept, and pairs compared in a sweep until that is given up. */
#define SORTED_EACH ((uint64_t)128)
#define PAIRS_EACH  ((uint64_t)1024)
#define WORK_LEAST  ((uint64_t)1 << 20)

struct cover {
    const struct layout_cover_set *set;
    uint32_t *order, *active; /* of boxes; one buffer each for all levels */
    uint64_t sorted, pairs;   /* so far */
    struct layout_box where;
};

const char *layout_box_shown(const struct layout_box *box, uint32_t dims,
                             char out[LAYOUT_BOX_SHOWN])
{
    size_t at = 0;

    out[at++] = '[';
    for (uint32_t d = 0; d < dims; d++) {
        int len = snprintf(out + at, LAYOUT_BOX_SHOWN - at, "%s%" PRIu64 ":%" PRIu64, d ? "," : "",
                           box->offset[d], box->offset[d] + box->size[d]);
        at += (size_t)len;
    }
    out[at++] = ']';
    out[at] = '\0';
    return out;
}

static const uint64_t *begins(const struct cover *cover, uint32_t box)
{
    return cover->set->corners + (size_t)box * 2 * cover->set->dims;
}

static const uint64_t *ends(const struct cover *cover, uint32_t box)
{
    return begins(cover, box) + cover->set->dims;
}

struct by_begin {
    const struct cover *cover;
    uint32_t dim;
};

static int begin_order(const void *a, const void *b, void *arg)
{
    const struct by_begin *by = arg;
    uint64_t left = begins(by->cover, *(const uint32_t *)a)[by->dim];
    uint64_t right = begins(by->cover, *(const uint32_t *)b)[by->dim];
    return left < right ? -1 : left > right;
}

static void sort_boxes(struct cover *cover, uint32_t *order, uint32_t count, uint32_t dim)
{
    struct by_begin by = {cover, dim};
    uint32_t sorted = 1;

    cover->sorted += count;
    while (sorted < count && begin_order(&order[sorted - 1], &order[sorted], &by) <= 0)
        sorted++;
    if (sorted < count)
        qsort_r(order, count, sizeof *order, begin_order, &by);
}

/* The region, from begin to end on that dim. */
static struct layout_box slab(const struct layout_box *region, uint32_t dim, uint64_t begin,
                              uint64_t end)
{
    struct layout_box made = *region;

    made.offset[dim] = begin;
    made.size[dim] = end - begin;
    return made;
}

static enum layout_cover found(struct cover *cover, enum layout_cover what, struct layout_box where)
{
    cover->where = where;
    return what;
}

/* --- what does not come apart */

static bool boxes_meet(struct cover *cover, uint32_t a, uint32_t b)
{
    const uint64_t *a_begins = begins(cover, a), *b_begins = begins(cover, b);
    const uint64_t *a_ends = ends(cover, a), *b_ends = ends(cover, b);

    cover->pairs++;
    for (uint32_t d = 0; d < cover->set->dims; d++)
        if (a_begins[d] >= b_ends[d] || b_begins[d] >= a_ends[d])
            return false;
    return true;
}

static struct layout_box common_of(const struct cover *cover, uint32_t a, uint32_t b)
{
    struct layout_box made = {0};

    for (uint32_t d = 0; d < cover->set->dims; d++) {
        uint64_t begin = begins(cover, a)[d], end = ends(cover, a)[d];
        if (begins(cover, b)[d] > begin)
            begin = begins(cover, b)[d];
        if (ends(cover, b)[d] < end)
            end = ends(cover, b)[d];
        made.offset[d] = begin;
        made.size[d] = end - begin;
    }
    return made;
}

/* The dim on which the fewest boxes lie side by side: where their lengths add up to the least. */
static uint32_t sweep_dim(const struct cover *cover, const uint32_t *order, uint32_t count,
                          const struct layout_box *region)
{
    uint32_t best = 0;
    double least = 0;

    for (uint32_t d = 0; d < cover->set->dims; d++) {
        double sum = 0;
        for (uint32_t i = 0; i < count; i++)
            sum += (double)(ends(cover, order[i])[d] - begins(cover, order[i])[d]);
        sum /= (double)region->size[d];
        if (d == 0 || sum < least) {
            least = sum;
            best = d;
        }
    }
    return best;
}

static enum layout_cover cover_sweep(struct cover *cover, uint32_t *order, uint32_t count,
                                     const struct layout_box *region)
{
    uint32_t dims = cover->set->dims, dim = sweep_dim(cover, order, count, region), active = 0;
    uint64_t volume = 0;

    sort_boxes(cover, order, count, dim);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t here = begins(cover, order[i])[dim], elements = 1;
        for (uint32_t k = 0; k < active;) {
            if (ends(cover, cover->active[k])[dim] <= here) {
                cover->active[k] = cover->active[--active];
                continue;
            }
            if (boxes_meet(cover, cover->active[k], order[i]))
                return found(cover, LAYOUT_COVER_OVERLAP,
                             common_of(cover, cover->active[k], order[i]));
            k++;
        }
        if (cover->pairs > WORK_LEAST + PAIRS_EACH * cover->set->count)
            return found(cover, LAYOUT_COVER_UNKNOWN, *region);
        cover->active[active++] = order[i];
        for (uint32_t d = 0; d < dims; d++)
            elements *= ends(cover, order[i])[d] - begins(cover, order[i])[d];
        volume += elements; /* apart and inside: no more than the region */
    }
    if (volume != layout_box_elements(region, dims))
        return found(cover, LAYOUT_COVER_HOLE, *region);
    return LAYOUT_COVER_EXACT;
}

/* --- what does */

static enum layout_cover cover_group(struct cover *cover, uint32_t *order, uint32_t count,
                                     const struct layout_box *region, uint32_t depth);

/* Splits on one dim. False: no plane is free of boxes, and the dim has no hole over its whole
 * breadth. */
static bool cover_split(struct cover *cover, uint32_t *order, uint32_t count, uint32_t dim,
                        const struct layout_box *region, uint32_t depth, enum layout_cover *out)
{
    uint64_t region_end = region->offset[dim] + region->size[dim], reach = region->offset[dim];
    uint32_t first = 0;
    bool split = false;

    sort_boxes(cover, order, count, dim);
    for (uint32_t i = 0; i < count; i++) { /* holes first: whoever recurses sorts anew */
        uint64_t begin = begins(cover, order[i])[dim], end = ends(cover, order[i])[dim];
        if (begin > reach) {
            *out = found(cover, LAYOUT_COVER_HOLE, slab(region, dim, reach, begin));
            return true;
        }
        split |= i > 0 && begin == reach;
        reach = end > reach ? end : reach;
    }
    if (reach < region_end) {
        *out = found(cover, LAYOUT_COVER_HOLE, slab(region, dim, reach, region_end));
        return true;
    }
    reach = region->offset[dim];
    for (uint32_t i = 0; split && i <= count; i++) {
        if (i == count || (i > first && begins(cover, order[i])[dim] == reach)) {
            struct layout_box part = slab(region, dim, begins(cover, order[first])[dim], reach);
            *out = cover_group(cover, order + first, i - first, &part, depth + 1);
            if (*out != LAYOUT_COVER_EXACT)
                return true;
            first = i;
        }
        if (i < count && ends(cover, order[i])[dim] > reach)
            reach = ends(cover, order[i])[dim];
    }
    return split;
}

static enum layout_cover cover_group(struct cover *cover, uint32_t *order, uint32_t count,
                                     const struct layout_box *region, uint32_t depth)
{
    enum layout_cover verdict = LAYOUT_COVER_EXACT;
    uint64_t most = WORK_LEAST + SORTED_EACH * cover->set->count;
    uint32_t dim = 0;

    for (; dim < cover->set->dims && depth < DEPTH_MAX && cover->sorted < most; dim++)
        if (cover_split(cover, order, count, dim, region, depth, &verdict))
            return verdict;
    if (count == 1 && dim == cover->set->dims)
        return LAYOUT_COVER_EXACT; /* no hole on any dim */
    return cover_sweep(cover, order, count, region);
}

enum layout_cover layout_cover_find(const struct layout_cover_set *set,
                                    const struct layout_box *region, struct layout_box *where)
{
    struct cover cover = {.set = set};
    enum layout_cover verdict;

    if (set->count == 0) {
        verdict = found(&cover, LAYOUT_COVER_HOLE, *region);
    } else {
        SCOPED(mem_free) void *memory = mem_array(set->count, 2 * sizeof(uint32_t));
        cover.order = memory;
        cover.active = cover.order + set->count;
        for (uint32_t i = 0; i < set->count; i++)
            cover.order[i] = i;
        verdict = cover_group(&cover, cover.order, set->count, region, 0);
    }
    if (where)
        *where = cover.where;
    return verdict;
}
