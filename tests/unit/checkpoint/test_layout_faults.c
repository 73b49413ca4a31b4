/* test_layout_faults.c - every hole, overlap and box out of bounds that is planted is found, and
 * nothing else is; a plan from such a layout is refused where it matters.
 *
 * The oracle counts the holders of each element. A failure prints its seed; RONDO_SEED=n runs it
 * alone. */
#include "tests/unit/unit.h"

#include <inttypes.h>

#include "checkpoint/layout_build.h"
#include "checkpoint/plan.h"
#include "tests/support/layout_random.h"

#define SEEDS        3000
#define WORLD        5
#define PARTS_MAX    300
#define ELEMENTS_MAX 65536

static uint64_t seed_now;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %" PRIu64 ": %s", seed_now, #condition);                                \
    } while (0)

/* One tensor, as boxes. */
struct parts {
    struct layout_tensor tensor;
    size_t count;
    uint32_t ranks[PARTS_MAX];
    struct layout_box boxes[PARTS_MAX];
};

static void collect(const struct layout_table *table, struct parts *out)
{
    out->tensor = *layout_table_at(table, 0);
    out->tensor.name = "w";
    out->tensor.name_len = 1;
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        size_t found = layout_table_pieces(table, 0, rank, out->boxes + out->count,
                                           PARTS_MAX - 1 - out->count);
        CHECK(out->count + found < PARTS_MAX);
        for (size_t i = 0; i < found; i++)
            out->ranks[out->count++] = rank;
    }
}

static enum status build(const struct parts *parts, struct layout_table **out, struct error *err)
{
    SCOPED(layout_build_destroy) struct layout_build *made = layout_build_create(WORLD);
    uint64_t numbers[PARTS_MAX * 2 * 5];
    uint32_t dims = parts->tensor.dims;
    struct layout_boxes boxes = {dims, parts->count, parts->ranks, numbers};
    struct layout_tensor tensor = parts->tensor;

    for (size_t i = 0; i < parts->count; i++)
        for (uint32_t d = 0; d < dims; d++) {
            numbers[i * 2 * dims + d] = parts->boxes[i].offset[d];
            numbers[i * 2 * dims + dims + d] = parts->boxes[i].size[d];
        }
    enum status st = layout_build_boxes(made, &boxes, &tensor.layout, err);
    if (st == STATUS_OK)
        st = layout_build_tensor(made, &tensor, err);
    return st == STATUS_OK ? layout_build_finish(made, out, err) : st;
}

/* What the oracle sees. Boxes that are equal count once. */
struct truth {
    bool holes, overlaps, outside, twice;
};

static bool equal_boxes(const struct layout_box *a, const struct layout_box *b, uint32_t dims)
{
    return memcmp(a->offset, b->offset, dims * sizeof(uint64_t)) == 0 &&
           memcmp(a->size, b->size, dims * sizeof(uint64_t)) == 0;
}

static void count_box(const struct parts *parts, const struct layout_box *box, uint8_t *held)
{
    uint64_t elements = layout_box_elements(box, parts->tensor.dims);

    for (uint64_t i = 0; i < elements; i++) {
        uint64_t rest = i, place = 0, step = 1;
        for (uint32_t d = parts->tensor.dims; d-- > 0;) {
            place += (box->offset[d] + rest % box->size[d]) * step;
            rest /= box->size[d];
            step *= parts->tensor.shape[d];
        }
        held[place]++;
    }
}

static struct truth look(const struct parts *parts, uint8_t *held)
{
    uint32_t dims = parts->tensor.dims;
    uint64_t elements = layout_tensor_elements(&parts->tensor);
    struct truth truth = {0};

    memset(held, 0, ELEMENTS_MAX);
    for (size_t i = 0; i < parts->count; i++) {
        bool again = false, empty = layout_box_elements(&parts->boxes[i], dims) == 0;
        for (size_t k = 0; k < i && !empty; k++)
            if (equal_boxes(&parts->boxes[i], &parts->boxes[k], dims)) {
                again = true;
                truth.twice |= parts->ranks[i] == parts->ranks[k];
            }
        for (uint32_t d = 0; d < dims && !empty; d++)
            truth.outside |=
                parts->boxes[i].offset[d] + parts->boxes[i].size[d] > parts->tensor.shape[d];
        if (!again && !empty && !truth.outside)
            count_box(parts, &parts->boxes[i], held);
    }
    for (uint64_t i = 0; i < elements; i++) {
        truth.holes |= held[i] == 0;
        truth.overlaps |= held[i] > 1;
    }
    return truth;
}

static void plant(struct layout_random *random, struct parts *parts)
{
    size_t at = (size_t)layout_random_below(random, parts->count);
    uint32_t dims = parts->tensor.dims;
    uint32_t dim = dims ? (uint32_t)layout_random_below(random, dims) : 0;
    struct layout_box *box = &parts->boxes[at];

    switch (layout_random_below(random, 6)) {
    case 0: /* lost */
        *box = parts->boxes[--parts->count];
        parts->ranks[at] = parts->ranks[parts->count];
        break;
    case 1: /* shorter */
        box->size[dim] -= dims > 0;
        break;
    case 2: /* longer */
        box->size[dim] += dims > 0;
        break;
    case 3: /* elsewhere */
        box->offset[dim] += dims > 0;
        break;
    case 4: /* held by one more, or twice by one */
        parts->ranks[parts->count] = (uint32_t)layout_random_below(random, WORLD);
        parts->boxes[parts->count++] = *box;
        break;
    default: /* another's place */
        *box = parts->boxes[layout_random_below(random, parts->count)];
    }
}

/* Loading everything on one rank meets every fault. */
static void plan_whole(const struct layout_table *source, const struct parts *parts,
                       enum status wanted)
{
    struct parts *one = NEW(struct parts);
    SCOPED(layout_table_destroy) struct layout_table *target = NULL;
    struct plan *plan = NULL;

    one->tensor = parts->tensor;
    one->count = 1;
    memcpy(one->boxes[0].size, parts->tensor.shape, sizeof one->boxes[0].size);
    CHECK(build(one, &target, NULL) == STATUS_OK);
    CHECK(plan_rank(source, target, 0, NULL, &plan, NULL) == wanted);
    plan_destroy(plan);
    mem_free(one);
}

static void check_verdict(const struct parts *parts, struct truth truth)
{
    SCOPED(layout_table_destroy) struct layout_table *table = NULL;
    struct error err = {0};
    enum status st = build(parts, &table, &err);

    if (truth.outside || truth.twice) {
        CHECK(st == STATUS_INVALID);
        CHECK(!truth.outside || truth.twice || strstr(err.text, "out of bounds"));
        return;
    }
    CHECK(st == STATUS_OK);
    st = layout_table_check(table, &err);
    CHECK(st == (truth.holes || truth.overlaps ? STATUS_INVALID : STATUS_OK));
    CHECK(st == STATUS_OK || strncmp(err.text, "tensor w: ", 10) == 0);
    CHECK(st == STATUS_OK || (strstr(err.text, ": hole: ") ? truth.holes : truth.overlaps));
    plan_whole(table, parts, st);
}

static void one_seed(uint64_t seed)
{
    struct layout_random random = {seed_now = seed};
    char names[8];
    struct layout_tensor tensor;
    static uint8_t held[ELEMENTS_MAX];
    struct parts *parts = NEW(struct parts);

    do
        layout_random_tensors(&random, &tensor, 1, names);
    while (layout_tensor_elements(&tensor) == 0 || layout_tensor_elements(&tensor) > ELEMENTS_MAX);
    tensor.dtype = DTYPE_BF16;
    SCOPED(layout_table_destroy)
    struct layout_table *table = layout_random_table(&random, WORLD, &tensor, 1, seed % 3 != 0);
    collect(table, parts);
    struct truth truth = look(parts, held);
    CHECK(!truth.holes && !truth.overlaps && !truth.outside && !truth.twice);
    for (uint64_t faults = layout_random_below(&random, 3); faults > 0 && parts->count; faults--)
        plant(&random, parts);
    check_verdict(parts, look(parts, held));
    mem_free(parts);
}

static void every_planted_fault_is_found(void **state)
{
    const char *only = getenv("RONDO_SEED");

    (void)state;
    if (only)
        one_seed(strtoull(only, NULL, 10));
    for (uint64_t seed = 1; seed <= SEEDS && !only; seed++)
        one_seed(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_planted_fault_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
