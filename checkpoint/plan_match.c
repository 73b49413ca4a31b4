/* plan_match.c - see plan_match.h. */
#include "checkpoint/plan_match.h"

#include <inttypes.h>
#include <string.h>

#include "checkpoint/layout_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static enum status name_error(struct error *err, const struct layout_tensor *tensor,
                              const char *what)
{
    char shown[LAYOUT_SHOWN];
    return error_set(err, STATUS_INVALID, "tensor %s: %s",
                     layout_name_shown(tensor->name, tensor->name_len, shown), what);
}

static enum status check_pair(const struct layout_tensor *source,
                              const struct layout_tensor *target, struct error *err)
{
    if (source->dtype != target->dtype)
        return name_error(err, target, "the source has another dtype");
    if (source->dims != target->dims ||
        memcmp(source->shape, target->shape, source->dims * sizeof *source->shape) != 0)
        return name_error(err, target, "the source has another shape");
    return STATUS_OK;
}

/* A tensor of the source that no tensor of the target has asked for. */
static enum status check_surplus(const struct layout_table *target,
                                 const struct layout_tensor *tensor, bool used, bool partial,
                                 struct error *err)
{
    size_t other;

    if (used || partial)
        return STATUS_OK;
    if (layout_table_find(target, tensor->name, tensor->name_len, &other))
        return name_error(err, tensor, "a tensor of its own in the source, an alias in the target");
    return name_error(err, tensor, "the target does not have it");
}

/* Walks both tables in the order of names; aliases of the source are looked up. */
static enum status pair_names(const struct layout_table *source, const struct layout_table *target,
                              bool partial, struct plan_match *out, struct error *err)
{
    SCOPED(mem_free) void *memory = mem_array(source->tensors_count, 1);
    uint8_t *used = memory;
    enum status st = STATUS_OK;

    for (uint32_t i = 0, next = 0; i < target->tensors_count && st == STATUS_OK; i++) {
        uint32_t wanted = target->by_name[i];
        const struct layout_tensor *tensor = &target->tensors[wanted], *other;
        size_t found = PLAN_NONE;
        int order = 1;
        for (; next < source->tensors_count && order > 0; next += order > 0) {
            other = &source->tensors[source->by_name[next]];
            order = text_order(tensor->name, tensor->name_len, other->name, other->name_len);
        }
        if (order == 0)
            found = source->by_name[next];
        else if (!layout_table_find(source, tensor->name, tensor->name_len, &found) && !partial)
            return name_error(err, tensor, "the source does not have it");
        out->source[wanted] = (uint32_t)found;
        if (found == PLAN_NONE)
            continue;
        used[found] = 1;
        st = check_pair(&source->tensors[found], tensor, err);
    }
    for (uint32_t i = 0; i < source->tensors_count && st == STATUS_OK; i++)
        st = check_surplus(target, &source->tensors[i], used[i], partial, err);
    return st;
}

/* --- groups */

struct group_key {
    uint64_t shape[LAYOUT_DIMS_MAX];
    uint32_t source_layout, target_layout, dims, bits;
};

static struct group_key key_of(const struct layout_table *source, const struct layout_table *target,
                               uint32_t source_tensor, uint32_t target_tensor)
{
    const struct layout_tensor *tensor = &target->tensors[target_tensor];
    struct group_key key = {.source_layout = source->tensors[source_tensor].layout,
                            .target_layout = tensor->layout,
                            .dims = tensor->dims,
                            .bits = dtype_bits(tensor->dtype)};

    memcpy(key.shape, tensor->shape, tensor->dims * sizeof *key.shape);
    return key;
}

static size_t power_above(size_t count)
{
    size_t power = 16;

    while (power < count)
        power *= 2;
    return power;
}

static void make_groups(const struct layout_table *source, const struct layout_table *target,
                        struct plan_match *out)
{
    size_t slots_count = power_above(2 * (size_t)target->tensors_count);
    SCOPED(mem_free) void *slots_memory = mem_array(slots_count, sizeof(uint32_t));
    SCOPED(mem_free) void *keys_memory = mem_array(target->tensors_count, sizeof(struct group_key));
    uint32_t *slots = slots_memory; /* group + 1; 0: free */
    struct group_key *keys = keys_memory;

    for (uint32_t i = 0; i < target->tensors_count; i++) {
        if (out->source[i] == PLAN_NONE)
            continue;
        struct group_key key = key_of(source, target, out->source[i], i);
        size_t slot = XXH3_64bits(&key, sizeof key) & (slots_count - 1);
        while (slots[slot] && memcmp(&keys[slots[slot] - 1], &key, sizeof key) != 0)
            slot = (slot + 1) & (slots_count - 1);
        if (!slots[slot]) {
            keys[out->groups_count] = key;
            out->groups[out->groups_count] = (struct plan_group){out->source[i], i, 0};
            slots[slot] = ++out->groups_count;
        }
        out->group[i] = slots[slot] - 1;
        out->ordinal[i] = out->groups[out->group[i]].count++;
    }
}

enum status plan_match_make(const struct layout_table *source, const struct layout_table *target,
                            bool partial, struct plan_match *out, struct error *err)
{
    size_t count = target->tensors_count;
    struct plan_match match = {.source = mem_array(count, sizeof(uint32_t)),
                               .group = mem_array(count, sizeof(uint32_t)),
                               .ordinal = mem_array(count, sizeof(uint32_t)),
                               .groups = mem_array(count, sizeof(struct plan_group))};
    enum status st = pair_names(source, target, partial, &match, err);

    if (st != STATUS_OK) {
        plan_match_fini(&match);
        return st;
    }
    make_groups(source, target, &match);
    *out = match;
    return STATUS_OK;
}

void plan_match_fini(struct plan_match *match)
{
    mem_free(match->source);
    mem_free(match->group);
    mem_free(match->ordinal);
    mem_free(match->groups);
    *match = (struct plan_match){0};
}
