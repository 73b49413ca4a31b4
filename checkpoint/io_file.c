/* io_file.c - see io_file.h. */
#include "checkpoint/io_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/io_pool.h"
#include "checkpoint/vault_tree.h"

#define PATIENCE_MS_MIN 10
#define PATIENCE_MS_MAX 500

void io_file_init(struct io_file *file)
{
    *file = (struct io_file){.fd = -1, .direct = -1};
}

void io_file_close(struct io_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        (void)close(file->fd);
    if (file->direct >= 0)
        (void)close(file->direct);
    io_file_init(file);
}

enum status io_file_status(int errnum)
{
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
        return STATUS_EXHAUSTED;
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
        return STATUS_NOT_FOUND;
    case EEXIST:
        return STATUS_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return STATUS_DENIED;
    default:
        return STATUS_UNAVAILABLE;
    }
}

bool io_patience_wait(struct io_patience *patience)
{
    uint32_t ms;

    if (!patience || patience->left_ms == 0)
        return false;
    ms = patience->next_ms < PATIENCE_MS_MIN ? PATIENCE_MS_MIN : patience->next_ms;
    patience->next_ms = ms * 2 < PATIENCE_MS_MAX ? ms * 2 : PATIENCE_MS_MAX;
    ms = ms < patience->left_ms ? ms : patience->left_ms;
    patience->left_ms -= ms;
    struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
        continue;
    return true;
}

/* --- open, create */

static int open_at(int dir, const char *name, int flags)
{
    int fd;

    do
        fd = openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* The same file once more, for direct I/O; where that is not possible, -1. */
static int open_direct(int fd, int flags)
{
#ifdef O_DIRECT
    char path[32];

    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, flags | O_DIRECT | O_CLOEXEC);
#else
    (void)fd, (void)flags;
    return -1;
#endif
}

static enum status open_failed(struct error *err, const char *what, const char *path)
{
    int errnum = errno;

    return error_set(err, io_file_status(errnum), "%s %s: %s", what, path,
                     errnum == ELOOP ? "it is a link" : strerror(errnum));
}

/* File servers take files away under a mapping: theirs are read. */
static bool is_local(int fd)
{
    struct statfs at;

    if (fstatfs(fd, &at) != 0)
        return false;
    switch ((unsigned long)at.f_type) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
        return true;
    default:
        return false;
    }
}

enum status io_file_open(int dir, const char *path, struct io_patience *patience,
                         struct io_file *file, struct error *err)
{
    struct stat st;
    int fd = -1;
    enum status status;

    while ((status = vault_tree_file(dir, path, &fd, err)) != STATUS_OK)
        if ((status != STATUS_NOT_FOUND && status != STATUS_UNAVAILABLE) ||
            !io_patience_wait(patience))
            return status;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd);
        return error_set(err, STATUS_NOT_FOUND, "open %s: not a regular file", path);
    }
    io_file_init(file);
    file->fd = fd;
    file->bytes = (uint64_t)st.st_size;
    file->direct = open_direct(fd, O_RDONLY);
    file->local = is_local(fd);
    return STATUS_OK;
}

enum status io_file_create(int dir, const char *name, uint64_t bytes, struct io_file *file,
                           struct error *err)
{
    int fd = open_at(dir, name, O_RDWR | O_CREAT | O_EXCL);
    int failed;

    if (fd < 0)
        return open_failed(err, "make", name);
    do
        failed = bytes > 0 ? fallocate(fd, 0, 0, (off_t)bytes) : 0;
    while (failed && errno == EINTR);
    if (failed && errno != EOPNOTSUPP && errno != ENOSYS) {
        enum status st = open_failed(err, "reserve room for", name);
        (void)close(fd);
        (void)unlinkat(dir, name, 0);
        return st;
    }
    io_file_init(file);
    file->fd = fd;
    file->bytes = bytes;
    file->direct = open_direct(fd, O_WRONLY);
    return STATUS_OK;
}

/* --- read, write */

static bool is_aligned(const void *memory, size_t len, uint64_t at)
{
    return (((uintptr_t)memory | len | at) & (IO_POOL_ALIGN - 1)) == 0;
}

static int pick(struct io_file *file, enum io_way way, const void *memory, size_t len, uint64_t at)
{
    bool direct = way == IO_DIRECT && file->direct >= 0 && is_aligned(memory, len, at) &&
                  !atomic_load_explicit(&file->shunned, memory_order_relaxed);

    return direct ? file->direct : file->fd;
}

/* EINVAL of a direct call: this file system wants it otherwise. True: try through the cache. */
static bool shun(struct io_file *file, int fd)
{
    if (fd != file->direct || errno != EINVAL)
        return false;
    atomic_store_explicit(&file->shunned, true, memory_order_relaxed);
    return true;
}

int io_file_read(struct io_file *file, enum io_way way, void *buffer, size_t len, uint64_t at,
                 size_t *got)
{
    unsigned char *to = buffer;
    size_t done = 0;

    while (done < len) {
        int fd = pick(file, way, to + done, len - done, at + done);
        ssize_t n = pread(fd, to + done, len - done, (off_t)(at + done));
        if (n < 0 && (errno == EINTR || shun(file, fd)))
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *got = done;
    return 0;
}

int io_file_write(struct io_file *file, enum io_way way, const void *bytes, size_t len, uint64_t at)
{
    const unsigned char *from = bytes;
    size_t done = 0;

    while (done < len) {
        int fd = pick(file, way, from + done, len - done, at + done);
        ssize_t n = pwrite(fd, from + done, len - done, (off_t)(at + done));
        if (n < 0 && (errno == EINTR || shun(file, fd)))
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            return EIO;     /* no progress and no reason */
        if (fd == file->fd) /* let the disk begin: what waits is then less */
            (void)sync_file_range(fd, (off_t)(at + done), (off_t)n, SYNC_FILE_RANGE_WRITE);
        done += (size_t)n;
    }
    return 0;
}

int io_file_finish(struct io_file *file)
{
    int failed;

    do
        failed = ftruncate(file->fd, (off_t)file->bytes);
    while (failed && errno == EINTR);
    while (!failed && fdatasync(file->fd) != 0)
        if (errno != EINTR)
            return errno;
    return failed ? errno : 0;
}

/* --- cache */

struct cache_range {
    uint64_t at, len;
};
struct cache_counts {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

bool io_file_cached(const struct io_file *file, size_t len, uint64_t at)
{
#if defined(__x86_64__) || defined(__aarch64__)
    enum { CACHESTAT = 451 };
    struct cache_range range = {.at = at, .len = len};
    struct cache_counts counts = {0};
    uint64_t page = 4096, first = at / page, end = (at + len + page - 1) / page;

    if (at >= file->bytes || len == 0)
        return true;
    if (at + len > file->bytes)
        end = (file->bytes + page - 1) / page;
    return syscall(CACHESTAT, file->fd, &range, &counts, 0) == 0 && counts.cached >= end - first;
#else
    (void)file, (void)len, (void)at;
    return false;
#endif
}

/* --- mapped */

const void *io_file_map(const struct io_file *file, size_t len, uint64_t at)
{
    struct stat st;

    if (!file->local || len == 0 || at + len > file->bytes || fstat(file->fd, &st) != 0 ||
        (uint64_t)st.st_size != file->bytes)
        return NULL;
    void *bytes = mmap(NULL, len, PROT_READ, MAP_SHARED, file->fd, (off_t)at);
    if (bytes == MAP_FAILED)
        return NULL;
    if (madvise(bytes, len, MADV_POPULATE_READ) == 0)
        return bytes;
    (void)munmap(bytes, len);
    return NULL;
}

void io_file_unmap(const void *bytes, size_t len)
{
    (void)munmap((void *)(uintptr_t)bytes, len);
}
