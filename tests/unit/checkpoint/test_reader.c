/* test_reader.c - what any number of ranks saved, any other number loads, bit for bit; files that
 * lie, are late or far away. Damage: test_reader_damage.c. */
#include "tests/unit/checkpoint/io_faults.h"
#include "tests/unit/checkpoint/sharded.h"
#include <limits.h>

#include "checkpoint/slot.h"

/* Four ranks: by rows, by columns, in a grid, whole everywhere, as flat ranges, and of odd shapes.
 */
static const char four[] =
    "{\"format\":\"rondo-layout-1\",\"world\":4,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,100,200,300,401],[0,333]],\"ranks\":[[0],[1],[2],[3]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,401],[0,83,166,249,333]],\"ranks\":[[0],[1],[2],[3]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,256,512],[0,256,512]],\"ranks\":[[0],[1],[2],[3]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,97]],\"ranks\":[[0,1,2,3]]},"
    "{\"kind\":\"flat\",\"ranges\":[[0,0,31],[1,31,62],[2,62,93],[3,93,124]]},"
    "{\"kind\":\"grid\",\"cuts\":[],\"ranks\":[[0,1,2,3]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,64],[0,8,16]],\"ranks\":[[0,1],[2,3]]}],"
    "\"tensors\":[[\"rows\",\"F32\",[401,333],0],[\"columns\",\"F32\",[401,333],1],"
    "[\"grid\",\"BF16\",[512,512],2],[\"norm\",\"F64\",[97],3],[\"flat\",\"F16\",[5,4,6],4],"
    "[\"step\",\"I64\",[],5],[\"four bit\",\"F4\",[64,16],6],[\"mask\",\"BOOL\",[97],3]],"
    "\"aliases\":{}}";

static const char three[] =
    "{\"format\":\"rondo-layout-1\",\"world\":3,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,134,268,401],[0,333]],\"ranks\":[[2],[1],[0]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,401],[0,111,222,333]],\"ranks\":[[0],[1],[2]]},"
    "{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[100,512]],[1,[100,0],[412,300]],"
    "[2,[100,300],[412,212]]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,97]],\"ranks\":[[0,1,2]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,5],[0,4],[0,1,2,6]],\"ranks\":[[0],[1],[2]]},"
    "{\"kind\":\"grid\",\"cuts\":[],\"ranks\":[[0,1,2]]},"
    "{\"kind\":\"grid\",\"cuts\":[[0,10,20,64],[0,16]],\"ranks\":[[0],[1],[2]]}],"
    "\"tensors\":[[\"columns\",\"F32\",[401,333],0],[\"rows\",\"F32\",[401,333],1],"
    "[\"grid\",\"BF16\",[512,512],2],[\"norm\",\"F64\",[97],3],[\"flat\",\"F16\",[5,4,6],4],"
    "[\"step\",\"I64\",[],5],[\"four bit\",\"F4\",[64,16],6],[\"mask\",\"BOOL\",[97],3]],"
    "\"aliases\":{}}";

static void four_ranks_save_three_load(void **state)
{
    struct sharded *sharded = sharded_create(four);
    const char *dir = *state;

    sharded_save(sharded, dir);
    sharded_load(sharded, dir, four);
    sharded_load(sharded, dir, three);
    sharded_destroy(sharded);
}

/* --- any layout to any layout */

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % n;
}

static void some_ranks(struct text *out, uint32_t world)
{
    uint32_t first = (uint32_t)below(world), count = below(3) ? 1 : (uint32_t)below(world) + 1;
    bool in[64] = {false};

    for (uint32_t i = 0; i < count; i++)
        in[(first + i) % world] = true;
    text_add(out, "[");
    for (uint32_t i = 0, some = 0; i < world; i++)
        if (in[i])
            text_addf(out, "%s%" PRIu32, some++ ? "," : "", i);
    text_add(out, "]");
}

/* Cuts may repeat: empty cells. Bits of odd width are cut at even places. */
static uint32_t some_cuts(struct text *out, uint64_t extent, uint32_t grain)
{
    uint32_t inner = (uint32_t)below(4);
    uint64_t cut[4] = {0};

    for (uint32_t i = 0; i < inner; i++)
        cut[i] = below(extent / grain + 1) * grain;
    for (uint32_t i = 0; i < inner; i++)
        for (uint32_t k = i + 1; k < inner; k++)
            if (cut[k] < cut[i]) {
                uint64_t swap = cut[i];
                cut[i] = cut[k];
                cut[k] = swap;
            }
    text_add(out, "[0");
    for (uint32_t i = 0; i < inner; i++)
        text_addf(out, ",%" PRIu64, cut[i]);
    text_addf(out, ",%" PRIu64 "]", extent);
    return inner + 1;
}

static void some_grid(struct text *out, const uint64_t *shape, uint32_t dims, uint32_t world,
                      uint32_t grain)
{
    uint32_t cells = 1;

    text_add(out, "{\"kind\":\"grid\",\"cuts\":[");
    for (uint32_t d = 0; d < dims; d++) {
        text_add(out, d ? "," : "");
        cells *= some_cuts(out, shape[d], d + 1 == dims ? grain : 1);
    }
    text_add(out, "],\"ranks\":[");
    for (uint32_t i = 0; i < cells; i++) {
        text_add(out, i ? "," : "");
        some_ranks(out, world);
    }
    text_add(out, "]}");
}

static void some_flat(struct text *out, uint64_t elements, uint32_t world)
{
    uint64_t at = 0;
    uint32_t rank = 0;

    text_add(out, "{\"kind\":\"flat\",\"ranges\":[");
    for (; rank + 1 < world; rank++) {
        uint64_t end = at + below(elements - at + 1);
        text_addf(out, "[%" PRIu32 ",%" PRIu64 ",%" PRIu64 "],", rank, at, end);
        at = end;
    }
    text_addf(out, "[%" PRIu32 ",%" PRIu64 ",%" PRIu64 "]]}", rank, at, elements + below(5));
}

static void box(struct text *out, const uint64_t *offset, const uint64_t *size, uint32_t dims,
                uint32_t rank)
{
    text_addf(out, "[%" PRIu32 ",[", rank);
    for (uint32_t d = 0; d < dims; d++)
        text_addf(out, "%s%" PRIu64, d ? "," : "", offset[d]);
    text_add(out, "],[");
    for (uint32_t d = 0; d < dims; d++)
        text_addf(out, "%s%" PRIu64, d ? "," : "", size[d]);
    text_add(out, "]]");
}

/* Guillotine cuts. */
static void some_boxes(struct text *out, const uint64_t *offset, const uint64_t *size,
                       uint32_t dims, uint32_t world, uint32_t depth)
{
    uint32_t d = (uint32_t)below(dims);
    uint64_t at = below(size[d] + 1);

    if (depth == 0 || at == 0 || at == size[d]) {
        box(out, offset, size, dims, (uint32_t)below(world));
        return;
    }
    uint64_t low[5], high[5], off[5];
    memcpy(low, size, dims * sizeof *size);
    memcpy(high, size, dims * sizeof *size);
    memcpy(off, offset, dims * sizeof *offset);
    low[d] = at;
    high[d] -= at;
    off[d] += at;
    some_boxes(out, offset, low, dims, world, depth - 1);
    text_add(out, ",");
    some_boxes(out, off, high, dims, world, depth - 1);
}

struct shape {
    enum dtype dtype;
    uint32_t dims;
    uint64_t size[5], elements;
};

static struct shape some_shape(void)
{
    static const uint64_t sizes[] = {0, 1, 2, 3, 5, 7, 8, 13, 31, 64};
    struct shape shape = {
        .dtype = (enum dtype)below(DTYPE_COUNT), .dims = (uint32_t)below(6), .elements = 1};

    for (uint32_t d = 0; d < shape.dims; d++) {
        shape.size[d] = sizes[below(50) ? 1 + below(COUNT_OF(sizes) - 1) : 0];
        if (shape.elements * shape.size[d] > 60000)
            shape.size[d] = 2;
        if (d + 1 == shape.dims && dtype_bits(shape.dtype) < 8)
            shape.size[d] = (shape.size[d] + 3) / 4 * 4;
        shape.elements *= shape.size[d];
    }
    if (dtype_bits(shape.dtype) < 8 && shape.dims == 0)
        shape.dtype = DTYPE_U8;
    return shape;
}

static char *some_layout(const struct shape *shapes, uint32_t count, uint32_t world)
{
    static const uint64_t zero[5];
    struct text out;

    text_init(&out, 0);
    text_addf(&out, "{\"format\":\"rondo-layout-1\",\"world\":%" PRIu32 ",\"layouts\":[", world);
    for (uint32_t i = 0; i < count; i++) {
        const struct shape *shape = &shapes[i];
        bool whole = dtype_bits(shape->dtype) >= 8;
        text_add(&out, i ? "," : "");
        if (below(3) == 0 && whole && shape->dims) {
            some_flat(&out, shape->elements, world);
        } else if (below(3) == 0 && whole && shape->dims) {
            text_add(&out, "{\"kind\":\"boxes\",\"boxes\":[");
            some_boxes(&out, zero, shape->size, shape->dims, world, 3);
            text_add(&out, "]}");
        } else {
            some_grid(&out, shape->size, shape->dims, world, whole ? 1 : 4);
        }
    }
    text_add(&out, "],\"tensors\":[");
    for (uint32_t i = 0; i < count; i++) {
        text_addf(&out, "%s[\"layer.%" PRIu32 "/weight\",\"%s\",[", i ? "," : "", i,
                  dtype_name(shapes[i].dtype));
        for (uint32_t d = 0; d < shapes[i].dims; d++)
            text_addf(&out, "%s%" PRIu64, d ? "," : "", shapes[i].size[d]);
        text_addf(&out, "],%" PRIu32 "]", i);
    }
    text_add(&out, "],\"aliases\":{}}");
    return text_take(&out);
}

static void any_layout_loads_from_any_layout(void **state)
{
    const char *dir = *state;

    for (uint64_t round = 1; round <= 40; round++) {
        struct shape shapes[8];
        seed = round;
        for (uint32_t i = 0; i < COUNT_OF(shapes); i++)
            shapes[i] = some_shape();
        SCOPED_TEXT char *from = some_layout(shapes, COUNT_OF(shapes), 1 + (uint32_t)below(7));
        SCOPED_TEXT char *place = mem_printf("%s/%" PRIu64, dir, round);
        struct sharded *sharded = sharded_create(from);
        assert_int_equal(mkdir(place, 0755), 0);
        sharded_save(sharded, place);
        for (uint32_t i = 0; i < 2; i++) {
            SCOPED_TEXT char *to = some_layout(shapes, COUNT_OF(shapes), 1 + (uint32_t)below(7));
            sharded_load(sharded, place, to);
        }
        sharded_destroy(sharded);
    }
}

/* --- hostile files */

/* K11 K15: names, sizes and handles that come late on a network file system; bounded. */
static void what_is_late_is_waited_for(void **state)
{
    static const char *const names[] = {"manifest.json", "layout.json", "blocks.crc32c",
                                        ".safetensors"};
    struct sharded *sharded = sharded_create(four);
    const char *dir = *state;

    sharded_save(sharded, dir);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        io_faults_reset();
        io_faults.slow_name = names[i];
        atomic_store(&io_faults.hidden_opens, 2);
        sharded_load(sharded, dir, three);
        io_faults_reset();
        io_faults.slow_name = names[i];
        atomic_store(&io_faults.stale_sizes, i ? 2 : 0);
        sharded_load(sharded, dir, three);
    }
    io_faults_reset();
    atomic_store(&io_faults.stale_reads, 0);
    sharded_destroy(sharded);
}

static void a_stale_handle_is_opened_again(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *target = sharded_layout(three);
    SCOPED(reader_close) struct reader *reader = NULL;
    struct sharded *sharded = sharded_create(four);
    struct error err;

    sharded_save(sharded, *state);
    assert_int_equal(reader_open(*state, "", NULL, &reader, NULL), STATUS_OK);
    atomic_store(&io_faults.stale_reads, 3);
    if (sharded_load_rank(sharded, reader, target, 1, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    atomic_store(&io_faults.stale_reads, LONG_MAX); /* for ever: an end all the same */
    assert_int_equal(sharded_load_rank(sharded, reader, target, 1, NULL, &err), STATUS_UNAVAILABLE);
    io_faults_reset();
    sharded_destroy(sharded);
}

static void short_and_interrupted_reads_go_on(void **state)
{
    struct sharded *sharded = sharded_create(four);

    sharded_save(sharded, *state);
    io_faults_reset();
    atomic_store(&io_faults.short_bytes, 12289);
    sharded_load(sharded, *state, three);
    atomic_store(&io_faults.no_direct, true);
    sharded_load(sharded, *state, three);
    io_faults_reset();
    sharded_destroy(sharded);
}

static void an_error_at_any_read_is_an_end(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *target = sharded_layout(three);
    const struct reader_options options = {.patience_ms = 1};
    struct sharded *sharded = sharded_create(four);
    enum status st = STATUS_UNKNOWN;

    sharded_save(sharded, *state);
    for (long call = 1;; call++) {
        SCOPED(reader_close) struct reader *reader = NULL;
        struct error err = {0};
        io_faults_set(call, LONG_MAX - call, EIO);
        st = reader_open(*state, "", &options, &reader, &err);
        if (st == STATUS_OK)
            st = sharded_load_rank(sharded, reader, target, 0, NULL, &err);
        if (st == STATUS_OK)
            break;
        assert_true(err.text[0]);
        assert_true(st == STATUS_UNAVAILABLE || st == STATUS_DATA_LOSS);
    }
    io_faults_reset();
    sharded_destroy(sharded);
}

/* --- places */

/* K36: ranks of a node begin at different places and go round. */
static void ranks_that_share_a_node_load_the_same(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *target = sharded_layout(three);
    struct sharded *sharded = sharded_create(four);

    sharded_save(sharded, *state);
    for (uint32_t i = 0; i < 3; i++) {
        const struct reader_options options = {.ranks_here = 3, .rank_here = i};
        SCOPED(reader_close) struct reader *reader = NULL;
        struct reader_stats stats;
        struct error err;
        if (reader_open(*state, "", &options, &reader, &err) != STATUS_OK ||
            sharded_load_rank(sharded, reader, target, i, &stats, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(stats.direct, 0);
        assert_true(stats.cached >= stats.bytes);
    }
    sharded_destroy(sharded);
}

/* Puts a copy of a rank's shard into a slot; flip: with a bit turned. */
static void slot_make(const struct sharded *sharded, const char *dir, const char *shm,
                      uint32_t rank, const char *slot, bool flip)
{
    SCOPED_TEXT char *part = mem_printf("%s/trainer-%" PRIu32, shm, rank);
    SCOPED_TEXT char *path = mem_printf("%s/%s", part, slot);
    SCOPED_TEXT char *name =
        mem_printf("shard-%05" PRIu32 "-model-00001-of-00001.safetensors", rank + 1);
    SCOPED_TEXT char *shard = mem_printf("%s/trainer-%" PRIu32 "/%s", dir, rank, name);
    SCOPED_TEXT char *bytes = NULL;
    SCOPED(mem_free) void *memory = NULL;
    uint64_t len64, offset;
    size_t len;

    assert_int_equal(file_make_dirs(part, 0755, NULL), STATUS_OK);
    assert_int_equal(file_read(shard, (size_t)64 << 20, &bytes, &len, NULL), STATUS_OK);
    len64 = len;
    memory = mem_alloc((size_t)slot_bytes(&len64, 1));
    slot_begin(memory, slot_bytes(&len64, 1), 120);
    assert_int_equal(slot_add(memory, name, len, &offset, NULL), STATUS_OK);
    memcpy((char *)memory + offset, bytes, len);
    ((unsigned char *)memory)[offset + len / 2] ^= (unsigned char)flip;
    slot_fill(memory, 64, layout_table_digest(sharded->storage));
    assert_int_equal(file_write_atomic(path, memory, (size_t)slot_bytes(&len64, 1), 0600, NULL),
                     STATUS_OK);
}

static const char rows[] =
    "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,500,1000],[0,200]],\"ranks\":[[0],[1]]}],"
    "\"tensors\":[[\"w\",\"F32\",[1000,200],0]],\"aliases\":{}}";

static void copies_in_memory_are_preferred_and_not_believed(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *target = sharded_layout(rows);
    SCOPED_TEXT char *shm = mem_printf("%s/shm", (char *)*state);
    struct sharded *sharded = sharded_create(rows);

    sharded_save(sharded, *state);
    for (int flip = 0; flip < 2; flip++) {
        const char *const dirs[] = {"/nowhere", shm};
        const struct reader_options options = {.shm_dirs = dirs, .shm_dirs_count = 2};
        slot_make(sharded, *state, shm, 1, "slot-1", flip);
        for (uint32_t rank = 0; rank < 2; rank++) {
            SCOPED(reader_close) struct reader *reader = NULL;
            struct reader_stats stats;
            assert_int_equal(reader_open(*state, "", &options, &reader, NULL), STATUS_OK);
            assert_int_equal(sharded_load_rank(sharded, reader, target, rank, &stats, NULL),
                             STATUS_OK);
            assert_true((stats.copied > 0) == (rank == 1));
            assert_true((stats.copied >= stats.bytes) == (rank == 1 && !flip));
        }
    }
    sharded_destroy(sharded);
}

/* A slot that was asked for in another size has another name. */
static void copies_in_slots_of_another_size_are_found(void **state)
{
    static const char *const names[] = {"slot-0.1", "slot-1.27", "slot-2", "slot-0.x", "lost-0"};
    SCOPED(layout_table_destroy) struct layout_table *target = sharded_layout(rows);
    struct sharded *sharded = sharded_create(rows);

    sharded_save(sharded, *state);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        SCOPED_TEXT char *shm = mem_printf("%s/shm-%zu", (char *)*state, i);
        const char *const dirs[] = {shm};
        const struct reader_options options = {.shm_dirs = dirs, .shm_dirs_count = 1};
        SCOPED(reader_close) struct reader *reader = NULL;
        struct reader_stats stats;
        slot_make(sharded, *state, shm, 0, names[i], false);
        assert_int_equal(reader_open(*state, "", &options, &reader, NULL), STATUS_OK);
        assert_int_equal(sharded_load_rank(sharded, reader, target, 0, &stats, NULL), STATUS_OK);
        assert_int_equal(stats.copied >= stats.bytes, i < 2);
    }
    sharded_destroy(sharded);
}

/* Offsets beyond 2^32, in a file with holes. */
static void far_offsets_are_exact(void **state)
{
    static const char layout[] =
        "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
        "{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[81920,65536]],[1,[81920,0],[1,65536]]]},"
        "{\"kind\":\"boxes\",\"boxes\":[[0,[0,0],[81920,65536]],[1,[81920,0],[1,65536]]]}],"
        "\"tensors\":[[\"far\",\"U8\",[81921,65536],0],[\"near\",\"U8\",[81921,65536],1]],"
        "\"aliases\":{}}";
    SCOPED(layout_table_destroy) struct layout_table *table = sharded_layout(layout);
    SCOPED(shard_image_destroy) struct shard_image *image = NULL;

    (void)state;
    assert_int_equal(shard_image_create(table, 0, &image, NULL), STATUS_OK);
    assert_int_equal(shard_image_files(image), 1);
    assert_int_equal(shard_image_bytes(image, 0), 4096 + 2 * UINT64_C(81920) * 65536);
    assert_int_equal(shard_image_at(image, 1)->at, 4096 + UINT64_C(81920) * 65536);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(four_ranks_save_three_load),
        T(any_layout_loads_from_any_layout),
        T(what_is_late_is_waited_for),
        T(a_stale_handle_is_opened_again),
        T(short_and_interrupted_reads_go_on),
        T(an_error_at_any_read_is_an_end),
        T(ranks_that_share_a_node_load_the_same),
        T(copies_in_memory_are_preferred_and_not_believed),
        T(copies_in_slots_of_another_size_are_found),
        cmocka_unit_test(far_offsets_are_exact),
    };
    io_faults_reset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
