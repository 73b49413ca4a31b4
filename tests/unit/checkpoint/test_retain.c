/* test_retain.c - what retention keeps: rule by rule, and what must hold for any history. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/retain.h"

#define ITEMS_MAX 64
#define SECOND    INT64_C(1000000)

static struct retain_item item(int64_t id, uint32_t attempt, int64_t parent, int64_t step)
{
    return (struct retain_item){.id = id,
                                .attempt = attempt,
                                .incarnation = 1,
                                .parent = parent,
                                .step = step,
                                .committed_us = id * SECOND,
                                .usable = true};
}

/* "3 4" for the kept ones. */
static void expect(const struct retain_item *items, size_t count,
                   const struct retain_policy *policy, const char *kept)
{
    enum retain_why why[ITEMS_MAX];
    char text[512] = "";
    size_t len = 0;
    retain_plan(items, count, policy, why);
    for (size_t i = 0; i < count; i++)
        if (why[i] != RETAIN_LET_GO && why[i] != RETAIN_UNUSABLE)
            len += (size_t)snprintf(text + len, sizeof text - len, len ? " %lld" : "%lld",
                                    (long long)items[i].id);
    assert_string_equal(text, kept);
}

static void keeps_the_newest(void **state)
{
    struct retain_item items[5];
    (void)state;
    for (int i = 0; i < 5; i++)
        items[i] = item(i + 1, 1, 0, 10 * (i + 1));
    expect(items, 5, &(struct retain_policy){.newest = 2}, "4 5");
    items[4].usable = false; /* damaged: it takes nobody's place */
    expect(items, 5, &(struct retain_policy){.newest = 2}, "3 4");
}

static void limit_zero_never_deletes_all(void **state) /* M50 */
{
    struct retain_item items[2] = {item(1, 1, 0, 10), item(2, 1, 0, 20)};
    (void)state;
    expect(items, 2, &(struct retain_policy){0}, "2");
    expect(items, 2, &(struct retain_policy){.ttl_us = 1, .now_us = 1000 * SECOND}, "2");
}

static void a_new_branch_with_lower_steps_is_not_the_old_one(void **state) /* M50 */
{
    struct retain_item items[] = {item(1, 1, 0, 100), item(2, 1, 0, 200), item(3, 1, 0, 300),
                                  item(4, 2, 1, 110), item(5, 2, 1, 120)};
    (void)state;
    expect(items, 5, &(struct retain_policy){.newest = 1}, "3 5");
    expect(items, 5, &(struct retain_policy){.newest = 2}, "2 3 4 5");
    items[1].usable = items[2].usable = false; /* the old branch turned out to be damaged */
    expect(items, 5, &(struct retain_policy){.newest = 1}, "1 5");
}

static void going_on_from_the_tip_is_the_same_branch(void **state)
{
    struct retain_item items[] = {item(1, 1, 0, 10), item(2, 1, 0, 20), item(3, 2, 2, 30),
                                  item(4, 3, 3, 40)};
    (void)state;
    items[3].incarnation = 2;
    expect(items, 4, &(struct retain_policy){.newest = 2}, "3 4");
}

static void the_first_past_each_multiple_stays(void **state)
{
    struct retain_item items[8];
    (void)state;
    for (int i = 0; i < 8; i++)
        items[i] = item(i + 1, 1, 0, 30 * (i + 1)); /* 30 .. 240 */
    expect(items, 8, &(struct retain_policy){.newest = 1, .every_steps = 100}, "4 7 8");
}

static void never_below_one_verified(void **state) /* M50, M51 */
{
    struct retain_item items[] = {item(1, 1, 0, 10), item(2, 1, 0, 20), item(3, 1, 0, 30)};
    (void)state;
    items[0].verified = true;
    expect(items, 3, &(struct retain_policy){.newest = 1}, "1 3");
    items[1].verified = true;
    expect(items, 3, &(struct retain_policy){.newest = 1}, "2 3");
    items[2].verified = true;
    expect(items, 3, &(struct retain_policy){.newest = 1}, "3");
}

static void the_best_stay_and_nan_is_no_best(void **state)
{
    struct retain_item items[4];
    (void)state;
    const double loss[] = {3.0, 1.0, 2.0, NAN};
    for (int i = 0; i < 4; i++) {
        items[i] = item(i + 1, 1, 0, 10 * (i + 1));
        items[i].has_metric = true;
        items[i].metric = loss[i];
    }
    expect(items, 4, &(struct retain_policy){.newest = 1, .best = 1}, "2 4");
    expect(items, 4, &(struct retain_policy){.newest = 1, .best = 1, .best_is_max = true}, "1 4");
    expect(items, 4, &(struct retain_policy){.newest = 1, .best = 9}, "1 2 3 4");
}

static void pinned_and_held_outlast_their_time(void **state)
{
    struct retain_item items[4];
    (void)state;
    for (int i = 0; i < 4; i++)
        items[i] = item(i + 1, 1, 0, 10 * (i + 1));
    items[0].pinned = items[1].held = true;
    expect(items, 4,
           &(struct retain_policy){.newest = 3, .ttl_us = SECOND, .now_us = 1000 * SECOND},
           "1 2 4");
}

/* --- for any history */

static uint64_t seed;
static uint32_t chance(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

static size_t any_history(struct retain_item *items)
{
    size_t count = chance(ITEMS_MAX);
    uint32_t attempt = 1, incarnation = 1;
    int64_t parent = 0, step = 0;
    for (size_t i = 0; i < count; i++) {
        if (chance(4) == 0) { /* the next attempt, from any of the ones before */
            attempt += chance(2);
            incarnation = 1 + chance(2);
            size_t from = chance((uint32_t)i + 1);
            parent = from < i ? items[from].id : 0;
            step = from < i ? items[from].step : 0;
        }
        step += 1 + chance(50);
        items[i] = item((int64_t)i * 3 + 1, attempt, parent, step);
        items[i].incarnation = incarnation;
        items[i].usable = chance(5) > 0;
        items[i].verified = items[i].usable && chance(2);
        items[i].pinned = chance(10) == 0;
        items[i].held = chance(10) == 0;
        items[i].has_metric = chance(2);
        items[i].metric = chance(10);
    }
    return count;
}

static struct retain_policy any_policy(void)
{
    return (struct retain_policy){.newest = chance(5),
                                  .every_steps = chance(3) ? 0 : chance(100),
                                  .ttl_us = chance(2) ? 0 : chance(200) * SECOND,
                                  .best = chance(4),
                                  .best_is_max = chance(2),
                                  .now_us = 200 * SECOND};
}

static void check_kept(const struct retain_item *items, size_t count, const enum retain_why *why)
{
    size_t usable = 0, verified = 0, kept = 0, kept_verified = 0;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(why[i] == RETAIN_UNUSABLE, !items[i].usable);
        if (!items[i].usable)
            continue;
        usable++;
        verified += items[i].verified;
        kept += why[i] != RETAIN_LET_GO;
        kept_verified += items[i].verified && why[i] != RETAIN_LET_GO;
        if (items[i].pinned || items[i].held)
            assert_int_not_equal(why[i], RETAIN_LET_GO);
    }
    assert_true(kept > 0 || usable == 0);
    assert_true(kept_verified > 0 || verified == 0);
    for (size_t i = count; i-- > 0;) /* the one to resume from */
        if (items[i].usable) {
            assert_int_not_equal(why[i], RETAIN_LET_GO);
            break;
        }
}

static void any_history_keeps_what_it_must(void **state) /* M50, M51, K7 */
{
    struct retain_item items[ITEMS_MAX];
    enum retain_why why[ITEMS_MAX], again[ITEMS_MAX];
    (void)state;
    for (seed = 1; seed < 20000; seed++) {
        uint64_t kept_seed = seed;
        size_t count = any_history(items);
        struct retain_policy policy = any_policy();
        retain_plan(items, count, &policy, why);
        check_kept(items, count, why);
        for (size_t i = 0; i < count; i++) /* what went is gone: the rest stays */
            items[i].usable &= why[i] != RETAIN_LET_GO;
        retain_plan(items, count, &policy, again);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(again[i] == RETAIN_LET_GO, 0);
        seed = kept_seed;
    }
}

static void a_larger_policy_keeps_no_less(void **state)
{
    struct retain_item items[ITEMS_MAX];
    enum retain_why small[ITEMS_MAX], large[ITEMS_MAX];
    (void)state;
    for (seed = 1; seed < 5000; seed++) {
        uint64_t kept_seed = seed;
        size_t count = any_history(items);
        struct retain_policy policy = any_policy();
        retain_plan(items, count, &policy, small);
        policy.newest += 1 + chance(3);
        policy.best += chance(3);
        if (!policy.best) /* older ones that come back may be better ones */
            policy.ttl_us *= 2;
        retain_plan(items, count, &policy, large);
        for (size_t i = 0; i < count; i++)
            assert_true(small[i] == RETAIN_LET_GO || small[i] == RETAIN_UNUSABLE ||
                        large[i] != RETAIN_LET_GO);
        seed = kept_seed;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_newest),
        cmocka_unit_test(limit_zero_never_deletes_all),
        cmocka_unit_test(a_new_branch_with_lower_steps_is_not_the_old_one),
        cmocka_unit_test(going_on_from_the_tip_is_the_same_branch),
        cmocka_unit_test(the_first_past_each_multiple_stays),
        cmocka_unit_test(never_below_one_verified),
        cmocka_unit_test(the_best_stay_and_nan_is_no_best),
        cmocka_unit_test(pinned_and_held_outlast_their_time),
        cmocka_unit_test(any_history_keeps_what_it_must),
        cmocka_unit_test(a_larger_policy_keeps_no_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
