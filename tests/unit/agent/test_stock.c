/* test_stock.c - counting what lies ready. */
#include "agent/stock.h"
#include "base/mem.h"
#include "tests/unit/unit.h"

struct shelf {
    struct loop *loop;
    struct stock *stock;
    unsigned asked;
    bool later, bad;
};

static void shelf_make(void *arg)
{
    struct shelf *shelf = arg;
    shelf->asked++;
    if (!shelf->later)
        stock_made(shelf->stock, !shelf->bad);
}

static void shelf_stop(void *arg)
{
    loop_uv_stop(arg);
}

/* Longer than the rest after a take. */
static void shelf_run(const struct shelf *shelf)
{
    struct loop_timer *timer = loop_timer_create(shelf->loop, shelf_stop, shelf->loop);
    loop_timer_set(timer, 200000);
    loop_uv_run(shelf->loop);
    loop_timer_destroy(timer);
}

static int shelf_setup(void **state)
{
    struct shelf *shelf = NEW(struct shelf);
    shelf->loop = loop_uv_create();
    shelf->stock = stock_create(shelf->loop, 3, shelf_make, shelf);
    *state = shelf;
    return 0;
}

static int shelf_teardown(void **state)
{
    struct shelf *shelf = *state;
    stock_destroy(shelf->stock);
    loop_uv_destroy(shelf->loop);
    mem_free(shelf);
    return 0;
}

static void it_is_filled_and_filled_again(void **state)
{
    struct shelf *shelf = *state;
    assert_false(stock_take(shelf->stock));
    shelf_run(shelf);
    assert_int_equal(shelf->asked, 0); /* not begun */
    stock_begin(shelf->stock);
    shelf_run(shelf);
    assert_int_equal(stock_ready(shelf->stock), 3);
    for (int i = 0; i < 3; i++)
        assert_true(stock_take(shelf->stock));
    assert_false(stock_take(shelf->stock));
    assert_int_equal(shelf->asked, 3); /* not while somebody takes */
    shelf_run(shelf);
    assert_int_equal(stock_ready(shelf->stock), 3);
    assert_int_equal(shelf->asked, 6);
}

static void one_is_made_at_a_time(void **state)
{
    struct shelf *shelf = *state;
    shelf->later = true;
    stock_begin(shelf->stock);
    shelf_run(shelf);
    (void)stock_take(shelf->stock);
    shelf_run(shelf);
    assert_int_equal(shelf->asked, 1);
    assert_true(stock_is_making(shelf->stock));
    stock_made(shelf->stock, true);
    shelf_run(shelf);
    assert_int_equal(shelf->asked, 2);
}

static void a_failure_is_not_repeated_until_something_is_taken(void **state)
{
    struct shelf *shelf = *state;
    shelf->bad = true;
    stock_begin(shelf->stock);
    shelf_run(shelf);
    assert_int_equal(shelf->asked, 1);
    assert_false(stock_take(shelf->stock));
    shelf_run(shelf);
    assert_int_equal(shelf->asked, 2);
    shelf->bad = false;
    assert_false(stock_take(shelf->stock));
    shelf_run(shelf);
    assert_int_equal(stock_ready(shelf->stock), 3);
}

static void after_the_end_what_is_ready_is_left(void **state)
{
    struct shelf *shelf = *state;
    stock_begin(shelf->stock);
    shelf_run(shelf);
    stock_end(shelf->stock);
    assert_true(stock_take(shelf->stock));
    shelf_run(shelf);
    assert_int_equal(stock_ready(shelf->stock), 2);
    assert_int_equal(shelf->asked, 3);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, shelf_setup, shelf_teardown)
    const struct CMUnitTest tests[] = {
        TEST(it_is_filled_and_filled_again),
        TEST(one_is_made_at_a_time),
        TEST(a_failure_is_not_repeated_until_something_is_taken),
        TEST(after_the_end_what_is_ready_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
