/* layout_table.h - how a table lies in memory. For layout*.c and plan*.c only. Immutable once made.
 */
#pragma once
#include "checkpoint/layout_class.h"

struct layout_alias {
    const char *name;
    size_t len;
    uint32_t tensor;
};
struct layout_table {
    struct arena *arena; /* holds all that the rest points to */
    uint32_t world;
    uint32_t classes_count, tensors_count, aliases_count;
    struct layout_class *classes; /* an allocation of its own, as is tensors */
    struct layout_tensor *tensors;
    uint32_t *by_name;            /* tensors, by the bytes of their names */
    struct layout_alias *aliases; /* by the bytes of their names */
    char digest[33];
};

static inline const struct layout_class *layout_table_class(const struct layout_table *table,
                                                            size_t tensor)
{
    return &table->classes[table->tensors[tensor].layout];
}
#define LAYOUT_SHOWN 128
/* For error texts: at most LAYOUT_SHOWN - 1 bytes, cut between characters. Returns out. */
const char *layout_name_shown(const char *name, size_t len, char out[LAYOUT_SHOWN]);

/* Elements of the last dim that are whole bytes: 1, 2 or 4; 0: the tensor cannot be cut at all. */
uint64_t layout_tensor_unit(const struct layout_tensor *tensor);
#define LAYOUT_RANGE_BOXES (2 * LAYOUT_DIMS_MAX)
/* The boxes of a range of the row-major order; what lies behind the tensor's end is left out. out
 * may be NULL. Returns how many: 0..2 * dims - 1. */
size_t layout_range_boxes(const struct layout_tensor *tensor, uint64_t begin, uint64_t end,
                          struct layout_box out[LAYOUT_RANGE_BOXES]);
/* XXH3-128 of the printed bytes; returns how many they are. */
uint64_t layout_print_digest(const struct layout_table *table, char out[33]);
