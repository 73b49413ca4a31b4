/* dev_process.c - see dev_process.h. */
#include "daemon/dev_process.h"
#include "base/file.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEV_STAT_BYTES  4096
#define DEV_STAT_START  22 /* field of /proc/PID/stat */
#define DEV_CLOSE_FIRST 3u

/* Start time in ticks since boot, as text; false when it is gone or a zombie. */
static bool dev_process_start_time(pid_t pid, char *out, size_t cap)
{
    SCOPED_TEXT char *path = mem_printf("/proc/%ld/stat", (long)pid);
    SCOPED_TEXT char *stat = NULL;
    char *rest, *field, *place = NULL;
    size_t len;
    int number = 3;

    if (file_read(path, DEV_STAT_BYTES, &stat, &len, NULL) != STATUS_OK ||
        !(rest = strrchr(stat, ')')))
        return false;
    field = strtok_r(rest + 1, " ", &place);
    if (!field || *field == 'Z' || *field == 'X')
        return false;
    for (; field && number < DEV_STAT_START; number++)
        field = strtok_r(NULL, " ", &place);
    if (!field)
        return false;
    snprintf(out, cap, "%s", field);
    return true;
}

static bool dev_process_record_text(pid_t pid, char *out, size_t cap)
{
    SCOPED_TEXT char *boot = NULL;
    char start[32];
    size_t len;

    if (!dev_process_start_time(pid, start, sizeof(start)) ||
        file_read("/proc/sys/kernel/random/boot_id", 256, &boot, &len, NULL) != STATUS_OK)
        return false;
    boot[strcspn(boot, "\n")] = '\0';
    snprintf(out, cap, "%ld %s %s\n", (long)pid, start, boot);
    return true;
}

static int dev_pidfd_open(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by itself */
}

enum status dev_process_find(const char *record, pid_t *pid, int *pidfd)
{
    SCOPED_TEXT char *text = NULL;
    char now[256];
    size_t len;

    if (file_read(record, sizeof(now) - 1, &text, &len, NULL) != STATUS_OK)
        return STATUS_NOT_FOUND;
    long number = strtol(text, NULL, 10);
    if (number <= 1)
        return STATUS_NOT_FOUND;
    int fd = dev_pidfd_open((pid_t)number); /* first: then the pid cannot change its owner */
    if (fd < 0)
        return STATUS_NOT_FOUND;
    if (!dev_process_record_text((pid_t)number, now, sizeof(now)) || strcmp(now, text) != 0) {
        close(fd);
        return STATUS_NOT_FOUND;
    }
    *pid = (pid_t)number;
    *pidfd = fd;
    return STATUS_OK;
}

/* In the child of a process with threads: nothing but system calls. */
static void dev_process_child(int gate, int log, char *const *argv)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    char go = 0;
    int null;

    if (read(gate, &go, 1) != 1) /* the daemon died before the record was written */
        _exit(127);
    setsid();
    for (int number = 1; number < 32; number++)
        sigaction(number, &plain, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(127);
    syscall(SYS_close_range, DEV_CLOSE_FIRST, ~0u, 0u);
    execv(argv[0], argv);
    _exit(127);
}

/* A full disk has no room for another file, but the one that is there can say something else. */
static bool dev_process_overwrite(const char *record, const char *text)
{
    const ssize_t len = (ssize_t)strlen(text);
    int fd = open(record, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    bool good = fd >= 0 && pwrite(fd, text, (size_t)len, 0) == len && ftruncate(fd, len) == 0;

    if (fd >= 0)
        close(fd);
    return good;
}

/* Writes the record and lets the child go; at any failure the closing gate ends the child. */
static enum status dev_process_release(const char *record, pid_t pid, int gate, int *pidfd,
                                       struct error *err)
{
    char text[256];

    *pidfd = dev_pidfd_open(pid);
    if (*pidfd < 0 || !dev_process_record_text(pid, text, sizeof(text)))
        return error_set(err, STATUS_UNAVAILABLE, "follow the new process: %s", strerror(errno));
    enum status st = file_write_atomic(record, text, strlen(text), 0600, err);
    if (st == STATUS_EXHAUSTED && dev_process_overwrite(record, text))
        st = STATUS_OK;
    if (st == STATUS_OK && write(gate, "g", 1) != 1)
        st = error_set(err, STATUS_UNAVAILABLE, "start the new process: %s", strerror(errno));
    return st;
}

static enum status dev_process_fork(const struct dev_process_options *options, int log, pid_t *pid,
                                    int *pidfd, struct error *err)
{
    int gate[2];

    if (pipe2(gate, O_CLOEXEC) != 0)
        return error_set(err, STATUS_EXHAUSTED, "pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        close(gate[1]);
        dev_process_child(gate[0], log, options->argv);
    }
    close(gate[0]);
    enum status st = child < 0 ? error_set(err, STATUS_EXHAUSTED, "fork: %s", strerror(errno))
                               : dev_process_release(options->record, child, gate[1], pidfd, err);
    close(gate[1]);
    if (st != STATUS_OK && child > 0)
        waitpid(child, NULL, 0);
    *pid = child;
    return st;
}

enum status dev_process_start(const struct dev_process_options *options, pid_t *pid, int *pidfd,
                              struct error *err)
{
    int log = open(options->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (log < 0)
        return error_set(err, file_status(errno), "open %s: %s", options->log, strerror(errno));
    if (access(options->argv[0], X_OK) != 0) {
        close(log);
        return error_set(err, file_status(errno), "%s: %s", options->argv[0], strerror(errno));
    }
    enum status st = dev_process_fork(options, log, pid, pidfd, err);
    close(log);
    return st;
}
