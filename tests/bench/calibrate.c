/* calibrate.c - see calibrate.h. */
#include "tests/bench/calibrate.h"
#include "base/file.h"
#include "base/mem.h"
#include "tests/bench/figure.h"
#include "tests/bench/process.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SYNC_US     500000
#define SPAWN_US    500000
#define BLOCK       8192
#define TMPFS_MAGIC 0x01021994

static enum status calibrate_sync(const struct bench *bench, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/rondo-bench-sync.XXXXXX", bench->base_dir);
    char block[BLOCK] = {1};
    int64_t count = 0, start_us, now_us;
    struct statfs fs;
    int fd = mkostemp(path, O_CLOEXEC);

    if (fd < 0)
        return error_set(err, file_status(errno), "create %s: %s", path, strerror(errno));
    unlink(path);
    bool good = pwrite(fd, block, sizeof(block), 0) == BLOCK && fsync(fd) == 0;
    start_us = now_us = process_now_us();
    while (good && now_us - start_us < SYNC_US) {
        good = pwrite(fd, block, sizeof(block), 0) == BLOCK && fdatasync(fd) == 0;
        now_us = process_now_us();
        count++;
    }
    if (fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC)
        figure_note("calibrate.in_memory", 1, "bool"); /* syncs cost nothing here */
    close(fd);
    if (!good)
        return error_set(err, file_status(errno), "write %s: %s", path, strerror(errno));
    figure_note("calibrate.fdatasync_per_s", (double)count * 1e6 / (double)(now_us - start_us),
                "1/s");
    return STATUS_OK;
}

static enum status calibrate_spawn(struct error *err)
{
    const char *const argv[] = {"/bin/true", NULL};
    int64_t count = 0, start_us = process_now_us(), now_us = start_us;
    struct process_result result;

    while (now_us - start_us < SPAWN_US) {
        enum status st = process_must(argv, "/", NULL, 5000, &result, err);
        if (st != STATUS_OK)
            return st;
        now_us = process_now_us();
        count++;
    }
    figure_note("calibrate.spawn_per_s", (double)count * 1e6 / (double)(now_us - start_us), "1/s");
    return STATUS_OK;
}

enum status calibrate(const struct bench *bench, struct error *err)
{
    double load = 0;
    enum status st = calibrate_sync(bench, err);

    if (st == STATUS_OK)
        st = calibrate_spawn(err);
    if (getloadavg(&load, 1) == 1)
        figure_note("calibrate.load", load, "tasks");
    return st == STATUS_OK ? st : error_wrap(err, "calibrate");
}
