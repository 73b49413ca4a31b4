/* retain.c - see retain.h. */
#include "checkpoint/retain.h"

#include "base/mem.h"

#define NONE SIZE_MAX

struct lineage {    /* of one item */
    size_t branch;  /* index of the branch's first item */
    size_t tip;     /* of the branch that begins here: its newest item so far */
    uint32_t newer; /* usable ones behind it in its branch */
};

/* The nearest before it of the same workers, or what they began from. */
static size_t predecessor(const struct retain_item *items, size_t at)
{
    if (at > 0 && items[at - 1].attempt == items[at].attempt &&
        items[at - 1].incarnation == items[at].incarnation)
        return at - 1;
    for (size_t i = at; i-- > 0;) {
        if (items[i].attempt < items[at].attempt)
            break;
        if (items[i].attempt == items[at].attempt && items[i].incarnation == items[at].incarnation)
            return i;
    }
    for (size_t i = at; items[at].parent > 0 && i-- > 0;) /* once an attempt */
        if (items[i].id == items[at].parent)
            return i;
    return NONE;
}

static void find_branches(const struct retain_item *items, size_t count, struct lineage *lineage)
{
    for (size_t i = 0; i < count; i++) {
        size_t before = predecessor(items, i);
        size_t branch = before == NONE ? i : lineage[before].branch;
        if (before != NONE && lineage[branch].tip != before)
            branch = i; /* the other line went on from there already */
        lineage[i].branch = branch;
        lineage[branch].tip = i;
    }
}

/* While walking from the newest: how many usable ones each branch has shown. The count is kept at
 * the branch's first item in `tip`, which nobody needs any more. */
static void count_newer(const struct retain_item *items, size_t count, struct lineage *lineage)
{
    for (size_t i = 0; i < count; i++)
        lineage[i].tip = 0;
    for (size_t i = count; i-- > 0;) {
        size_t *seen = &lineage[lineage[i].branch].tip;
        lineage[i].newer = *seen < UINT32_MAX ? (uint32_t)*seen : UINT32_MAX;
        *seen += items[i].usable;
    }
}

static bool is_young(const struct retain_item *item, const struct retain_policy *policy)
{
    return policy->ttl_us <= 0 || policy->now_us - item->committed_us < policy->ttl_us;
}

static bool is_first_of_multiple(const struct retain_item *items, const struct lineage *lineage,
                                 size_t at, uint64_t every)
{
    if (every == 0 || (uint64_t)items[at].step < every)
        return false;
    for (size_t i = at; i-- > lineage[at].branch;)
        if (items[i].usable && lineage[i].branch == lineage[at].branch &&
            (uint64_t)items[i].step / every == (uint64_t)items[at].step / every)
            return false;
    return true;
}

static bool is_better(const struct retain_item *a, const struct retain_item *b, bool max)
{
    if (a->metric == b->metric)
        return a->id > b->id;
    return max ? a->metric > b->metric : a->metric < b->metric;
}

static bool may_be_best(const struct retain_item *item, const struct retain_policy *policy)
{
    return item->usable && item->has_metric && item->metric == item->metric && /* no NaN */
           is_young(item, policy);
}

/* Marks the best ones one by one: there are few of them. */
static void mark_best(const struct retain_item *items, size_t count,
                      const struct retain_policy *policy, bool *best)
{
    for (uint32_t left = policy->best; left > 0; left--) {
        size_t found = NONE;
        for (size_t i = 0; i < count; i++)
            if (!best[i] && may_be_best(&items[i], policy) &&
                (found == NONE || is_better(&items[i], &items[found], policy->best_is_max)))
                found = i;
        if (found == NONE)
            return;
        best[found] = true;
    }
}

static enum retain_why why_kept(const struct retain_item *items, const struct lineage *lineage,
                                size_t at, const struct retain_policy *policy, bool best)
{
    const struct retain_item *item = &items[at];

    if (!item->usable)
        return RETAIN_UNUSABLE;
    if (item->pinned)
        return RETAIN_PINNED;
    if (item->held)
        return RETAIN_HELD;
    if (!is_young(item, policy))
        return RETAIN_LET_GO;
    if (lineage[at].newer < (policy->newest ? policy->newest : 1))
        return RETAIN_NEWEST;
    if (is_first_of_multiple(items, lineage, at, policy->every_steps))
        return RETAIN_EVERY;
    return best ? RETAIN_BEST : RETAIN_LET_GO;
}

static void keep_last(const struct retain_item *items, size_t count, enum retain_why *out)
{
    bool usable = false, verified = false;

    for (size_t i = count; i-- > 0;) {
        if (!items[i].usable)
            continue;
        if (items[i].verified && !verified && out[i] == RETAIN_LET_GO)
            out[i] = RETAIN_LAST_VERIFIED;
        if (!usable && out[i] != RETAIN_PINNED && out[i] != RETAIN_HELD)
            out[i] = RETAIN_LAST;
        verified |= items[i].verified;
        usable = true;
    }
}

void retain_plan(const struct retain_item *items, size_t count, const struct retain_policy *policy,
                 enum retain_why *out)
{
    SCOPED(mem_free) void *memory = mem_array(count + 1, sizeof(struct lineage));
    SCOPED(mem_free) void *marks = mem_array(count + 1, sizeof(bool));
    struct lineage *lineage = memory;
    bool *best = marks;

    find_branches(items, count, lineage);
    count_newer(items, count, lineage);
    mark_best(items, count, policy, best);
    for (size_t i = 0; i < count; i++)
        out[i] = why_kept(items, lineage, i, policy, best[i]);
    keep_last(items, count, out);
}

const char *retain_why_text(enum retain_why why)
{
#define X(name, text) text,
    static const char *const texts[] = {RETAIN_WHYS(X)};
#undef X
    return (unsigned)why < RETAIN_COUNT ? texts[why] : "";
}
