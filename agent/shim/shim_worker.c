/* shim_worker.c - descriptors, limits, user and program of the worker. */
#include "agent/shim/shim_worker.h"
#include "agent/shim/shim_clone.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHIM_WORKER_PATH "/usr/local/bin:/usr/bin:/bin"

/* The worker's user owns its logs, so that /dev/stdout can be opened by name. */
static int shim_worker_log_open(int dir, const char *name, const struct shim_request *request)
{
    int fd =
        openat(dir, name, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0640);
    if (fd < 0)
        return -1;
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        (request->has_user && request->uid != st.st_uid &&
         fchown(fd, request->uid, request->gid) != 0)) {
        int err = S_ISREG(st.st_mode) ? errno : EINVAL;
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

int shim_worker_files_open(struct shim_worker_files *files, int dir,
                           const struct shim_request *request)
{
    *files = (struct shim_worker_files){-1, -1, -1};
    files->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (files->null < 0)
        return errno;
    files->out = shim_worker_log_open(dir, request->out, request);
    if (files->out < 0)
        return errno;
    files->err = strcmp(request->out, request->err) == 0
                     ? fcntl(files->out, F_DUPFD_CLOEXEC, 5)
                     : shim_worker_log_open(dir, request->err, request);
    return files->err < 0 ? errno : 0;
}

void shim_worker_files_close(struct shim_worker_files *files)
{
    int fds[] = {files->null, files->out, files->err};
    for (size_t i = 0; i < 3; i++)
        if (fds[i] > 2)
            close(fds[i]);
    *files = (struct shim_worker_files){-1, -1, -1};
}

/* Writing 0 moves the writer. */
static int shim_worker_join(const char *cgroup)
{
    int dir = open(cgroup, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = dir < 0 ? -1 : openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    int failed = fd < 0 || write(fd, "0", 1) != 1 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
    return failed;
}

static int shim_worker_limits(const struct shim_request *request)
{
    for (uint32_t i = 0; i < request->rlimits_count; i++) {
        const struct shim_wire_rlimit *row = &request->rlimits[i];
        struct rlimit limit = {row->soft, row->hard};
        if (setrlimit((__rlimit_resource_t)row->resource, &limit) != 0)
            return errno;
    }
    umask((mode_t)(request->umask & 0777));
    return 0;
}

static int shim_worker_affinity(const struct shim_request *request)
{
    unsigned long mask[SHIM_WIRE_CPUS_MAX / (8 * sizeof(unsigned long))] = {0};
    const size_t bits = 8 * sizeof(mask[0]);
    if (request->cpus_count == 0)
        return 0;
    for (uint32_t i = 0; i < request->cpus_count; i++) {
        uint32_t cpu = request->cpus[i];
        if (cpu >= SHIM_WIRE_CPUS_MAX)
            return EINVAL;
        mask[cpu / bits] |= 1ul << (cpu % bits);
    }
    return syscall(SYS_sched_setaffinity, 0, sizeof(mask), mask) < 0 ? errno : 0;
}

static int shim_worker_user(const struct shim_request *request)
{
    if (!request->has_user)
        return 0;
    if (setgroups(request->groups_count, request->groups) != 0 ||
        setresgid(request->gid, request->gid, request->gid) != 0 ||
        setresuid(request->uid, request->uid, request->uid) != 0)
        return errno;
    return 0;
}

/* The program, looked up in the worker's own PATH; never through a shell. An errno. */
static int shim_worker_exec(const struct shim_request *request)
{
    const char *name = request->argv[0], *path = SHIM_WORKER_PATH;
    char full[SHIM_WIRE_PATH_MAX * 4];
    int denied = 0;
    if (strchr(name, '/') || *name == '\0') {
        execve(name, request->argv, request->env);
        return errno;
    }
    for (char **env = request->env; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0) {
            path = *env + 5;
            break;
        }
    for (const char *end; path; path = *end ? end + 1 : NULL) {
        end = path + strcspn(path, ":");
        size_t dir = (size_t)(end - path), len = strlen(name);
        if (dir + len + 2 > sizeof(full))
            continue;
        memcpy(full, path, dir);
        if (dir > 0)
            full[dir++] = '/';
        memcpy(full + dir, name, len + 1);
        execve(full, request->argv, request->env);
        if (errno == EACCES)
            denied = EACCES;
        else if (errno != ENOENT && errno != ENOTDIR)
            return errno;
    }
    return denied ? denied : ENOENT;
}

/* Everything between fork and exec. Returns only on failure, with the stage in failure. */
static int shim_worker_become(const struct shim_request *request,
                              const struct shim_worker_files *files, pid_t shim, int32_t *stage)
{
    sigset_t none;
    int err;
    setsid();
    *stage = SHIM_STAGE_FILES;
    if (dup2(files->null, 0) < 0 || dup2(files->out, 1) < 0 || dup2(files->err, 2) < 0)
        return errno;
    *stage = SHIM_STAGE_CGROUP;
    if (request->cgroup1[0] && (err = shim_worker_join(request->cgroup1)) != 0)
        return err;
    if (request->cgroup_pids[0] && (err = shim_worker_join(request->cgroup_pids)) != 0)
        return err;
    *stage = SHIM_STAGE_LIMITS;
    if ((err = shim_worker_limits(request)) != 0)
        return err;
    *stage = SHIM_STAGE_AFFINITY;
    if ((err = shim_worker_affinity(request)) != 0)
        return err;
    *stage = SHIM_STAGE_USER;
    if ((err = shim_worker_user(request)) != 0)
        return err;
    /* Only now: a change of user clears it. A shim that died before was missed, so look. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return errno;
    if (getppid() != shim)
        _exit(127);
    /* No program that it runs gives it rights that its user has not: nothing setuid, no file's
     * capabilities. For good, and for all that it starts. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L) != 0)
        return errno;
    *stage = SHIM_STAGE_CHDIR;
    if (chdir(request->cwd[0] ? request->cwd : "/") != 0)
        return errno;
    *stage = SHIM_STAGE_EXEC;
    if (syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
        return errno;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    return shim_worker_exec(request);
}

struct shim_worker_child { /* memory that both see: parent and child share it until the exec */
    const struct shim_request *request;
    const struct shim_worker_files *files;
    pid_t shim;
    struct shim_worker_failure failure;
};

static void shim_worker_main(void *arg)
{
    struct shim_worker_child *child = arg;
    int32_t stage = 0;
    int error = shim_worker_become(child->request, child->files, child->shim, &stage);
    child->failure = (struct shim_worker_failure){stage, error};
    _exit(127);
}

pid_t shim_worker_start(const struct shim_request *request, const struct shim_worker_files *files,
                        struct shim_worker_failure *failure)
{
    static struct shim_worker_child child; /* static: not in the frame that both run on */
    child = (struct shim_worker_child){request, files, getpid(), {0, 0}};
    pid_t pid = shim_clone(request->cgroup2, shim_worker_main, &child);
    if (pid < 0) {
        *failure = (struct shim_worker_failure){SHIM_STAGE_FORK, -pid};
        return -1;
    }
    *failure = child.failure;
    if (failure->stage == SHIM_STAGE_NONE)
        return pid;
    waitpid(pid, NULL, 0);
    return -1;
}
