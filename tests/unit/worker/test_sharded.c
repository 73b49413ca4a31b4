/* test_sharded.c - the C calls for sharded checkpoints, outside Rondo: save, open, load, and what
 * they refuse. */
#include <unistd.h>

#include "tests/unit/unit.h"
#include "worker/member.h"
#include "worker/rondo.h"

static const char whole[] = "{\"format\":\"rondo-layout-1\",\"world\":1,\"layouts\":["
                            "{\"kind\":\"grid\",\"cuts\":[[0,4]],\"ranks\":[[0]]}],"
                            "\"tensors\":[[\"w\",\"F32\",[4],0]],\"aliases\":{}}";
static const char hole[] = "{\"format\":\"rondo-layout-1\",\"world\":1,\"layouts\":["
                           "{\"kind\":\"boxes\",\"boxes\":[[0,[0],[3]]]}],"
                           "\"tensors\":[[\"w\",\"F32\",[4],0]],\"aliases\":{}}";
static const char state_text[] = "{\"common\":{\"lr\":0.5},\"rank\":{}}";
static char *dir;
static float weights[4] = {1, 2, 3, 4};

static struct rondo_save save_of(int64_t step, const char *layout, const struct rondo_piece *piece)
{
    return (struct rondo_save){.size = sizeof(struct rondo_save),
                               .step = step,
                               .samples = 8 * step,
                               .layout = layout,
                               .layout_len = strlen(layout),
                               .pieces = piece,
                               .pieces_count = 1,
                               .state = state_text,
                               .state_len = strlen(state_text)};
}

static int setup(void **state)
{
    struct rondo_options options = {.size = sizeof options};
    struct rondo_job job = {.size = sizeof job};

    (void)state;
    dir = unit_dir_create();
    options.checkpoint_dir = dir;
    (void)unsetenv("RONDO_DIR");
    (void)setenv("WORLD_SIZE", "1", 1);
    (void)setenv("RANK", "0", 1);
    return rondo_join(&options, &job);
}

static int teardown(void **state)
{
    (void)state;
    unit_dir_destroy(dir);
    return 0;
}

static void what_was_saved_is_loaded(void **state)
{
    const struct rondo_piece given = {weights, sizeof weights, 0, 0};
    struct rondo_save save = save_of(3, whole, &given);
    float found[4] = {0};
    const struct rondo_piece target = {found, sizeof found, 0, 0};
    struct rondo_load load = {.size = sizeof load,
                              .layout = whole,
                              .layout_len = strlen(whole),
                              .pieces = &target,
                              .pieces_count = 1};
    struct rondo_stored *stored = NULL;
    const char *text;
    size_t len;

    (void)state;
    assert_int_equal(rondo_save_sharded(&save), 0);
    assert_int_equal(save.how, RONDO_IN_FILE);
    assert_int_equal(rondo_stored_open(unit_path(dir, "step-3"), 0, &stored), 0);
    assert_int_equal(rondo_stored_state(stored, 0, &text, &len), 0);
    assert_int_equal(len, strlen(state_text));
    assert_memory_equal(text, state_text, len);
    assert_int_equal(rondo_load_sharded(stored, &load), 0);
    assert_memory_equal(found, weights, sizeof weights);
    assert_int_equal(load.bytes, sizeof weights);
    assert_int_equal(rondo_stored_state(stored, 7, &text, &len) < 0, 1);
    rondo_stored_close(stored);
    rondo_stored_close(NULL);
}

static void bad_saves_are_refused_and_leave_nothing(void **state)
{
    const struct rondo_piece given = {weights, sizeof weights, 0, 0}, few = {weights, 8, 0, 0};
    struct rondo_save bad[] = {save_of(9, hole, &given),  save_of(9, "{}", &given),
                               save_of(9, whole, &few),   save_of(-1, whole, &given),
                               save_of(9, whole, &given), save_of(9, whole, &given)};

    (void)state;
    bad[4].size = 8;
    bad[5].state_len = 0;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(rondo_save_sharded(&bad[i]), -RONDO_INVALID);
        assert_true(rondo_error()[0] != '\0');
        assert_int_not_equal(access(unit_path(dir, "step-9"), F_OK), 0);
    }
}

static void a_directory_without_a_checkpoint_is_said(void **state)
{
    struct rondo_stored *stored = NULL;

    (void)state;
    assert_int_equal(rondo_stored_open(unit_path(dir, "none"), 0, &stored), -RONDO_NOT_FOUND);
    assert_null(stored);
}

static void saving_again_uses_the_tables_that_are_there(void **state)
{
    const struct rondo_piece given = {weights, sizeof weights, 0, 0};

    (void)state;
    assert_int_equal(rondo_prepare_sharded(whole, strlen(whole)), 0);
    for (int64_t step = 20; step < 24; step++) {
        struct rondo_save save = save_of(step, whole, &given);
        assert_int_equal(rondo_save_sharded(&save), 0);
    }
    assert_int_equal(access(unit_path(dir, "step-23/manifest.json"), F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_is_loaded),
        cmocka_unit_test(bad_saves_are_refused_and_leave_nothing),
        cmocka_unit_test(a_directory_without_a_checkpoint_is_said),
        cmocka_unit_test(saving_again_uses_the_tables_that_are_there),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
