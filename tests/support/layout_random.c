/* layout_random.c - see layout_random.h. */
#include "tests/support/layout_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUTS_MAX  24
#define PARTS_MAX 256

uint64_t layout_random_next(struct layout_random *random)
{
    uint64_t mixed = random->state += 0x9e3779b97f4a7c15u;

    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return mixed ^ mixed >> 31;
}

uint64_t layout_random_below(struct layout_random *random, uint64_t below)
{
    return layout_random_next(random) % below;
}

static void must(enum status st, const struct error *err)
{
    if (st == STATUS_OK)
        return;
    (void)fprintf(stderr, "layout_random: %s\n", err->text);
    abort();
}

void layout_random_tensors(struct layout_random *random, struct layout_tensor *out, size_t count,
                           char *names)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16};

    for (size_t i = 0; i < count; i++, out++, names += 8) {
        bool like_last = i > 0 && layout_random_below(random, 3) == 0;
        *out = like_last ? out[-1] : (struct layout_tensor){0};
        out->name = names;
        out->name_len = (size_t)snprintf(names, 8, "t%zu", i % 100000);
        if (like_last) { /* may share its layout and its plan */
            out->dtype = layout_random_below(random, 2) ? out->dtype : DTYPE_F64;
            continue;
        }
        out->dims = (uint32_t)layout_random_below(random, 6);
        out->dtype = (enum dtype)layout_random_below(random, DTYPE_COUNT);
        for (uint32_t d = 0; d < out->dims; d++) {
            uint64_t most = out->dims > 3 ? 5 : sizeof sizes / sizeof *sizes;
            out->shape[d] = sizes[layout_random_below(random, most)];
            if (layout_random_below(random, 30) == 0)
                out->shape[d] = 0;
        }
        if (layout_tensor_elements(out) * dtype_bits(out->dtype) % 8 == 0)
            continue;
        if (out->dims && layout_random_below(random, 2))
            out->shape[out->dims - 1] *= 4;
        else
            out->dtype = DTYPE_BF16;
    }
}

/* --- one layout */

struct made {
    struct layout_random *random;
    struct layout_build *build;
    uint32_t world;
    const struct layout_tensor *tensor;
    uint64_t unit; /* elements that are whole bytes, along the last dim */
    bool single;
    uint32_t ranks[PARTS_MAX];
    uint64_t numbers[PARTS_MAX * 2 * LAYOUT_DIMS_MAX];
    size_t parts;
};

static uint32_t below(const struct made *made, uint64_t limit)
{
    return (uint32_t)layout_random_below(made->random, limit);
}

static int number_order(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* Cuts 0..size in steps of unit, into parts by one of the rules. */
static uint32_t make_cuts(const struct made *made, uint64_t size, uint64_t unit, uint32_t parts,
                          uint64_t *cuts)
{
    uint64_t units = size / unit, chunk = (units + parts - 1) / parts;
    uint32_t rule = below(made, 3);

    for (uint32_t i = 0; i <= parts; i++) {
        uint64_t at = rule == 0   ? i * chunk
                      : rule == 1 ? i * (units / parts) + (i < units % parts ? i : units % parts)
                                  : layout_random_below(made->random, units + 1);
        cuts[i] = (at < units ? at : units) * unit;
    }
    cuts[0] = 0;
    cuts[parts] = size;
    qsort(cuts, parts + 1, sizeof *cuts, number_order);
    return parts + 1;
}

static uint64_t unit_of(const struct made *made, uint32_t dim)
{
    return dim + 1 == made->tensor->dims ? made->unit : 1;
}

static bool may_cut(const struct made *made)
{
    const struct layout_tensor *tensor = made->tensor;
    return made->unit == 1 || (tensor->dims && tensor->shape[tensor->dims - 1] % made->unit == 0);
}

/* Holders of each cell: distinct ranks, one to several. */
static void seat_cells(const struct made *made, uint32_t cells, uint32_t *at, uint32_t *ranks)
{
    uint32_t first = below(made, made->world);
    uint32_t most = made->single ? 1 : made->world < 4 ? made->world : 4;
    uint32_t even = below(made, 2) ? 1 + below(made, most) : 0;

    at[0] = 0;
    for (uint32_t cell = 0; cell < cells; cell++) {
        uint32_t count = even ? even : 1 + below(made, most);
        for (uint32_t i = 0; i < count; i++)
            ranks[at[cell] + i] = (first + cell + i * (made->world / count)) % made->world;
        at[cell + 1] = at[cell] + count;
    }
}

static uint32_t make_grid(struct made *made)
{
    uint64_t cuts[LAYOUT_DIMS_MAX][CUTS_MAX];
    uint32_t at[PARTS_MAX + 1], ranks[4 * PARTS_MAX], cells = 1, out = 0;
    struct layout_grid grid = {.dims = made->tensor->dims, .ranks_at = at, .ranks = ranks};
    struct error err;

    for (uint32_t d = 0; d < grid.dims; d++) {
        uint32_t parts = 1 + (may_cut(made) && below(made, 2) ? below(made, 9) : 0);
        if (cells * parts > PARTS_MAX)
            parts = 1;
        grid.counts[d] =
            made->tensor->shape[d] % unit_of(made, d) == 0
                ? make_cuts(made, made->tensor->shape[d], unit_of(made, d), parts, cuts[d])
                : make_cuts(made, made->tensor->shape[d], 1, parts = 1, cuts[d]);
        grid.cuts[d] = cuts[d];
        cells *= parts;
    }
    seat_cells(made, cells, at, ranks);
    must(layout_build_grid(made->build, &grid, &out, &err), &err);
    return out;
}

/* Fused projections: blocks along one dim, each cut for all ranks: a rank has a piece of each. */
static uint32_t make_fused(struct made *made)
{
    uint32_t dim = below(made, made->tensor->dims), blocks = 1 + below(made, 3), out = 0;
    uint32_t each = 1 + below(made, made->world < 6 ? made->world : 6);
    uint64_t outer[CUTS_MAX], cuts[CUTS_MAX + 1], plain[LAYOUT_DIMS_MAX][2];
    uint32_t at[PARTS_MAX + 1], ranks[PARTS_MAX], cells = blocks * each;
    struct layout_grid grid = {.dims = made->tensor->dims, .ranks_at = at, .ranks = ranks};
    struct error err;

    (void)make_cuts(made, made->tensor->shape[dim], unit_of(made, dim), blocks, outer);
    for (uint32_t i = 0; i < blocks; i++) {
        uint64_t inner[CUTS_MAX];
        (void)make_cuts(made, outer[i + 1] - outer[i], unit_of(made, dim), each, inner);
        for (uint32_t k = 0; k <= each; k++)
            cuts[i * each + k] = outer[i] + inner[k];
    }
    for (uint32_t d = 0; d < grid.dims; d++) {
        plain[d][0] = 0;
        plain[d][1] = made->tensor->shape[d];
        grid.cuts[d] = d == dim ? cuts : plain[d];
        grid.counts[d] = d == dim ? cells + 1 : 2;
    }
    for (uint32_t i = 0; i <= cells; i++) {
        at[i] = i;
        ranks[i % cells] = i % cells % each;
    }
    must(layout_build_grid(made->build, &grid, &out, &err), &err);
    return out;
}

static void add_part(struct made *made, uint32_t rank, const uint64_t *numbers, size_t count)
{
    if (made->parts == PARTS_MAX)
        abort();
    made->ranks[made->parts] = rank;
    memcpy(made->numbers + made->parts++ * count, numbers, count * sizeof *numbers);
}

/* FSDP: everybody the same share of what is padded to a multiple; or ragged, or in turns. */
static uint32_t make_flat(struct made *made)
{
    uint64_t elements = layout_tensor_elements(made->tensor), cuts[CUTS_MAX];
    uint32_t parts = made->world, out = 0;
    uint64_t share = (elements + parts - 1) / parts;
    bool ragged = below(made, 2) && elements % made->unit == 0;
    struct error err;

    share = (share + made->unit - 1) / made->unit * made->unit;
    if (ragged)
        parts = make_cuts(made, elements, made->unit, 1 + below(made, 20), cuts) - 1;
    made->parts = 0;
    for (uint32_t i = 0; i < parts; i++) {
        uint64_t range[2] = {ragged ? cuts[i] : i * share, ragged ? cuts[i + 1] : (i + 1) * share};
        uint32_t rank = ragged ? below(made, made->world) : i;
        add_part(made, rank, range, 2);
        if (!made->single && made->world > 1 && below(made, 4) == 0)
            add_part(made, (rank + 1) % made->world, range, 2);
    }
    struct layout_flat flat = {made->parts, made->ranks, made->numbers};
    must(layout_build_flat(made->build, &flat, &out, &err), &err);
    return out;
}

/* Cuts a box in two until it is small or luck ends. */
static void cut_box(struct made *made, const uint64_t *box, uint32_t depth)
{
    uint32_t dims = made->tensor->dims, dim = dims ? below(made, dims) : 0;
    uint64_t unit = dims ? unit_of(made, dim) : 1, size = dims ? box[dims + dim] / unit : 0;

    if (depth == 0 || size < 2 || !may_cut(made) || below(made, 6) == 0) {
        uint32_t rank = below(made, made->world);
        add_part(made, rank, box, 2 * (size_t)dims);
        if (!made->single && made->world > 1 && below(made, 3) == 0)
            add_part(made, (rank + 1) % made->world, box, 2 * (size_t)dims);
        return;
    }
    uint64_t half[2 * LAYOUT_DIMS_MAX], first = (1 + below(made, size - 1)) * unit;
    memcpy(half, box, 2 * (size_t)dims * sizeof *half);
    half[dims + dim] = first;
    cut_box(made, half, depth - 1);
    half[dim] = box[dim] + first;
    half[dims + dim] = box[dims + dim] - first;
    cut_box(made, half, depth - 1);
}

static uint32_t make_boxes(struct made *made)
{
    uint64_t whole[2 * LAYOUT_DIMS_MAX] = {0};
    uint32_t dims = made->tensor->dims, out = 0;
    struct layout_boxes boxes = {dims, 0, made->ranks, made->numbers};
    struct error err;

    for (uint32_t d = 0; d < dims; d++)
        whole[dims + d] = made->tensor->shape[d];
    made->parts = 0;
    cut_box(made, whole, 6);
    boxes.count = made->parts;
    must(layout_build_boxes(made->build, &boxes, &out, &err), &err);
    return out;
}

/* A layout that was made for whole bytes of the one tensor fits the other. */
static bool may_share(const struct layout_tensor *tensor, const struct layout_tensor *last)
{
    uint32_t bits = dtype_bits(tensor->dtype);
    return (bits % 8 == 0 || bits == dtype_bits(last->dtype)) && tensor->dims == last->dims &&
           memcmp(tensor->shape, last->shape, tensor->dims * sizeof *tensor->shape) == 0;
}

static uint32_t make_layout(struct made *made)
{
    const struct layout_tensor *tensor = made->tensor;
    uint64_t elements = layout_tensor_elements(tensor);

    switch (below(made, 4)) {
    case 0:
        return may_cut(made) ? make_flat(made) : make_grid(made);
    case 1:
        return elements ? make_boxes(made) : make_grid(made);
    case 2:
        return elements && tensor->dims && may_cut(made) ? make_fused(made) : make_grid(made);
    default:
        return make_grid(made);
    }
}

struct layout_table *layout_random_table(struct layout_random *random, uint32_t world,
                                         const struct layout_tensor *tensors, size_t count,
                                         bool single)
{
    struct made *made = NEW(struct made);
    struct layout_table *table = NULL;
    uint32_t last = 0;
    struct error err;

    *made = (struct made){random, layout_build_create(world), world, .single = single};
    for (size_t i = 0; i < count; i++) {
        struct layout_tensor tensor = tensors[i];
        uint32_t bits = dtype_bits(tensor.dtype);
        made->tensor = &tensor;
        made->unit = bits == 4 ? 2 : bits == 6 ? 4 : 1;
        bool shares = i && may_share(&tensor, &tensors[i - 1]) && below(made, 4);
        last = tensor.layout = shares ? last : make_layout(made);
        must(layout_build_tensor(made->build, &tensor, &err), &err);
    }
    must(layout_build_finish(made->build, &table, &err), &err);
    layout_build_destroy(made->build);
    mem_free(made);
    return table;
}

/* --- bytes */

static uint8_t byte_at(uint32_t number, uint64_t at)
{
    struct layout_random random = {at * 0x100000001b3u + number * 0x9e3779b1u};
    return (uint8_t)layout_random_next(&random);
}

/* The first element of a row of the box, in the row-major order of the tensor. */
static uint64_t row_place(const struct layout_tensor *tensor, const struct layout_box *box,
                          uint64_t row)
{
    uint64_t place = 0, step = 1;

    for (uint32_t d = tensor->dims; d-- > 0;) {
        bool is_row = d + 1 == tensor->dims;
        place += (box->offset[d] + (is_row ? 0 : row % box->size[d])) * step;
        step *= tensor->shape[d];
        row = is_row ? row : row / box->size[d];
    }
    return place;
}

void layout_random_fill(const struct layout_tensor *tensor, uint32_t number,
                        const struct layout_box *box, uint8_t *out)
{
    uint64_t bits = dtype_bits(tensor->dtype), bytes = layout_box_bytes(box, tensor);
    bool whole = bytes == layout_tensor_bytes(tensor); /* its rows may be no whole bytes */
    uint64_t row = whole ? bytes : box->size[tensor->dims - 1] * bits / 8;

    for (uint64_t at = 0; at < bytes; at += row) {
        uint64_t place = whole ? 0 : row_place(tensor, box, at / row);
        for (uint64_t i = 0; i < row; i++)
            out[at + i] = byte_at(number, place * bits / 8 + i);
    }
}
