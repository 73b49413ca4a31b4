/* main_rondo_shim.c - the worker's parent: starts it, waits, kills what it leaves, writes how it
 * ended.
 *
 * One thread, no allocation after the start, no library but libc. Started by an agent as
 * `rondo-shim DIR` with the descriptors of shim_wire.h; needs nothing from the agent after that. */
#include "agent/shim/shim_clone.h"
#include "agent/shim/shim_reap.h"
#include "agent/shim/shim_record.h"
#include "agent/shim/shim_request.h"
#include "agent/shim/shim_worker.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct shim {
    int dir;
    pid_t worker;
    int status; /* of wait4 */
    struct rusage usage;
    int64_t ended_us, ended_wall_us;
    struct shim_worker_failure failure;
    bool ended, asked_to_kill;
};

static struct shim_request asked;

static int64_t shim_clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Field 22 of stat, counted behind the last ')': with the pid it names a process for good. */
static int64_t shim_start_time(const char *path)
{
    char line[1024];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return -1;
    line[got] = '\0';
    char *at = strrchr(line, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    int64_t ticks = 0;
    for (at = at ? at + 1 : NULL; at && *at >= '0' && *at <= '9'; at++)
        ticks = ticks * 10 + (*at - '0');
    return ticks;
}

/* "/proc/<pid>/stat" */
static int64_t shim_start_time_of(pid_t pid)
{
    char path[40] = "/proc/", digits[16], *at = digits + sizeof(digits) - 1;
    *at = '\0';
    do {
        *--at = (char)('0' + pid % 10);
        pid /= 10;
    } while (pid);
    size_t digits_len = strlen(at), root_len = strlen(path);
    memcpy(path + root_len, at, digits_len);
    memcpy(path + root_len + digits_len, "/stat", sizeof("/stat"));
    return shim_start_time(path);
}

/* Of this process: found out once, for one that waits while nobody does. */
static int64_t shim_own_start(void)
{
    static int64_t own;
    if (own == 0)
        own = shim_start_time("/proc/self/stat");
    return own;
}

static int shim_save_pid(const struct shim *shim, const struct shim_request *request,
                         int64_t started_us)
{
    struct shim_record record;
    shim_record_begin(&record);
    shim_record_text(&record, "boot_id", request->boot_id);
    shim_record_number(&record, "shim_pid", getpid());
    shim_record_number(&record, "shim_start", shim_own_start());
    shim_record_number(&record, "worker_pid", shim->worker);
    shim_record_number(&record, "worker_start", shim_start_time_of(shim->worker));
    shim_record_number(&record, "started_us", started_us);
    if (request->cgroup2[0])
        shim_record_text(&record, "cgroup2", request->cgroup2);
    if (request->cgroup1[0])
        shim_record_text(&record, "cgroup1", request->cgroup1);
    if (request->cgroup_pids[0])
        shim_record_text(&record, "cgroup_pids", request->cgroup_pids);
    shim_record_text(&record, "tag", request->tag);
    shim_record_end(&record);
    int err = shim_record_save(&record, shim->dir, SHIM_WIRE_PID_FILE);
    if (err == 0)
        shim_record_send(&record, SHIM_WIRE_READY_FD);
    return err;
}

static int64_t shim_time_us(const struct timeval *time)
{
    return (int64_t)time->tv_sec * 1000000 + time->tv_usec;
}

/* gone: nothing of the worker is left. A second record replaces the first. */
static void shim_save_exit(const struct shim *shim, bool gone, bool send)
{
    const bool failed = shim->failure.stage != SHIM_STAGE_NONE, status = !failed;
    struct shim_record record;
    shim_record_begin(&record);
    shim_record_number(&record, "stage", shim->failure.stage);
    shim_record_number(&record, "exec_errno", shim->failure.error);
    shim_record_number(&record, "code",
                       status && WIFEXITED(shim->status) ? WEXITSTATUS(shim->status) : 0);
    shim_record_number(&record, "signal",
                       status && WIFSIGNALED(shim->status) ? WTERMSIG(shim->status) : 0);
    shim_record_number(&record, "ended_us", shim->ended_us);
    shim_record_number(&record, "ended_wall_us", shim->ended_wall_us);
    shim_record_number(&record, "user_us", shim_time_us(&shim->usage.ru_utime));
    shim_record_number(&record, "system_us", shim_time_us(&shim->usage.ru_stime));
    shim_record_number(&record, "rss_kib", shim->usage.ru_maxrss);
    shim_record_number(&record, "gone", gone);
    shim_record_end(&record);
    shim_record_save(&record, shim->dir, SHIM_WIRE_EXIT_FILE);
    if (send)
        shim_record_send(&record, SHIM_WIRE_READY_FD);
}

static void shim_mark_end(struct shim *shim)
{
    shim->ended = true;
    shim->ended_us = shim_clock_us(CLOCK_MONOTONIC);
    shim->ended_wall_us = shim_clock_us(CLOCK_REALTIME);
}

/* Takes every zombie. False when no child is left. */
static bool shim_reap_zombies(struct shim *shim)
{
    for (;;) {
        struct rusage usage;
        int status = 0;
        pid_t pid = wait4(-1, &status, WNOHANG, &usage);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0)
            return pid == 0;
        if (pid == shim->worker && !shim->ended) {
            shim->status = status;
            shim->usage = usage;
            shim_mark_end(shim);
        }
    }
}

/* Sleeps until a child changes or the agent asks. While there is something to kill it looks again
 * by itself: a child in an uninterruptible sleep changes later, without a signal to wait for. */
static void shim_wait(struct shim *shim, const sigset_t *signals, int round)
{
    struct timespec pause = {0, round < 10 ? 5000000 : 200000000};
    siginfo_t info;
    int got = sigtimedwait(signals, &info, shim->ended || shim->asked_to_kill ? &pause : NULL);
    if (got == SHIM_WIRE_KILL)
        shim->asked_to_kill = true;
}

static void shim_supervise(struct shim *shim, const sigset_t *signals)
{
    bool saved = false;
    int round = 0;
    while (shim_reap_zombies(shim)) {
        if (shim->ended && !saved) {
            shim_save_exit(shim, false, false);
            saved = true;
        }
        if (shim->ended || shim->asked_to_kill) {
            shim_reap_kill();
            round++;
        }
        shim_wait(shim, signals, round);
    }
    shim_save_exit(shim, true, false);
}

/* A start that failed after the fork may have left nothing, but look. */
static int shim_fail(struct shim *shim, int stage, int error, const sigset_t *signals)
{
    struct shim_worker_failure failure = {stage, error};
    shim->failure = failure;
    shim_mark_end(shim);
    for (int round = 0; shim_reap_zombies(shim); round++) {
        shim_reap_kill();
        shim_wait(shim, signals, round);
    }
    shim_save_exit(shim, true, true);
    return 1;
}

static void shim_signals(sigset_t *signals)
{
    /* Dispositions first: an ignored SIGCHLD would take exit statuses away, and the worker
     * inherits what is set here. Not by signal(): posix_spawn leaves the C library's own two
     * signals ignored, and it lets nobody change them. All zeros is the default. */
    static const uint64_t action[4] = {0};
    for (int signo = 1; signo < NSIG; signo++)
        syscall(SYS_rt_sigaction, signo, action, NULL, sizeof(uint64_t));
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(signals);
    sigaddset(signals, SIGCHLD);
    sigaddset(signals, SHIM_WIRE_KILL);
}

/* What the worker would inherit by mistake. */
static void shim_close_others(void)
{
    syscall(SYS_close_range, (unsigned)SHIM_WIRE_REQUEST_FD + 1, ~0u, 0u);
    fcntl(SHIM_WIRE_READY_FD, F_SETFD, FD_CLOEXEC);
    fcntl(SHIM_WIRE_REQUEST_FD, F_SETFD, FD_CLOEXEC);
}

/* Descriptors 0-2 on /dev/null, nothing of the agent's above the request. */
static void shim_detach(void)
{
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2 && null >= 0; fd++)
        if (null != fd)
            dup2(null, fd);
    shim_close_others();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static int shim_run(const char *path, const sigset_t *mask)
{
    struct shim shim = {.dir = -1};
    struct shim_worker_files files;
    sigset_t signals = *mask;
    int err;
    shim.dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (shim.dir < 0 || chdir("/") != 0)
        return 2;
    if ((err = shim_request_read(&asked, SHIM_WIRE_REQUEST_FD)) != 0)
        return shim_fail(&shim, SHIM_STAGE_REQUEST, err, &signals);
    if ((err = shim_record_reserve(shim.dir, SHIM_WIRE_PID_FILE)) != 0 ||
        (err = shim_record_reserve(shim.dir, SHIM_WIRE_EXIT_FILE)) != 0 ||
        (err = shim_worker_files_open(&files, shim.dir, &asked)) != 0)
        return shim_fail(&shim, SHIM_STAGE_FILES, err, &signals);
    const int64_t started_us = shim_clock_us(CLOCK_MONOTONIC);
    struct shim_worker_failure failure;
    shim.worker = shim_worker_start(&asked, &files, &failure);
    shim_worker_files_close(&files);
    if (shim.worker < 0)
        return shim_fail(&shim, failure.stage, failure.error, &signals);
    if ((err = shim_save_pid(&shim, &asked, started_us)) != 0)
        return shim_fail(&shim, SHIM_STAGE_FILES, err, &signals);
    shim_request_fini(&asked);
    close(SHIM_WIRE_READY_FD);
    shim_supervise(&shim, &signals);
    return 0;
}

/* What argv[1] and the room behind it hold shows in ps, as if the shim had been started for dir. */
static const char *shim_show(char **argv, const char *dir)
{
    const size_t room = strlen(argv[1]) + 1 + strlen(argv[2]), len = strlen(dir);
    if (argv[1] + strlen(argv[1]) + 1 != argv[2] || len > room)
        return dir;
    memcpy(argv[1], dir, len);
    memset(argv[1] + len, 0, room - len);
    return argv[1];
}

/* Waits for a directory and the two descriptors. False: nobody is there any more. */
static bool shim_receive(char *dir, size_t cap)
{
    int fds[2];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(fds))];
    } control;
    struct iovec piece = {dir, cap - 1};
    struct msghdr message;
    memset(&message, 0, sizeof(message));
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = &control;
    message.msg_controllen = sizeof(control);
    long got;
    do
        got = syscall(SYS_recvmsg, SHIM_WIRE_READY_FD, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0 || dir[0] != '/' || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
        message.msg_controllen < sizeof(control.header) || control.header.cmsg_type != SCM_RIGHTS ||
        control.header.cmsg_len != CMSG_LEN(sizeof(fds)))
        return false;
    dir[got] = '\0';
    memcpy(fds, CMSG_DATA(&control.header), sizeof(fds));
    /* They came as the lowest that were free, in order: neither is in the other's place. */
    return dup2(fds[0], SHIM_WIRE_READY_FD) >= 0 && dup2(fds[1], SHIM_WIRE_REQUEST_FD) >= 0;
}

/* What a start would do first of all, done while nobody waits for it: pages taken. */
static void shim_warm(void)
{
    for (size_t at = 0; at < sizeof(asked); at += 4096)
        ((volatile char *)&asked)[at] = 0;
    shim_clone_warm();
    shim_own_start();
}

static int shim_start(int argc, char **argv)
{
    char dir[SHIM_WIRE_WAIT_DIR_MAX];
    const char *path = argv[1];
    sigset_t signals;
    shim_signals(&signals);
    shim_detach();
    if (argc == 3) {
        shim_warm();
        if (!shim_receive(dir, sizeof(dir)))
            return 0;
        path = shim_show(argv, dir);
        shim_close_others();
    }
    return shim_run(path, &signals);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        static const char line[] = "rondo-shim " RONDO_VERSION " wire 1\n";
        return write(1, line, sizeof(line) - 1) == sizeof(line) - 1 ? 0 : 1;
    }
    if (!(argc == 2 && argv[1][0] == '/') && !(argc == 3 && strcmp(argv[1], SHIM_WIRE_WAIT) == 0)) {
        static const char line[] =
            "usage: rondo-shim /DIR  (started by rondo-agent, not by hand)\n";
        return write(2, line, sizeof(line) - 1) == sizeof(line) - 1 ? 2 : 1;
    }
    return shim_start(argc, argv);
}
