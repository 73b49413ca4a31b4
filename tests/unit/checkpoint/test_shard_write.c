/* test_shard_write.c - images reach the disk whole and digested, or not at all. */
#include "checkpoint/digest.h"
#include "checkpoint/shard_write.h"
#include "tests/unit/checkpoint/io_faults.h"
#include "tests/unit/unit.h"
#include <sys/stat.h>

#define BUFFER ((size_t)256 << 10) /* small: several items from little data */

struct place {
    char *path;
    int dir;
    struct io_pool *pool;
};

static int place_setup(void **state)
{
    struct place *place = NEW(struct place);
    const struct io_pool_options options = {.threads = 4, .buffer_bytes = BUFFER};

    io_faults_reset();
    place->path = unit_dir_create();
    place->dir = open(place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(place->dir >= 0);
    assert_int_equal(io_pool_create(&options, &place->pool, NULL), STATUS_OK);
    *state = place;
    return 0;
}

static int place_teardown(void **state)
{
    struct place *place = *state;

    io_faults_reset();
    io_pool_destroy(place->pool);
    close(place->dir);
    unit_dir_destroy(place->path);
    mem_free(place);
    return 0;
}

static unsigned char *image_make(size_t len)
{
    unsigned char *bytes = mem_alloc(len);
    uint32_t x = 2463534242U;

    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        bytes[i] = (unsigned char)x;
    }
    return bytes;
}

static uint32_t *image_crcs(const unsigned char *bytes, size_t len)
{
    size_t count = (len + SHARD_WRITE_BLOCK - 1) / SHARD_WRITE_BLOCK;
    uint32_t *crcs = mem_array(count, sizeof *crcs);

    for (size_t i = 0; i < count; i++) {
        size_t at = i * SHARD_WRITE_BLOCK;
        crcs[i] = digest_crc32c(0, bytes + at,
                                len - at < SHARD_WRITE_BLOCK ? len - at : SHARD_WRITE_BLOCK);
    }
    return crcs;
}

static int image_file(const struct place *place, const unsigned char *bytes, size_t len)
{
    SCOPED_TEXT char *path = mem_printf("%s/image", place->path);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    unlink(path);
    return fd;
}

static void assert_written(const struct place *place, const unsigned char *bytes, size_t len,
                           const struct shard_written *written)
{
    SCOPED_TEXT char *path = mem_printf("%s/shard", place->path);
    SCOPED_TEXT char *found = NULL;
    struct digest_file digest;
    size_t found_len;

    io_faults_reset();
    assert_int_equal(file_read(path, (size_t)64 << 20, &found, &found_len, NULL), STATUS_OK);
    assert_int_equal(found_len, len);
    assert_memory_equal(found, bytes, len);
    assert_int_equal(digest_file(path, false, &digest, NULL), STATUS_OK);
    assert_int_equal(written->bytes, len);
    assert_int_equal(written->crc32c, digest.crc32c);
    assert_string_equal(written->xxh3, digest.xxh3);
    assert_int_equal(unlink(path), 0);
}

static bool is_there(const struct place *place)
{
    return faccessat(place->dir, "shard", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static const size_t lens[] = {0,      1,          4095,           4096,          65535,
                              65536,  65537,      BUFFER - 1,     BUFFER,        BUFFER + 1,
                              300001, 5 * BUFFER, 3 * BUFFER + 9, 9 * BUFFER - 7};

static void write_both_ways(const struct place *place, size_t len, bool cached)
{
    SCOPED(mem_free) void *image = image_make(len);
    SCOPED(mem_free) void *crcs = image_crcs(image, len);
    const struct shard_write_options options = {.crcs = crcs, .cached = cached};
    struct shard_write_from from = {.memory = image, .bytes = len};
    struct shard_written written;
    struct error err;

    if (shard_write(place->pool, place->dir, "shard", &from, &options, &written, &err) != STATUS_OK)
        fail_msg("%zu bytes: %s", len, err.text);
    assert_written(place, image, len, &written);
    from = (struct shard_write_from){.fd = image_file(place, image, len), .bytes = len};
    if (shard_write(place->pool, place->dir, "shard", &from, NULL, &written, &err) != STATUS_OK)
        fail_msg("%zu bytes of a file: %s", len, err.text);
    assert_written(place, image, len, &written);
    close(from.fd);
}

static void images_of_every_size_are_written(void **state)
{
    for (size_t i = 0; i < COUNT_OF(lens); i++) {
        write_both_ways(*state, lens[i], false);
        write_both_ways(*state, lens[i], true);
    }
}

static void short_and_interrupted_calls_go_on(void **state)
{
    SCOPED(mem_free) void *image = image_make(700001);
    const struct shard_write_from from = {.memory = image, .bytes = 700001};
    const struct place *place = *state;
    static const size_t most[] = {0, 4096, 12288, 5001};

    for (size_t i = 0; i < COUNT_OF(most); i++) {
        struct shard_written written;
        struct error err;
        io_faults_reset();
        atomic_store(&io_faults.interrupts, true);
        atomic_store(&io_faults.short_bytes, most[i]);
        if (shard_write(place->pool, place->dir, "shard", &from, NULL, &written, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_written(place, image, 700001, &written);
    }
}

static void without_direct_io_the_cache_is_used(void **state)
{
    for (size_t i = 0; i < COUNT_OF(lens); i++) {
        atomic_store(&io_faults.no_direct, true);
        write_both_ways(*state, lens[i], false);
    }
}

/* K9 M53: each call fails in turn, with each reason; nothing is left of the file. */
static void a_failure_at_any_call_leaves_nothing(void **state)
{
    SCOPED(mem_free) void *image = image_make(700001);
    const struct place *place = *state;
    const struct shard_write_from from = {.fd = image_file(place, image, 700001), .bytes = 700001};
    static const struct {
        int errnum;
        enum status st;
    } cases[] = {{ENOSPC, STATUS_EXHAUSTED}, {EDQUOT, STATUS_EXHAUSTED}, {EIO, STATUS_UNAVAILABLE}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        long call = 1;
        for (;; call++) {
            struct shard_written written = {.bytes = 77};
            struct error err;
            io_faults_set(call, 1, cases[i].errnum);
            enum status st =
                shard_write(place->pool, place->dir, "shard", &from, NULL, &written, &err);
            if (atomic_load(&io_faults.calls) < call) { /* none was left to fail */
                assert_int_equal(st, STATUS_OK);
                assert_written(place, image, 700001, &written);
                break;
            }
            assert_true(st == cases[i].st || st == STATUS_UNAVAILABLE);
            assert_int_equal(written.bytes, 77);
            assert_non_null(strstr(err.text, "shard"));
            assert_false(is_there(place));
        }
        assert_true(call > 8); /* create, reserve, three reads, three writes, cut, sync */
    }
    close(from.fd);
}

static void an_image_that_changed_is_not_written(void **state)
{
    SCOPED(mem_free) void *image = image_make(400000);
    SCOPED(mem_free) void *crcs = image_crcs(image, 400000);
    const struct place *place = *state;
    const struct shard_write_options options = {.crcs = crcs};
    struct shard_write_from from = {.memory = image, .bytes = 400000};
    struct shard_written written;
    struct error err;

    ((unsigned char *)image)[3 * SHARD_WRITE_BLOCK + 17] ^= 4;
    assert_int_equal(shard_write(place->pool, place->dir, "shard", &from, &options, &written, &err),
                     STATUS_DATA_LOSS);
    assert_non_null(strstr(err.text, "block 3"));
    assert_false(is_there(place));
    from = (struct shard_write_from){.fd = image_file(place, image, 399999), .bytes = 400000};
    assert_int_equal(shard_write(place->pool, place->dir, "shard", &from, NULL, &written, &err),
                     STATUS_DATA_LOSS);
    assert_non_null(strstr(err.text, "ends at 399999"));
    assert_false(is_there(place));
    close(from.fd);
}

static void what_is_there_is_left_alone(void **state)
{
    const struct place *place = *state;
    const struct shard_write_from from = {.memory = "new", .bytes = 3};
    const atomic_bool stop = true;
    const struct shard_write_options options = {.stop = &stop};
    SCOPED_TEXT char *path = mem_printf("%s/shard", place->path);
    struct shard_written written;
    struct stat st;

    assert_int_equal(file_write_atomic(path, "older", 5, 0600, NULL), STATUS_OK);
    assert_int_equal(shard_write(place->pool, place->dir, "shard", &from, NULL, &written, NULL),
                     STATUS_EXISTS);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 5);
    unlink(path);
    assert_int_equal(symlink("elsewhere", path), 0);
    assert_int_equal(shard_write(place->pool, place->dir, "shard", &from, NULL, &written, NULL),
                     STATUS_EXISTS);
    unlink(path);
    assert_int_equal(shard_write(place->pool, place->dir, "shard", &from, &options, &written, NULL),
                     STATUS_CANCELLED);
    assert_false(is_there(place));
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, place_setup, place_teardown)
    const struct CMUnitTest tests[] = {
        T(images_of_every_size_are_written),     T(short_and_interrupted_calls_go_on),
        T(without_direct_io_the_cache_is_used),  T(a_failure_at_any_call_leaves_nothing),
        T(an_image_that_changed_is_not_written), T(what_is_there_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
