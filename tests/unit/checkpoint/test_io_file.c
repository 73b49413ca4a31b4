/* test_io_file.c - files by name, past the cache and through it. */
#include "checkpoint/io_file.h"
#include "checkpoint/io_pool.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static void what_is_written_is_read_both_ways(void **state)
{
    SCOPED(mem_free) void *memory = aligned_alloc(IO_POOL_ALIGN, 2 * IO_POOL_ALIGN);
    int dir = open_dir(*state);
    struct io_file file;
    size_t got;

    memset(memory, 7, 2 * IO_POOL_ALIGN);
    assert_int_equal(io_file_create(dir, "f", 5000, &file, NULL), STATUS_OK);
    assert_int_equal(io_file_write(&file, IO_DIRECT, memory, 2 * IO_POOL_ALIGN, 0), 0);
    assert_int_equal(io_file_finish(&file), 0); /* cut to its size */
    io_file_close(&file);
    assert_int_equal(io_file_open(dir, "f", NULL, &file, NULL), STATUS_OK);
    assert_int_equal(file.bytes, 5000);
    for (enum io_way way = IO_CACHED; way <= IO_DIRECT; way++) {
        memset(memory, 0, 2 * IO_POOL_ALIGN);
        assert_int_equal(io_file_read(&file, way, memory, 2 * IO_POOL_ALIGN, 0, &got), 0);
        assert_int_equal(got, 5000);
        assert_int_equal(((unsigned char *)memory)[4999], 7);
        assert_int_equal(io_file_read(&file, way, (char *)memory + 1, 10, 4995, &got), 0);
        assert_int_equal(got, 5); /* neither aligned nor there to its end */
    }
    io_file_close(&file);
    close(dir);
}

static void only_regular_files_below_the_directory_are_opened(void **state)
{
    SCOPED_TEXT char *link = mem_printf("%s/link", (char *)*state);
    SCOPED_TEXT char *pipe = mem_printf("%s/pipe", (char *)*state);
    int dir = open_dir(*state);
    struct io_file file;
    io_file_init(&file);

    assert_int_equal(symlink("/etc/passwd", link), 0);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_not_equal(io_file_open(dir, "link", NULL, &file, NULL), STATUS_OK);
    assert_int_not_equal(io_file_open(dir, "pipe", NULL, &file, NULL), STATUS_OK);
    assert_int_not_equal(io_file_open(dir, "../passwd", NULL, &file, NULL), STATUS_OK);
    assert_int_equal(io_file_open(dir, "none", NULL, &file, NULL), STATUS_NOT_FOUND);
    assert_int_equal(file.fd, -1);
    close(dir);
}

/* K2: other users read what one has written, as its umask allows. */
static void k2_modes_follow_the_umask(void **state)
{
    int dir = open_dir(*state);
    mode_t before = umask(027);
    struct io_file file;
    struct stat info;

    assert_int_equal(io_file_create(dir, "f", 0, &file, NULL), STATUS_OK);
    (void)umask(before);
    assert_int_equal(fstat(file.fd, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(io_file_create(dir, "f", 0, &file, NULL), STATUS_EXISTS);
    io_file_close(&file);
    close(dir);
}

static void patience_ends(void **state)
{
    struct io_patience patience = {.left_ms = 35};
    int waits = 0;

    (void)state;
    assert_false(io_patience_wait(NULL));
    while (io_patience_wait(&patience))
        waits++;
    assert_int_equal(waits, 3); /* 10, 20, and what is left */
}

static void what_is_mapped_is_the_file_or_nothing(void **state)
{
    SCOPED_TEXT char *path = mem_printf("%s/mapped", (char *)*state);
    SCOPED(mem_free) void *bytes = mem_array(3 * 65536, 1);
    int dir = open_dir(*state), fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct io_file file;

    memset(bytes, 7, (size_t)3 * 65536);
    assert_int_equal(pwrite(fd, bytes, 150000, 0), 150000);
    assert_int_equal(io_file_open(dir, "mapped", NULL, &file, NULL), STATUS_OK);
    const void *mapped = io_file_map(&file, 150000 - 65536, 65536);
    if (mapped) { /* not on an old kernel, nor on every kind of disk */
        assert_memory_equal(mapped, bytes, 150000 - 65536);
        io_file_unmap(mapped, 150000 - 65536);
    }
    assert_null(io_file_map(&file, 65536, 131072)); /* behind its end */
    assert_null(io_file_map(&file, 0, 0));
    assert_int_equal(ftruncate(fd, 70000), 0); /* it shrank: a read says so */
    assert_null(io_file_map(&file, 150000 - 65536, 65536));
    assert_null(io_file_map(&file, 4096, 0));
    file.local = false;
    assert_int_equal(ftruncate(fd, 150000), 0);
    assert_null(io_file_map(&file, 4096, 0));
    io_file_close(&file);
    close(fd);
    close(dir);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, unit_dir_setup, unit_dir_teardown)
    const struct CMUnitTest tests[] = {
        T(what_is_written_is_read_both_ways),
        T(only_regular_files_below_the_directory_are_opened),
        T(k2_modes_follow_the_umask),
        T(patience_ends),
        T(what_is_mapped_is_the_file_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
