/* plan.h - which bytes of which pieces of one layout make the pieces of another.
 *
 * Pure: two tables in, runs out. A plan is made for one rank of the target at a time; tensors that
 * have shape and both layouts in common share one template, so that its size and time follow the
 * layouts, not the tensors. Any thread; a plan is immutable and borrows nothing.
 * Every target byte is written exactly once, else plan_rank fails and names the tensor. Two runs of
 * a plan never join: each is all that two pieces have in common. */
#pragma once
#include "checkpoint/layout.h"

#define PLAN_VERSION 1 /* part of plan_key */

struct plan_loop {
    uint64_t count, source_step, target_step; /* steps in bytes */
};
/* bytes from source_at to target_at, repeated by the loops, the outermost first: a column slice
 * is one run of one loop. Offsets begin with the piece (row-major, contiguous). */
struct plan_run {
    uint32_t tensor; /* of the target */
    uint32_t source_tensor, source_rank, source_piece, target_piece;
    uint64_t source_at, target_at, bytes;
    uint32_t loops;
    struct plan_loop loop[LAYOUT_DIMS_MAX];
};
struct plan_options {
    /* Of reading from that rank of the source: the least is taken, equals take turns. NULL: all
     * are equal. */
    uint64_t (*cost)(void *arg, uint32_t source_rank);
    void *arg;
    bool partial; /* tensors that only one side has are left out */
};
struct plan;

/* options NULL: none. Tensors that one side lacks, of other shape or dtype, and elements that the
 * source does not hold exactly once are STATUS_INVALID. */
enum status plan_rank(const struct layout_table *source, const struct layout_table *target,
                      uint32_t target_rank, const struct plan_options *options, struct plan **out,
                      struct error *err) MUST_CHECK;
void plan_destroy(struct plan *plan); /* NULL is fine */
SCOPED_DESTRUCTOR(struct plan *, plan_destroy)
size_t plan_count(const struct plan *plan);   /* runs */
uint64_t plan_bytes(const struct plan *plan); /* of the rank's target pieces */
/* struct plan_cursor at = {0}; while (plan_next(plan, &at, &run)) ... by target tensor, then by
 * target piece. */
struct plan_cursor {
    size_t tensor, run;
};
bool plan_next(const struct plan *plan, struct plan_cursor *cursor, struct plan_run *out);
uint64_t plan_run_bytes(const struct plan_run *run); /* with its loops */

/* What all ranks' plans come to, without making them. */
struct plan_totals {
    uint64_t runs, bytes;
    uint64_t *source_bytes, *target_bytes; /* of each rank */
};
enum status plan_global(const struct layout_table *source, const struct layout_table *target,
                        const struct plan_options *options, struct plan_totals **out,
                        struct error *err) MUST_CHECK;
void plan_totals_destroy(struct plan_totals *totals); /* NULL is fine */
SCOPED_DESTRUCTOR(struct plan_totals *, plan_totals_destroy)

/* The same key, the same plan (with no cost given): XXH3-128 over both digests, rank, partial and
 * PLAN_VERSION; lower-case hex. */
void plan_key(const struct layout_table *source, const struct layout_table *target,
              uint32_t target_rank, bool partial, char out[33]);
