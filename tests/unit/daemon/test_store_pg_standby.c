/* test_store_pg_standby.c - who may lead, from what the database shows. */
#include "daemon/store_pg_standby.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after those */
#include <cmocka.h>

#define GRACE_US 2000000

static enum store_pg_standby_move move(bool locked, bool ours, int64_t free_us, int64_t expired_us)
{
    const struct store_pg_standby_view view = {locked, ours, free_us, expired_us};
    return store_pg_standby_decide(&view, GRACE_US);
}

static void the_same_holder_never_waits_for_a_free_lock(void **state)
{
    (void)state;
    assert_int_equal(move(false, true, 0, 0), STORE_PG_STANDBY_TAKE);
}

static void another_holder_gets_time_to_come_back(void **state)
{
    (void)state;
    assert_int_equal(move(false, false, 0, 0), STORE_PG_STANDBY_WAIT);
    assert_int_equal(move(false, false, GRACE_US - 1, 9000000), STORE_PG_STANDBY_WAIT);
    assert_int_equal(move(false, false, GRACE_US, 0), STORE_PG_STANDBY_TAKE);
}

static void a_held_lock_is_respected_while_the_lease_runs(void **state)
{
    (void)state;
    assert_int_equal(move(true, false, 0, 0), STORE_PG_STANDBY_WAIT);
    assert_int_equal(move(true, true, 0, 0), STORE_PG_STANDBY_WAIT);
}

static void a_lease_must_be_over_for_a_while(void **state)
{
    (void)state;
    assert_int_equal(move(true, false, 0, 100000), STORE_PG_STANDBY_WAIT);
    assert_int_equal(move(true, false, 0, 600000), STORE_PG_STANDBY_EVICT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_holder_never_waits_for_a_free_lock),
        cmocka_unit_test(another_holder_gets_time_to_come_back),
        cmocka_unit_test(a_held_lock_is_respected_while_the_lease_runs),
        cmocka_unit_test(a_lease_must_be_over_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
