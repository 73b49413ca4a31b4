/* test_loop_uv.c - deferred calls in order, timers never early, delay 0 without starving others. */
#include "base/loop.h"
#include "base/text.h"
#include "tests/unit/unit.h"
#include <unistd.h>
#include <uv.h>

struct seen {
    struct loop *loop;
    struct loop_timer *timer, *other;
    struct text order;
    int count;
    int64_t fired_us;
};

static int setup(void **state)
{
    struct seen *seen = NEW(struct seen);
    seen->loop = loop_uv_create();
    text_init(&seen->order, 0);
    *state = seen;
    return 0;
}

static int teardown(void **state)
{
    struct seen *seen = *state;
    loop_uv_destroy(seen->loop);
    text_fini(&seen->order);
    mem_free(seen);
    return 0;
}

static void add_a(void *arg)
{
    text_add(&((struct seen *)arg)->order, "a");
}

static void add_b(void *arg)
{
    text_add(&((struct seen *)arg)->order, "b");
}

static void add_c(void *arg)
{
    struct seen *seen = arg;
    text_add(&seen->order, "c");
    loop_defer(seen->loop, add_a, seen);
}

static void deferred_calls_run_later_in_order(void **state)
{
    struct seen *seen = *state;
    loop_defer(seen->loop, add_a, seen);
    loop_defer(seen->loop, add_c, seen);
    loop_defer(seen->loop, add_b, seen);
    assert_string_equal(text_get(&seen->order), ""); /* never before the call returns */
    loop_uv_run(seen->loop);
    assert_string_equal(text_get(&seen->order), "acba");
}

static void fired(void *arg)
{
    struct seen *seen = arg;
    seen->fired_us = loop_now_us(seen->loop);
    seen->count++;
}

static void timers_never_fire_early(void **state)
{
    struct seen *seen = *state;
    seen->timer = loop_timer_create(seen->loop, fired, seen);
    for (int64_t delay = 1; delay < 20000; delay = delay * 3 + 17) {
        usleep(300); /* so that the loop's idea of the time is old */
        int64_t begin = loop_now_us(seen->loop);
        loop_timer_set(seen->timer, delay);
        loop_uv_run(seen->loop);
        assert_true(seen->fired_us >= begin + delay);
    }
    loop_timer_destroy(seen->timer);
}

static void again_at_once(void *arg)
{
    struct seen *seen = arg;
    if (++seen->count < 1000)
        loop_timer_set(seen->timer, 0);
}

/* Once a turn of libuv. */
static void turn(uv_check_t *check)
{
    ++*(int *)check->data;
}

static void delay_0_takes_one_turn_and_does_not_sleep(void **state)
{
    struct seen *seen = *state;
    uv_check_t check;
    int turns = 0;
    int64_t begin = loop_now_us(seen->loop);

    uv_check_init(loop_uv_handle(seen->loop), &check);
    check.data = &turns;
    uv_check_start(&check, turn);
    uv_unref((uv_handle_t *)&check);
    seen->timer = loop_timer_create(seen->loop, again_at_once, seen);
    loop_timer_set(seen->timer, 0);
    loop_uv_run(seen->loop);
    assert_int_equal(seen->count, 1000);
    assert_true(turns >= 999); /* one call a turn: sockets had their time between */
    assert_true(loop_now_us(seen->loop) - begin < 30 * 1000000); /* 1000 sleeps would show */
    uv_close((uv_handle_t *)&check, NULL);
    loop_timer_destroy(seen->timer);
    loop_uv_run(seen->loop);
}

static void set_replaces_and_stop_stops(void **state)
{
    struct seen *seen = *state;
    seen->timer = loop_timer_create(seen->loop, fired, seen);
    loop_timer_set(seen->timer, 0);
    loop_timer_set(seen->timer, 1000);
    loop_timer_set(seen->timer, 0);
    loop_uv_run(seen->loop);
    assert_int_equal(seen->count, 1);
    loop_timer_set(seen->timer, 0);
    loop_timer_stop(seen->timer);
    loop_timer_set(seen->timer, 1000);
    loop_timer_stop(seen->timer);
    loop_uv_run(seen->loop);
    assert_int_equal(seen->count, 1);
    loop_timer_destroy(seen->timer);
    loop_timer_destroy(NULL);
}

static void destroy_both(void *arg)
{
    struct seen *seen = arg;
    seen->count++;
    loop_timer_destroy(seen->timer);
    loop_timer_destroy(seen->other);
}

static void a_destroyed_timer_never_fires(void **state)
{
    struct seen *seen = *state;
    seen->timer = loop_timer_create(seen->loop, destroy_both, seen); /* destroys itself too */
    seen->other = loop_timer_create(seen->loop, destroy_both, seen);
    loop_timer_set(seen->timer, 0);
    loop_timer_set(seen->other, 0);
    loop_uv_run(seen->loop);
    assert_int_equal(seen->count, 1);
}

static void stop(void *arg)
{
    loop_uv_stop(((struct seen *)arg)->loop);
}

static void stop_ends_run_and_destroy_closes_leftovers(void **state)
{
    struct seen *seen = *state;
    seen->timer = loop_timer_create(seen->loop, fired, seen);
    loop_timer_set(seen->timer, (int64_t)3600 * 1000000);
    loop_defer(seen->loop, stop, seen);
    loop_uv_run(seen->loop);
    loop_defer(seen->loop, fired, seen); /* dropped by the teardown, as is the timer */
    assert_int_equal(seen->count, 0);
}

static void clock_and_chance_move(void **state)
{
    struct seen *seen = *state;
    unsigned char one[600] = {0}, two[600] = {0};
    int64_t begin = loop_now_us(seen->loop);
    loop_random(seen->loop, one, sizeof(one));
    loop_random(seen->loop, two, sizeof(two));
    assert_memory_not_equal(one, two, sizeof(one));
    assert_memory_not_equal(one + 584, two + 584, 16);
    assert_true(loop_wall_us(seen->loop) > (int64_t)1700000000 * 1000000);
    assert_true(loop_now_us(seen->loop) >= begin);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(deferred_calls_run_later_in_order),
        TEST(timers_never_fire_early),
        TEST(delay_0_takes_one_turn_and_does_not_sleep),
        TEST(set_replaces_and_stop_stops),
        TEST(a_destroyed_timer_never_fires),
        TEST(stop_ends_run_and_destroy_closes_leftovers),
        TEST(clock_and_chance_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
