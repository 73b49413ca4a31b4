/* test_window.c - a stream is not read past the bound, and read again once enough is acknowledged.
 */
#include "daemon/window.h"
#include "tests/unit/unit.h"

static int paused;

void rpc_call_pause(struct rpc_call *call)
{
    (void)call;
    paused++;
}

void rpc_call_resume(struct rpc_call *call)
{
    (void)call;
    paused--;
}

static int setup(void **state)
{
    paused = 0;
    *state = NEW(struct window);
    return 0;
}

static int teardown(void **state)
{
    mem_free(*state);
    return 0;
}

static void bytes_are_bounded(void **state)
{
    struct window *window = *state;

    window_add(window, NULL, 1, WINDOW_BYTES / 2);
    assert_int_equal(paused, 0);
    window_add(window, NULL, 2, WINDOW_BYTES / 2);
    assert_int_equal(paused, 1);
    window_add(window, NULL, 3, WINDOW_BYTES); /* was on its way: counted, paused once */
    assert_int_equal(paused, 1);
    window_ack(window, NULL, 2);
    assert_int_equal(paused, 1);
    window_ack(window, NULL, 3);
    assert_int_equal(paused, 0);
    assert_int_equal(window->bytes, 0);
}

static void messages_are_bounded(void **state)
{
    struct window *window = *state;

    for (uint64_t seq = 1; seq <= 2 * WINDOW_ITEMS; seq++)
        window_add(window, NULL, seq, 1);
    assert_int_equal(paused, 1);
    assert_int_equal(window->count, WINDOW_ITEMS);
    assert_int_equal(window->bytes, 2 * WINDOW_ITEMS);
    window_ack(window, NULL, 2 * WINDOW_ITEMS - 1); /* all but the joined ones at the end */
    window_ack(window, NULL, 2 * WINDOW_ITEMS);
    assert_int_equal(paused, 0);
    assert_int_equal(window->bytes, 0);
}

static void what_is_stored_already_costs_nothing(void **state)
{
    struct window *window = *state;

    window_ack(window, NULL, 100);
    window_add(window, NULL, 0, WINDOW_BYTES);
    window_add(window, NULL, 100, WINDOW_BYTES);
    assert_int_equal(window->bytes, 0);
    assert_int_equal(paused, 0);
}

static void sizes_grow_with_what_is_inside(void **state)
{
    Pb__BulkUp up = PB__BULK_UP__INIT;
    Pb__ReportBatch batch = PB__REPORT_BATCH__INIT;
    Pb__ReportBatch *batches[] = {&batch};
    Pb__Report report = PB__REPORT__INIT;
    Pb__Report *reports[] = {&report, &report};

    (void)state;
    size_t empty = window_bulk_bytes(&up);
    batch.reports = reports;
    batch.n_reports = 2;
    up.batches = batches;
    up.n_batches = 1;
    assert_true(window_bulk_bytes(&up) > empty);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bytes_are_bounded),
        TEST(messages_are_bounded),
        TEST(what_is_stored_already_costs_nothing),
        TEST(sizes_grow_with_what_is_inside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
