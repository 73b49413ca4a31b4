/* layout.c - what a table answers. */
#include "checkpoint/layout.h"

#include <string.h>

#include "checkpoint/layout_table.h"

void layout_table_destroy(struct layout_table *table)
{
    if (!table)
        return;
    mem_free(table->classes);
    mem_free(table->tensors);
    arena_destroy(table->arena);
    mem_free(table);
}

uint32_t layout_table_world(const struct layout_table *table)
{
    return table->world;
}

size_t layout_table_count(const struct layout_table *table)
{
    return table->tensors_count;
}

const struct layout_tensor *layout_table_at(const struct layout_table *table, size_t tensor)
{
    return &table->tensors[tensor];
}

const char *layout_table_digest(const struct layout_table *table)
{
    return table->digest;
}

/* --- names */

const char *layout_name_shown(const char *name, size_t len, char out[LAYOUT_SHOWN])
{
    size_t kept = len < LAYOUT_SHOWN ? len : LAYOUT_SHOWN - 1;

    memcpy(out, name, kept);
    out[kept] = '\0';
    if (kept < len)
        text_cut(out, LAYOUT_SHOWN - 4); /* a character has at most 4 bytes */
    return out;
}

static bool find_alias(const struct layout_table *table, const char *name, size_t len,
                       size_t *tensor)
{
    size_t low = 0, high = table->aliases_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct layout_alias *alias = &table->aliases[middle];
        int order = text_order(alias->name, alias->len, name, len);
        if (order == 0) {
            *tensor = alias->tensor;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

bool layout_table_find(const struct layout_table *table, const char *name, size_t len,
                       size_t *tensor)
{
    size_t low = 0, high = table->tensors_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct layout_tensor *at = &table->tensors[table->by_name[middle]];
        int order = text_order(at->name, at->name_len, name, len);
        if (order == 0) {
            *tensor = table->by_name[middle];
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return find_alias(table, name, len, tensor);
}

size_t layout_table_alias_count(const struct layout_table *table)
{
    return table->aliases_count;
}

const char *layout_table_alias_at(const struct layout_table *table, size_t alias, size_t *tensor)
{
    *tensor = table->aliases[alias].tensor;
    return table->aliases[alias].name;
}

/* --- sizes */

uint64_t layout_tensor_elements(const struct layout_tensor *tensor)
{
    uint64_t elements = 1;

    for (uint32_t d = 0; d < tensor->dims; d++)
        if (tensor->shape[d] == 0)
            return 0; /* the other dims may be of any size */
    for (uint32_t d = 0; d < tensor->dims; d++)
        elements *= tensor->shape[d];
    return elements;
}

uint64_t layout_tensor_bytes(const struct layout_tensor *tensor)
{
    return layout_tensor_elements(tensor) * dtype_bits(tensor->dtype) / 8;
}

uint64_t layout_tensor_unit(const struct layout_tensor *tensor)
{
    uint32_t bits = dtype_bits(tensor->dtype);
    uint64_t unit = bits == 4 ? 2 : bits == 6 ? 4 : 1;
    uint64_t row = tensor->dims ? tensor->shape[tensor->dims - 1] : 1;

    return row % unit == 0 ? unit : 0;
}

uint64_t layout_box_elements(const struct layout_box *box, uint32_t dims)
{
    uint64_t elements = 1;

    for (uint32_t d = 0; d < dims; d++)
        elements *= box->size[d];
    return elements;
}

uint64_t layout_box_bytes(const struct layout_box *box, const struct layout_tensor *tensor)
{
    return layout_box_elements(box, tensor->dims) * dtype_bits(tensor->dtype) / 8;
}

/* --- pieces */

/* The largest box that begins at an element of the row-major order and ends by `end`: as many
 * slices as fit of the outermost dim on whose border it begins. Returns how many elements it has.
 */
static uint64_t first_box(const struct layout_tensor *tensor, uint64_t begin, uint64_t end,
                          struct layout_box *out)
{
    uint64_t slice = layout_tensor_elements(tensor), rest = begin;

    for (uint32_t d = 0; d < tensor->dims; d++) {
        slice /= tensor->shape[d];
        out->offset[d] = rest / slice;
        out->size[d] = 1;
        rest %= slice;
        if (rest != 0 || end - begin < slice)
            continue;
        uint64_t most = tensor->shape[d] - out->offset[d], fit = (end - begin) / slice;
        out->size[d] = fit < most ? fit : most;
        for (uint32_t inner = d + 1; inner < tensor->dims; inner++) {
            out->offset[inner] = 0;
            out->size[inner] = tensor->shape[inner];
        }
        return slice * out->size[d];
    }
    return 1;
}

size_t layout_range_boxes(const struct layout_tensor *tensor, uint64_t begin, uint64_t end,
                          struct layout_box out[LAYOUT_RANGE_BOXES])
{
    uint64_t elements = layout_tensor_elements(tensor);
    struct layout_box box;
    size_t count = 0;

    if (end > elements)
        end = elements;
    while (begin < end) {
        begin += first_box(tensor, begin, end, &box);
        if (out)
            out[count] = box;
        count++;
    }
    return count;
}

static size_t range_pieces(const struct layout_tensor *tensor, const uint64_t *range,
                           struct layout_box *out, size_t cap)
{
    struct layout_box boxes[LAYOUT_RANGE_BOXES];
    size_t count = layout_range_boxes(tensor, range[0], range[1], boxes);

    for (size_t i = 0; i < count && i < cap; i++)
        out[i] = boxes[i];
    return count;
}

size_t layout_table_pieces(const struct layout_table *table, size_t tensor, uint32_t rank,
                           struct layout_box *out, size_t cap)
{
    const struct layout_class *class = layout_table_class(table, tensor);
    uint32_t end, seat = layout_class_seats(class, rank, &end);
    struct layout_box box;
    size_t count = 0;

    for (; seat < end; seat++) {
        uint32_t item = class->seats[seat].item;
        if (class->kind == LAYOUT_FLAT) {
            size_t left = count < cap ? cap - count : 0;
            count += range_pieces(&table->tensors[tensor], class->corners + 2 * (size_t)item,
                                  left ? out + count : NULL, left);
        } else {
            (void)layout_class_box(class, item, count < cap ? &out[count] : &box);
            count++;
        }
    }
    return count;
}
