/* layout.h - who holds which part of which tensor: a table of tensors over a few layouts.
 *
 * A layout is a grid (cut vectors, the ranks of each cell), a list of boxes, or ranges of the
 * row-major order (padding lies behind the last element). A table is immutable: any thread, many
 * at once. *Declared* tables may name several holders of a part (replicas); a *storage* table has
 * one writer of each element (layout_table_assign). The k-th piece of a rank is the k-th that is
 * not empty: cells in row-major order, boxes and ranges in listed order, a range as at most
 * 2 * dims - 1 boxes. All numbers are elements. Used in librondo: no jansson, no OpenSSL. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAYOUT_FORMAT      "rondo-layout-1"
#define LAYOUT_DIMS_MAX    8
#define LAYOUT_TENSORS_MAX 1000000u
#define LAYOUT_CLASSES_MAX 1000000u
#define LAYOUT_WORLD_MAX   65536u
#define LAYOUT_NAME_MAX    1024u
#define LAYOUT_BYTES_MAX   ((size_t)64 << 20)
/* A file of that size could list more than anybody means, at ten times the memory. */
#define LAYOUT_CELLS_MAX   (1u << 22) /* of all layouts; as many holders or parts */
#define LAYOUT_NUMBERS_MAX (1u << 24) /* cuts, offsets, sizes, shapes */

struct layout_box {
    uint64_t offset[LAYOUT_DIMS_MAX], size[LAYOUT_DIMS_MAX];
};
struct layout_tensor {
    const char *name; /* UTF-8 without NUL, NUL-terminated behind name_len */
    size_t name_len;
    enum dtype dtype;
    uint32_t dims; /* 0: one element */
    uint64_t shape[LAYOUT_DIMS_MAX];
    uint32_t layout;
};
struct layout_table;

/* Strict: unknown and repeated keys, cuts that are no bytes, boxes out of bounds and the like are
 * STATUS_INVALID. Does not check the cover. */
enum status layout_table_parse(const void *json, size_t len, struct layout_table **out,
                               struct error *err) MUST_CHECK;
/* The canonical bytes: the same for tables that say the same in the same order. */
void layout_table_print(const struct layout_table *table, struct text *out);
void layout_table_destroy(struct layout_table *table); /* NULL is fine */
SCOPED_DESTRUCTOR(struct layout_table *, layout_table_destroy)

uint32_t layout_table_world(const struct layout_table *table);
size_t layout_table_count(const struct layout_table *table);
/* Borrowed: as long as the table. */
const struct layout_tensor *layout_table_at(const struct layout_table *table, size_t tensor);
bool layout_table_find(const struct layout_table *table, const char *name, size_t len,
                       size_t *tensor); /* aliases resolve */
size_t layout_table_alias_count(const struct layout_table *table);
/* The alias's name; *tensor is what it stands for. */
const char *layout_table_alias_at(const struct layout_table *table, size_t alias, size_t *tensor);
/* Fills at most cap boxes; returns how many there are. */
size_t layout_table_pieces(const struct layout_table *table, size_t tensor, uint32_t rank,
                           struct layout_box *out, size_t cap);
/* Every element has a holder, and parts overlap only as replicas: equal boxes, other ranks. The
 * text names a tensor, and the hole or the overlap. */
enum status layout_table_check(const struct layout_table *table, struct error *err) MUST_CHECK;
/* The same, and nothing has two holders. */
enum status layout_table_check_storage(const struct layout_table *table,
                                       struct error *err) MUST_CHECK;
/* Gives each element one writer among its holders. A function of what is declared alone: all ranks
 * make the same bytes, in whatever order they list tensors and layouts. */
enum status layout_table_assign(const struct layout_table *declared, struct layout_table **storage,
                                struct error *err) MUST_CHECK;
/* XXH3-128 of the printed bytes, lower-case hex; borrowed. */
const char *layout_table_digest(const struct layout_table *table);

uint64_t layout_tensor_elements(const struct layout_tensor *tensor);
uint64_t layout_tensor_bytes(const struct layout_tensor *tensor);
uint64_t layout_box_elements(const struct layout_box *box, uint32_t dims);
/* Of a piece of that tensor: always whole bytes. */
uint64_t layout_box_bytes(const struct layout_box *box, const struct layout_tensor *tensor);
