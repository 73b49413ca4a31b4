/* retain.h - which checkpoints of a job stay: policy, nothing else.
 *
 * Pure. Any thread; no allocation but a scratch array. The rules are joined: what one of them keeps
 * stays. A branch is a line of checkpoints, each made by going on from the one before; an attempt
 * that begins from an older one begins another branch. Age counts within a branch and by the order
 * of the items, never by step over attempts: the steps of a branch that was left behind may be the
 * higher ones. Whatever the numbers say, the newest usable one stays, and the newest verified.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct retain_item {    /* one that was committed at some time */
    int64_t id, parent; /* parent: that its attempt began from; 0: none */
    uint32_t attempt, incarnation;
    int64_t step;
    int64_t committed_us;
    bool usable;   /* its bytes are there and good as far as is known; others only shape branches */
    bool verified; /* read again after the commit */
    bool pinned, held; /* held: an attempt begins from it, or a reader has a lease */
    bool has_metric;
    double metric;
};
struct retain_policy {
    uint32_t newest;      /* of each branch; 0 is taken as 1 */
    uint64_t every_steps; /* also the first of a branch at or past each multiple; 0: off */
    int64_t ttl_us;       /* the rules above and `best` keep none that is older; 0: no such bound */
    uint32_t best;        /* also this many with the best metric, of all branches; 0: off */
    bool best_is_max;
    int64_t now_us;
};
#define RETAIN_WHYS(X)                                                                             \
    X(LET_GO, "beyond what is to be kept")                                                         \
    X(UNUSABLE, "not usable")                                                                      \
    X(PINNED, "pinned")                                                                            \
    X(HELD, "in use")                                                                              \
    X(LAST, "the newest")                                                                          \
    X(LAST_VERIFIED, "the newest that was verified")                                               \
    X(NEWEST, "one of the newest")                                                                 \
    X(EVERY, "the first past a multiple of keep_every_steps")                                      \
    X(BEST, "one of the best by keep_metric")
#define X(name, text) RETAIN_##name,
enum retain_why { RETAIN_WHYS(X) RETAIN_COUNT };
#undef X

/* items: oldest first, by attempt, then by step; ids need not follow that order (two saves are on
 * their way at once). out[i]: of items[i]. */
void retain_plan(const struct retain_item *items, size_t count, const struct retain_policy *policy,
                 enum retain_why *out);
const char *retain_why_text(enum retain_why why);
