/* process.c - see process.h. */
#include "tests/bench/process.h"
#include "base/file.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLICE_MS 200
#define TAIL_MAX 150

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

void process_watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

bool process_interrupted(void)
{
    return interrupted;
}

int64_t process_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

enum status process_start(const char *const *argv, const char *dir, const char *out, pid_t *pid,
                          struct error *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    const char *to = out ? out : "/dev/null";
    sigset_t none;

    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (dir)
        posix_spawn_file_actions_addchdir_np(&actions, dir);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    int failed =
        posix_spawnp(pid, argv[0], &actions, &attr, (char *const *)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return error_set(err, file_status(failed), "run %s: %s", argv[0], strerror(failed));
    return STATUS_OK;
}

static int64_t us_of(const struct timeval *time)
{
    return (int64_t)time->tv_sec * 1000000 + time->tv_usec;
}

enum status process_wait(pid_t pid, int64_t limit_ms, struct process_result *result,
                         struct error *err)
{
    int64_t end_us = process_now_us() + limit_ms * 1000;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0u), status = 0;
    struct pollfd wait = {.fd = pidfd, .events = POLLIN};
    struct rusage usage = {0};
    enum status st = STATUS_OK;

    while (poll(&wait, 1, SLICE_MS) <= 0 && st == STATUS_OK) {
        if (interrupted)
            st = error_set(err, STATUS_CANCELLED, "interrupted");
        else if (process_now_us() > end_us)
            st = error_set(err, STATUS_DEADLINE, "process %d: not done in %lld ms", (int)pid,
                           (long long)limit_ms);
        if (st != STATUS_OK)
            kill(-pid, SIGKILL);
    }
    close(pidfd);
    while (wait4(pid, &status, 0, &usage) < 0 && errno == EINTR)
        ;
    result->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result->cpu_us = us_of(&usage.ru_utime) + us_of(&usage.ru_stime);
    return st;
}

enum status process_run(const char *const *argv, const char *dir, const char *out, int64_t limit_ms,
                        struct process_result *result, struct error *err)
{
    int64_t start_us = process_now_us();
    pid_t pid;
    enum status st = process_start(argv, dir, out, &pid, err);

    if (st == STATUS_OK)
        st = process_wait(pid, limit_ms, result, err);
    result->wall_us = process_now_us() - start_us;
    return st == STATUS_OK ? st : error_wrap(err, "%s", argv[0]);
}

enum status process_must(const char *const *argv, const char *dir, const char *out,
                         int64_t limit_ms, struct process_result *result, struct error *err)
{
    enum status st = process_run(argv, dir, out, limit_ms, result, err);
    SCOPED_TEXT char *text = NULL;
    size_t len = 0;

    if (st != STATUS_OK || result->code == 0)
        return st;
    if (!out || file_read(out, (size_t)64 << 20, &text, &len, NULL) != STATUS_OK)
        text = mem_strdup("");
    return error_set(err, STATUS_UNKNOWN, "%s ended with %d: %s", argv[0], result->code,
                     text + (len > TAIL_MAX ? len - TAIL_MAX : 0));
}
