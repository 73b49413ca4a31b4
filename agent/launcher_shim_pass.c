/* launcher_shim_pass.c - what may block when a worker ends or is adopted, on a pool thread. */
#include "agent/launcher_shim_pass.h"
#include "agent/stray.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PASS_STUCK_MAX 400 /* bytes of pids in a text */

/* A process that is this one for sure: opened first, compared after. -1: ended. */
static int pass_open(pid_t pid, int64_t start)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0u);
    if (fd >= 0 && !stray_is_alive(pid, start)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void pass_read_pid(struct launcher_shim_pass *pass)
{
    char bytes[SHIM_WIRE_RECORD_MAX];
    struct launcher_shim_pid ids;
    size_t len;
    if (launcher_shim_wire_read(pass->dir, SHIM_WIRE_PID_FILE, bytes, &len, NULL) != STATUS_OK ||
        launcher_shim_wire_pid(bytes, len, &ids, NULL) != STATUS_OK ||
        strcmp(ids.tag, pass->tag) != 0)
        return;
    pass->ids = ids;
    pass->has_pid = true;
}

static void pass_read_exit(struct launcher_shim_pass *pass)
{
    char bytes[SHIM_WIRE_RECORD_MAX];
    size_t len;
    pass->has_exit =
        launcher_shim_wire_read(pass->dir, SHIM_WIRE_EXIT_FILE, bytes, &len, NULL) == STATUS_OK &&
        launcher_shim_wire_exit(bytes, len, &pass->exit, NULL) == STATUS_OK;
}

/* The lock first: records that are read after it was found free are final. */
static void pass_adopt(struct launcher_shim_pass *pass)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", pass->dir, SHIM_WIRE_REQUEST_FILE);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    pass->has_request = fd >= 0;
    pass->shim_lives = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    pass_read_pid(pass);
    if (!pass->has_pid) {
        pid_t shim = (pass->flags & PASS_SEEK) && pass->shim_lives ? stray_find_shim(pass->dir) : 0;
        if (shim > 0)
            kill(shim, SIGKILL); /* its worker dies with it, its lock becomes free */
        return;
    }
    pass->other_boot = strcmp(pass->ids.boot_id, pass->boot_id) != 0;
    if (pass->other_boot)
        return;
    pass->shim_fd = pass_open(pass->ids.shim, pass->ids.shim_start);
    pass->worker_fd = pass_open(pass->ids.worker, pass->ids.worker_start);
}

/* Numbers of processes that ended are given to others, who must not be harmed: the shim's counts
 * only while it lives, the session's only while the worker's pid is not somebody else's. */
static void pass_walk(struct launcher_shim_pass *pass)
{
    const struct launcher_shim_pid *ids = &pass->ids;
    struct stray_list list;
    struct stray now;
    struct stray_query query = {.tag = pass->tag, .dir = pass->dir, .since = ids->shim_start};
    if (pass->shim_watched && (ids->shim_start == 0 || stray_is_alive(ids->shim, ids->shim_start)))
        query.root = ids->shim;
    if (pass->session_fresh && ids->worker > 0 &&
        (!stray_read(ids->worker, &now) || now.start == ids->worker_start))
        query.session = ids->worker;
    stray_find(&query, &list);
    for (size_t i = 0; i < list.count; i++)
        stray_kill(&list.items[i], SIGKILL);
    pass->left = list.count;
    text_init(&pass->stuck, PASS_STUCK_MAX);
    for (size_t i = 0; i < list.count; i++)
        if (list.items[i].state == 'D')
            text_addf(&pass->stuck, "%s%d", pass->stuck.len ? " " : "", (int)list.items[i].pid);
    stray_list_fini(&list);
}

/* Without a memory cgroup of its own the kernel's log is the only witness: "Killed process <pid>
 * (". */
static bool pass_kernel_killed(pid_t pid)
{
    char record[8192], want[48];
    int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool found = false;
    snprintf(want, sizeof(want), "Killed process %d (", (int)pid);
    for (int records = 0; fd >= 0 && !found && records < 100000; records++) {
        ssize_t got = read(fd, record, sizeof(record) - 1);
        if (got < 0 && errno == EPIPE)
            continue; /* overwritten while we read */
        if (got <= 0)
            break;
        record[got] = '\0';
        found = strstr(record, want) != NULL;
    }
    if (fd >= 0)
        close(fd);
    return found;
}

static struct cgroup_paths pass_cgroups(const struct launcher_shim_pass *pass)
{
    struct cgroup_paths paths = {"", "", ""};
    snprintf(paths.v2, sizeof(paths.v2), "%.511s", pass->ids.cgroup2);
    snprintf(paths.v1, sizeof(paths.v1), "%.511s", pass->ids.cgroup1);
    snprintf(paths.pids, sizeof(paths.pids), "%.511s", pass->ids.cgroup_pids);
    return paths;
}

static void pass_exit(struct launcher_shim_pass *pass)
{
    if (pass->ids.shim > 0)
        waitpid(pass->ids.shim, NULL, WNOHANG); /* ECHILD where an earlier agent was its parent */
    pass_read_exit(pass);
    if (!pass->has_exit || pass->exit.stage != SHIM_STAGE_NONE)
        return;
    const struct cgroup_paths paths = pass_cgroups(pass);
    pass->out_of_memory = cgroup_is_out_of_memory(&paths) ||
                          ((pass->flags & PASS_WITNESS) && pass->exit.signal == SIGKILL &&
                           pass_kernel_killed(pass->ids.worker));
}

void launcher_shim_pass_run(struct launcher_shim_pass *pass)
{
    pass->shim_fd = pass->worker_fd = -1;
    if (pass->flags & PASS_ADOPT)
        pass_adopt(pass);
    struct cgroup_paths cgroups = pass_cgroups(pass);
    if (pass->flags & PASS_KILL)
        cgroup_kill(&cgroups);
    if (pass->flags & PASS_WALK)
        pass_walk(pass);
    if (pass->flags & PASS_EXIT)
        pass_exit(pass);
    if (pass->flags & PASS_REMOVE)
        pass->removed = cgroup_remove(&cgroups);
}

void launcher_shim_pass_fini(struct launcher_shim_pass *pass)
{
    text_fini(&pass->stuck);
}
