/* layout_rule.c - see layout_rule.h. */
#include "checkpoint/layout_rule.h"

uint64_t layout_rule_begin(enum layout_rule rule, uint64_t size, uint64_t unit, uint32_t parts,
                           uint32_t part)
{
    uint64_t units = size / unit, more = units % parts, begin;

    if (part == parts)
        return size;
    if (rule == LAYOUT_RULE_BALANCED)
        return (units / parts * part + (part < more ? part : more)) * unit;
    uint64_t chunk = units / parts + (more > 0);
    if (__builtin_mul_overflow(chunk, part, &begin) || begin >= units)
        return size; /* the rest are empty */
    return begin * unit;
}

void layout_rule_cuts(enum layout_rule rule, uint64_t size, uint64_t unit, uint32_t parts,
                      uint64_t *cuts)
{
    for (uint32_t part = 0; part <= parts; part++)
        cuts[part] = layout_rule_begin(rule, size, unit, parts, part);
}
