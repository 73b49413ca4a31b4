/* test_stored.c - loading through the C calls: another layout, damage that is named and told. */
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/unit.h"
#include "worker/member.h"
#include "worker/rondo.h"

enum { COUNT = 40000 };
static const char whole[] = "{\"format\":\"rondo-layout-1\",\"world\":1,\"layouts\":["
                            "{\"kind\":\"grid\",\"cuts\":[[0,200],[0,200]],\"ranks\":[[0]]}],"
                            "\"tensors\":[[\"w\",\"F32\",[200,200],0]],\"aliases\":{}}";
static const char parts[] =
    "{\"format\":\"rondo-layout-1\",\"world\":1,\"layouts\":[{\"kind\":\"boxes\",\"boxes\":["
    "[0,[0,0],[200,50]],[0,[0,50],[200,150]]]}],"
    "\"tensors\":[[\"w\",\"F32\",[200,200],0]],\"aliases\":{}}";
static float weights[COUNT];

static int join(const char *dir)
{
    struct rondo_options options = {.size = sizeof options, .checkpoint_dir = dir};
    struct rondo_job job = {.size = sizeof job};

    (void)unsetenv("RONDO_DIR");
    (void)setenv("WORLD_SIZE", "1", 1);
    (void)setenv("RANK", "0", 1);
    return rondo_join(&options, &job);
}

static int setup(void **state)
{
    *state = unit_dir_create();
    for (int i = 0; i < COUNT; i++)
        weights[i] = (float)i;
    return join(*state);
}

static int teardown(void **state)
{
    unit_dir_destroy(*state);
    return 0;
}

static void save(int64_t step)
{
    const struct rondo_piece given = {weights, sizeof weights, 0, 0};
    struct rondo_save save = {.size = sizeof save,
                              .step = step,
                              .layout = whole,
                              .layout_len = strlen(whole),
                              .pieces = &given,
                              .pieces_count = 1,
                              .state = "{\"common\":{},\"rank\":{}}",
                              .state_len = 23};

    assert_int_equal(rondo_save_sharded(&save), 0);
}

static int load(struct rondo_stored *stored, const char *layout, float *out, uint64_t first)
{
    const struct rondo_piece target[] = {{out, first, 0, 0},
                                         {(char *)out + first, sizeof weights - first, 0, 0}};
    struct rondo_load load = {.size = sizeof load,
                              .layout = layout,
                              .layout_len = strlen(layout),
                              .pieces = target,
                              .pieces_count = first == sizeof weights ? 1 : 2};

    return rondo_load_sharded(stored, &load);
}

static void another_layout_gets_its_own_parts(void **state)
{
    static float found[COUNT];
    struct rondo_stored *stored = NULL;

    save(1);
    assert_int_equal(rondo_stored_open(unit_path(*state, "step-1"), 0, &stored), 0);
    assert_int_equal(load(stored, parts, found, 200 * 50 * sizeof(float)), 0);
    for (int i = 0; i < 200; i++) {
        assert_memory_equal(&found[50 * i], &weights[200 * i], 50 * sizeof(float));
        assert_memory_equal(&found[10000 + 150 * i], &weights[200 * i + 50], 150 * sizeof(float));
    }
    assert_int_equal(load(stored, "{}", found, sizeof weights), -RONDO_INVALID);
    rondo_stored_close(stored);
}

static void flip(void **state, const char *where, const char *file, off_t at)
{
    char path[4096], byte;
    int fd;

    (void)snprintf(path, sizeof path, "%s/%s", unit_path(*state, where), file);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte = (char)(byte ^ 0x10);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
}

static void damage_is_named_by_file_and_block(void **state)
{
    static float found[COUNT];
    struct rondo_stored *stored = NULL;

    save(2);
    assert_int_equal(rondo_stored_open(unit_path(*state, "step-2"), 0, &stored), 0);
    flip(state, "step-2/trainer-0", "shard-00001-model-00001-of-00001.safetensors", 65536 + 9);
    assert_int_equal(load(stored, whole, found, sizeof weights), -RONDO_DATA_LOSS);
    assert_non_null(strstr(rondo_error(), "shard-00001-model-00001-of-00001.safetensors, block 1"));
    rondo_stored_close(stored);
    /* It was not what the job resumes from: it stays where it is. */
    assert_int_equal(access(unit_path(*state, "step-2/manifest.json"), F_OK), 0);
}

static void a_damaged_layout_is_found_when_it_is_opened(void **state)
{
    struct rondo_stored *stored = NULL;

    save(3);
    flip(state, "step-3/trainer-0", "layout.json", 30);
    assert_int_equal(rondo_stored_open(unit_path(*state, "step-3"), 0, &stored), -RONDO_DATA_LOSS);
    assert_null(stored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_layout_gets_its_own_parts),
        cmocka_unit_test(damage_is_named_by_file_and_block),
        cmocka_unit_test(a_damaged_layout_is_found_when_it_is_opened),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
