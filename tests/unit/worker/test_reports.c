/* test_reports.c - the file of records: whole records only, one writer, a stated end when full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/digest.h"
#include "proto/pb.h"
#include "worker/reports.h"
#include "worker/wire.h"

struct fixture {
    char path[64];
    int dir;
    _Atomic uint64_t doorbell;
    struct reports reports;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    (void)snprintf(f->path, sizeof f->path, "/tmp/reports-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->dir = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(f->dir >= 0);
    f->reports.fd = -1;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    reports_close(&f->reports);
    (void)unlinkat(f->dir, "reports", 0);
    (void)close(f->dir);
    (void)rmdir(f->path);
    free(f);
    return 0;
}

static off_t file_size(const struct fixture *f)
{
    struct stat st;

    assert_int_equal(fstatat(f->dir, "reports", &st, 0), 0);
    return st.st_size;
}

static int append(struct fixture *f, const char *text)
{
    unsigned char record[256];
    size_t len = strlen(text);

    memcpy(record + WIRE_HEAD_BYTES, text, len);
    return reports_append(&f->reports, record, WIRE_HEAD_BYTES + len);
}

static void open_again(struct fixture *f)
{
    reports_close(&f->reports);
    assert_int_equal(reports_open(&f->reports, f->dir, &f->doorbell), 0);
}

static void records_carry_length_and_checksum(void **state)
{
    struct fixture *f = *state;
    unsigned char got[64];

    open_again(f);
    assert_int_equal(append(f, "one"), 0);
    assert_int_equal(append(f, "second"), 0);
    assert_int_equal(f->doorbell, 2);
    int fd = openat(f->dir, "reports", O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, got, sizeof got), 2 * WIRE_HEAD_BYTES + 9);
    (void)close(fd);
    assert_int_equal(wire_get_u32(got), 3);
    assert_int_equal(wire_get_u32(got + 4), digest_crc32c(0, "one", 3));
    assert_memory_equal(got + WIRE_HEAD_BYTES, "one", 3);
    assert_int_equal(wire_get_u32(got + WIRE_HEAD_BYTES + 3), 6);
}

/* Killed in the middle of a write, at each byte of the second record. */
static void half_a_record_is_cut_off(void **state)
{
    struct fixture *f = *state;

    for (off_t cut = 1; cut < WIRE_HEAD_BYTES + 6; cut++) {
        open_again(f);
        assert_int_equal(append(f, "one"), 0);
        assert_int_equal(append(f, "second"), 0);
        off_t first = WIRE_HEAD_BYTES + 3;
        assert_int_equal(ftruncate(f->reports.fd, first + cut), 0);
        open_again(f);
        assert_int_equal(file_size(f), first);
        assert_int_equal(append(f, "again"), 0);
        assert_int_equal(file_size(f), first + WIRE_HEAD_BYTES + 5);
        assert_int_equal(ftruncate(f->reports.fd, 0), 0);
    }
}

static void a_second_writer_is_refused(void **state)
{
    struct fixture *f = *state;
    int status;

    open_again(f);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* the lock is of the process */
        struct reports other = {.fd = -1};
        _exit(reports_open(&other, f->dir, &f->doorbell) == -EWOULDBLOCK ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(append(f, "still ours"), 0);
}

static void closed_files_take_nothing(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(append(f, "one"), -EBADF);
    assert_int_equal(f->doorbell, 0);
}

/* The disk is full, then has room again: the loss comes ahead of what follows, once. */
static void a_loss_is_told_by_the_next_record(void **state)
{
    struct fixture *f = *state;
    unsigned char got[128];

    open_again(f);
    assert_int_equal(append(f, "one"), 0);
    f->reports.over = 1;
    f->reports.until_check = 2;
    assert_int_equal(append(f, "lost"), -ENOSPC);
    assert_int_equal(append(f, "lost"), -ENOSPC);
    f->reports.untold = 7; /* their caller knows how many values they held */
    f->reports.over = 0;
    f->reports.until_check = 100;
    assert_int_equal(append(f, "two"), 0);
    assert_int_equal(append(f, "three"), 0);
    assert_int_equal(f->reports.dropped, 2);
    assert_int_equal(f->reports.untold, 0);
    int fd = openat(f->dir, "reports", O_RDONLY | O_CLOEXEC);
    ssize_t len = read(fd, got, sizeof got);
    (void)close(fd);
    const unsigned char *second = got + WIRE_HEAD_BYTES + 3;
    uint32_t size = wire_get_u32(second);
    assert_int_equal(len, 4 * WIRE_HEAD_BYTES + 3 + size + 3 + 5);
    Pb__WorkerRecord *told = pb__worker_record__unpack(NULL, size, second + WIRE_HEAD_BYTES);
    assert_non_null(told);
    assert_int_equal(told->dropped, 7);
    pb__worker_record__free_unpacked(told, NULL);
}

static void links_are_not_followed(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(symlinkat("/dev/null", f->dir, "reports"), 0);
    assert_int_equal(reports_open(&f->reports, f->dir, &f->doorbell), -ELOOP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(records_carry_length_and_checksum, setup, teardown),
        cmocka_unit_test_setup_teardown(half_a_record_is_cut_off, setup, teardown),
        cmocka_unit_test_setup_teardown(a_second_writer_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(closed_files_take_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_loss_is_told_by_the_next_record, setup, teardown),
        cmocka_unit_test_setup_teardown(links_are_not_followed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
