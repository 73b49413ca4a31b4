/* test_map.c - maps against an array as oracle, order, removal while iterating. */
#include "base/map.h"
#include "tests/unit/unit.h"

static int values[2000];

static void absent_is_null(void **state)
{
    struct map *map = map_create();
    size_t at = 0;
    (void)state;
    assert_null(map_get(map, 7));
    assert_null(map_get_text(map, "x"));
    assert_null(map_remove(map, 7));
    assert_null(map_next(map, &at));
    assert_int_equal(map_count(map), 0);
    map_destroy(map);
    map_destroy(NULL);
}

static void put_replaces_and_says_what(void **state)
{
    struct map *map = map_create();
    (void)state;
    assert_null(map_put(map, 1, &values[0]));
    assert_ptr_equal(map_put(map, 1, &values[1]), &values[0]);
    assert_ptr_equal(map_get(map, 1), &values[1]);
    assert_int_equal(map_count(map), 1);
    assert_ptr_equal(map_remove(map, 1), &values[1]);
    assert_null(map_get(map, 1));
    map_destroy(map);
}

static void text_keys_are_copied(void **state)
{
    struct map *map = map_create();
    char key[8] = "alpha";
    (void)state;
    map_put_text(map, key, &values[0]);
    key[0] = 'X';
    assert_ptr_equal(map_get_text(map, "alpha"), &values[0]);
    assert_null(map_get_text(map, key));
    assert_null(map_put_text(map, "", &values[1])); /* the empty text is a key */
    assert_ptr_equal(map_get_text(map, ""), &values[1]);
    assert_ptr_equal(map_remove_text(map, "alpha"), &values[0]);
    assert_null(map_remove_text(map, "alpha"));
    map_destroy(map);
}

static void iteration_is_in_order_of_insertion(void **state)
{
    struct map *map = map_create();
    (void)state;
    for (uint64_t i = 0; i < 500; i++)
        map_put(map, i * 7919 % 65536, &values[i]);
    for (uint64_t i = 0; i < 500; i += 2)
        map_remove(map, i * 7919 % 65536);
    for (uint64_t i = 500; i < 900; i++)
        map_put(map, i * 7919 % 65536, &values[i]);
    size_t at = 0;
    const int *value;
    int expected = 1;
    while ((value = map_next(map, &at))) {
        assert_ptr_equal(value, &values[expected]);
        expected += expected < 499 ? 2 : 1;
    }
    assert_int_equal(expected, 900);
    map_destroy(map);
}

static void the_current_entry_may_go(void **state)
{
    struct map *map = map_create();
    size_t at = 0, seen = 0;
    const int *value;
    (void)state;
    for (uint64_t i = 0; i < 300; i++)
        map_put(map, i, &values[i]);
    while ((value = map_next(map, &at))) {
        assert_ptr_equal(map_remove(map, (uint64_t)(value - values)), value);
        seen++;
    }
    assert_int_equal(seen, 300);
    assert_int_equal(map_count(map), 0);
    map_destroy(map);
}

static void random_changes_agree_with_an_array(void **state)
{
    struct map *map = map_create();
    void *oracle[97] = {0};
    size_t count = 0;
    unsigned seed = 12345;
    (void)state;
    for (int i = 0; i < 50000; i++) {
        seed = seed * 1103515245 + 12345;
        uint64_t key = (seed >> 16) % COUNT_OF(oracle);
        if (seed & 0x8000) {
            void *value = &values[(seed >> 8) % COUNT_OF(values)];
            assert_ptr_equal(map_put(map, key << 32, value), oracle[key]);
            count += oracle[key] == NULL;
            oracle[key] = value;
        } else {
            assert_ptr_equal(map_remove(map, key << 32), oracle[key]);
            count -= oracle[key] != NULL;
            oracle[key] = NULL;
        }
        assert_int_equal(map_count(map), count);
    }
    for (uint64_t key = 0; key < COUNT_OF(oracle); key++)
        assert_ptr_equal(map_get(map, key << 32), oracle[key]);
    map_destroy(map);
}

static void many_text_keys_are_found(void **state)
{
    struct map *map = map_create();
    char key[32];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        snprintf(key, sizeof(key), "node-%zu", i);
        map_put_text(map, key, &values[i]);
    }
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        snprintf(key, sizeof(key), "node-%zu", i);
        assert_ptr_equal(map_get_text(map, key), &values[i]);
    }
    map_destroy(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_is_null),
        cmocka_unit_test(put_replaces_and_says_what),
        cmocka_unit_test(text_keys_are_copied),
        cmocka_unit_test(iteration_is_in_order_of_insertion),
        cmocka_unit_test(the_current_entry_may_go),
        cmocka_unit_test(random_changes_agree_with_an_array),
        cmocka_unit_test(many_text_keys_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
