/* layout_build.c - see layout_build.h. */
#include "checkpoint/layout_build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/layout_table.h"

struct alias_raw {
    const char *name, *tensor;
    size_t len, tensor_len;
};
struct layout_build {
    struct layout_table *table; /* grows; what its arena holds stays */
    uint32_t classes_cap, tensors_cap, aliases_cap;
    struct alias_raw *aliases;
    size_t cells, holders, numbers; /* so far */
};

struct layout_build *layout_build_create(uint32_t world)
{
    struct layout_build *build = NEW(struct layout_build);

    build->table = NEW(struct layout_table);
    build->table->arena = arena_create(SIZE_MAX);
    build->table->world = world;
    return build;
}

void layout_build_destroy(struct layout_build *build)
{
    if (!build)
        return;
    layout_table_destroy(build->table);
    mem_free(build->aliases);
    mem_free(build);
}

/* The array with room for one more. */
static void *grown(void *array, uint32_t count, uint32_t *cap, size_t size)
{
    if (count < *cap)
        return array;
    *cap = *cap ? *cap * 2 : 16;
    return mem_resize(array, *cap, size);
}

/* --- layouts */

/* What the parser would not read again is not made. */
static enum status count_class(struct layout_build *build, const struct layout_class *class,
                               struct error *err)
{
    bool grid = class->kind == LAYOUT_GRID, flat = class->kind == LAYOUT_FLAT;

    build->cells += grid ? (size_t) class->items + 1 : 0;
    build->holders += class->seats_count;
    if (grid)
        build->numbers += class->cuts_at[class->dims];
    else if (class->seats_count)
        build->numbers += 2 * (size_t) class->seats_count * (flat ? 1 : class->dims);
    if (build->cells > LAYOUT_CELLS_MAX || build->holders > LAYOUT_CELLS_MAX ||
        build->numbers > LAYOUT_NUMBERS_MAX)
        return error_set(err, STATUS_EXHAUSTED, "more than %u cells or holders, or %u numbers",
                         LAYOUT_CELLS_MAX, LAYOUT_NUMBERS_MAX);
    return STATUS_OK;
}

static enum status add_class(struct layout_build *build, enum status st,
                             const struct layout_class *class, uint32_t *out, struct error *err)
{
    struct layout_table *table = build->table;

    if (st == STATUS_OK)
        st = count_class(build, class, err);
    if (st != STATUS_OK)
        return err ? error_wrap(err, "layout %" PRIu32, table->classes_count) : st;
    if (table->classes_count >= LAYOUT_CLASSES_MAX)
        return error_set(err, STATUS_INVALID, "more than %u layouts", LAYOUT_CLASSES_MAX);
    table->classes =
        grown(table->classes, table->classes_count, &build->classes_cap, sizeof *table->classes);
    table->classes[table->classes_count] = *class;
    *out = table->classes_count++;
    return STATUS_OK;
}

enum status layout_build_grid(struct layout_build *build, const struct layout_grid *grid,
                              uint32_t *out, struct error *err)
{
    struct layout_class class;
    enum status st = layout_class_grid(build->table->arena, build->table->world, grid, &class, err);

    return add_class(build, st, &class, out, err);
}

enum status layout_build_boxes(struct layout_build *build, const struct layout_boxes *boxes,
                               uint32_t *out, struct error *err)
{
    struct layout_class class;
    enum status st =
        layout_class_boxes(build->table->arena, build->table->world, boxes, &class, err);

    return add_class(build, st, &class, out, err);
}

enum status layout_build_flat(struct layout_build *build, const struct layout_flat *flat,
                              uint32_t *out, struct error *err)
{
    struct layout_class class;
    enum status st = layout_class_flat(build->table->arena, build->table->world, flat, &class, err);

    return add_class(build, st, &class, out, err);
}

/* --- tensors */

static char *copy_name(struct layout_build *build, const char *name, size_t len)
{
    char *made = arena_alloc(build->table->arena, len + 1);
    memcpy(made, name, len);
    return made;
}

static enum status check_name(const char *name, size_t len, struct error *err)
{
    char shown[LAYOUT_SHOWN];

    if (len == 0 || len > LAYOUT_NAME_MAX)
        return error_set(err, STATUS_INVALID, "a name of %zu bytes: 1 to %u are allowed", len,
                         LAYOUT_NAME_MAX);
    if (!text_is_utf8(name, len))
        return error_set(err, STATUS_INVALID, "a name is not UTF-8 without NUL");
    if (len == strlen("__metadata__") && memcmp(name, "__metadata__", len) == 0)
        return error_set(err, STATUS_INVALID, "tensor %s: safetensors keeps that name for itself",
                         layout_name_shown(name, len, shown));
    return STATUS_OK;
}

static enum status check_size(const struct layout_tensor *tensor, struct error *err)
{
    uint64_t bits = dtype_bits(tensor->dtype);

    for (uint32_t d = 0; d < tensor->dims; d++)
        if (tensor->shape[d] == 0)
            return STATUS_OK;
    for (uint32_t d = 0; d < tensor->dims; d++)
        if (__builtin_mul_overflow(bits, tensor->shape[d], &bits) || bits > INT64_MAX)
            return error_set(err, STATUS_INVALID, "more than 2^60 bytes");
    if (bits % 8 != 0)
        return error_set(err, STATUS_INVALID, "%" PRIu64 " bits are no whole bytes", bits);
    return STATUS_OK;
}

static enum status bad_tensor(const struct layout_tensor *tensor, struct error *err)
{
    char shown[LAYOUT_SHOWN];
    return error_wrap(err, "tensor %s", layout_name_shown(tensor->name, tensor->name_len, shown));
}

enum status layout_build_tensor(struct layout_build *build, const struct layout_tensor *tensor,
                                struct error *err)
{
    struct layout_table *table = build->table;
    enum status st = check_name(tensor->name, tensor->name_len, err);

    if (st != STATUS_OK)
        return st;
    build->numbers += tensor->dims; /* counted with the layouts' */
    if (table->tensors_count >= LAYOUT_TENSORS_MAX)
        return error_set(err, STATUS_INVALID, "more than %u tensors", LAYOUT_TENSORS_MAX);
    if (tensor->dtype >= DTYPE_COUNT || tensor->dims > LAYOUT_DIMS_MAX)
        st = error_set(err, STATUS_INVALID, "%" PRIu32 " dimensions of dtype %d", tensor->dims,
                       (int)tensor->dtype);
    else
        st = check_size(tensor, err);
    if (st != STATUS_OK)
        return err ? bad_tensor(tensor, err) : st;
    table->tensors =
        grown(table->tensors, table->tensors_count, &build->tensors_cap, sizeof *table->tensors);
    struct layout_tensor *made = &table->tensors[table->tensors_count++];
    *made = *tensor;
    made->name = copy_name(build, tensor->name, tensor->name_len);
    for (uint32_t d = tensor->dims; d < LAYOUT_DIMS_MAX; d++)
        made->shape[d] = 0; /* shapes are compared as a whole */
    return STATUS_OK;
}

enum status layout_build_alias(struct layout_build *build, const char *name, size_t len,
                               const char *tensor, size_t tensor_len, struct error *err)
{
    struct layout_table *table = build->table;
    enum status st = check_name(name, len, err);

    if (st == STATUS_OK)
        st = check_name(tensor, tensor_len, err);
    if (st != STATUS_OK)
        return st;
    if (table->aliases_count >= LAYOUT_TENSORS_MAX)
        return error_set(err, STATUS_INVALID, "more than %u aliases", LAYOUT_TENSORS_MAX);
    build->aliases =
        grown(build->aliases, table->aliases_count, &build->aliases_cap, sizeof *build->aliases);
    build->aliases[table->aliases_count++] = (struct alias_raw){
        copy_name(build, name, len), copy_name(build, tensor, tensor_len), len, tensor_len};
    return STATUS_OK;
}

/* --- the whole */

static enum status check_bytes_of_range(const struct layout_class *class,
                                        const struct layout_tensor *tensor, struct error *err)
{
    uint64_t bits = dtype_bits(tensor->dtype), elements = layout_tensor_elements(tensor);

    for (uint32_t i = 0; i < class->items; i++) {
        uint64_t begin = class->corners[2 * (size_t)i], end = class->corners[2 * (size_t)i + 1];
        if (begin > elements)
            begin = elements;
        if (end > elements)
            end = elements;
        if (begin == end || (begin == 0 && end == elements))
            continue;
        if (layout_tensor_unit(tensor) == 0 || begin * bits % 8 != 0 || end * bits % 8 != 0)
            return error_set(err, STATUS_INVALID, "range %" PRIu64 ":%" PRIu64 " cuts a byte",
                             begin, end);
    }
    return STATUS_OK;
}

/* Elements of less than a byte are cut along the last dim, at whole bytes, or not at all. */
static enum status check_bytes(const struct layout_class *class, const struct layout_tensor *tensor,
                               struct error *err)
{
    uint64_t bits = dtype_bits(tensor->dtype);
    struct layout_box box;

    if (bits % 8 == 0 || layout_tensor_elements(tensor) == 0)
        return STATUS_OK;
    if (class->kind == LAYOUT_FLAT)
        return check_bytes_of_range(class, tensor, err);
    if (layout_tensor_unit(tensor) > 0 && class->unit % 8 * bits % 8 == 0)
        return STATUS_OK;
    for (uint32_t i = 0; i < class->items; i++)
        if (layout_class_box(class, i, &box) &&
            memcmp(box.size, tensor->shape, tensor->dims * sizeof *box.size) != 0)
            return error_set(err, STATUS_INVALID, "a cut lies within a byte of %s",
                             dtype_name(tensor->dtype));
    return STATUS_OK;
}

static enum status check_fit(const struct layout_table *table, const struct layout_tensor *tensor,
                             struct error *err)
{
    if (tensor->layout >= table->classes_count)
        return error_set(err, STATUS_INVALID, "there is no layout %" PRIu32, tensor->layout);
    const struct layout_class *class = &table->classes[tensor->layout];
    if (class->kind == LAYOUT_FLAT)
        return check_bytes(class, tensor, err);
    if (class->dims == LAYOUT_DIMS_ANY)
        return STATUS_OK;
    if (class->dims != tensor->dims)
        return error_set(err, STATUS_INVALID,
                         "%" PRIu32 " dimensions, but %" PRIu32 " in layout %" PRIu32, tensor->dims,
                         class->dims, tensor->layout);
    for (uint32_t d = 0; d < tensor->dims; d++) {
        bool exact = class->kind == LAYOUT_GRID;
        if (exact ? class->extent[d] != tensor->shape[d] : class->extent[d] > tensor->shape[d])
            return error_set(err, STATUS_INVALID,
                             "out of bounds: layout %" PRIu32 " ends at %" PRIu64
                             " on dimension %" PRIu32 " of size %" PRIu64,
                             tensor->layout, class->extent[d], d, tensor->shape[d]);
    }
    return check_bytes(class, tensor, err);
}

static int tensor_order(const void *a, const void *b, void *arg)
{
    const struct layout_tensor *tensors = arg, *left = &tensors[*(const uint32_t *)a],
                               *right = &tensors[*(const uint32_t *)b];
    return text_order(left->name, left->name_len, right->name, right->name_len);
}

static enum status index_names(struct layout_table *table, struct error *err)
{
    char shown[LAYOUT_SHOWN];
    uint32_t sorted = 1;

    table->by_name = arena_alloc(table->arena, table->tensors_count * sizeof *table->by_name);
    for (uint32_t i = 0; i < table->tensors_count; i++)
        table->by_name[i] = i;
    while (sorted < table->tensors_count &&
           tensor_order(&table->by_name[sorted - 1], &table->by_name[sorted], table->tensors) < 0)
        sorted++;
    if (sorted >= table->tensors_count)
        return STATUS_OK;
    qsort_r(table->by_name, table->tensors_count, sizeof *table->by_name, tensor_order,
            table->tensors);
    for (uint32_t i = 1; i < table->tensors_count; i++) {
        const struct layout_tensor *tensor = &table->tensors[table->by_name[i]];
        if (tensor_order(&table->by_name[i - 1], &table->by_name[i], table->tensors) == 0)
            return error_set(err, STATUS_INVALID, "tensor %s is there twice",
                             layout_name_shown(tensor->name, tensor->name_len, shown));
    }
    return STATUS_OK;
}

static int alias_order(const void *a, const void *b)
{
    const struct layout_alias *left = a, *right = b;
    return text_order(left->name, left->len, right->name, right->len);
}

static enum status finish_aliases(const struct alias_raw *raw, struct layout_table *table,
                                  struct error *err)
{
    uint32_t count = table->aliases_count;
    char shown[LAYOUT_SHOWN];

    table->aliases_count = 0; /* so that tensors alone are found */
    table->aliases = arena_alloc(table->arena, count * sizeof *table->aliases);
    for (uint32_t i = 0; i < count; i++) {
        size_t tensor;
        if (!layout_table_find(table, raw[i].tensor, raw[i].tensor_len, &tensor))
            return error_set(err, STATUS_INVALID, "alias of %s: there is no such tensor",
                             layout_name_shown(raw[i].tensor, raw[i].tensor_len, shown));
        table->aliases[i] = (struct layout_alias){raw[i].name, raw[i].len, (uint32_t)tensor};
        if (layout_table_find(table, raw[i].name, raw[i].len, &tensor))
            return error_set(err, STATUS_INVALID, "alias %s is a tensor too",
                             layout_name_shown(raw[i].name, raw[i].len, shown));
    }
    if (count)
        qsort(table->aliases, count, sizeof *table->aliases, alias_order);
    for (uint32_t i = 1; i < count; i++)
        if (alias_order(&table->aliases[i - 1], &table->aliases[i]) == 0)
            return error_set(
                err, STATUS_INVALID, "alias %s is there twice",
                layout_name_shown(table->aliases[i].name, table->aliases[i].len, shown));
    table->aliases_count = count;
    return STATUS_OK;
}

static enum status make_digest(struct layout_table *table, struct error *err)
{
    if (layout_print_digest(table, table->digest) > LAYOUT_BYTES_MAX)
        return error_set(err, STATUS_EXHAUSTED, "the layout is larger than %zu bytes",
                         LAYOUT_BYTES_MAX);
    return STATUS_OK;
}

enum status layout_build_finish(struct layout_build *build, struct layout_table **out,
                                struct error *err)
{
    struct layout_table *table = build->table;

    if (table->world == 0 || table->world > LAYOUT_WORLD_MAX)
        return error_set(err, STATUS_INVALID, "a world of %" PRIu32 ": 1 to %u are allowed",
                         table->world, LAYOUT_WORLD_MAX);
    for (uint32_t i = 0; i < table->tensors_count; i++) {
        enum status st = check_fit(table, &table->tensors[i], err);
        if (st != STATUS_OK)
            return err ? bad_tensor(&table->tensors[i], err) : st;
    }
    enum status st = index_names(table, err);
    if (st == STATUS_OK)
        st = finish_aliases(build->aliases, table, err);
    if (st == STATUS_OK)
        st = make_digest(table, err);
    if (st == STATUS_OK)
        *out = TAKE(build->table);
    return st;
}
