/* test_alone.c - checkpoints outside Rondo: one counts when every rank that wrote it is done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "worker/alone.h"

enum { WORLD = 3 };

struct fixture {
    char path[64];
    struct alone ranks[WORLD];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    (void)snprintf(f->path, sizeof f->path, "/tmp/alone-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    for (uint32_t rank = 0; rank < WORLD; rank++)
        assert_int_equal(alone_init(&f->ranks[rank], f->path, "main", rank, WORLD), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    int rc = file_remove_tree(f->path, NULL) == STATUS_OK ? 0 : -1;

    free(f);
    return rc;
}

static void save(const struct alone *alone, int64_t step)
{
    char dir[4096], path[4200];

    assert_int_equal(alone_save_dir(alone, step, dir, sizeof dir), 0);
    (void)snprintf(path, sizeof path, "%s/weights", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "w", 1), 1);
    (void)close(fd);
}

static void counts_once_every_rank_is_done(void **state)
{
    struct fixture *f = *state;
    struct alone_point point = {.step = -1};

    assert_int_equal(alone_newest(&f->ranks[0], &point), 0);
    for (int rank = 0; rank < WORLD; rank++)
        save(&f->ranks[rank], 10);
    for (int rank = 0; rank < WORLD; rank++) {
        assert_int_equal(alone_newest(&f->ranks[0], &point), 0);
        assert_int_equal(alone_commit(&f->ranks[rank], 10, 80), 0);
    }
    assert_int_equal(alone_newest(&f->ranks[2], &point), 1);
    assert_int_equal(point.step, 10);
    assert_int_equal(point.samples, 80);
    assert_int_equal(access(point.dir, R_OK), 0);
}

static void the_newest_complete_one_wins(void **state)
{
    struct fixture *f = *state;
    struct alone_point point;

    for (int64_t step = 9; step <= 11; step++)
        for (int rank = 0; rank < WORLD; rank++) {
            save(&f->ranks[rank], step);
            if (step < 11 || rank > 0) /* the last one is not whole */
                assert_int_equal(alone_commit(&f->ranks[rank], step, 8 * step), 0);
        }
    assert_int_equal(alone_newest(&f->ranks[0], &point), 1);
    assert_int_equal(point.step, 10);
    assert_int_equal(point.samples, 80);
}

/* Saving a step again, or giving up, takes back what counted before. */
static void saving_again_starts_from_nothing(void **state)
{
    struct fixture *f = *state;
    struct alone_point point;

    for (int rank = 0; rank < WORLD; rank++) {
        save(&f->ranks[rank], 5);
        assert_int_equal(alone_commit(&f->ranks[rank], 5, 1), 0);
    }
    save(&f->ranks[1], 5); /* O_EXCL: the old file is gone */
    assert_int_equal(alone_newest(&f->ranks[0], &point), 0);
    assert_int_equal(alone_commit(&f->ranks[1], 5, 1), 0);
    assert_int_equal(alone_newest(&f->ranks[0], &point), 1);
}

static void aborting_removes_every_trace(void **state)
{
    struct fixture *f = *state;
    struct alone_point point;
    char path[128];

    for (int rank = 0; rank < WORLD; rank++)
        save(&f->ranks[rank], 5);
    for (int rank = 0; rank < WORLD; rank++)
        assert_int_equal(alone_abort(&f->ranks[rank], 5), 0);
    (void)snprintf(path, sizeof path, "%s/step-5", f->path);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(alone_newest(&f->ranks[0], &point), 0);
}

static void small_buffers_and_long_roots_are_refused(void **state)
{
    struct fixture *f = *state;
    struct alone alone;
    char dir[8], root[4000];

    assert_int_equal(alone_save_dir(&f->ranks[0], 1, dir, sizeof dir), -ENAMETOOLONG);
    memset(root, 'a', sizeof root);
    root[0] = '/';
    root[sizeof root - 1] = '\0';
    assert_int_equal(alone_init(&alone, root, "main", 0, 1), -ENAMETOOLONG);
}

static const struct alone_file shard = {"shard-00001-model-00001-of-00001.safetensors", 1, 7,
                                        "0123456789abcdef0123456789abcdef"};

static int commit_sharded(const struct alone *alone, int64_t step, char digit)
{
    struct alone_part part = {.files_count = 1, .files = &shard};

    memset(part.layout_digest, digit, 32);
    save(alone, step);
    return alone_commit_sharded(alone, step, 10 * step, &part);
}

static bool has_manifest(const struct fixture *f, int64_t step)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/step-%d/manifest.json", f->path, (int)step);
    return access(path, F_OK) == 0;
}

static void sharded_parts_get_a_manifest_from_whoever_comes_last(void **state)
{
    struct fixture *f = *state;
    struct alone_point point;

    assert_int_equal(commit_sharded(&f->ranks[2], 4, 'a'), 0);
    assert_int_equal(commit_sharded(&f->ranks[0], 4, 'a'), 0);
    assert_false(has_manifest(f, 4));
    assert_int_equal(alone_newest(&f->ranks[1], &point), 0);
    assert_int_equal(commit_sharded(&f->ranks[1], 4, 'a'), 0);
    assert_true(has_manifest(f, 4));
    assert_int_equal(alone_newest(&f->ranks[1], &point), 1);
    assert_int_equal(point.samples, 40);
}

static void sharded_parts_of_two_layouts_are_no_checkpoint(void **state)
{
    struct fixture *f = *state;
    struct alone_point point;

    assert_int_equal(commit_sharded(&f->ranks[0], 4, 'a'), 0);
    assert_int_equal(commit_sharded(&f->ranks[1], 4, 'b'), 0);
    assert_int_equal(commit_sharded(&f->ranks[2], 4, 'a'), -EINVAL);
    assert_false(has_manifest(f, 4));
    assert_int_equal(alone_newest(&f->ranks[0], &point), 0);
}

static void writing_a_sharded_part_again_takes_the_manifest_away_first(void **state)
{
    struct fixture *f = *state;
    char dir[4096];

    for (int rank = 0; rank < WORLD; rank++)
        assert_int_equal(commit_sharded(&f->ranks[rank], 4, 'a'), 0);
    assert_int_equal(alone_save_dir(&f->ranks[1], 4, dir, sizeof dir), 0);
    assert_false(has_manifest(f, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counts_once_every_rank_is_done, setup, teardown),
        cmocka_unit_test_setup_teardown(the_newest_complete_one_wins, setup, teardown),
        cmocka_unit_test_setup_teardown(saving_again_starts_from_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(aborting_removes_every_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(small_buffers_and_long_roots_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(sharded_parts_get_a_manifest_from_whoever_comes_last, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(sharded_parts_of_two_layouts_are_no_checkpoint, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(writing_a_sharded_part_again_takes_the_manifest_away_first,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
