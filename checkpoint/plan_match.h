/* plan_match.h - which tensor of the source each tensor of the target is, and which of them can
 * share a plan. For plan*.c only. */
#pragma once
#include "checkpoint/plan.h"

#define PLAN_NONE UINT32_MAX

/* Tensors with shape, size of elements and both layouts in common. */
struct plan_group {
    uint32_t source, target; /* the first pair of them */
    uint32_t count;
};
struct plan_match {
    uint32_t *source;  /* of each tensor of the target; PLAN_NONE: left out */
    uint32_t *group;   /* of each tensor of the target */
    uint32_t *ordinal; /* which of its group it is */
    struct plan_group *groups;
    uint32_t groups_count;
};

enum status plan_match_make(const struct layout_table *source, const struct layout_table *target,
                            bool partial, struct plan_match *out, struct error *err) MUST_CHECK;
void plan_match_fini(struct plan_match *match);
