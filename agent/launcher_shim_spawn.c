/* launcher_shim_spawn.c - see launcher_shim_spawn.h. */
#include "agent/launcher_shim_spawn.h"
#include "agent/shim/shim_wire.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int launcher_shim_spawn(const char *shim_path, char *const *argv, int fd3, int fd4, pid_t *pid,
                        int *pidfd)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    char *env[] = {NULL};
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_adddup2(&actions, fd3, SHIM_WIRE_READY_FD);
    if (fd4 >= 0)
        posix_spawn_file_actions_adddup2(&actions, fd4, SHIM_WIRE_REQUEST_FD);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
    int failed = posix_spawn(pid, shim_path, &actions, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return failed;
    /* A child that is not reaped keeps its pid: this is our shim. */
    *pidfd = (int)syscall(SYS_pidfd_open, *pid, 0u);
    if (*pidfd >= 0)
        return 0;
    failed = errno;
    kill(*pid, SIGKILL);
    waitpid(*pid, NULL, 0);
    return failed;
}

int launcher_shim_spawn_raise(int fd)
{
    if (fd < 0 || fd > 9)
        return fd;
    int raised = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    int failed = errno;
    close(fd);
    errno = failed;
    return raised;
}
