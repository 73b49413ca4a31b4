/* test_layout_assign.c - one writer for each element, evenly, and the same on every rank.
 *
 * A failure prints its seed. */
#include "tests/unit/unit.h"

#include <inttypes.h>

#include "checkpoint/layout.h"
#include "tests/support/layout_random.h"

#define TENSORS    8
#define SEEDS      300
#define PIECES_MAX 512

static uint64_t seed_now;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %" PRIu64 ": %s", seed_now, #condition);                                \
    } while (0)

static bool box_within(const struct layout_box *inner, const struct layout_box *outer,
                       uint32_t dims)
{
    for (uint32_t d = 0; d < dims; d++)
        if (inner->offset[d] < outer->offset[d] ||
            inner->offset[d] + inner->size[d] > outer->offset[d] + outer->size[d])
            return false;
    return true;
}

/* Whoever writes a piece has all of it in one piece of its declared memory. */
static void writers_are_holders(const struct layout_table *declared,
                                const struct layout_table *storage)
{
    static struct layout_box own[PIECES_MAX], written[PIECES_MAX];

    for (size_t t = 0; t < layout_table_count(storage); t++) {
        const struct layout_tensor *tensor = layout_table_at(storage, t);
        size_t from = 0;
        CHECK(layout_table_find(declared, tensor->name, tensor->name_len, &from));
        for (uint32_t r = 0; r < layout_table_world(storage); r++) {
            size_t own_count = layout_table_pieces(declared, from, r, own, PIECES_MAX);
            size_t count = layout_table_pieces(storage, t, r, written, PIECES_MAX);
            CHECK(own_count <= PIECES_MAX && count <= PIECES_MAX);
            for (size_t i = 0; i < count; i++) {
                bool found = false;
                for (size_t k = 0; k < own_count; k++)
                    found |= box_within(&written[i], &own[k], tensor->dims);
                CHECK(found);
            }
        }
    }
}

static void one_seed(uint64_t seed)
{
    struct layout_random random = {seed_now = seed};
    char names[TENSORS * 8];
    struct layout_tensor tensors[TENSORS];
    uint32_t world = 1 + (uint32_t)layout_random_below(&random, 12);
    struct error err;

    layout_random_tensors(&random, tensors, TENSORS, names);
    if (seed % 2) /* large enough that items are split */
        for (size_t i = 0; i < TENSORS; i++)
            if (tensors[i].dims)
                tensors[i].shape[0] *= 1 << 20;
    SCOPED(layout_table_destroy)
    struct layout_table *declared = layout_random_table(&random, world, tensors, TENSORS, false);
    SCOPED(layout_table_destroy) struct layout_table *storage = NULL;
    if (layout_table_assign(declared, &storage, &err) != STATUS_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, err.text);
    if (layout_table_check_storage(storage, &err) != STATUS_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, err.text);
    writers_are_holders(declared, storage);
}

static void every_element_has_one_writer_among_its_holders(void **state)
{
    const char *only = getenv("RONDO_SEED");

    (void)state;
    if (only)
        one_seed(strtoull(only, NULL, 10));
    for (uint64_t seed = 1; seed <= SEEDS && !only; seed++)
        one_seed(seed);
}

/* count tensors of rows x 1024 F32, all on all ranks; listed forwards or backwards, with one layout
 * or one each. */
static struct layout_table *replicated(uint32_t world, uint32_t count, uint64_t rows, bool turned)
{
    SCOPED(layout_build_destroy) struct layout_build *build = layout_build_create(world);
    uint64_t cuts[2][2] = {{0, rows}, {0, 1024}};
    uint32_t at[2] = {0, world}, ranks[64];
    struct layout_grid grid = {2, {cuts[0], cuts[1]}, {2, 2}, at, ranks};
    struct layout_tensor tensor = {.dtype = DTYPE_F32, .dims = 2, .shape = {rows, 1024}};
    struct layout_table *table = NULL;
    struct error err;

    for (uint32_t i = 0; i < world; i++)
        ranks[i] = turned ? world - 1 - i : i;
    for (uint32_t i = 0; i < count; i++) {
        char name[16];
        tensor.name_len =
            (size_t)snprintf(name, sizeof name, "t%" PRIu32, turned ? count - 1 - i : i);
        tensor.name = name;
        if (i == 0 || turned)
            assert_int_equal(layout_build_grid(build, &grid, &tensor.layout, &err), STATUS_OK);
        assert_int_equal(layout_build_tensor(build, &tensor, &err), STATUS_OK);
    }
    assert_int_equal(layout_build_finish(build, &table, &err), STATUS_OK);
    return table;
}

static uint64_t bytes_of_rank(const struct layout_table *table, uint32_t rank)
{
    struct layout_box boxes[16];
    uint64_t bytes = 0;

    for (size_t t = 0; t < layout_table_count(table); t++) {
        size_t count = layout_table_pieces(table, t, rank, boxes, 16);
        assert_in_range(count, 0, 16);
        for (size_t i = 0; i < count; i++)
            bytes += layout_box_bytes(&boxes[i], layout_table_at(table, t));
    }
    return bytes;
}

static void replicas_share_the_work_evenly(void **state)
{
    static const struct {
        uint32_t world, count;
        uint64_t rows;
    } cases[] = {{8, 100, 16}, {8, 3, 4096}, {5, 7, 1000}, {64, 30, 3000}, {2, 1, 8192}};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        SCOPED(layout_table_destroy)
        struct layout_table *declared =
            replicated(cases[i].world, cases[i].count, cases[i].rows, false);
        SCOPED(layout_table_destroy) struct layout_table *storage = NULL;
        uint64_t most = 0, all = cases[i].count * cases[i].rows * 4096;
        assert_int_equal(layout_table_assign(declared, &storage, NULL), STATUS_OK);
        assert_int_equal(layout_table_check_storage(storage, NULL), STATUS_OK);
        for (uint32_t r = 0; r < cases[i].world; r++) {
            uint64_t bytes = bytes_of_rank(storage, r);
            most = bytes > most ? bytes : most;
        }
        /* No more than the mean and one part. */
        assert_in_range(most, 0, all / cases[i].world + (2 << 20));
    }
}

static void order_of_listing_changes_nothing(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *one = replicated(6, 30, 700, false);
    SCOPED(layout_table_destroy) struct layout_table *other = replicated(6, 30, 700, true);
    SCOPED(layout_table_destroy) struct layout_table *one_stored = NULL;
    SCOPED(layout_table_destroy) struct layout_table *other_stored = NULL;

    (void)state;
    assert_string_not_equal(layout_table_digest(one), layout_table_digest(other));
    assert_int_equal(layout_table_assign(one, &one_stored, NULL), STATUS_OK);
    assert_int_equal(layout_table_assign(other, &other_stored, NULL), STATUS_OK);
    assert_string_equal(layout_table_digest(one_stored), layout_table_digest(other_stored));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_has_one_writer_among_its_holders),
        cmocka_unit_test(replicas_share_the_work_evenly),
        cmocka_unit_test(order_of_listing_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
