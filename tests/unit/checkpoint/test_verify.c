/* test_verify.c - a whole checkpoint is whole; each kind of damage is named. */
#include "tests/unit/checkpoint/copies.h"

#include "checkpoint/verify.h"
#include "tests/unit/checkpoint/sparse.h"
#include <pthread.h>

#define SHARD "trainer-1/shard-00002-model-00001-of-00001.safetensors"

static struct verify_report *verify(const char *dir, const char *digest)
{
    struct verify_report *report = NULL;
    struct error err;

    if (verify_run(dir, "source", digest, NULL, &report, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return report;
}

/* Exactly one finding, of that file, with that in its text. */
static void expect_one(const char *dir, const char *file, const char *text)
{
    SCOPED(verify_report_destroy) struct verify_report *report = verify(dir, NULL);

    if (report->found_count != 1 || strcmp(report->found[0].file, file) != 0 ||
        !strstr(report->found[0].text, text))
        fail_msg("%zu found: %s: %s", report->found_count,
                 report->found_count ? report->found[0].file : "-",
                 report->found_count ? report->found[0].text : "-");
}

static void flip(const char *path, off_t at)
{
    unsigned char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
}

static void make(const char *dir)
{
    struct sharded *sharded = sharded_create(copies_two);

    reader_close(copies_make(sharded, dir));
    sharded_destroy(sharded);
}

static void a_whole_one_is_whole(void **state)
{
    make(*state);
    SCOPED(verify_report_destroy) struct verify_report *report = verify(*state, NULL);

    assert_int_equal(report->found_count, 0);
    assert_true(report->sharded);
    assert_int_equal(report->parts, 2);
    assert_true(report->bytes > 8192);
}

static void damage_is_named_by_file_and_block(void **state)
{
    SCOPED_TEXT char *shard = mem_printf("%s/source/" SHARD, (char *)*state);

    make(*state);
    flip(shard, 4100);
    expect_one(*state, SHARD, "block 0");
    flip(shard, 4100);
    assert_int_equal(unlink(shard), 0);
    SCOPED(verify_report_destroy) struct verify_report *report = verify(*state, NULL);
    assert_true(report->found_count >= 1);
    assert_non_null(strstr(report->found[report->found_count - 1].text, "shard-00002"));
}

static void small_files_count_too(void **state)
{
    SCOPED_TEXT char *plain = mem_printf("%s/source/trainer-0/state.json", (char *)*state);

    make(*state);
    flip(plain, 3);
    expect_one(*state, "trainer-0/state.json", "does not match its digest");
    assert_int_equal(truncate(plain, 2), 0);
    expect_one(*state, "trainer-0/state.json", "has 2 bytes, not");
}

static void another_manifest_is_not_the_committed_one(void **state)
{
    char digest[65];

    make(*state);
    memset(digest, 'a', 64);
    digest[64] = '\0';
    SCOPED(verify_report_destroy) struct verify_report *report = verify(*state, digest);
    assert_int_equal(report->found_count, 1);
    assert_string_equal(report->found[0].file, "manifest.json");
}

static void what_is_not_sealed_is_not_found(void **state)
{
    SCOPED_TEXT char *manifest = mem_printf("%s/source/manifest.json", (char *)*state);
    struct verify_report *report = NULL;

    make(*state);
    assert_int_equal(unlink(manifest), 0);
    assert_int_equal(verify_run(*state, "source", NULL, NULL, &report, NULL), STATUS_NOT_FOUND);
    assert_null(report);
}

static void it_stops_when_told(void **state)
{
    atomic_bool stop = true;
    const struct watcher watcher = {.stop = &stop};
    struct verify_report *report = NULL;

    make(*state);
    assert_int_equal(verify_run(*state, "source", NULL, &watcher, &report, NULL), STATUS_CANCELLED);
}

/* 64 GiB of holes: nobody waits for their end to hear that it moves. */
static const char huge[] = "{\"format\":\"rondo-layout-1\",\"world\":1,\"layouts\":["
                           "{\"kind\":\"grid\",\"cuts\":[[0,1048576],[0,65536]],\"ranks\":[[0]]}],"
                           "\"tensors\":[[\"w\",\"U8\",[1048576,65536],0]],\"aliases\":{}}";

struct onlooker {
    atomic_bool stop;
    pthread_t thread;
    uint64_t bytes, calls;
};

static void onlooker_moved(void *arg, uint64_t bytes)
{
    struct onlooker *onlooker = arg;

    onlooker->bytes += bytes;
    onlooker->calls++;
    onlooker->thread = pthread_self();
    atomic_store(&onlooker->stop, true);
}

static void large_files_are_told_of_while_they_are_read(void **state)
{
    SCOPED(layout_table_destroy) struct layout_table *storage = sharded_layout(huge);
    SCOPED_TEXT char *dir = mem_printf("%s/source", (char *)*state);
    SCOPED_TEXT char *blocks = mem_printf("%s/trainer-0/blocks.crc32c", dir);

    assert_int_equal(mkdir(dir, 0755), 0);
    sparse_make(dir, storage, &(const struct sparse_options){.state = NULL});
    for (int plain = 0; plain < 2; plain++) { /* by its blocks; without them as a whole */
        struct onlooker onlooker = {0};
        const struct watcher watcher = {
            .moved = onlooker_moved, .arg = &onlooker, .stop = &onlooker.stop};
        struct verify_report *report = NULL;
        if (plain)
            assert_int_equal(unlink(blocks), 0);
        assert_int_equal(verify_run(*state, "source", NULL, &watcher, &report, NULL),
                         STATUS_CANCELLED);
        assert_true(onlooker.bytes > 0 && onlooker.bytes < UINT64_C(64) << 30);
        assert_true(pthread_equal(onlooker.thread, pthread_self()));
    }
}

static void add_moved(void *arg, uint64_t bytes)
{
    *(uint64_t *)arg += bytes;
}

static void every_byte_is_told_of_once(void **state)
{
    SCOPED(verify_report_destroy) struct verify_report *report = NULL;
    uint64_t bytes = 0;
    const struct watcher watcher = {.moved = add_moved, .arg = &bytes};

    make(*state);
    assert_int_equal(verify_run(*state, "source", NULL, &watcher, &report, NULL), STATUS_OK);
    assert_int_equal(bytes, report->bytes);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {T(a_whole_one_is_whole),
                                       T(damage_is_named_by_file_and_block),
                                       T(small_files_count_too),
                                       T(another_manifest_is_not_the_committed_one),
                                       T(what_is_not_sealed_is_not_found),
                                       T(it_stops_when_told),
                                       T(large_files_are_told_of_while_they_are_read),
                                       T(every_byte_is_told_of_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
