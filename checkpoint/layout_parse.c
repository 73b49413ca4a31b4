/* layout_parse.c - reads a table from JSON.
 *
 * "format" and "world" come first, "kind" comes first within a layout; all else in any order. */
#include "checkpoint/json_scan.h"
#include "checkpoint/layout_build.h"

#include <string.h>

/* Of the layout that is being read; the memory is used for the next one too. */
struct numbers {
    uint64_t *at;
    size_t count, cap, all; /* all: of the whole file */
};
struct ranks {
    uint32_t *at;
    size_t count, cap, all;
};
struct parse {
    struct json_scan scan;
    struct layout_build *build;
    struct error *err;
    enum status st; /* of the builder */
    struct numbers numbers;
    struct ranks ranks, cells; /* cells: where the ranks of each begin */
    uint32_t dims, counts[LAYOUT_DIMS_MAX];
};

static bool build_ok(struct parse *parse, enum status st)
{
    if (st == STATUS_OK)
        return true;
    parse->st = st;
    return json_scan_fail(&parse->scan, "refused");
}

static bool add_number(struct parse *parse, uint64_t number)
{
    struct numbers *numbers = &parse->numbers;

    if (++numbers->all > LAYOUT_NUMBERS_MAX)
        return json_scan_fail(&parse->scan, "more than %u numbers", LAYOUT_NUMBERS_MAX);
    if (numbers->count == numbers->cap) {
        numbers->cap = numbers->cap ? numbers->cap * 2 : 64;
        numbers->at = mem_resize(numbers->at, numbers->cap, sizeof *numbers->at);
    }
    numbers->at[numbers->count++] = number;
    return true;
}

static bool add_rank(struct parse *parse, struct ranks *ranks, uint32_t rank)
{
    if (++ranks->all > LAYOUT_CELLS_MAX)
        return json_scan_fail(&parse->scan, "more than %u cells or holders", LAYOUT_CELLS_MAX);
    if (ranks->count == ranks->cap) {
        ranks->cap = ranks->cap ? ranks->cap * 2 : 64;
        ranks->at = mem_resize(ranks->at, ranks->cap, sizeof *ranks->at);
    }
    ranks->at[ranks->count++] = rank;
    return true;
}

static bool scan_u32(struct parse *parse, uint32_t *out)
{
    uint64_t number;

    if (!json_scan_u64(&parse->scan, &number))
        return false;
    if (number >= UINT32_MAX)
        return json_scan_fail(&parse->scan, "a number of more than 32 bits");
    *out = (uint32_t)number;
    return true;
}

static bool scan_rank(struct parse *parse)
{
    uint32_t rank = 0;

    return scan_u32(parse, &rank) && add_rank(parse, &parse->ranks, rank);
}

/* An array of numbers into numbers; *count: how many. */
static bool scan_numbers(struct parse *parse, size_t *count)
{
    size_t before = parse->numbers.count;
    uint64_t number;

    if (!json_scan_array(&parse->scan))
        return false;
    while (json_scan_item(&parse->scan)) {
        if (!json_scan_u64(&parse->scan, &number) || !add_number(parse, number))
            return false;
    }
    *count = parse->numbers.count - before;
    return !parse->scan.failed;
}

/* --- layouts */

static bool scan_cuts(struct parse *parse)
{
    if (!json_scan_array(&parse->scan))
        return false;
    while (json_scan_item(&parse->scan)) {
        size_t count;
        if (parse->dims == LAYOUT_DIMS_MAX)
            return json_scan_fail(&parse->scan, "more than %d dimensions", LAYOUT_DIMS_MAX);
        if (!scan_numbers(parse, &count))
            return false;
        parse->counts[parse->dims++] = (uint32_t)count;
    }
    return !parse->scan.failed;
}

static bool scan_cells(struct parse *parse)
{
    if (!json_scan_array(&parse->scan) || !add_rank(parse, &parse->cells, 0))
        return false;
    while (json_scan_item(&parse->scan)) {
        if (!json_scan_array(&parse->scan))
            return false;
        while (json_scan_item(&parse->scan))
            if (!scan_rank(parse))
                return false;
        if (!add_rank(parse, &parse->cells, (uint32_t)parse->ranks.count))
            return false;
    }
    return !parse->scan.failed;
}

/* How many ranks-lists the cuts ask for; 0: more than there can be. */
static uint64_t cells_of(const struct parse *parse)
{
    uint64_t cells = 1;

    for (uint32_t d = 0; d < parse->dims; d++) {
        if (parse->counts[d] < 2 || __builtin_mul_overflow(cells, parse->counts[d] - 1, &cells))
            return 0;
    }
    return cells;
}

static bool build_grid(struct parse *parse)
{
    struct layout_grid grid = {.dims = parse->dims};
    const uint64_t *cuts = parse->numbers.at;
    uint32_t index;

    if (cells_of(parse) != parse->cells.count - 1)
        return json_scan_fail(&parse->scan, "the cuts make another number of cells");
    for (uint32_t d = 0; d < parse->dims; cuts += parse->counts[d++]) {
        grid.cuts[d] = cuts;
        grid.counts[d] = parse->counts[d];
    }
    grid.ranks_at = parse->cells.at;
    grid.ranks = parse->ranks.at;
    return build_ok(parse, layout_build_grid(parse->build, &grid, &index, parse->err));
}

static bool scan_box(struct parse *parse, bool first)
{
    size_t offsets, sizes;

    if (!json_scan_array(&parse->scan) || !json_scan_item(&parse->scan) || !scan_rank(parse) ||
        !json_scan_item(&parse->scan) || !scan_numbers(parse, &offsets) ||
        !json_scan_item(&parse->scan) || !scan_numbers(parse, &sizes) ||
        json_scan_item(&parse->scan))
        return json_scan_fail(&parse->scan, "a box is [rank,[offsets],[sizes]]");
    if (first)
        parse->dims = offsets > LAYOUT_DIMS_MAX ? LAYOUT_DIMS_MAX : (uint32_t)offsets;
    if (offsets != parse->dims || sizes != parse->dims)
        return json_scan_fail(&parse->scan, "boxes of different dimensions");
    return !parse->scan.failed;
}

static bool scan_range(struct parse *parse)
{
    uint64_t begin = 0, end = 0;

    if (!json_scan_array(&parse->scan) || !json_scan_item(&parse->scan) || !scan_rank(parse) ||
        !json_scan_item(&parse->scan) || !json_scan_u64(&parse->scan, &begin) ||
        !json_scan_item(&parse->scan) || !json_scan_u64(&parse->scan, &end) ||
        json_scan_item(&parse->scan))
        return json_scan_fail(&parse->scan, "a range is [rank,begin,end]");
    return !parse->scan.failed && add_number(parse, begin) && add_number(parse, end);
}

static bool scan_parts(struct parse *parse, bool flat)
{
    if (!json_scan_array(&parse->scan))
        return false;
    while (json_scan_item(&parse->scan))
        if (!(flat ? scan_range(parse) : scan_box(parse, parse->ranks.count == 0)))
            return false;
    return !parse->scan.failed;
}

static bool build_parts(struct parse *parse, bool flat)
{
    struct layout_flat ranges = {parse->ranks.count, parse->ranks.at, parse->numbers.at};
    struct layout_boxes boxes = {parse->dims, parse->ranks.count, parse->ranks.at,
                                 parse->numbers.at};
    uint32_t index;

    return build_ok(parse, flat ? layout_build_flat(parse->build, &ranges, &index, parse->err)
                                : layout_build_boxes(parse->build, &boxes, &index, parse->err));
}

static bool scan_layout(struct parse *parse)
{
    struct json_scan *scan = &parse->scan;
    const char *key, *kind;
    size_t len, kind_len;
    bool has_cuts = false, has_ranks = false, has_parts = false;

    parse->numbers.count = parse->ranks.count = parse->cells.count = 0;
    parse->dims = 0;
    if (!json_scan_object(scan) || !json_scan_key(scan, &key, &len) ||
        !json_scan_is(key, len, "kind") || !json_scan_string(scan, &kind, &kind_len))
        return json_scan_fail(scan, "a layout begins with its kind");
    bool grid = json_scan_is(kind, kind_len, "grid"), flat = json_scan_is(kind, kind_len, "flat");
    if (!grid && !flat && !json_scan_is(kind, kind_len, "boxes"))
        return json_scan_fail(scan, "an unknown kind of layout");
    while (json_scan_key(scan, &key, &len)) {
        if (grid && !has_cuts && json_scan_is(key, len, "cuts"))
            has_cuts = scan_cuts(parse);
        else if (grid && !has_ranks && json_scan_is(key, len, "ranks"))
            has_ranks = scan_cells(parse);
        else if (!grid && !has_parts && json_scan_is(key, len, flat ? "ranges" : "boxes"))
            has_parts = scan_parts(parse, flat);
        else
            return json_scan_fail(scan, "an unknown or repeated key");
        if (scan->failed)
            return false;
    }
    if (grid ? !has_cuts || !has_ranks : !has_parts)
        return json_scan_fail(scan, "a layout lacks its numbers");
    return grid ? build_grid(parse) : build_parts(parse, flat);
}

/* --- tensors and aliases */

static bool scan_tensor(struct parse *parse)
{
    struct json_scan *scan = &parse->scan;
    struct layout_tensor tensor = {0};
    const char *dtype;
    size_t dtype_len, dims;

    parse->numbers.count = 0;
    if (!json_scan_array(scan) || !json_scan_item(scan) ||
        !json_scan_string(scan, &tensor.name, &tensor.name_len) || !json_scan_item(scan) ||
        !json_scan_string(scan, &dtype, &dtype_len) || !json_scan_item(scan) ||
        !scan_numbers(parse, &dims) || !json_scan_item(scan) || !scan_u32(parse, &tensor.layout) ||
        json_scan_item(scan))
        return json_scan_fail(scan, "a tensor is [name,dtype,[shape],layout]");
    if (scan->failed)
        return false;
    if (!dtype_find(dtype, dtype_len, &tensor.dtype))
        return json_scan_fail(scan, "an unknown dtype");
    if (dims > LAYOUT_DIMS_MAX)
        return json_scan_fail(scan, "more than %d dimensions", LAYOUT_DIMS_MAX);
    tensor.dims = (uint32_t)dims;
    for (size_t d = 0; d < dims; d++)
        tensor.shape[d] = parse->numbers.at[d];
    return build_ok(parse, layout_build_tensor(parse->build, &tensor, parse->err));
}

static bool scan_aliases(struct parse *parse)
{
    struct json_scan *scan = &parse->scan;
    const char *name, *tensor;
    size_t len, tensor_len;

    if (!json_scan_object(scan))
        return false;
    while (json_scan_key(scan, &name, &len))
        if (!json_scan_string(scan, &tensor, &tensor_len) ||
            !build_ok(parse,
                      layout_build_alias(parse->build, name, len, tensor, tensor_len, parse->err)))
            return false;
    return !scan->failed;
}

static bool scan_list(struct parse *parse, bool (*scan_one)(struct parse *parse))
{
    if (!json_scan_array(&parse->scan))
        return false;
    while (json_scan_item(&parse->scan))
        if (!scan_one(parse))
            return false;
    return !parse->scan.failed;
}

/* --- the whole */

static bool scan_head(struct parse *parse)
{
    struct json_scan *scan = &parse->scan;
    const char *key, *format;
    size_t len, format_len;
    uint32_t world = 0;

    if (!json_scan_object(scan) || !json_scan_key(scan, &key, &len) ||
        !json_scan_is(key, len, "format") || !json_scan_string(scan, &format, &format_len) ||
        !json_scan_is(format, format_len, LAYOUT_FORMAT))
        return json_scan_fail(scan, "it does not begin with the format " LAYOUT_FORMAT);
    if (!json_scan_key(scan, &key, &len) || !json_scan_is(key, len, "world") ||
        !scan_u32(parse, &world))
        return json_scan_fail(scan, "the world is expected here");
    parse->build = layout_build_create(world);
    return true;
}

static void scan_body(struct parse *parse)
{
    struct json_scan *scan = &parse->scan;
    bool layouts = false, tensors = false, aliases = false;
    const char *key;
    size_t len;

    while (json_scan_key(scan, &key, &len)) {
        if (!layouts && json_scan_is(key, len, "layouts"))
            layouts = scan_list(parse, scan_layout);
        else if (!tensors && json_scan_is(key, len, "tensors"))
            tensors = scan_list(parse, scan_tensor);
        else if (!aliases && json_scan_is(key, len, "aliases"))
            aliases = scan_aliases(parse);
        else
            (void)json_scan_fail(scan, "an unknown or repeated key");
        if (scan->failed)
            return;
    }
    if (!layouts || !tensors || !aliases)
        (void)json_scan_fail(scan, "layouts, tensors or aliases are not there");
}

static enum status finish(struct parse *parse, struct layout_table **out)
{
    struct error at;
    enum status st = json_scan_end(&parse->scan, &at);

    if (parse->st != STATUS_OK) /* the builder said why */
        return parse->err
                   ? error_wrap(parse->err, "%.*s", (int)(strchr(at.text, ':') - at.text), at.text)
                   : parse->st;
    if (st != STATUS_OK)
        return error_set(parse->err, st, "%s", at.text);
    return layout_build_finish(parse->build, out, parse->err);
}

enum status layout_table_parse(const void *json, size_t len, struct layout_table **out,
                               struct error *err)
{
    struct parse parse = {.err = err};

    if (len > LAYOUT_BYTES_MAX)
        return error_set(err, STATUS_INVALID, "a layout of %zu bytes: %zu are allowed", len,
                         LAYOUT_BYTES_MAX);
    struct arena *arena = arena_create(SIZE_MAX);
    json_scan_init(&parse.scan, json, len, arena);
    if (scan_head(&parse))
        scan_body(&parse);
    enum status st = finish(&parse, out);
    layout_build_destroy(parse.build);
    arena_destroy(arena);
    mem_free(parse.numbers.at);
    mem_free(parse.ranks.at);
    mem_free(parse.cells.at);
    return st;
}
