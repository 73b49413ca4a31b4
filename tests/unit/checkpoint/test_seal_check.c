/* test_seal_check.c - a part that is not what its layout says is never sealed. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "checkpoint/seal_check.h"
#include "checkpoint/shard_image.h"
#include "tests/support/layout_random.h"

#define TENSORS   6
#define FILES_MAX 128

/* A directory with what the rank writes by that layout; its data is a hole. */
struct part {
    char *path;
    int dir;
    size_t count;
    char names[FILES_MAX][SHARD_IMAGE_NAME_MAX];
    const char *list[FILES_MAX];
};

static void write_file(const struct part *part, const char *name, const void *head, size_t len,
                       uint64_t bytes)
{
    int fd = openat(part->dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, head, len), (ssize_t)len);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    close(fd);
}

static void part_write(struct part *part, const struct layout_table *storage, uint32_t rank)
{
    SCOPED(shard_image_destroy) struct shard_image *image = NULL;

    part->path = unit_dir_create();
    part->dir = open(part->path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(shard_image_create(storage, rank, &image, NULL), STATUS_OK);
    part->count = shard_image_files(image);
    assert_in_range(part->count, 0, FILES_MAX - 2);
    for (uint32_t i = 0; i < part->count; i++) {
        size_t len;
        const void *head = shard_image_head(image, i, &len);
        (void)snprintf(part->names[i], sizeof part->names[i], "%s", shard_image_name(image, i));
        part->list[i] = part->names[i];
        write_file(part, part->names[i], head, len, shard_image_bytes(image, i));
    }
    part->list[part->count++] = "state.json"; /* not looked at */
}

static void part_remove(struct part *part)
{
    close(part->dir);
    unit_dir_destroy(part->path);
}

static struct layout_table *parsed(const char *layouts, const char *tensors)
{
    SCOPED_TEXT char *json =
        mem_printf("{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":[%s],\"tensors\":[%s],"
                   "\"aliases\":{\"tied\":\"a\"}}",
                   layouts, tensors);
    struct layout_table *table = NULL;
    struct error err = {0};

    if (layout_table_parse(json, strlen(json), &table, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return table;
}

#define ROWS  "{\"kind\":\"grid\",\"cuts\":[[0,4,8],[0,6]],\"ranks\":[[0],[1]]}"
#define FUSED "{\"kind\":\"grid\",\"cuts\":[[0,2,4,6,8]],\"ranks\":[[0],[1],[0],[1]]}"
#define A     "[\"a\",\"F32\",[8,6],0]"
#define Q     "[\"q\",\"BF16\",[8],1]"

/* Written by one layout, checked by another. */
static void expect(const char *layouts, const char *tensors, uint32_t rank, const char *complaint)
{
    SCOPED(layout_table_destroy) struct layout_table *written = parsed(ROWS "," FUSED, A "," Q);
    SCOPED(layout_table_destroy) struct layout_table *wanted = parsed(layouts, tensors);
    struct error err = {.text = "success"};
    struct part part;

    part_write(&part, written, 0);
    enum status st = seal_check_part(part.dir, part.list, part.count, wanted, rank, &err);
    if (complaint ? st != STATUS_DATA_LOSS || !strstr(err.text, complaint) : st != STATUS_OK)
        fail_msg("wanted %s, got %s", complaint ? complaint : "success", err.text);
    part_remove(&part);
}

static void what_the_layout_says_is_accepted(void **state)
{
    (void)state;
    expect(ROWS "," FUSED, A "," Q, 0, NULL);
}

static void everything_else_is_named(void **state)
{
    (void)state;
    expect(ROWS "," FUSED, A "," Q, 1, "shard-00002-model-00001-of-00002.safetensors is not there");
    expect(ROWS "," FUSED, A "," Q, 2, "rank 2 of a world of 2");
    expect(ROWS "," FUSED, A, 0, "2 shard files, but 1 by the layout");
    expect(ROWS "," FUSED, A "," Q ",[\"b\",\"F32\",[8,6],0]", 0, "tensor b: it is not there");
    expect(ROWS "," FUSED, "[\"a\",\"I32\",[8,6],0]," Q, 0, "tensor a: another dtype");
    expect(ROWS "," FUSED, A ",[\"r\",\"BF16\",[8],1]", 0, "tensor q: the layout does not have it");
    expect("{\"kind\":\"grid\",\"cuts\":[[0,5,8],[0,6]],\"ranks\":[[0],[1]]}," FUSED, A "," Q, 0,
           "tensor a: another shape");
    expect("{\"kind\":\"grid\",\"cuts\":[[0,4,8],[0,6]],\"ranks\":[[1],[0]]}," FUSED, A "," Q, 0,
           "tensor a: it is from another place");
    expect("{\"kind\":\"grid\",\"cuts\":[[0,8],[0,6]],\"ranks\":[[1]]}," FUSED, A "," Q, 0,
           "tensor a: the rank has no such piece");
}

static void files_that_are_gone_cut_or_links_are_refused(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *table = parsed(ROWS "," FUSED, A "," Q);
    struct part part;
    struct error err;

    (void)state;
    part_write(&part, table, 0);
    for (int step = 0; step < 4; step++) {
        const char *path = unit_path(part.path, part.names[1]);
        if (step == 0)
            assert_int_equal(truncate(path, 4098), 0);
        if (step == 1)
            assert_int_equal(truncate(path, 3), 0);
        if (step == 2) {
            assert_int_equal(unlink(path), 0);
            assert_int_equal(symlink(part.names[0], path), 0);
        }
        if (step == 3)
            assert_int_equal(unlink(path), 0);
        assert_int_not_equal(seal_check_part(part.dir, part.list, part.count, table, 0, &err),
                             STATUS_OK);
        assert_non_null(strstr(err.text, part.names[1]));
        assert_int_not_equal(seal_check_part(part.dir, part.list, part.count, table, 0, NULL),
                             STATUS_OK);
    }
    part.list[part.count++] = "more.safetensors";
    assert_int_equal(seal_check_part(part.dir, part.list, part.count, table, 0, &err),
                     STATUS_DATA_LOSS);
    part_remove(&part);
}

static void what_any_rank_writes_by_any_layout_is_accepted(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct layout_random random = {seed};
        struct layout_tensor tensors[TENSORS];
        char names[TENSORS * 8];
        uint32_t world = 1 + (uint32_t)seed % 7;
        layout_random_tensors(&random, tensors, TENSORS, names);
        SCOPED(layout_table_destroy)
        struct layout_table *declared =
            layout_random_table(&random, world, tensors, TENSORS, false);
        SCOPED(layout_table_destroy) struct layout_table *storage = NULL;
        assert_int_equal(layout_table_assign(declared, &storage, NULL), STATUS_OK);
        uint32_t rank = (uint32_t)layout_random_below(&random, world);
        struct part part;
        struct error err;
        part_write(&part, storage, rank);
        if (seal_check_part(part.dir, part.list, part.count, storage, rank, &err) != STATUS_OK)
            fail_msg("seed %d: %s", (int)seed, err.text);
        part_remove(&part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_layout_says_is_accepted),
        cmocka_unit_test(everything_else_is_named),
        cmocka_unit_test(files_that_are_gone_cut_or_links_are_refused),
        cmocka_unit_test(what_any_rank_writes_by_any_layout_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
