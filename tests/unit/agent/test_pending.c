/* test_pending.c - what nobody calls back for is still freed (the leak checker sees it). */
#include "agent/pending.h"
#include "tests/unit/unit.h"

static void owner_frees_what_is_left(void **state)
{
    struct list owner;
    (void)state;
    list_init(&owner);
    uint64_t *one = PENDING(&owner, uint64_t), *two = PENDING(&owner, uint64_t);
    assert_int_equal(*one, 0);
    *two = 5;
    pending_destroy(one);
    assert_int_equal(*two, 5);
    pending_destroy(NULL);
    pending_destroy_all(&owner);
    assert_true(list_is_empty(&owner));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(owner_frees_what_is_left)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
