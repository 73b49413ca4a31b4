/* test_vault_store.c - the verbs of a store over a directory: ranges, whole puts, lists, removals,
 * and names that lead out. */
#include "checkpoint/vault_store.h"
#include "tests/unit/unit.h"
#include <unistd.h>

static struct vault_store *store_of(void **state)
{
    struct vault_store *store = NULL;

    assert_int_equal(vault_store_open_dir(*state, VAULT_STORE_SHARED, &store, NULL), STATUS_OK);
    return store;
}

struct seen {
    size_t count;
    uint64_t bytes;
    char last[256];
};

static enum status see(void *arg, const char *name, uint64_t bytes, struct error *err)
{
    struct seen *seen = arg;

    (void)err;
    seen->count++;
    seen->bytes += bytes;
    (void)snprintf(seen->last, sizeof(seen->last), "%s", name);
    return STATUS_OK;
}

static enum status refuse(void *arg, const char *name, uint64_t bytes, struct error *err)
{
    (void)arg;
    (void)bytes;
    return error_set(err, STATUS_ABORTED, "%s", name);
}

static void what_is_put_is_read_by_ranges(void **state)
{
    SCOPED(vault_store_close) struct vault_store *store = store_of(state);
    char got[8] = "";
    uint64_t size = 0;

    assert_int_equal(vault_store_put(store, "job-7/a/b", "0123456789", 10, NULL), STATUS_OK);
    assert_int_equal(vault_store_size(store, "job-7/a/b", &size, NULL), STATUS_OK);
    assert_int_equal(size, 10);
    assert_int_equal(vault_store_read(store, "job-7/a/b", 3, got, 4, NULL), STATUS_OK);
    assert_memory_equal(got, "3456", 4);
    assert_int_equal(vault_store_read(store, "job-7/a/b", 10, got, 0, NULL), STATUS_OK);
    assert_int_equal(vault_store_read(store, "job-7/a/b", 7, got, 4, NULL), STATUS_OUT_OF_RANGE);
    assert_int_equal(vault_store_read(store, "job-7/a/b", UINT64_MAX - 1, got, 4, NULL),
                     STATUS_OUT_OF_RANGE);
    assert_int_equal(vault_store_read(store, "job-7/a/c", 0, got, 4, NULL), STATUS_NOT_FOUND);
    assert_int_equal(vault_store_read(store, "job-7/a", 0, got, 4, NULL), STATUS_INVALID);
}

static void a_put_takes_the_place_of_the_old_whole(void **state)
{
    SCOPED(vault_store_close) struct vault_store *store = store_of(state);
    struct seen seen = {0};
    char got[3];

    assert_int_equal(vault_store_put(store, "a", "longer than the next", 20, NULL), STATUS_OK);
    assert_int_equal(vault_store_put(store, "a", "new", 3, NULL), STATUS_OK);
    assert_int_equal(vault_store_read(store, "a", 0, got, 3, NULL), STATUS_OK);
    assert_memory_equal(got, "new", 3);
    assert_int_equal(vault_store_list(store, "", see, &seen, NULL), STATUS_OK);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.bytes, 3);
    assert_int_equal(vault_store_put(store, "empty", "", 0, NULL), STATUS_OK);
}

/* A directory of that name is in the way: the put fails and leaves nothing. */
static void a_put_that_fails_leaves_nothing(void **state)
{
    SCOPED(vault_store_close) struct vault_store *store = store_of(state);
    struct seen seen = {0};

    assert_int_equal(vault_store_put(store, "a/b", "x", 1, NULL), STATUS_OK);
    assert_int_not_equal(vault_store_put(store, "a", "y", 1, NULL), STATUS_OK);
    assert_int_not_equal(vault_store_put(store, "a/b/c", "y", 1, NULL), STATUS_OK);
    assert_int_equal(vault_store_put(store, "big", "", VAULT_STORE_PUT_MAX + 1, NULL),
                     STATUS_INVALID);
    assert_int_equal(vault_store_list(store, "", see, &seen, NULL), STATUS_OK);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.last, "a/b");
}

static void lists_are_of_what_is_below(void **state)
{
    SCOPED(vault_store_close) struct vault_store *store = store_of(state);
    struct seen seen = {0};

    assert_int_equal(vault_store_put(store, "j/1/x", "1", 1, NULL), STATUS_OK);
    assert_int_equal(vault_store_put(store, "j/1/y/z", "22", 2, NULL), STATUS_OK);
    assert_int_equal(vault_store_put(store, "j/10/x", "333", 3, NULL), STATUS_OK);
    assert_int_equal(vault_store_list(store, "j/1", see, &seen, NULL), STATUS_OK);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.bytes, 3);
    assert_memory_equal(seen.last, "j/1/", 4);
    assert_int_equal(vault_store_list(store, "k", see, &seen, NULL), STATUS_OK);
    assert_int_equal(seen.count, 2);
    assert_int_equal(vault_store_list(store, "j", refuse, NULL, NULL), STATUS_ABORTED);
}

static void an_unfinished_put_is_not_listed(void **state)
{
    SCOPED(vault_store_close) struct vault_store *store = store_of(state);
    struct seen seen = {0};
    SCOPED_TEXT char *temp = mem_printf("%s/.put-elsewhere-1-0", (char *)*state);

    unit_write(temp, "half");
    assert_int_equal(vault_store_list(store, "", see, &seen, NULL), STATUS_OK);
    assert_int_equal(seen.count, 0);
    assert_int_equal(vault_store_put(store, ".put-x", "", 0, NULL), STATUS_INVALID);
}

static void removing_is_idempotent_and_takes_all_below(void **state)
{
    SCOPED(vault_store_close) struct vault_store *store = store_of(state);
    struct seen seen = {0};

    assert_int_equal(vault_store_put(store, "j/1/x", "1", 1, NULL), STATUS_OK);
    assert_int_equal(vault_store_put(store, "j/1/y/z", "2", 1, NULL), STATUS_OK);
    assert_int_equal(vault_store_put(store, "j/2", "3", 1, NULL), STATUS_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(vault_store_remove(store, "j/1", NULL), STATUS_OK);
    assert_int_equal(vault_store_remove(store, "never/was", NULL), STATUS_OK);
    assert_int_equal(vault_store_list(store, "", see, &seen, NULL), STATUS_OK);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.last, "j/2");
}

static void names_and_links_lead_nowhere_else(void **state)
{
    static const char *const bad[] = {"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "."};
    SCOPED(vault_store_close) struct vault_store *store = store_of(state);
    SCOPED_TEXT char *link = mem_printf("%s/link", (char *)*state);
    uint64_t size;
    char got[1];

    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(vault_store_read(store, bad[i], 0, got, 1, NULL), STATUS_INVALID);
        assert_int_equal(vault_store_size(store, bad[i], &size, NULL), STATUS_INVALID);
        assert_int_equal(vault_store_put(store, bad[i], "x", 1, NULL), STATUS_INVALID);
        assert_int_equal(vault_store_remove(store, bad[i], NULL), STATUS_INVALID);
    }
    assert_int_equal(symlink("/etc", link), 0);
    assert_int_equal(vault_store_read(store, "link/passwd", 0, got, 1, NULL), STATUS_INVALID);
    assert_int_not_equal(vault_store_put(store, "link/x", "x", 1, NULL), STATUS_OK);
    assert_int_equal(vault_store_list(store, "", refuse, NULL, NULL), STATUS_INVALID);
    assert_int_equal(vault_store_remove(store, "link", NULL), STATUS_OK);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
}

static void classes_have_names(void **state)
{
    SCOPED(vault_store_close) struct vault_store *store = store_of(state);
    struct vault_store *none = NULL;
    enum vault_store_class kind = VAULT_STORE_NODE;

    assert_int_equal(vault_store_class_of(store), VAULT_STORE_SHARED);
    assert_string_equal(vault_store_class_name(VAULT_STORE_NODE), "node");
    assert_true(vault_store_class_find("object", &kind));
    assert_int_equal(kind, VAULT_STORE_OBJECT);
    assert_false(vault_store_class_find("tape", &kind));
    assert_int_equal(vault_store_open_dir(*state, VAULT_STORE_OBJECT, &none, NULL), STATUS_INVALID);
    assert_int_equal(vault_store_open_dir("/nowhere/at/all", VAULT_STORE_NODE, &none, NULL),
                     STATUS_NOT_FOUND);
    assert_null(none);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, unit_dir_setup, unit_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_put_is_read_by_ranges),     TEST(a_put_takes_the_place_of_the_old_whole),
        TEST(a_put_that_fails_leaves_nothing),   TEST(lists_are_of_what_is_below),
        TEST(an_unfinished_put_is_not_listed),   TEST(removing_is_idempotent_and_takes_all_below),
        TEST(names_and_links_lead_nowhere_else), TEST(classes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
