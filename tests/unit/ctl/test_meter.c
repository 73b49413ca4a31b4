/* test_meter.c - the line of progress, and an interrupt that the work is told of. */
#include "ctl/meter.h"
#include "tests/unit/unit.h"
#include <signal.h>

static void expect_line(uint64_t done, uint64_t total, int64_t ms, const char *want)
{
    struct text out;
    text_init(&out, 0);
    meter_line("verify", done, total, ms, &out);
    assert_string_equal(text_get(&out), want);
    text_fini(&out);
}

static void the_line_tells_rate_and_time_left(void **state)
{
    (void)state;
    expect_line(0, 4 << 20, 0, "verify 0 B of 4.0 MiB  0%");
    expect_line(1 << 20, 4 << 20, 100, "verify 1.0 MiB of 4.0 MiB  25%");
    expect_line(2 << 20, 4 << 20, 1000, "verify 2.0 MiB of 4.0 MiB  50%  2.0 MiB/s  1.0 s left");
    expect_line(4 << 20, 4 << 20, 2000, "verify 4.0 MiB of 4.0 MiB  100%  2.0 MiB/s");
    expect_line(2 << 20, 0, 1000, "verify 2.0 MiB  2.0 MiB/s");
}

static void an_interrupt_stops_the_work(void **state)
{
    struct meter meter;
    (void)state;
    meter_begin(&meter, "verify", 10);
    assert_false(watcher_stopped(&meter.watcher));
    watcher_moved(&meter.watcher, 3);
    assert_int_equal(meter.done, 3);
    raise(SIGINT);
    assert_true(watcher_stopped(&meter.watcher));
    meter_end(&meter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_line_tells_rate_and_time_left),
                                       cmocka_unit_test(an_interrupt_stops_the_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
