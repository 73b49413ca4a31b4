/* test_plan_random.c - any layout to any other: every byte arrives, once, from where it must.
 *
 * A failure prints its seed; RONDO_SEED=n runs that one alone. */
#include "tests/unit/unit.h"

#include <inttypes.h>

#include "checkpoint/plan.h"
#include "tests/support/layout_random.h"

#define TENSORS    6
#define SEEDS      400
#define PIECES_MAX 256
#define WORLD_MAX  12

static uint64_t seed_now;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %" PRIu64 ": %s", seed_now, #condition);                                \
    } while (0)

/* The memory of all ranks: a buffer for each piece. */
struct memory {
    const struct layout_table *table;
    size_t counts[TENSORS][WORLD_MAX];
    struct layout_box boxes[TENSORS][WORLD_MAX][PIECES_MAX];
    uint8_t *bytes[TENSORS][WORLD_MAX][PIECES_MAX];
};

static struct memory *memory_create(const struct layout_table *table, bool filled)
{
    struct memory *memory = NEW(struct memory);

    memory->table = table;
    for (uint32_t t = 0; t < TENSORS; t++) {
        const struct layout_tensor *tensor = layout_table_at(table, t);
        for (uint32_t r = 0; r < layout_table_world(table); r++) {
            size_t count = layout_table_pieces(table, t, r, memory->boxes[t][r], PIECES_MAX);
            CHECK(count <= PIECES_MAX);
            memory->counts[t][r] = count;
            for (size_t i = 0; i < count; i++) {
                struct layout_box *box = &memory->boxes[t][r][i];
                memory->bytes[t][r][i] = mem_alloc(layout_box_bytes(box, tensor));
                if (filled)
                    layout_random_fill(tensor, t, box, memory->bytes[t][r][i]);
            }
        }
    }
    return memory;
}

static void memory_destroy(struct memory *memory)
{
    for (uint32_t t = 0; t < TENSORS; t++)
        for (uint32_t r = 0; r < WORLD_MAX; r++)
            for (size_t i = 0; i < memory->counts[t][r]; i++)
                mem_free(memory->bytes[t][r][i]);
    mem_free(memory);
}
SCOPED_DESTRUCTOR(struct memory *, memory_destroy)

/* Copies, and counts each byte that it writes. */
static void run_loop(const struct plan_run *run, uint32_t loop, const uint8_t *source,
                     uint8_t *target, uint8_t *counted)
{
    if (loop == run->loops) {
        memcpy(target, source, run->bytes);
        for (uint64_t i = 0; i < run->bytes; i++)
            counted[i]++;
        return;
    }
    for (uint64_t i = 0; i < run->loop[loop].count; i++) {
        uint64_t skip = i * run->loop[loop].target_step;
        run_loop(run, loop + 1, source + i * run->loop[loop].source_step, target + skip,
                 counted + skip);
    }
}

/* Runs the plans of all ranks; adds up what they read of each rank of the source. */
static void move(const struct memory *source, struct memory *target, struct memory *counted,
                 uint64_t *source_bytes, uint64_t *target_bytes, uint64_t *runs)
{
    for (uint32_t r = 0; r < layout_table_world(target->table); r++) {
        SCOPED(plan_destroy) struct plan *plan = NULL;
        struct plan_cursor at = {0};
        struct plan_run run;
        struct error err;
        uint64_t bytes = 0, count = 0;

        if (plan_rank(source->table, target->table, r, NULL, &plan, &err) != STATUS_OK)
            fail_msg("seed %" PRIu64 ": %s", seed_now, err.text);
        for (; plan_next(plan, &at, &run); count++) {
            CHECK(run.source_piece < source->counts[run.source_tensor][run.source_rank]);
            CHECK(run.target_piece < target->counts[run.tensor][r]);
            run_loop(&run, 0,
                     source->bytes[run.source_tensor][run.source_rank][run.source_piece] +
                         run.source_at,
                     target->bytes[run.tensor][r][run.target_piece] + run.target_at,
                     counted->bytes[run.tensor][r][run.target_piece] + run.target_at);
            bytes += plan_run_bytes(&run);
            source_bytes[run.source_rank] += plan_run_bytes(&run);
        }
        CHECK(bytes == plan_bytes(plan));
        CHECK(count == plan_count(plan));
        target_bytes[r] = bytes;
        *runs += count;
    }
}

static void check_bytes(const struct memory *target, const struct memory *counted)
{
    for (uint32_t t = 0; t < TENSORS; t++) {
        const struct layout_tensor *tensor = layout_table_at(target->table, t);
        for (uint32_t r = 0; r < layout_table_world(target->table); r++)
            for (size_t i = 0; i < target->counts[t][r]; i++) {
                const struct layout_box *box = &target->boxes[t][r][i];
                uint64_t bytes = layout_box_bytes(box, tensor);
                SCOPED(mem_free) void *wanted = mem_alloc(bytes);
                layout_random_fill(tensor, t, box, wanted);
                CHECK(memcmp(wanted, target->bytes[t][r][i], bytes) == 0);
                for (uint64_t k = 0; k < bytes; k++)
                    CHECK(counted->bytes[t][r][i][k] == 1);
            }
    }
}

static bool boxes_meet(const struct layout_box *a, const struct layout_box *b, uint32_t dims)
{
    for (uint32_t d = 0; d < dims; d++)
        if (a->offset[d] >= b->offset[d] + b->size[d] || b->offset[d] >= a->offset[d] + a->size[d])
            return false;
    return true;
}

/* All pairs of pieces that meet: as many runs there must be, where each part has one holder. */
static uint64_t count_pairs(const struct memory *source, const struct memory *target)
{
    uint64_t pairs = 0;

    for (uint32_t t = 0; t < TENSORS; t++) {
        uint32_t dims = layout_table_at(source->table, t)->dims;
        for (uint32_t r = 0; r < layout_table_world(target->table); r++)
            for (size_t i = 0; i < target->counts[t][r]; i++)
                for (uint32_t s = 0; s < layout_table_world(source->table); s++)
                    for (size_t k = 0; k < source->counts[t][s]; k++)
                        pairs += boxes_meet(&source->boxes[t][s][k], &target->boxes[t][r][i], dims);
    }
    return pairs;
}

/* From what the first plans made to a third layout: the same as at once. */
static void move_on(const struct memory *from, const struct layout_table *target)
{
    SCOPED(memory_destroy) struct memory *to = memory_create(target, false);
    SCOPED(memory_destroy) struct memory *counted = memory_create(target, false);
    uint64_t source_bytes[WORLD_MAX] = {0}, target_bytes[WORLD_MAX] = {0}, runs = 0;

    move(from, to, counted, source_bytes, target_bytes, &runs);
    check_bytes(to, counted);
}

static void one_seed(uint64_t seed)
{
    struct layout_random random = {seed_now = seed};
    char names[TENSORS * 8];
    struct layout_tensor tensors[TENSORS];
    uint32_t worlds[2] = {1 + (uint32_t)layout_random_below(&random, WORLD_MAX),
                          1 + (uint32_t)layout_random_below(&random, WORLD_MAX)};
    bool single = layout_random_below(&random, 2);

    layout_random_tensors(&random, tensors, TENSORS, names);
    SCOPED(layout_table_destroy)
    struct layout_table *source = layout_random_table(&random, worlds[0], tensors, TENSORS, single);
    SCOPED(layout_table_destroy)
    struct layout_table *target = layout_random_table(&random, worlds[1], tensors, TENSORS, false);
    struct error err = {0};
    if (layout_table_check(source, &err) != STATUS_OK)
        fail_msg("seed %" PRIu64 ": %s", seed, err.text);
    CHECK(layout_table_check(target, NULL) == STATUS_OK);
    CHECK(!single || layout_table_check_storage(source, NULL) == STATUS_OK);
    SCOPED(memory_destroy) struct memory *from = memory_create(source, true);
    SCOPED(memory_destroy) struct memory *to = memory_create(target, false);
    SCOPED(memory_destroy) struct memory *counted = memory_create(target, false);
    uint64_t source_bytes[WORLD_MAX] = {0}, target_bytes[WORLD_MAX] = {0}, runs = 0;
    move(from, to, counted, source_bytes, target_bytes, &runs);
    check_bytes(to, counted);
    CHECK(!single || runs == count_pairs(from, to));

    SCOPED(layout_table_destroy)
    struct layout_table *third = layout_random_table(&random, worlds[0], tensors, TENSORS, false);
    if (seed % 4 == 0)
        move_on(to, third);

    SCOPED(plan_totals_destroy) struct plan_totals *totals = NULL;
    CHECK(plan_global(source, target, NULL, &totals, NULL) == STATUS_OK);
    CHECK(totals->runs == runs);
    CHECK(memcmp(totals->source_bytes, source_bytes, worlds[0] * sizeof(uint64_t)) == 0);
    CHECK(memcmp(totals->target_bytes, target_bytes, worlds[1] * sizeof(uint64_t)) == 0);
}

static void any_layout_to_any_layout_is_identity(void **state)
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
        cmocka_unit_test(any_layout_to_any_layout_is_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
