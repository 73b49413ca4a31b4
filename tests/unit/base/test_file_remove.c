/* test_file_remove.c - trees go, whatever their depth and modes; what links point to stays. */
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

static bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static void absent_files_and_links_are_fine(void **state)
{
    const char *file = unit_path(*state, "f"), *link = unit_path(*state, "l");
    assert_int_equal(file_remove_tree(unit_path(*state, "none"), NULL), STATUS_OK);
    unit_write(file, "x");
    assert_int_equal(symlink(file, link), 0);
    assert_int_equal(file_remove_tree(link, NULL), STATUS_OK);
    assert_false(exists(link));
    assert_true(exists(file));
    assert_int_equal(file_remove_tree(file, NULL), STATUS_OK);
    assert_false(exists(file));
}

static void links_are_removed_never_followed(void **state)
{
    const char *tree = unit_path(*state, "t"), *keep = unit_path(*state, "keep");
    assert_int_equal(file_make_dirs(unit_path(tree, "a/b"), 0700, NULL), STATUS_OK);
    assert_int_equal(file_make_dirs(keep, 0700, NULL), STATUS_OK);
    unit_write(unit_path(*state, "keep/file"), "x");
    tree = unit_path(*state, "t");
    assert_int_equal(symlink("../../keep", unit_path(tree, "a/up")), 0);
    assert_int_equal(symlink("/", unit_path(tree, "root")), 0);
    tree = unit_path(*state, "t");
    assert_int_equal(file_remove_tree(tree, NULL), STATUS_OK);
    assert_false(exists(tree));
    assert_true(exists(unit_path(*state, "keep/file")));
}

static void closed_directories_are_opened(void **state)
{
    assert_int_equal(file_make_dirs(unit_path(*state, "t/a/b"), 0700, NULL), STATUS_OK);
    unit_write(unit_path(*state, "t/a/b/f"), "x");
    assert_int_equal(chmod(unit_path(*state, "t/a/b"), 0), 0);
    assert_int_equal(chmod(unit_path(*state, "t/a"), 0), 0);
    const char *tree = unit_path(*state, "t");
    assert_int_equal(file_remove_tree(tree, NULL), STATUS_OK);
    assert_false(exists(tree));
}

static void make_deep(const char *tree, int levels)
{
    assert_int_equal(mkdir(tree, 0700), 0);
    int fd = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < levels; i++) {
        assert_int_equal(mkdirat(fd, "deeper-and-deeper", 0700), 0);
        int next = openat(fd, "deeper-and-deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(fd);
        fd = next;
    }
    close(fd);
}

/* Deeper than any path may be long. */
static void depth_has_no_limit(void **state)
{
    const char *tree = unit_path(*state, "t");
    make_deep(tree, 1000);
    assert_int_equal(file_remove_tree(tree, NULL), STATUS_OK);
    assert_false(exists(tree));
}

static void *remove_it(void *tree)
{
    struct error err = {STATUS_OK, ""};
    if (file_remove_tree(tree, &err) != STATUS_OK)
        print_error("%s\n", err.text);
    return err.code == STATUS_OK ? tree : NULL;
}

static void two_may_remove_one_tree(void **state)
{
    char *tree = (char *)(uintptr_t)unit_path(*state, "t");
    void *good[3];
    pthread_t threads[3];
    make_deep(tree, 5000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, remove_it, tree), 0);
    for (int i = 0; i < 3; i++)
        (void)pthread_join(threads[i], &good[i]);
    assert_true(good[0] && good[1] && good[2]);
    assert_false(exists(tree));
}

static void many_files_go(void **state)
{
    char name[32];
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        int fd = open(unit_path(*state, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    assert_int_equal(file_remove_tree(*state, NULL), STATUS_OK);
    assert_false(exists(*state));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        TEST(absent_files_and_links_are_fine), TEST(links_are_removed_never_followed),
        TEST(closed_directories_are_opened),   TEST(depth_has_no_limit),
        TEST(two_may_remove_one_tree),         TEST(many_files_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
