/* test_files.c - steps on the disk, and packed code that nobody vouches for. */
#include "agent/files.h"
#include "agent/files_unpack.h"
#include "base/text.h"
#include "checkpoint/digest.h"
#include "tests/unit/unit.h"
#include "worker/page.h"
#include <archive.h>
#include <archive_entry.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void steps_run_in_order_and_stop_at_the_first_failure(void **state)
{
    const char *dir = *state;
    struct files_batch *batch = files_batch_create();
    struct error err;
    (void)files_dir(batch, unit_path(dir, "d"), 0711);
    files_write(batch, unit_path(dir, "d/a"), "hello", 5, 0640)->sync = true;
    (void)files_append(batch, unit_path(dir, "d/a"), " world", 6);
    (void)files_read(batch, unit_path(dir, "d/a"), -5, 100);
    (void)files_read(batch, unit_path(dir, "d/missing"), 0, 100);
    (void)files_append(batch, unit_path(dir, "d/never"), "x", 1);
    assert_int_equal(files_disk_run(batch, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "d/missing"));
    assert_int_equal(batch->ran, 4);
    assert_string_equal(batch->steps[3].bytes, "world");
    assert_int_equal(batch->steps[3].offset, 6);
    assert_int_equal(batch->steps[3].size, 11);
    assert_int_not_equal(access(unit_path(dir, "d/never"), F_OK), 0);
    files_batch_destroy(batch);
}

static void reads_follow_no_links(void **state)
{
    const char *dir = *state;
    struct files_batch *batch = files_batch_create();
    assert_int_equal(symlink("/etc/passwd", unit_path(dir, "link")), 0);
    files_read(batch, unit_path(dir, "link"), 0, 100)->missing_ok = true;
    assert_int_not_equal(files_disk_run(batch, NULL), STATUS_OK);
    assert_null(batch->steps[0].bytes);
    files_batch_destroy(batch);
}

static void punched_head_keeps_offsets(void **state)
{
    const char *dir = *state;
    struct files_batch *batch = files_batch_create();
    SCOPED_TEXT char *bytes = mem_alloc(1 << 20);
    memset(bytes, 'x', 1 << 20);
    (void)files_append(batch, unit_path(dir, "log"), bytes, 1 << 20);
    files_step_add(batch, FILES_PUNCH, unit_path(dir, "log"))->max = 1 << 19;
    (void)files_read(batch, unit_path(dir, "log"), 1 << 19, 4);
    assert_int_equal(files_disk_run(batch, NULL), STATUS_OK);
    assert_int_equal(batch->steps[2].size, 1 << 20);
    assert_string_equal(batch->steps[2].bytes, "xxxx");
    files_batch_destroy(batch);
}

/* What it says decides whether the node was full or the job wrong. */
static void a_write_that_cannot_begin_says_why(void **state)
{
    const char *dir = *state;
    struct rlimit before, none;
    struct error err;
    struct files_batch *batch = files_batch_create();
    (void)files_write(batch, unit_path(dir, "new"), "x", 1, 0600);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum status st = files_disk_run(batch, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(st, STATUS_EXHAUSTED);
    assert_non_null(strstr(err.text, "Too many open files"));
    files_batch_destroy(batch);
}

static void page_is_made_mapped_and_found_again(void **state)
{
    const char *dir = *state;
    struct files_batch *batch = files_batch_create();
    files_step_add(batch, FILES_PAGE, unit_path(dir, "page"))->len = PAGE_BYTES;
    (void)files_step_add(batch, FILES_PAGE, unit_path(dir, "page"));
    assert_int_equal(files_disk_run(batch, NULL), STATUS_OK);
    atomic_store(&batch->steps[0].page->reports, 7);
    assert_int_equal(atomic_load(&batch->steps[1].page->reports), 7);
    assert_int_equal(atomic_load(&batch->steps[1].page->save_answered), -1);
    assert_int_equal(munmap(batch->steps[0].page, PAGE_BYTES), 0);
    assert_int_equal(munmap(batch->steps[1].page, PAGE_BYTES), 0);
    files_batch_destroy(batch);
    unit_write(unit_path(dir, "short"), "RNOPAGE1");
    batch = files_batch_create();
    (void)files_step_add(batch, FILES_PAGE, unit_path(dir, "short"));
    assert_int_equal(files_disk_run(batch, NULL), STATUS_DATA_LOSS);
    files_batch_destroy(batch);
}

static void unknown_user_is_named(void **state)
{
    struct error err;
    struct files_batch *batch = files_batch_create();
    (void)state;
    (void)files_step_add(batch, FILES_USER, "no-such-user-here");
    assert_int_equal(files_disk_run(batch, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "no-such-user-here"));
    files_batch_destroy(batch);
}

/* --- packed code */

struct item {
    const char *path, *link;
    mode_t type;
    const char *data;
};

static void pack(const char *file, const struct item *items, size_t count, char hex[65])
{
    struct archive *out = archive_write_new();
    archive_write_set_format_pax_restricted(out);
    assert_int_equal(archive_write_open_filename(out, file), ARCHIVE_OK);
    for (size_t i = 0; i < count; i++) {
        struct archive_entry *entry = archive_entry_new();
        archive_entry_set_pathname(entry, items[i].path);
        archive_entry_set_filetype(entry, items[i].type);
        archive_entry_set_perm(entry, 0777);
        if (items[i].link && items[i].type == AE_IFLNK)
            archive_entry_set_symlink(entry, items[i].link);
        else if (items[i].link)
            archive_entry_set_hardlink(entry, items[i].link);
        size_t len = items[i].data ? strlen(items[i].data) : 0;
        archive_entry_set_size(entry, (la_int64_t)len);
        assert_int_equal(archive_write_header(out, entry), ARCHIVE_OK);
        if (len)
            assert_int_equal(archive_write_data(out, items[i].data, len), len);
        archive_entry_free(entry);
    }
    archive_write_close(out);
    archive_write_free(out);
    char *bytes = NULL;
    size_t len = 0;
    struct error err;
    assert_int_equal(file_read(file, 1 << 20, &bytes, &len, &err), STATUS_OK);
    digest_sha256(bytes, len, hex);
    mem_free(bytes);
}

static void good_code_is_unpacked_and_readable_only(void **state)
{
    const char *dir = *state;
    static const struct item items[] = {{"sub", NULL, AE_IFDIR, NULL},
                                        {"sub/train.py", NULL, AE_IFREG, "print()"},
                                        {"run", "sub/train.py", AE_IFLNK, NULL}};
    char hex[65];
    uint64_t bytes;
    struct stat st;
    pack(unit_path(dir, "p"), items, COUNT_OF(items), hex);
    assert_int_equal(
        files_unpack(unit_path(dir, "p"), hex, unit_path(dir, "c"), 1 << 20, &bytes, NULL),
        STATUS_OK);
    assert_int_equal(bytes, 7);
    assert_int_equal(stat(unit_path(dir, "c/run"), &st), 0);
    assert_int_equal(st.st_mode & 0222, 0);
}

static void code_that_leaves_its_directory_is_refused_whole(void **state)
{
    const char *dir = *state;
    static const struct item bad[] = {
        {"../evil", NULL, AE_IFREG, "x"},      {"/tmp/evil", NULL, AE_IFREG, "x"},
        {"a/../../evil", NULL, AE_IFREG, "x"}, {"l", "/etc", AE_IFLNK, NULL},
        {"l", "../..", AE_IFLNK, NULL},        {"h", "../../etc/passwd", AE_IFREG, NULL},
        {"fifo", NULL, AE_IFIFO, NULL},        {"big", NULL, AE_IFREG, "0123456789"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char hex[65];
        uint64_t bytes;
        pack(unit_path(dir, "p"), &bad[i], 1, hex);
        assert_int_not_equal(
            files_unpack(unit_path(dir, "p"), hex, unit_path(dir, "c"), 9, &bytes, NULL),
            STATUS_OK);
        assert_int_not_equal(access(unit_path(dir, "c"), F_OK), 0);
        assert_int_not_equal(access(unit_path(dir, "evil"), F_OK), 0);
    }
}

static void code_of_another_digest_is_refused(void **state)
{
    const char *dir = *state;
    static const struct item item = {"a", NULL, AE_IFREG, "x"};
    char hex[65];
    uint64_t bytes;
    pack(unit_path(dir, "p"), &item, 1, hex);
    hex[0] = hex[0] == '0' ? '1' : '0';
    assert_int_equal(files_unpack(unit_path(dir, "p"), hex, unit_path(dir, "c"), 100, &bytes, NULL),
                     STATUS_DATA_LOSS);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(steps_run_in_order_and_stop_at_the_first_failure),
        T(reads_follow_no_links),
        T(punched_head_keeps_offsets),
        T(a_write_that_cannot_begin_says_why),
        T(page_is_made_mapped_and_found_again),
        T(unknown_user_is_named),
        T(good_code_is_unpacked_and_readable_only),
        T(code_that_leaves_its_directory_is_refused_whole),
        T(code_of_another_digest_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
