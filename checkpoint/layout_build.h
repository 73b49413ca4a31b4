/* layout_build.h - makes a layout table from numbers: what the parser, the assignment, the meshes
 * and tests use.
 *
 * One thread. All arguments are copied. Each call checks what it is given; finish checks what only
 * the whole can show. After a failure only destroy is of use. */
#pragma once
#include "checkpoint/layout.h"

struct layout_build;

struct layout_grid {
    uint32_t dims;
    const uint64_t *cuts[LAYOUT_DIMS_MAX]; /* begins with 0, never falls; equal ones: empty cells */
    uint32_t counts[LAYOUT_DIMS_MAX];      /* of each vector: intervals + 1 */
    const uint32_t *ranks_at;              /* cells + 1, row-major */
    const uint32_t *ranks;                 /* holders of cell c: [ranks_at[c], ranks_at[c + 1]) */
};
struct layout_boxes {
    uint32_t dims;
    size_t count;
    const uint32_t *ranks;   /* of each box */
    const uint64_t *numbers; /* of each box: dims offsets, dims sizes */
};
struct layout_flat {
    size_t count;
    const uint32_t *ranks;
    const uint64_t *numbers; /* of each range: begin, end */
};

struct layout_build *layout_build_create(uint32_t world);
void layout_build_destroy(struct layout_build *build); /* NULL is fine */
SCOPED_DESTRUCTOR(struct layout_build *, layout_build_destroy)
/* Each gives the layout's index. */
enum status layout_build_grid(struct layout_build *build, const struct layout_grid *grid,
                              uint32_t *out, struct error *err) MUST_CHECK;
enum status layout_build_boxes(struct layout_build *build, const struct layout_boxes *boxes,
                               uint32_t *out, struct error *err) MUST_CHECK;
enum status layout_build_flat(struct layout_build *build, const struct layout_flat *flat,
                              uint32_t *out, struct error *err) MUST_CHECK;
/* Its layout may come later. */
enum status layout_build_tensor(struct layout_build *build, const struct layout_tensor *tensor,
                                struct error *err) MUST_CHECK;
enum status layout_build_alias(struct layout_build *build, const char *name, size_t len,
                               const char *tensor, size_t tensor_len, struct error *err) MUST_CHECK;
/* The builder is empty then. */
enum status layout_build_finish(struct layout_build *build, struct layout_table **out,
                                struct error *err) MUST_CHECK;
