/* shim_reap.c - children from /proc, by the kernel's list or by everybody's parent. */
#include "agent/shim/shim_reap.h"
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Also right for pids that are cut at the end of a buffer: `pid` carries over. */
static int shim_reap_digits(const char *bytes, ssize_t len, int *pid)
{
    int killed = 0;
    for (ssize_t i = 0; i < len; i++) {
        if (bytes[i] >= '0' && bytes[i] <= '9') {
            *pid = *pid * 10 + (bytes[i] - '0');
            continue;
        }
        if (*pid > 1 && kill(*pid, SIGKILL) == 0)
            killed++;
        *pid = 0;
    }
    return killed;
}

static int shim_reap_listed(int fd)
{
    char bytes[4096];
    int pid = 0, killed = 0;
    for (ssize_t got; (got = read(fd, bytes, sizeof(bytes))) > 0;)
        killed += shim_reap_digits(bytes, got, &pid);
    return killed + shim_reap_digits(" ", 1, &pid);
}

/* The parent in a stat line: second word after the last ')'. */
static int shim_reap_parent(int proc, const char *pid)
{
    char path[32], line[512];
    size_t len = strlen(pid);
    if (len > 20)
        return 0;
    memcpy(path, pid, len);
    memcpy(path + len, "/stat", 6);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
    if (fd >= 0)
        close(fd);
    if (got <= 0)
        return 0;
    line[got] = '\0';
    const char *at = strrchr(line, ')');
    if (!at || strlen(at) < 5)
        return 0;
    int parent = 0;
    for (at += 4; *at >= '0' && *at <= '9'; at++)
        parent = parent * 10 + (*at - '0');
    return parent;
}

struct shim_reap_entry { /* as getdents64 gives it */
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

/* For kernels without the children list. */
static int shim_reap_scanned(void)
{
    _Alignas(8) char bytes[8192];
    const int self = getpid();
    int killed = 0, proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return 0;
    for (long got; (got = syscall(SYS_getdents64, proc, bytes, sizeof(bytes))) > 0;)
        for (long at = 0; at < got;) {
            const struct shim_reap_entry *entry = (const void *)(bytes + at);
            at += entry->length;
            int pid = 0;
            if (entry->name[0] < '1' || entry->name[0] > '9' ||
                shim_reap_parent(proc, entry->name) != self)
                continue;
            for (const char *c = entry->name; *c; c++)
                pid = pid * 10 + (*c - '0');
            if (kill(pid, SIGKILL) == 0)
                killed++;
        }
    close(proc);
    return killed;
}

int shim_reap_kill(void)
{
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return shim_reap_scanned();
    int killed = shim_reap_listed(fd);
    close(fd);
    return killed;
}
