/* plan_overlap.c - see plan_overlap.h. */
#include "checkpoint/plan_overlap.h"

#include <string.h>

struct search {
    const struct layout_class *class;
    const struct layout_tensor *tensor;
    const struct layout_box *wanted;
    plan_overlap_fn fn;
    void *arg;
};

/* False: nothing in common. */
static bool intersect(const struct layout_box *a, const struct layout_box *b, uint32_t dims,
                      struct layout_box *out)
{
    for (uint32_t d = 0; d < dims; d++) {
        uint64_t begin = a->offset[d] > b->offset[d] ? a->offset[d] : b->offset[d];
        uint64_t a_end = a->offset[d] + a->size[d], b_end = b->offset[d] + b->size[d];
        uint64_t end = a_end < b_end ? a_end : b_end;
        if (end <= begin)
            return false;
        out->offset[d] = begin;
        out->size[d] = end - begin;
    }
    return true;
}

static enum status report(const struct search *search, struct plan_overlap *overlap,
                          struct error *err)
{
    if (!intersect(&overlap->source, search->wanted, search->tensor->dims, &overlap->common))
        return STATUS_OK;
    return search->fn(search->arg, overlap, err);
}

/* The first of sorted numbers that is above x; count when none is. */
static uint32_t first_above(const uint64_t *numbers, uint32_t count, uint64_t x)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (numbers[middle] <= x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum status search_grid(const struct search *search, struct error *err)
{
    const struct layout_class *class = search->class;
    uint32_t first[LAYOUT_DIMS_MAX], at[LAYOUT_DIMS_MAX];
    struct plan_overlap overlap = {0};

    for (uint32_t d = 0; d < class->dims; d++) {
        const uint64_t *cuts = class->cuts + class->cuts_at[d];
        first[d] =
            first_above(cuts, layout_class_intervals(class, d) + 1, search->wanted->offset[d]) - 1;
        at[d] = first[d];
    }
    for (;;) {
        overlap.item = 0;
        for (uint32_t d = 0; d < class->dims; d++)
            overlap.item = overlap.item * layout_class_intervals(class, d) + at[d];
        if (layout_class_box(class, overlap.item, &overlap.source)) {
            enum status st = report(search, &overlap, err);
            if (st != STATUS_OK)
                return st;
        }
        uint32_t d = class->dims;
        while (d > 0) { /* the next cell, the last dim first */
            const uint64_t *cuts = class->cuts + class->cuts_at[--d];
            if (++at[d] < layout_class_intervals(class, d) &&
                cuts[at[d]] < search->wanted->offset[d] + search->wanted->size[d])
                break;
            at[d] = first[d];
            if (d == 0)
                return STATUS_OK;
        }
        if (class->dims == 0)
            return STATUS_OK;
    }
}

static enum status search_boxes(const struct search *search, struct error *err)
{
    const struct layout_class *class = search->class;
    uint32_t axis = class->axis, item = 0;
    size_t width = 2 * (size_t) class->dims;
    struct plan_overlap overlap = {0};

    if (class->dims)
        item = first_above(class->reach, class->items, search->wanted->offset[axis]);
    for (; item < class->items; item++) {
        if (class->dims && class->corners[item * width + axis] >=
                               search->wanted->offset[axis] + search->wanted->size[axis])
            break;
        overlap.item = item;
        (void)layout_class_box(class, item, &overlap.source);
        enum status st = report(search, &overlap, err);
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

/* The first and one behind the last element of a box in the row-major order. */
static void box_span(const struct layout_tensor *tensor, const struct layout_box *box,
                     uint64_t *begin, uint64_t *end)
{
    *begin = *end = 0;
    for (uint32_t d = 0; d < tensor->dims; d++) {
        *begin = *begin * tensor->shape[d] + box->offset[d];
        *end = *end * tensor->shape[d] + box->offset[d] + box->size[d] - 1;
    }
    ++*end;
}

static enum status search_ranges(const struct search *search, struct error *err)
{
    const struct layout_class *class = search->class;
    struct layout_box boxes[LAYOUT_RANGE_BOXES];
    struct plan_overlap overlap = {0};
    uint64_t begin, end;

    box_span(search->tensor, search->wanted, &begin, &end);
    uint32_t item = first_above(class->reach, class->items, begin);
    for (; item < class->items && class->corners[2 * (size_t)item] < end; item++) {
        const uint64_t *range = class->corners + 2 * (size_t)item;
        size_t count = layout_range_boxes(search->tensor, range[0], range[1], boxes);
        overlap.item = item;
        for (overlap.sub = 0; overlap.sub < count; overlap.sub++) {
            overlap.source = boxes[overlap.sub];
            enum status st = report(search, &overlap, err);
            if (st != STATUS_OK)
                return st;
        }
    }
    return STATUS_OK;
}

enum status plan_overlap_each(const struct layout_class *class, const struct layout_tensor *tensor,
                              const struct layout_box *wanted, plan_overlap_fn fn, void *arg,
                              struct error *err)
{
    struct search search = {class, tensor, wanted, fn, arg};

    if (class->kind == LAYOUT_GRID)
        return search_grid(&search, err);
    if (class->kind == LAYOUT_BOXES)
        return search_boxes(&search, err);
    return search_ranges(&search, err);
}

/* --- bytes */

static void add_loop(struct plan_run *run, struct plan_loop loop)
{
    struct plan_loop *inner = run->loops ? &run->loop[run->loops - 1] : NULL;

    if (inner && inner->count * inner->source_step == loop.source_step &&
        inner->count * inner->target_step == loop.target_step)
        inner->count *= loop.count;
    else if (!inner && run->bytes == loop.source_step && run->bytes == loop.target_step)
        run->bytes *= loop.count;
    else
        run->loop[run->loops++] = loop;
}

void plan_overlap_run(const struct plan_overlap *overlap, const struct layout_box *wanted,
                      const struct layout_tensor *tensor, struct plan_run *out)
{
    uint64_t bits = dtype_bits(tensor->dtype), source_step, target_step;
    const struct layout_box *source = &overlap->source, *common = &overlap->common;

    out->source_at = out->target_at = 0;
    out->loops = 0;
    out->bytes = layout_tensor_bytes(tensor);
    if (tensor->dims == 0 || layout_tensor_unit(tensor) == 0)
        return; /* it has no pieces but itself */
    uint32_t last = tensor->dims - 1;
    out->bytes = common->size[last] * bits / 8;
    out->source_at = (common->offset[last] - source->offset[last]) * bits / 8;
    out->target_at = (common->offset[last] - wanted->offset[last]) * bits / 8;
    source_step = source->size[last] * bits / 8;
    target_step = wanted->size[last] * bits / 8;
    for (uint32_t d = last; d-- > 0;) {
        out->source_at += (common->offset[d] - source->offset[d]) * source_step;
        out->target_at += (common->offset[d] - wanted->offset[d]) * target_step;
        if (common->size[d] > 1)
            add_loop(out, (struct plan_loop){common->size[d], source_step, target_step});
        source_step *= source->size[d];
        target_step *= wanted->size[d];
    }
    for (uint32_t i = 0; i < out->loops / 2; i++) { /* the outermost first */
        struct plan_loop swapped = out->loop[i];
        out->loop[i] = out->loop[out->loops - 1 - i];
        out->loop[out->loops - 1 - i] = swapped;
    }
}

uint32_t plan_overlap_nearest(const struct layout_class *class, uint32_t item,
                              const struct plan_options *options, struct layout_holder *out)
{
    const struct layout_holder *holders = class->holders + class->holders_at[item];
    uint32_t all = layout_class_holders(class, item), count = 0;
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < all; i++) {
        uint64_t cost =
            all > 1 && options && options->cost ? options->cost(options->arg, holders[i].rank) : 0;
        if (cost < least)
            count = 0;
        if (cost > least)
            continue;
        least = cost;
        out[count++] = holders[i];
    }
    return count;
}
