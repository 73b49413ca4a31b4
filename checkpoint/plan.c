/* plan.c - one rank's plan. */
#include "checkpoint/plan.h"

#include <inttypes.h>
#include <string.h>

#include "checkpoint/layout_cover.h"
#include "checkpoint/plan_match.h"
#include "checkpoint/plan_overlap.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define RANGES_WALKED 8

/* A run of every tensor of a group; its source rank and piece are one of the choices. */
struct template_run {
    struct plan_run run;
    uint32_t item, choices;
    size_t choices_at;
};
struct template
{
    size_t at; /* of its runs */
    uint32_t count;
};
struct plan {
    uint32_t rank, tensors; /* of the target */
    size_t count;
    uint64_t bytes;
    struct plan_match match;
    struct template *templates; /* of each group */
    struct template_run *runs;
    size_t runs_count, runs_cap;
    struct layout_holder *choices;
    size_t choices_count, choices_cap;
};

void plan_destroy(struct plan *plan)
{
    if (!plan)
        return;
    plan_match_fini(&plan->match);
    mem_free(plan->templates);
    mem_free(plan->runs);
    mem_free(plan->choices);
    mem_free(plan);
}

size_t plan_count(const struct plan *plan)
{
    return plan->count;
}

uint64_t plan_bytes(const struct plan *plan)
{
    return plan->bytes;
}

uint64_t plan_run_bytes(const struct plan_run *run)
{
    uint64_t bytes = run->bytes;

    for (uint32_t i = 0; i < run->loops; i++)
        bytes *= run->loop[i].count;
    return bytes;
}

/* --- making a template */

struct maker {
    struct plan *plan;
    const struct layout_table *source, *target;
    const struct plan_options *options;
    uint32_t source_tensor;
    const struct layout_tensor *tensor;
    const struct layout_class *class; /* of the source */
    const struct layout_box *wanted;
    uint32_t piece;         /* of the target */
    uint32_t *range_pieces; /* of each seat: pieces of the rank before it; NULL: not yet needed */
    uint64_t elements, range_end; /* found so far of the wanted piece */
    uint32_t range_item;
    uint64_t *corners; /* boxes: what was found for the wanted piece */
    uint32_t corners_count;
    size_t corners_cap;
};

static void *grown(void *array, size_t count, size_t *cap, size_t more, size_t size)
{
    if (*cap - count >= more)
        return array;
    *cap = *cap * 2 > count + more ? *cap * 2 : count + more + 16;
    return mem_resize(array, *cap, size);
}

static uint32_t seat_pieces(const struct maker *maker, uint32_t seat)
{
    const uint64_t *range = maker->class->corners + 2 * (size_t)maker->class->seats[seat].item;
    return (uint32_t)layout_range_boxes(&maker->source->tensors[maker->source_tensor], range[0],
                                        range[1], NULL);
}

static void count_range_pieces(struct maker *maker)
{
    const struct layout_class *class = maker->class;

    maker->range_pieces = mem_array(class->seats_count, sizeof(uint32_t));
    for (uint32_t seat = 1; seat < class->seats_count; seat++)
        if (class->seats[seat - 1].rank == class->seats[seat].rank)
            maker->range_pieces[seat] =
                maker->range_pieces[seat - 1] + seat_pieces(maker, seat - 1);
}

/* The holder's range becomes a piece. */
static uint32_t piece_of_range(struct maker *maker, struct layout_holder holder)
{
    uint32_t end, first = layout_class_seats(maker->class, holder.rank, &end), pieces = 0;

    if (holder.piece > RANGES_WALKED && !maker->range_pieces)
        count_range_pieces(maker);
    if (maker->range_pieces)
        return maker->range_pieces[first + holder.piece];
    for (uint32_t seat = first; seat < first + holder.piece; seat++)
        pieces += seat_pieces(maker, seat);
    return pieces;
}

/* Boxes are compared at the end of the piece; ranges come sorted; a grid cannot overlap. */
static bool note_cover(struct maker *maker, const struct plan_overlap *overlap)
{
    uint32_t dims = maker->tensor->dims;

    maker->elements += layout_box_elements(&overlap->common, dims);
    if (maker->class->kind == LAYOUT_FLAT) {
        const uint64_t *range = maker->class->corners + 2 * (size_t)overlap->item;
        bool apart = overlap->item == maker->range_item || range[0] >= maker->range_end;
        maker->range_item = overlap->item;
        if (range[1] > maker->range_end)
            maker->range_end = range[1];
        return apart;
    }
    if (maker->class->kind == LAYOUT_BOXES) {
        maker->corners = grown(maker->corners, maker->corners_count, &maker->corners_cap, 1,
                               2 * LAYOUT_DIMS_MAX * sizeof(uint64_t));
        uint64_t *corner = maker->corners + (size_t)maker->corners_count++ * 2 * dims;
        for (uint32_t d = 0; d < dims; d++) {
            corner[d] = overlap->common.offset[d];
            corner[dims + d] = overlap->common.offset[d] + overlap->common.size[d];
        }
    }
    return true;
}

static enum status add_run(void *arg, const struct plan_overlap *overlap, struct error *err)
{
    struct maker *maker = arg;
    struct plan *plan = maker->plan;
    uint32_t holders = layout_class_holders(maker->class, overlap->item);

    if (!note_cover(maker, overlap))
        return error_set(err, STATUS_INVALID, "overlap: ranges of the source cross");
    if (holders == 0)
        return error_set(err, STATUS_INVALID, "hole: nobody holds a cell of the source");
    plan->runs = grown(plan->runs, plan->runs_count, &plan->runs_cap, 1, sizeof *plan->runs);
    plan->choices = grown(plan->choices, plan->choices_count, &plan->choices_cap, holders,
                          sizeof *plan->choices);
    struct template_run *made = &plan->runs[plan->runs_count++];
    struct layout_holder *choices = plan->choices + plan->choices_count;
    *made = (struct template_run){.item = overlap->item, .choices_at = plan->choices_count};
    made->run.target_piece = maker->piece;
    made->choices = plan_overlap_nearest(maker->class, overlap->item, maker->options, choices);
    plan->choices_count += made->choices;
    for (uint32_t i = 0; i < made->choices && maker->class->kind == LAYOUT_FLAT; i++)
        choices[i].piece = piece_of_range(maker, choices[i]) + overlap->sub;
    plan_overlap_run(overlap, maker->wanted, maker->tensor, &made->run);
    return STATUS_OK;
}

static enum status check_piece(const struct maker *maker, struct error *err)
{
    uint32_t dims = maker->tensor->dims;
    struct layout_cover_set set = {dims, maker->corners_count, maker->corners};
    char shown[LAYOUT_BOX_SHOWN];
    struct layout_box where;
    enum layout_cover cover = LAYOUT_COVER_EXACT;

    if (maker->class->kind == LAYOUT_BOXES) {
        cover = layout_cover_find(&set, maker->wanted, &where);
    } else if (maker->elements != layout_box_elements(maker->wanted, dims)) {
        cover = LAYOUT_COVER_HOLE;
        where = *maker->wanted;
    }
    if (cover == LAYOUT_COVER_EXACT)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s in the source within %s",
                     cover == LAYOUT_COVER_HOLE      ? "hole"
                     : cover == LAYOUT_COVER_OVERLAP ? "overlap"
                                                     : "too many crossing boxes",
                     layout_box_shown(&where, dims, shown));
}

static enum status make_pieces(struct maker *maker, const struct layout_box *pieces, size_t count,
                               struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        maker->wanted = &pieces[i];
        maker->piece = (uint32_t)i;
        maker->elements = maker->range_end = 0;
        maker->range_item = UINT32_MAX;
        maker->corners_count = 0;
        enum status st =
            plan_overlap_each(maker->class, maker->tensor, maker->wanted, add_run, maker, err);
        if (st == STATUS_OK)
            st = check_piece(maker, err);
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

static enum status make_template(struct plan *plan, const struct layout_table *source,
                                 const struct layout_table *target,
                                 const struct plan_options *options, uint32_t group_index,
                                 struct error *err)
{
    const struct plan_group *group = &plan->match.groups[group_index];
    struct template *template = &plan->templates[group_index];
    const struct layout_tensor *tensor = &target->tensors[group->target];
    struct maker maker = {.plan = plan, .source = source, .target = target, .options = options};
    size_t pieces_count = layout_table_pieces(target, group->target, plan->rank, NULL, 0);

    template->at = plan->runs_count;
    if (pieces_count == 0)
        return STATUS_OK;
    SCOPED(mem_free) void *pieces = mem_array(pieces_count, sizeof(struct layout_box));
    (void)layout_table_pieces(target, group->target, plan->rank, pieces, pieces_count);
    maker.source_tensor = group->source;
    maker.tensor = tensor;
    maker.class = layout_table_class(source, group->source);
    enum status st = make_pieces(&maker, pieces, pieces_count, err);
    mem_free(maker.range_pieces);
    mem_free(maker.corners);
    if (st != STATUS_OK) {
        char shown[LAYOUT_SHOWN];
        (void)layout_name_shown(tensor->name, tensor->name_len, shown);
        return err ? error_wrap(err, "tensor %s", shown) : st;
    }
    template->count = (uint32_t)(plan->runs_count - template->at);
    plan->count += (size_t) template->count * group->count;
    for (size_t i = template->at; i < plan->runs_count; i++)
        plan->bytes += plan_run_bytes(&plan->runs[i].run) * group->count;
    return STATUS_OK;
}

enum status plan_rank(const struct layout_table *source, const struct layout_table *target,
                      uint32_t target_rank, const struct plan_options *options, struct plan **out,
                      struct error *err)
{
    SCOPED(plan_destroy) struct plan *plan = NEW(struct plan);
    enum status st;

    if (target_rank >= target->world)
        return error_set(err, STATUS_INVALID, "rank %" PRIu32 " of a world of %" PRIu32,
                         target_rank, target->world);
    plan->rank = target_rank;
    plan->tensors = target->tensors_count;
    st = plan_match_make(source, target, options && options->partial, &plan->match, err);
    if (st != STATUS_OK)
        return st;
    plan->templates = mem_array(plan->match.groups_count, sizeof *plan->templates);
    for (uint32_t i = 0; i < plan->match.groups_count && st == STATUS_OK; i++)
        st = make_template(plan, source, target, options, i, err);
    if (st == STATUS_OK)
        *out = TAKE(plan);
    return st;
}

/* --- reading a plan */

bool plan_next(const struct plan *plan, struct plan_cursor *cursor, struct plan_run *out)
{
    const struct plan_match *match = &plan->match;

    for (; cursor->tensor < plan->tensors; cursor->tensor++, cursor->run = 0) {
        if (match->source[cursor->tensor] == PLAN_NONE)
            continue;
        const struct template *template = &plan->templates[match->group[cursor->tensor]];
        if (cursor->run >= template->count)
            continue;
        const struct template_run *run = &plan->runs[template->at + cursor->run++];
        uint32_t turn =
            plan_overlap_turn(match->ordinal[cursor->tensor], plan->rank, run->item, run->choices);
        struct layout_holder holder = plan->choices[run->choices_at + turn];
        *out = run->run;
        out->tensor = (uint32_t)cursor->tensor;
        out->source_tensor = match->source[cursor->tensor];
        out->source_rank = holder.rank;
        out->source_piece = holder.piece;
        return true;
    }
    return false;
}

void plan_key(const struct layout_table *source, const struct layout_table *target,
              uint32_t target_rank, bool partial, char out[33])
{
    SCOPED_TEXT char *text = mem_printf("%d %s %s %" PRIu32 " %d", PLAN_VERSION, source->digest,
                                        target->digest, target_rank, (int)partial);
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits(text, strlen(text)));
    text_to_hex(canonical.digest, sizeof canonical.digest, out);
}
