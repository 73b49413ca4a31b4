/* layout_assign.c - who writes what of what several hold.
 *
 * Tensors go from the largest to the smallest, each to the holders that have the least to write so
 * far. Few bytes are written by one holder of each item, many by several, a part each. The several
 * are neighbours among the holders, at the same place for all items (a window), and windows begin
 * at every second one of their length, so that a layout of R replicas becomes at most 4 R layouts,
 * however many tensors use it. */
#include "checkpoint/layout_split.h"
#include "checkpoint/layout_table.h"

#include <stdlib.h>

#define PART_BYTES ((uint64_t)1 << 20) /* an item is split where each part has as many */
#define PARTS_LOGS 17                  /* powers of two up to LAYOUT_WORLD_MAX */
#define UNITS      3                   /* 1, 2, 4 elements */

/* What is known of a declared class. */
struct chooser {
    const struct layout_class *class;
    uint32_t holders;            /* most of an item */
    uint64_t fixed;              /* bits of an element, over the tensors whose writers are given */
    uint64_t *elements, largest; /* of each item, grid and boxes */
    uint32_t *made[UNITS][PARTS_LOGS + 1]; /* storage layouts + 1 of each window */
};
/* A tensor's choice. */
struct choice {
    uint64_t bytes;
    uint32_t tensor, order; /* order: among the names */
    uint32_t parts, window;
};
struct assign {
    const struct layout_table *declared;
    struct arena *arena;
    struct chooser **choosers; /* of each class; equal classes share one */
    struct choice *choices;    /* of each tensor */
    uint64_t *load;            /* bytes that each rank writes */
};

static uint32_t unit_index(const struct layout_tensor *tensor)
{
    return (uint32_t)layout_tensor_unit(tensor) / 2;
}

static struct chooser *make_chooser(struct assign *assign, const struct layout_class *class)
{
    struct chooser *made = arena_alloc(assign->arena, sizeof *made);
    struct layout_box box;

    made->class = class;
    if (class->kind != LAYOUT_FLAT)
        made->elements = arena_alloc(assign->arena, class->items * sizeof *made->elements);
    for (uint32_t item = 0; item < class->items; item++) {
        uint32_t holders = layout_class_holders(class, item);
        if (holders > made->holders)
            made->holders = holders;
        if (class->kind == LAYOUT_FLAT || !layout_class_box(class, item, &box))
            continue;
        made->elements[item] = layout_box_elements(&box, class->dims);
        if (made->elements[item] > made->largest)
            made->largest = made->elements[item];
    }
    return made;
}

/* Ranks may list equal layouts once or many times. */
static void make_choosers(struct assign *assign)
{
    uint32_t count = assign->declared->classes_count;
    size_t slots_count = 16;

    while (slots_count < 2 * (size_t)count)
        slots_count *= 2;
    SCOPED(mem_free) void *memory = mem_array(slots_count, sizeof(struct chooser *));
    struct chooser **slots = memory;
    assign->choosers = arena_alloc(assign->arena, count * sizeof(struct chooser *));
    for (uint32_t i = 0; i < count; i++) {
        const struct layout_class *class = &assign->declared->classes[i];
        size_t slot = layout_class_hash(class) & (slots_count - 1);
        while (slots[slot] && !layout_class_equal(slots[slot]->class, class))
            slot = (slot + 1) & (slots_count - 1);
        if (!slots[slot])
            slots[slot] = make_chooser(assign, class);
        assign->choosers[i] = slots[slot];
    }
}

static uint64_t item_elements(const struct chooser *chooser, const struct layout_tensor *tensor,
                              uint32_t item)
{
    const struct layout_class *class = chooser->class;

    if (class->kind != LAYOUT_FLAT)
        return chooser->elements[item];
    uint64_t end = class->corners[2 * (size_t)item + 1], begin = class->corners[2 * (size_t)item];
    uint64_t elements = layout_tensor_elements(tensor);
    if (end > elements)
        end = elements;
    return begin < end ? end - begin : 0;
}

/* --- how many parts */

static uint64_t largest_item(const struct chooser *chooser, const struct layout_tensor *tensor)
{
    const struct layout_class *class = chooser->class;
    uint64_t largest = chooser->largest;

    for (uint32_t item = 0; item < class->items && class->kind == LAYOUT_FLAT; item++) {
        uint64_t elements = item_elements(chooser, tensor, item);
        if (elements > largest)
            largest = elements;
    }
    return largest;
}

/* A power of two, or all holders. */
static uint32_t choose_parts(const struct chooser *chooser, const struct layout_tensor *tensor)
{
    uint64_t bytes = largest_item(chooser, tensor) * dtype_bits(tensor->dtype) / 8;
    uint32_t parts = 1;

    if (layout_tensor_unit(tensor) == 0)
        return 1;
    while (parts < chooser->holders && bytes / 2 / parts >= PART_BYTES)
        parts *= 2;
    return parts > 1 && parts > chooser->holders / 2 ? chooser->holders : parts;
}

/* --- which window */

/* Windows of all holders are one. */
static uint32_t windows_of(const struct chooser *chooser, uint32_t parts)
{
    uint32_t step = parts > 1 ? parts / 2 : 1;
    return parts >= chooser->holders ? 1 : (chooser->holders + step - 1) / step;
}

static uint32_t window_begin(const struct choice *choice)
{
    return choice->window * (choice->parts > 1 ? choice->parts / 2 : 1);
}

struct window_load {
    uint64_t most, sum; /* of one holder; of all */
};

static struct window_load window_load(const struct assign *assign, const struct layout_class *class,
                                      const struct choice *choice)
{
    uint32_t begin = window_begin(choice);
    struct window_load made = {0};

    for (uint32_t item = 0; item < class->items; item++) {
        uint32_t at = class->holders_at[item], count = layout_class_holders(class, item);
        for (uint32_t i = 0; i < choice->parts && i < count; i++) {
            uint64_t load = assign->load[class->holders[at + (begin + i) % count].rank];
            made.most = load > made.most ? load : made.most;
            made.sum += load;
        }
    }
    return made;
}

static void take_window(struct assign *assign, const struct layout_tensor *tensor,
                        const struct choice *choice)
{
    const struct chooser *chooser = assign->choosers[tensor->layout];
    const struct layout_class *class = chooser->class;
    uint64_t bits = dtype_bits(tensor->dtype);

    for (uint32_t item = 0; item < class->items; item++) {
        uint32_t at = class->holders_at[item], count = layout_class_holders(class, item);
        uint32_t parts = count < choice->parts ? count : choice->parts;
        for (uint32_t i = 0; i < parts; i++)
            assign->load[class->holders[at + (window_begin(choice) + i) % count].rank] +=
                item_elements(chooser, tensor, item) * bits / 8 / parts;
    }
}

static void choose(struct assign *assign, struct choice *choice)
{
    const struct layout_tensor *tensor = &assign->declared->tensors[choice->tensor];
    const struct chooser *chooser = assign->choosers[tensor->layout];
    struct choice tried = *choice;
    struct window_load least = {UINT64_MAX, UINT64_MAX};

    if (chooser->holders < 2)
        return;
    choice->parts = tried.parts = choose_parts(chooser, tensor);
    for (; tried.window < windows_of(chooser, tried.parts); tried.window++) {
        struct window_load load = window_load(assign, chooser->class, &tried);
        if (load.most > least.most || (load.most == least.most && load.sum >= least.sum))
            continue;
        least = load;
        choice->window = tried.window;
    }
    take_window(assign, tensor, choice);
}

static int larger_first(const void *a, const void *b)
{
    const struct choice *left = a, *right = b;

    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    return left->order < right->order ? -1 : 1;
}

static int by_name(const void *a, const void *b)
{
    const struct choice *left = a, *right = b;
    return left->order < right->order ? -1 : 1;
}

/* What has one holder is written by it. */
static void load_fixed(struct assign *assign)
{
    const struct layout_table *declared = assign->declared;

    for (uint32_t i = 0; i < declared->tensors_count; i++) {
        const struct layout_tensor *tensor = &declared->tensors[i];
        struct chooser *chooser = assign->choosers[tensor->layout];
        struct choice only = {.parts = 1};
        if (chooser->holders == 1 && chooser->class->kind == LAYOUT_FLAT)
            take_window(assign, tensor, &only);
        else if (chooser->holders == 1)
            chooser->fixed += dtype_bits(tensor->dtype);
    }
    for (uint32_t i = 0; i < declared->classes_count; i++) {
        struct chooser *chooser = assign->choosers[i];
        const struct layout_seat *seats = chooser->class->seats;
        for (uint32_t k = 0; chooser->fixed && k < chooser->class->seats_count; k++)
            assign->load[seats[k].rank] += chooser->elements[seats[k].item] * chooser->fixed / 8;
        chooser->fixed = 0;
    }
}

static void choose_all(struct assign *assign)
{
    const struct layout_table *declared = assign->declared;
    uint32_t count = declared->tensors_count;

    assign->choices = arena_alloc(assign->arena, count * sizeof *assign->choices);
    assign->load = arena_alloc(assign->arena, declared->world * sizeof *assign->load);
    load_fixed(assign);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t tensor = declared->by_name[i];
        assign->choices[i] =
            (struct choice){layout_tensor_bytes(&declared->tensors[tensor]), tensor, i, .parts = 1};
    }
    if (!count)
        return;
    qsort(assign->choices, count, sizeof *assign->choices, larger_first);
    for (uint32_t i = 0; i < count; i++)
        choose(assign, &assign->choices[i]);
    qsort(assign->choices, count, sizeof *assign->choices, by_name);
}

/* --- the storage table */

static uint32_t parts_log(const struct chooser *chooser, uint32_t parts)
{
    uint32_t log = 0;

    if (parts == chooser->holders)
        return PARTS_LOGS;
    while (parts >> (log + 1))
        log++;
    return log;
}

static enum status storage_layout(struct assign *assign, const struct choice *choice,
                                  struct layout_build *build, uint32_t *out, struct error *err)
{
    const struct layout_tensor *tensor = &assign->declared->tensors[choice->tensor];
    struct chooser *chooser = assign->choosers[tensor->layout];
    uint32_t unit = choice->parts > 1 ? unit_index(tensor) : 0;
    uint32_t **made = &chooser->made[unit][parts_log(chooser, choice->parts)];
    struct layout_split split = {choice->parts, window_begin(choice), unit ? 2 * unit : 1};

    if (!*made)
        *made = arena_alloc(assign->arena, windows_of(chooser, choice->parts) * sizeof **made);
    if (!(*made)[choice->window]) {
        enum status st =
            layout_split_build(&assign->declared->classes[tensor->layout], &split, build, out, err);
        if (st != STATUS_OK)
            return st;
        (*made)[choice->window] = *out + 1;
    }
    *out = (*made)[choice->window] - 1;
    return STATUS_OK;
}

static enum status build_storage(struct assign *assign, struct layout_build *build,
                                 struct error *err)
{
    const struct layout_table *declared = assign->declared;
    enum status st = STATUS_OK;

    for (uint32_t i = 0; i < declared->tensors_count && st == STATUS_OK; i++) {
        struct layout_tensor tensor = declared->tensors[assign->choices[i].tensor];
        st = storage_layout(assign, &assign->choices[i], build, &tensor.layout, err);
        if (st == STATUS_OK)
            st = layout_build_tensor(build, &tensor, err);
    }
    for (uint32_t i = 0; i < declared->aliases_count && st == STATUS_OK; i++) {
        const struct layout_alias *alias = &declared->aliases[i];
        const struct layout_tensor *tensor = &declared->tensors[alias->tensor];
        st =
            layout_build_alias(build, alias->name, alias->len, tensor->name, tensor->name_len, err);
    }
    return st;
}

enum status layout_table_assign(const struct layout_table *declared, struct layout_table **storage,
                                struct error *err)
{
    SCOPED(layout_build_destroy)
    struct layout_build *build = layout_build_create(declared->world);
    struct assign assign = {.declared = declared};
    enum status st = layout_table_check(declared, err);

    if (st != STATUS_OK)
        return st;
    assign.arena = arena_create(SIZE_MAX);
    make_choosers(&assign);
    choose_all(&assign);
    st = build_storage(&assign, build, err);
    arena_destroy(assign.arena);
    return st == STATUS_OK ? layout_build_finish(build, storage, err) : st;
}
