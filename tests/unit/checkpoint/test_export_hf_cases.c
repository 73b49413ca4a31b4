/* test_export_hf_cases.c - what went wrong elsewhere with files that are passed on. */
#include "tests/unit/checkpoint/copies.h"

#include "checkpoint/diff.h"
#include "checkpoint/export_hf.h"
#include "checkpoint/import_hf.h"

static void assert_mode(const char *dir, const char *name, mode_t mode)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, name);
    struct stat stat;

    assert_int_equal(lstat(path, &stat), 0);
    assert_int_equal(stat.st_mode & 0777, mode);
}

/* K2: elsewhere a temporary file left its mode of 0600 behind. */
static void k2_modes_are_what_the_umask_says(void **state)
{
    static const struct {
        mode_t mask, file, dir;
    } rows[] = {{022, 0644, 0755}, {077, 0600, 0700}, {002, 0664, 0775}};
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED(reader_close) struct reader *reader = copies_make(sharded, *state);
    const struct export_hf_options many = {.max_shard_bytes = 700};
    struct error err;

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        SCOPED_TEXT char *hf = mem_printf("%s/hf-%zu", (char *)*state, i);
        mode_t before = umask(rows[i].mask);
        enum status st = export_hf_write(reader, hf, &many, NULL, &err);
        umask(before);
        if (st != STATUS_OK)
            fail_msg("%s", err.text);
        assert_mode(hf, "", rows[i].dir);
        assert_mode(hf, "model-00001-of-00003.safetensors", rows[i].file);
        assert_mode(hf, "model.safetensors.index.json", rows[i].file);
        SCOPED_TEXT char *made = mem_printf("%s/made-%zu", (char *)*state, i);
        before = umask(rows[i].mask);
        st = import_hf_read(hf, made, NULL, NULL, &err);
        umask(before);
        if (st != STATUS_OK)
            fail_msg("%s", err.text);
        assert_mode(made, "manifest.json", rows[i].file);
        assert_mode(made, "", rows[i].dir);
    }
    sharded_destroy(sharded);
}

static void ignore_row(void *arg, const struct diff_row *row)
{
    (void)arg;
    (void)row;
}

/* K5: elsewhere a copy was taken for unfinished, by its name, and deleted. */
static void k5_a_checkpoint_is_known_by_what_is_in_it(void **state)
{
    static const char *const names[] = {"step-9.tmp", ".hidden", "source.making-1"};
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED_TEXT char *source = mem_printf("%s/source", (char *)*state);
    SCOPED_TEXT char *beside = mem_printf("%s/beside", (char *)*state);
    SCOPED_TEXT char *hf = mem_printf("%s/hf", (char *)*state);
    SCOPED(reader_close) struct reader *reader = copies_make(sharded, *state);
    struct error err;

    assert_int_equal(export_hf_write(reader, hf, NULL, NULL, NULL), STATUS_OK);
    assert_int_equal(import_hf_read(hf, beside, NULL, NULL, NULL), STATUS_OK);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        SCOPED_TEXT char *path = mem_printf("%s/%s", (char *)*state, names[i]);
        struct diff_sum sum;
        assert_int_equal(rename(source, path), 0);
        SCOPED(reader_close) struct reader *moved = copies_open(path);
        SCOPED(reader_close) struct reader *other = copies_open(beside);
        if (diff_run(moved, other, NULL, ignore_row, NULL, &sum, &err) != STATUS_OK)
            fail_msg("%s: %s", names[i], err.text);
        assert_int_equal(sum.same, 6);
        assert_int_equal(rename(path, source), 0);
    }
    sharded_destroy(sharded);
}

/* K13: elsewhere shards of an earlier export joined those of the next. */
static void k13_an_export_begins_empty(void **state)
{
    struct sharded *sharded = sharded_create(copies_two);
    SCOPED(reader_close) struct reader *reader = copies_make(sharded, *state);
    SCOPED_TEXT char *hf = mem_printf("%s/hf", (char *)*state);
    SCOPED_TEXT char *left = mem_printf("%s/hf.making-1", (char *)*state);
    SCOPED_TEXT char *stale = mem_printf("%s/model-00001-of-00009.safetensors", hf);
    SCOPED_TEXT char *late = mem_printf("%s/model-00009-of-00009.safetensors", left);
    struct error err;

    assert_int_equal(mkdir(hf, 0755), 0);
    assert_int_equal(mkdir(left, 0755), 0); /* of one that died */
    unit_write(stale, "old");
    unit_write(late, "old");
    assert_int_equal(export_hf_write(reader, hf, NULL, NULL, &err), STATUS_EXISTS);
    assert_int_equal(copies_names(hf), 1); /* and nothing was touched */
    assert_int_equal(unlink(stale), 0);
    if (export_hf_write(reader, hf, NULL, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(copies_names(hf), 1);
    assert_mode(hf, "model.safetensors", 0644);
    sharded_destroy(sharded);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(k2_modes_are_what_the_umask_says),
        T(k5_a_checkpoint_is_known_by_what_is_in_it),
        T(k13_an_export_begins_empty),
    };
    umask(022);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
