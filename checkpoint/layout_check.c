/* layout_check.c - is each element held, and once? */
#include "checkpoint/layout_cover.h"
#include "checkpoint/layout_table.h"

#include <inttypes.h>
#include <stdio.h>

/* What is known of a class; made when the first tensor asks. */
struct verdict {
    bool known;
    enum layout_cover cover;
    struct layout_box where;
    /* Flat: positions; tensors of different sizes share them. */
    uint64_t hole_begin, hole_end, overlap_begin, overlap_end;
};

static struct verdict judge_holders(const struct layout_class *class, bool single)
{
    struct verdict made = {.known = true};

    for (uint32_t item = 0; item < class->items; item++) {
        uint32_t holders = layout_class_holders(class, item);
        if (holders == 1 || (holders > 1 && !single))
            continue;
        if (!layout_class_box(class, item, &made.where))
            continue; /* nobody need hold nothing */
        made.cover = holders ? LAYOUT_COVER_OVERLAP : LAYOUT_COVER_HOLE;
        break;
    }
    return made;
}

static struct verdict judge_boxes(const struct layout_class *class,
                                  const struct layout_tensor *tensor, bool single)
{
    struct layout_cover_set set = {tensor->dims, class->items, class->corners};
    struct layout_box region = {0};
    struct verdict made = judge_holders(class, single);

    if (made.cover != LAYOUT_COVER_EXACT)
        return made;
    for (uint32_t d = 0; d < tensor->dims; d++)
        region.size[d] = tensor->shape[d];
    made.cover = layout_cover_find(&set, &region, &made.where);
    return made;
}

static struct verdict judge_ranges(const struct layout_class *class, bool single)
{
    struct verdict made = {.known = true, .hole_begin = 0, .hole_end = UINT64_MAX};
    uint64_t reach = 0;

    made.overlap_begin = made.overlap_end = UINT64_MAX;
    for (uint32_t item = 0; item < class->items; item++) {
        uint64_t begin = class->corners[2 * (size_t)item], end = class->corners[2 * item + 1];
        bool shared = single && layout_class_holders(class, item) > 1;
        if (begin > reach)
            break; /* the first hole */
        if ((begin < reach || shared) && made.overlap_begin == UINT64_MAX) {
            made.overlap_begin = begin;
            made.overlap_end = shared || end < reach ? end : reach;
        }
        reach = class->reach[item];
    }
    made.hole_begin = reach;
    for (uint32_t item = class->items; item-- > 0;)
        if (class->corners[2 * (size_t)item] > reach)
            made.hole_end = class->corners[2 * (size_t)item];
    return made;
}

static enum status tell(const struct layout_tensor *tensor, enum layout_cover cover,
                        const char *where, struct error *err)
{
    char shown[LAYOUT_SHOWN];

    (void)layout_name_shown(tensor->name, tensor->name_len, shown);
    if (cover == LAYOUT_COVER_HOLE)
        return error_set(err, STATUS_INVALID, "tensor %s: hole: nobody holds all of %s", shown,
                         where);
    if (cover == LAYOUT_COVER_OVERLAP)
        return error_set(err, STATUS_INVALID, "tensor %s: overlap: %s is held more than once",
                         shown, where);
    return error_set(err, STATUS_EXHAUSTED, "tensor %s: too many boxes cross each other", shown);
}

static enum status check_ranges(const struct verdict *verdict, const struct layout_tensor *tensor,
                                struct error *err)
{
    uint64_t elements = layout_tensor_elements(tensor);
    bool hole = verdict->hole_begin < elements;
    char where[64];

    if (!hole && verdict->overlap_begin >= elements)
        return STATUS_OK;
    uint64_t begin = hole ? verdict->hole_begin : verdict->overlap_begin;
    uint64_t end = hole ? verdict->hole_end : verdict->overlap_end;
    (void)snprintf(where, sizeof where, "elements %" PRIu64 ":%" PRIu64, begin,
                   end < elements ? end : elements);
    return tell(tensor, hole ? LAYOUT_COVER_HOLE : LAYOUT_COVER_OVERLAP, where, err);
}

static enum status check_tensor(const struct layout_table *table, uint32_t i, bool single,
                                struct verdict *verdict, struct error *err)
{
    const struct layout_tensor *tensor = &table->tensors[i];
    const struct layout_class *class = layout_table_class(table, i);
    char shown[LAYOUT_BOX_SHOWN];

    if (layout_tensor_elements(tensor) == 0)
        return STATUS_OK;
    if (!verdict->known && class->kind == LAYOUT_FLAT)
        *verdict = judge_ranges(class, single);
    else if (class->kind == LAYOUT_GRID && !verdict->known)
        *verdict = judge_holders(class, single);
    else if (class->kind == LAYOUT_BOXES && (!verdict->known || class->dims == LAYOUT_DIMS_ANY))
        *verdict = judge_boxes(class, tensor, single);
    if (class->kind == LAYOUT_FLAT)
        return check_ranges(verdict, tensor, err);
    if (verdict->cover == LAYOUT_COVER_EXACT && class->kind == LAYOUT_BOXES)
        for (uint32_t d = 0; d < tensor->dims; d++)
            if (class->extent[d] < tensor->shape[d]) /* exact, but of a smaller tensor */
                *verdict = judge_boxes(class, tensor, single);
    if (verdict->cover == LAYOUT_COVER_EXACT)
        return STATUS_OK;
    return tell(tensor, verdict->cover, layout_box_shown(&verdict->where, tensor->dims, shown),
                err);
}

static enum status check_all(const struct layout_table *table, bool single, struct error *err)
{
    SCOPED(mem_free) void *memory = mem_array(table->classes_count, sizeof(struct verdict));
    struct verdict *verdicts = memory;
    enum status st = STATUS_OK;

    for (uint32_t i = 0; i < table->tensors_count && st == STATUS_OK; i++)
        st = check_tensor(table, i, single, &verdicts[table->tensors[i].layout], err);
    return st;
}

enum status layout_table_check(const struct layout_table *table, struct error *err)
{
    return check_all(table, false, err);
}

enum status layout_table_check_storage(const struct layout_table *table, struct error *err)
{
    return check_all(table, true, err);
}
