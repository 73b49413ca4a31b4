/* test_shard_read.c - ranges of a shard, checked block by block. */
#include "checkpoint/shard_read.h"
#include "tests/unit/checkpoint/sharded.h"

static const char wide[] =
    "{\"format\":\"rondo-layout-1\",\"world\":2,\"layouts\":["
    "{\"kind\":\"grid\",\"cuts\":[[0,500,1000],[0,200]],\"ranks\":[[0],[1]]}],"
    "\"tensors\":[[\"w\",\"F32\",[1000,200],0]],\"aliases\":{}}";

#define SHARD_0 "trainer-0/shard-00001-model-00001-of-00001.safetensors"

static char *path_of(const char *dir, const char *name)
{
    return mem_printf("%s/%s", dir, name);
}

static void flip(const char *path, off_t at, unsigned char bits)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= bits;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* The whole file at once: what `verify` does. */
static void verification_reads_every_byte(void **state)
{
    struct sharded *sharded = sharded_create(wide);
    SCOPED_TEXT char *path = path_of(*state, SHARD_0);
    SCOPED_TEXT char *table = path_of(*state, "trainer-0/blocks.crc32c");
    SCOPED_TEXT char *bytes = NULL;
    SCOPED(block_table_destroy) struct block_table *blocks = NULL;
    SCOPED(io_pool_destroy) struct io_pool *pool = NULL;
    const struct io_pool_options options = {.threads = 3, .buffer_bytes = 2 * BLOCK_TABLE_BLOCK};
    struct digest_file digest;
    struct shard_read_whole want = {.done = NULL};
    int dir = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    size_t len;

    sharded_save(sharded, *state);
    assert_int_equal(file_read(table, 1 << 20, &bytes, &len, NULL), STATUS_OK);
    assert_int_equal(block_table_parse(bytes, len, &blocks, NULL), STATUS_OK);
    assert_int_equal(digest_file(path, false, &digest, NULL), STATUS_OK);
    want.crc32c = digest.crc32c;
    memcpy(want.xxh3, digest.xxh3, sizeof want.xxh3);
    assert_int_equal(io_pool_create(&options, &pool, NULL), STATUS_OK);
    for (int round = 0; round < 3; round++) {
        struct shard_read read;
        struct error err = {0};
        assert_int_equal(shard_read_open(dir, SHARD_0, &blocks->files[0], NULL, &read, NULL),
                         STATUS_OK);
        enum status st = shard_read_verify(pool, &read, &want, NULL, &err);
        shard_read_close(&read);
        assert_int_equal(st, round ? STATUS_DATA_LOSS : STATUS_OK);
        if (round == 1)
            assert_non_null(strstr(err.text, "block 4"));
        flip(path, 4 * 65536 + 77, 1); /* the first time: damaged; the second: whole */
        if (round == 1)
            want.xxh3[0] = want.xxh3[0] == '0' ? '1' : '0'; /* but now another digest is wanted */
    }
    close(dir);
    sharded_destroy(sharded);
}

/* --- who takes what */

struct taken {
    unsigned char bytes[8 * BLOCK_TABLE_BLOCK];
    unsigned char placed[8 * BLOCK_TABLE_BLOCK];
    size_t took, gave;
    bool places;
};

static void take(void *arg, uint64_t at, const unsigned char *bytes, size_t len)
{
    struct taken *taken = arg;

    memcpy(taken->bytes + at, bytes, len);
    taken->took += len;
}

static unsigned char *place(void *arg, uint64_t at, size_t len)
{
    struct taken *taken = arg;

    if (!taken->places || (at == 0 && len <= BLOCK_TABLE_BLOCK))
        return NULL; /* the first block is wanted here and there */
    if (at == 0)
        return NULL;
    taken->gave += len;
    return taken->bytes + at;
}

static void bytes_are_taken_or_placed_once(void **state)
{
    struct sharded *sharded = sharded_create(wide);
    SCOPED_TEXT char *path = path_of(*state, SHARD_0);
    SCOPED_TEXT char *table = path_of(*state, "trainer-0/blocks.crc32c");
    SCOPED_TEXT char *whole = NULL;
    SCOPED_TEXT char *bytes = NULL;
    SCOPED(block_table_destroy) struct block_table *blocks = NULL;
    SCOPED(mem_free) void *memory = mem_alloc(sizeof(struct taken));
    SCOPED(mem_free) void *buffer = aligned_alloc(IO_POOL_ALIGN, 8 * BLOCK_TABLE_BLOCK);
    struct taken *taken = memory;
    size_t len, whole_len;

    sharded_save(sharded, *state);
    int dir = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(file_read(table, 1 << 20, &bytes, &len, NULL), STATUS_OK);
    assert_int_equal(block_table_parse(bytes, len, &blocks, NULL), STATUS_OK);
    assert_int_equal(file_read(path, 1 << 20, &whole, &whole_len, NULL), STATUS_OK);
    for (int round = 0; round < 4; round++) { /* past the cache or not; placed or not */
        const struct shard_read_sink sink = {take, place, taken};
        const struct shard_read_span span = {.count = blocks->files[0].count, .shared = round & 1};
        struct shard_read_counts counts = {0};
        struct shard_read read;
        memset(taken, 0, sizeof *taken);
        taken->places = round & 2;
        assert_int_equal(shard_read_open(dir, SHARD_0, &blocks->files[0], NULL, &read, NULL),
                         STATUS_OK);
        assert_int_equal(shard_read_blocks(&read, &span, buffer, &sink, &counts, NULL), STATUS_OK);
        shard_read_close(&read);
        assert_memory_equal(taken->bytes, whole, whole_len);
        assert_int_equal(taken->took + taken->gave, whole_len);
        assert_true((taken->gave > 0) == taken->places);
        assert_int_equal(atomic_load(&counts.direct) + atomic_load(&counts.cached), whole_len);
    }
    close(dir);
    sharded_destroy(sharded);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(verification_reads_every_byte),
        T(bytes_are_taken_or_placed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
