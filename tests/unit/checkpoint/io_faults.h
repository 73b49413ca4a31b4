/* io_faults.h - a disk that fails: the test program's own system calls, which stand before those of
 * the C library, count and fail as the test says.
 *
 * Include it in one file of a program. Counts are of all threads. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static struct io_faults {
    atomic_long calls;      /* of those below, since io_faults_reset */
    atomic_long fail_call;  /* that one fails ... (0: none) */
    atomic_long fail_count; /* ... and those behind it: how many in all */
    atomic_int errnum;
    atomic_size_t short_bytes; /* a read or write moves at most that many; 0: no limit */
    atomic_bool interrupts;    /* every other call is interrupted first */
    atomic_bool no_direct;     /* no file opens for direct I/O */
    atomic_long crash_call;    /* the process dies before that one (0: none) */
    /* a network file system that is behind: so many times, for files whose names end in slow_name
     */
    const char *slow_name;
    atomic_long hidden_opens, stale_sizes, stale_reads;
    atomic_int slow_fd;
} io_faults;

static inline void io_faults_reset(void)
{
    atomic_store(&io_faults.calls, 0);
    atomic_store(&io_faults.fail_call, 0);
    atomic_store(&io_faults.fail_count, 1);
    atomic_store(&io_faults.short_bytes, 0);
    atomic_store(&io_faults.interrupts, false);
    atomic_store(&io_faults.no_direct, false);
    atomic_store(&io_faults.crash_call, 0);
    io_faults.slow_name = NULL;
    atomic_store(&io_faults.hidden_opens, 0);
    atomic_store(&io_faults.stale_sizes, 0);
    atomic_store(&io_faults.stale_reads, 0);
    atomic_store(&io_faults.slow_fd, -1);
}

static inline void io_faults_set(long call, long count, int errnum)
{
    io_faults_reset();
    atomic_store(&io_faults.fail_call, call);
    atomic_store(&io_faults.fail_count, count);
    atomic_store(&io_faults.errnum, errnum);
}

/* True: the call fails with errno. */
static bool io_faults_hit(void)
{
    long call = atomic_fetch_add(&io_faults.calls, 1) + 1;
    long first = atomic_load(&io_faults.fail_call);

    if (call == atomic_load(&io_faults.crash_call))
        (void)kill(getpid(), SIGKILL);
    if (first && call >= first && call < first + atomic_load(&io_faults.fail_count)) {
        errno = atomic_load(&io_faults.errnum);
        return true;
    }
    if (atomic_load(&io_faults.interrupts) && call % 2) {
        errno = EINTR;
        return true;
    }
    return false;
}

static size_t io_faults_len(size_t len)
{
    size_t most = atomic_load(&io_faults.short_bytes);

    return most && len > most ? most : len;
}

/* Is one of them left? Takes it. */
static bool io_faults_take(atomic_long *left)
{
    long n = atomic_load(left);

    while (n > 0 && !atomic_compare_exchange_weak(left, &n, n - 1))
        continue;
    return n > 0;
}

ssize_t pread(int fd, void *to, size_t len, off_t at)
{
    if (io_faults_take(&io_faults.stale_reads)) {
        errno = ESTALE;
        return -1;
    }
    return io_faults_hit() ? -1 : syscall(SYS_pread64, fd, to, io_faults_len(len), at);
}

ssize_t pwrite(int fd, const void *from, size_t len, off_t at)
{
    return io_faults_hit() ? -1 : syscall(SYS_pwrite64, fd, from, io_faults_len(len), at);
}

int fallocate(int fd, int mode, off_t at, off_t len)
{
    return io_faults_hit() ? -1 : (int)syscall(SYS_fallocate, fd, mode, at, len);
}

int ftruncate(int fd, off_t len)
{
    return io_faults_hit() ? -1 : (int)syscall(SYS_ftruncate, fd, len);
}

int fdatasync(int fd)
{
    return io_faults_hit() ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (io_faults_hit())
        return -1;
    size_t len = strlen(path), tail = io_faults.slow_name ? strlen(io_faults.slow_name) : 0;
    bool slow = tail && len >= tail && strcmp(path + len - tail, io_faults.slow_name) == 0;
    if (slow && io_faults_take(&io_faults.hidden_opens)) {
        errno = ENOENT;
        return -1;
    }
    int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    if (slow)
        atomic_store(&io_faults.slow_fd, fd);
    return fd;
}

int fstat(int fd, struct stat *out)
{
    int failed = (int)syscall(SYS_newfstatat, fd, "", out, AT_EMPTY_PATH);

    if (!failed && fd == atomic_load(&io_faults.slow_fd) && io_faults_take(&io_faults.stale_sizes))
        out->st_size /= 2;
    return failed;
}

/* What makes and moves names. */
ssize_t write(int fd, const void *from, size_t len)
{
    return io_faults_hit() ? -1 : syscall(SYS_write, fd, from, len);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
    return io_faults_hit() ? -1 : (int)syscall(SYS_mkdirat, dir, path, mode);
}

int fsync(int fd)
{
    return io_faults_hit() ? -1 : (int)syscall(SYS_fsync, fd);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return io_faults_hit() ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return io_faults_hit() ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int unlinkat(int dir, const char *path, int flags)
{
    return io_faults_hit() ? -1 : (int)syscall(SYS_unlinkat, dir, path, flags);
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    if ((flags & O_DIRECT) && atomic_load(&io_faults.no_direct)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
