/* test_vault_list.c - what a directory is, its content says, whatever its name. */
#include "tests/unit/checkpoint/copies.h"

#include "checkpoint/vault_list.h"

static struct vault_list *list_of(const char *vault, bool sizes)
{
    struct vault_list *list = NULL;
    struct error err;

    if (vault_list_read(vault, sizes, &list, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return list;
}

static enum vault_list_kind kind_of(const struct vault_list *list, const char *path)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->entries[i].path, path) == 0)
            return list->entries[i].kind;
    fail_msg("%s is not listed", path);
    return VAULT_LIST_BAD;
}

static void move(const char *dir, const char *from, const char *to)
{
    SCOPED_TEXT char *old = mem_printf("%s/%s", dir, from);
    SCOPED_TEXT char *new = mem_printf("%s/%s", dir, to);

    assert_int_equal(rename(old, new), 0);
}

static void make_dir(const char *dir, const char *name)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, name);

    assert_int_equal(file_make_dirs(path, 0755, NULL), STATUS_OK);
}

static void put(const char *dir, const char *name)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, name);

    unit_write(path, "x");
}

/* A finished one that was copied under a name that looks temporary is still a checkpoint, and a
 * name that looks finished makes none. */
static void k5_content_says_what_it_is(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);

    reader_close(copies_make(sharded, *state));
    make_dir(*state, "job-7/step-120.1/trainer-0");
    make_dir(*state, "job-7/step-130.1");
    make_dir(*state, "job-7/step-140.1");
    make_dir(*state, "job-7/on-8.making-77");
    put(*state, "job-7/step-130.1/deleted");
    put(*state, "job-7/step-140.1/manifest.json");
    make_dir(*state, "backup");
    move(*state, "source", "backup/step-120.1.orbax-checkpoint-tmp-17");
    SCOPED(vault_list_destroy) struct vault_list *list = list_of(*state, false);
    assert_int_equal(list->count, 5);
    assert_int_equal(kind_of(list, "backup/step-120.1.orbax-checkpoint-tmp-17"), VAULT_LIST_SEALED);
    assert_int_equal(kind_of(list, "job-7/step-120.1"), VAULT_LIST_UNSEALED);
    assert_int_equal(kind_of(list, "job-7/step-130.1"), VAULT_LIST_DELETED);
    assert_int_equal(kind_of(list, "job-7/step-140.1"), VAULT_LIST_BAD);
    assert_int_equal(kind_of(list, "job-7/on-8.making-77"), VAULT_LIST_STAGING);
    sharded_destroy(sharded);
}

static void rows_are_what_manifests_say(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);
    Pb__Checkpoint *row = NULL;

    reader_close(copies_make(sharded, *state));
    assert_int_equal(vault_list_one(*state, "source", &row, NULL), STATUS_OK);
    assert_int_equal(row->step, 120);
    assert_int_equal(row->state, PB__CHECKPOINT__STATE__SEALED);
    assert_int_equal(row->parts_expected, 2);
    assert_true(row->bytes > 8192);
    assert_int_equal(strlen(row->manifest_digest), 64);
    pb__checkpoint__free_unpacked(row, NULL);
    assert_int_equal(vault_list_one(*state, "", &row, NULL), STATUS_NOT_FOUND);
    sharded_destroy(sharded);
}

static void files_with_two_names_count_once_in_all(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);
    const char *shard = "trainer-0/shard-00001-model-00001-of-00001.safetensors";

    reader_close(copies_make(sharded, *state));
    SCOPED(vault_list_destroy) struct vault_list *before = list_of(*state, true);
    make_dir(*state, "step-1/trainer-0");
    SCOPED_TEXT char *from = mem_printf("%s/source/%s", (char *)*state, shard);
    SCOPED_TEXT char *to = mem_printf("%s/step-1/%s", (char *)*state, shard);
    assert_int_equal(link(from, to), 0);
    SCOPED(vault_list_destroy) struct vault_list *after = list_of(*state, true);
    assert_int_equal(after->count, 2);
    assert_int_equal(after->disk, before->disk);
    const struct vault_list_entry *copy = &after->entries[0];
    assert_string_equal(copy->path, "step-1");
    assert_int_equal(copy->parts_count, 1);
    assert_string_equal(copy->parts[0].name, "trainer-0");
    assert_int_equal(copy->parts[0].files, 1);
    assert_int_equal(copy->parts[0].shared, copy->parts[0].disk);
    sharded_destroy(sharded);
}

static void links_are_not_followed(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);

    reader_close(copies_make(sharded, *state));
    SCOPED_TEXT char *name = mem_printf("%s/other", (char *)*state);
    assert_int_equal(symlink("source", name), 0);
    SCOPED(vault_list_destroy) struct vault_list *list = list_of(*state, true);
    assert_int_equal(list->count, 1);
    sharded_destroy(sharded);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(k5_content_says_what_it_is), T(rows_are_what_manifests_say),
        T(files_with_two_names_count_once_in_all), T(links_are_not_followed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
