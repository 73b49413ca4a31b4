/* test_list.c - the intrusive list. */
#include "base/list.h"
#include "tests/unit/unit.h"

struct item {
    int number;
    struct list node;
};

static void first_in_is_first_out(void **state)
{
    struct list head;
    struct item items[3] = {{.number = 0}, {.number = 1}, {.number = 2}};
    (void)state;
    list_init(&head);
    assert_null(list_take_first(&head));
    for (int i = 0; i < 3; i++)
        list_add_last(&head, &items[i].node);
    for (int i = 0; i < 3; i++)
        assert_int_equal(LIST_ITEM(list_take_first(&head), struct item, node)->number, i);
    assert_true(list_is_empty(&head));
}

static void the_current_item_may_go_and_go_twice(void **state)
{
    struct list head;
    struct item items[3] = {{.number = 0}, {.number = 1}, {.number = 2}};
    int seen = 0;
    (void)state;
    list_init(&head);
    for (int i = 0; i < 3; i++)
        list_add_last(&head, &items[i].node);
    LIST_EACH(&head, node)
    {
        assert_int_equal(LIST_ITEM(node, struct item, node)->number, seen++);
        list_remove(node);
        list_remove(node); /* a removed item is an empty list of its own */
    }
    assert_int_equal(seen, 3);
    assert_true(list_is_empty(&head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_in_is_first_out),
        cmocka_unit_test(the_current_item_may_go_and_go_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
