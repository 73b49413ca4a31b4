/* plan_global.c - what the plans of all ranks come to. */
#include "checkpoint/plan.h"

#include "checkpoint/layout_cover.h"
#include "checkpoint/plan_match.h"
#include "checkpoint/plan_overlap.h"

struct counter {
    struct plan_totals *totals;
    const struct plan_options *options;
    const struct layout_class *source, *target;
    const struct layout_tensor *tensor;
    const struct layout_box *wanted;
    uint32_t item, count; /* of the target; tensors in the group */
    uint64_t elements;    /* found so far of the wanted box */
    struct layout_holder *choices;
};

void plan_totals_destroy(struct plan_totals *totals)
{
    if (!totals)
        return;
    mem_free(totals->source_bytes);
    mem_free(totals->target_bytes);
    mem_free(totals);
}

/* Every tensor of the group takes one of the choices: as many turns as there are tensors. */
static void count_turns(struct counter *counter, const struct plan_overlap *overlap,
                        uint32_t choices, uint32_t target_rank, uint64_t bytes)
{
    uint64_t each = counter->count / choices * bytes;
    uint32_t more = counter->count % choices;

    for (uint32_t i = 0; i < choices && each; i++)
        counter->totals->source_bytes[counter->choices[i].rank] += each;
    for (uint32_t i = 0; i < more; i++) {
        uint32_t turn = plan_overlap_turn(i, target_rank, overlap->item, choices);
        counter->totals->source_bytes[counter->choices[turn].rank] += bytes;
    }
}

static enum status count_overlap(void *arg, const struct plan_overlap *overlap, struct error *err)
{
    struct counter *counter = arg;
    uint64_t bytes = layout_box_bytes(&overlap->common, counter->tensor);
    uint32_t first = counter->target->holders_at[counter->item];
    uint32_t takers = layout_class_holders(counter->target, counter->item);
    uint32_t choices =
        plan_overlap_nearest(counter->source, overlap->item, counter->options, counter->choices);

    if (choices == 0)
        return error_set(err, STATUS_INVALID, "hole: nobody holds a cell of the source");
    counter->elements += layout_box_elements(&overlap->common, counter->tensor->dims);
    counter->totals->runs += (uint64_t)takers * counter->count;
    if (choices == 1) {
        counter->totals->source_bytes[counter->choices[0].rank] += bytes * takers * counter->count;
        return STATUS_OK;
    }
    for (uint32_t i = first; i < first + takers; i++)
        count_turns(counter, overlap, choices, counter->target->holders[i].rank, bytes);
    return STATUS_OK;
}

static enum status count_box(struct counter *counter, const struct layout_box *wanted,
                             struct error *err)
{
    uint64_t bytes = layout_box_bytes(wanted, counter->tensor) * counter->count;

    for (uint32_t i = counter->target->holders_at[counter->item];
         i < counter->target->holders_at[counter->item + 1]; i++) {
        counter->totals->target_bytes[counter->target->holders[i].rank] += bytes;
        counter->totals->bytes += bytes;
    }
    counter->elements = 0;
    enum status st =
        plan_overlap_each(counter->source, counter->tensor, wanted, count_overlap, counter, err);
    if (st == STATUS_OK && counter->elements != layout_box_elements(wanted, counter->tensor->dims))
        return error_set(err, STATUS_INVALID, "hole or overlap in the source");
    return st;
}

static enum status count_group(struct counter *counter, struct error *err)
{
    const struct layout_class *target = counter->target;
    struct layout_box boxes[LAYOUT_RANGE_BOXES];
    enum status st = STATUS_OK;

    for (uint32_t item = 0; item < target->items && st == STATUS_OK; item++) {
        size_t count = 1;
        if (layout_class_holders(target, item) == 0)
            continue;
        counter->item = item;
        if (target->kind == LAYOUT_FLAT)
            count = layout_range_boxes(counter->tensor, target->corners[2 * (size_t)item],
                                       target->corners[2 * (size_t)item + 1], boxes);
        else
            (void)layout_class_box(target, item, boxes);
        for (size_t i = 0; i < count && st == STATUS_OK; i++)
            st = count_box(counter, &boxes[i], err);
    }
    return st;
}

static enum status count_groups(const struct layout_table *source,
                                const struct layout_table *target, const struct plan_match *match,
                                struct counter *counter, struct error *err)
{
    for (uint32_t i = 0; i < match->groups_count; i++) {
        const struct plan_group *group = &match->groups[i];
        counter->tensor = &target->tensors[group->target];
        counter->source = layout_table_class(source, group->source);
        counter->target = layout_table_class(target, group->target);
        counter->count = group->count;
        enum status st = count_group(counter, err);
        if (st != STATUS_OK) {
            char shown[LAYOUT_SHOWN];
            (void)layout_name_shown(counter->tensor->name, counter->tensor->name_len, shown);
            return err ? error_wrap(err, "tensor %s", shown) : st;
        }
    }
    return STATUS_OK;
}

enum status plan_global(const struct layout_table *source, const struct layout_table *target,
                        const struct plan_options *options, struct plan_totals **out,
                        struct error *err)
{
    SCOPED(plan_totals_destroy) struct plan_totals *totals = NEW(struct plan_totals);
    SCOPED(mem_free) void *choices = mem_array(source->world, sizeof(struct layout_holder));
    struct counter counter = {.totals = totals, .options = options, .choices = choices};
    struct plan_match match;
    enum status st = plan_match_make(source, target, options && options->partial, &match, err);

    if (st != STATUS_OK)
        return st;
    totals->source_bytes = mem_array(source->world, sizeof(uint64_t));
    totals->target_bytes = mem_array(target->world, sizeof(uint64_t));
    st = count_groups(source, target, &match, &counter, err);
    plan_match_fini(&match);
    if (st == STATUS_OK)
        *out = TAKE(totals);
    return st;
}
