/* test_file.c - reading with a bound, atomic writing, making directories, listing. */
#include "tests/unit/unit.h"
#include <sys/stat.h>
#include <unistd.h>

static void what_is_written_is_read(void **state)
{
    const char *path = unit_path(*state, "f");
    char *bytes = NULL;
    size_t len = 0;
    struct stat info;
    assert_int_equal(file_write_atomic(path, "a\0b", 3, 0640, NULL), STATUS_OK);
    assert_int_equal(file_read(path, 3, &bytes, &len, NULL), STATUS_OK);
    assert_int_equal(len, 3);
    assert_memory_equal(bytes, "a\0b", 4);
    mem_free(bytes);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
}

static void too_long_is_refused_and_outputs_stay(void **state)
{
    const char *path = unit_path(*state, "f");
    char *bytes = NULL;
    size_t len = 7;
    struct error err;
    unit_write(path, "1234");
    assert_int_equal(file_read(path, 3, &bytes, &len, &err), STATUS_EXHAUSTED);
    assert_null(bytes);
    assert_int_equal(len, 7);
    assert_non_null(strstr(err.text, path));
    unit_write(path, "");
    assert_int_equal(file_read(path, 0, &bytes, &len, &err), STATUS_OK);
    assert_int_equal(len, 0);
    mem_free(bytes);
}

static void long_and_virtual_files_are_whole(void **state)
{
    const char *path = unit_path(*state, "f");
    size_t size = 100000, len;
    char *bytes, *long_text = mem_alloc(size + 1);
    memset(long_text, 'y', size);
    unit_write(path, long_text);
    assert_int_equal(file_read(path, size, &bytes, &len, NULL), STATUS_OK);
    assert_int_equal(len, size);
    assert_string_equal(bytes, long_text);
    mem_free(bytes);
    mem_free(long_text);
    assert_int_equal(file_read("/proc/self/stat", 65536, &bytes, &len, NULL), STATUS_OK);
    assert_true(len > 10);
    mem_free(bytes);
}

static void other_things_are_refused(void **state)
{
    char *bytes;
    size_t len;
    const char *fifo = unit_path(*state, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(file_read(fifo, 10, &bytes, &len, NULL), STATUS_INVALID); /* does not hang */
    assert_int_equal(file_read(*state, 10, &bytes, &len, NULL), STATUS_INVALID);
    assert_int_equal(file_read(unit_path(*state, "none"), 10, &bytes, &len, NULL),
                     STATUS_NOT_FOUND);
    assert_int_equal(file_write_atomic(unit_path(*state, "no/f"), "", 0, 0600, NULL),
                     STATUS_NOT_FOUND);
}

static void a_failed_write_leaves_nothing(void **state)
{
    struct file_list list;
    const char *dir = unit_path(*state, "d");
    assert_int_equal(file_make_dirs(unit_path(dir, "in"), 0700, NULL), STATUS_OK);
    assert_int_not_equal(file_write_atomic(unit_path(dir, "in"), "x", 1, 0600, NULL), STATUS_OK);
    assert_int_equal(file_list_read(dir, 10, &list, NULL), STATUS_OK);
    assert_int_equal(list.count, 1);
    file_list_fini(&list);
}

static void make_dirs_makes_parents_and_keeps_what_is(void **state)
{
    struct stat info;
    const char *deep = unit_path(*state, "a/b//c/");
    assert_int_equal(file_make_dirs(deep, 0750, NULL), STATUS_OK);
    assert_int_equal(file_make_dirs(deep, 0700, NULL), STATUS_OK);
    assert_int_equal(stat(deep, &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    unit_write(unit_path(*state, "file"), "");
    assert_int_equal(file_make_dirs(unit_path(*state, "file"), 0700, NULL), STATUS_EXISTS);
    assert_int_equal(file_make_dirs(unit_path(*state, "file/x"), 0700, NULL), STATUS_EXISTS);
    assert_int_equal(file_make_dirs("", 0700, NULL), STATUS_INVALID);
    assert_int_equal(file_make_dirs("/", 0700, NULL), STATUS_OK);
}

static void lists_are_sorted_and_bounded(void **state)
{
    struct file_list list;
    static const char *const names[] = {"b", "a", ".hidden", "c"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        unit_write(unit_path(*state, names[i]), "");
    assert_int_equal(file_list_read(*state, 4, &list, NULL), STATUS_OK);
    assert_int_equal(list.count, 4);
    assert_string_equal(list.names[0], ".hidden");
    assert_string_equal(list.names[3], "c");
    file_list_fini(&list);
    assert_int_equal(file_list_read(*state, 3, &list, NULL), STATUS_EXHAUSTED);
    assert_int_equal(file_list_read(unit_path(*state, "none"), 3, &list, NULL), STATUS_NOT_FOUND);
    assert_int_equal(file_list_read(unit_path(*state, "a"), 3, &list, NULL), STATUS_NOT_FOUND);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read),          TEST(too_long_is_refused_and_outputs_stay),
        TEST(long_and_virtual_files_are_whole), TEST(other_things_are_refused),
        TEST(a_failed_write_leaves_nothing),    TEST(make_dirs_makes_parents_and_keeps_what_is),
        TEST(lists_are_sorted_and_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
