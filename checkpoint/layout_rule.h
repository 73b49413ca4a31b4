/* layout_rule.h - the two usual ways to cut a dimension into parts. Pure.
 *
 * Nothing else in the engine assumes either: layouts record their cuts. */
#pragma once
#include <stdint.h>

enum layout_rule {
    LAYOUT_RULE_CHUNK,    /* torch.chunk: equal parts, the last ones short or empty */
    LAYOUT_RULE_BALANCED, /* no two parts differ by more than one unit; the first are longer */
};
/* Where a part of [0, size) begins, in whole units but for the end; part == parts: size. parts and
 * unit are at least 1. */
uint64_t layout_rule_begin(enum layout_rule rule, uint64_t size, uint64_t unit, uint32_t parts,
                           uint32_t part);
/* All of them: cuts holds parts + 1. */
void layout_rule_cuts(enum layout_rule rule, uint64_t size, uint64_t unit, uint32_t parts,
                      uint64_t *cuts);
