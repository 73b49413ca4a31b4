/* test_dev_ports.c - slices of ports are leased to one at a time. Others may run on this machine:
 * the test believes in no slice to be free but looks at what it got. */
#include "daemon/dev_ports.h"
#include "tests/unit/unit.h"
#include <unistd.h>

static bool is_slice(const struct dev_ports *ports)
{
    return ports->first >= DEV_PORTS_FIRST &&
           (ports->first - DEV_PORTS_FIRST) % DEV_PORTS_EACH == 0 &&
           ports->last == ports->first + DEV_PORTS_EACH - 1 && ports->last < 32768;
}

static void two_never_have_the_same(void **state)
{
    struct dev_ports a, b, again;

    (void)state;
    assert_int_equal(dev_ports_take(0, 40, &a), STATUS_OK);
    assert_int_equal(dev_ports_take(a.first, 40, &b), STATUS_OK); /* wants the same */
    assert_true(is_slice(&a) && is_slice(&b));
    assert_int_not_equal(a.first, b.first);
    dev_ports_release(&a);
    assert_int_equal(dev_ports_take(a.first, 40, &again), STATUS_OK); /* free again */
    assert_int_equal(again.first, a.first);
    dev_ports_release(&again);
    dev_ports_release(&b);
    dev_ports_release(&b); /* twice is fine */
}

static void what_is_no_slice_is_not_wanted(void **state)
{
    struct dev_ports ports;

    (void)state;
    assert_int_equal(dev_ports_take(DEV_PORTS_FIRST + 1, 7, &ports), STATUS_OK);
    assert_true(is_slice(&ports));
    dev_ports_release(&ports);
    assert_int_equal(dev_ports_take(65000, 1000000, &ports), STATUS_OK);
    assert_true(is_slice(&ports));
    dev_ports_release(&ports);
}

static void all_taken_is_told(void **state)
{
    struct dev_ports all[DEV_PORTS_SLICES], more;
    size_t count = 0;

    (void)state;
    while (count < DEV_PORTS_SLICES && dev_ports_take(0, 0, &all[count]) == STATUS_OK)
        count++;
    assert_true(count > 0);
    assert_int_equal(dev_ports_take(all[0].first, 3, &more), STATUS_EXHAUSTED);
    assert_int_equal(more.first, all[0].first);
    assert_int_equal(more.lease, -1);
    dev_ports_release(&more);
    while (count-- > 0)
        dev_ports_release(&all[count]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_never_have_the_same),
        cmocka_unit_test(what_is_no_slice_is_not_wanted),
        cmocka_unit_test(all_taken_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
