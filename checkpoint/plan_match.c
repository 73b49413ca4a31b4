/* plan_match.c - see plan_match.h. */
#include "checkpoint/plan_match.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "checkpoint/layout_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define NEAREST_MAX 20000u /* names that a mistyped one is compared with */

static enum status name_error(struct error *err, const struct layout_tensor *tensor,
                              const char *what)
{
    char shown[LAYOUT_SHOWN];
    return error_set(err, STATUS_INVALID, "tensor %s: %s",
                     layout_name_shown(tensor->name, tensor->name_len, shown), what);
}

static void shape_text(const struct layout_tensor *tensor, char *out, size_t size)
{
    size_t len = 0;

    (void)snprintf(out, size, "%s", tensor->dims ? "" : "a scalar");
    for (uint32_t d = 0; d < tensor->dims && len < size; d++)
        len +=
            (size_t)snprintf(out + len, size - len, "%s%" PRIu64, d ? " x " : "", tensor->shape[d]);
}

static enum status shape_error(struct error *err, const struct layout_tensor *source,
                               const struct layout_tensor *target)
{
    char there[200], here[200], text[500];

    shape_text(source, there, sizeof there);
    shape_text(target, here, sizeof here);
    (void)snprintf(text, sizeof text, "%s in the checkpoint, %s here", there, here);
    return name_error(err, target, text);
}

static enum status dtype_error(struct error *err, const struct layout_tensor *source,
                               const struct layout_tensor *target)
{
    char text[80];

    (void)snprintf(text, sizeof text, "%s in the checkpoint, %s here", dtype_name(source->dtype),
                   dtype_name(target->dtype));
    return name_error(err, target, text);
}

static enum status absent_error(struct error *err, const struct layout_table *source,
                                const struct layout_tensor *tensor)
{
    SCOPED(mem_free) void *memory = mem_array(source->tensors_count + 1, sizeof(char *));
    const char **names = memory;
    char text[LAYOUT_SHOWN + 80];

    for (uint32_t i = 0; i < source->tensors_count; i++)
        names[i] = source->tensors[i].name;
    const char *nearest = tensor->name_len < LAYOUT_SHOWN && source->tensors_count <= NEAREST_MAX
                              ? text_nearest(tensor->name, names, source->tensors_count)
                              : NULL;
    (void)snprintf(text, sizeof text, "the checkpoint does not have it%s%.*s%s",
                   nearest ? "; did you mean " : "", LAYOUT_SHOWN, nearest ? nearest : "",
                   nearest ? "?" : "");
    return name_error(err, tensor, text);
}

static enum status check_pair(const struct layout_tensor *source,
                              const struct layout_tensor *target, struct error *err)
{
    if (source->dtype != target->dtype)
        return dtype_error(err, source, target);
    if (source->dims != target->dims ||
        memcmp(source->shape, target->shape, source->dims * sizeof *source->shape) != 0)
        return shape_error(err, source, target);
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
        return name_error(err, tensor,
                          "a tensor of its own in the checkpoint, an alias of another here");
    return name_error(err, tensor,
                      "it is in the checkpoint and not here (a partial load passes it over)");
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
            return absent_error(err, source, tensor);
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
