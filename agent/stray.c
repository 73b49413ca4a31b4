/* stray.c - one pass over /proc: parents and sessions first, environments only where needed. */
#include "agent/stray.h"
#include "base/mem.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STRAY_ENVIRON_MAX ((size_t)4 << 20)
#define STRAY_TABLE_MAX   ((size_t)4 << 20) /* the kernel's own bound on pids */

bool stray_parse(const char *line, struct stray *out)
{
    const char *at = strrchr(line, ')');
    int parent = 0, group = 0, session = 0;
    long long start = 0;
    char state = 0;
    /* Fields 3-6, then 15 that do not matter, then 22. */
    if (!at ||
        sscanf(at + 1,
               " %c %d %d %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lld",
               &state, &parent, &group, &session, &start) != 5)
        return false;
    out->pid = (pid_t)strtol(line, NULL, 10);
    out->parent = parent;
    out->session = session;
    out->state = state;
    out->start = start;
    return out->pid > 0;
}

static ssize_t stray_slurp(pid_t pid, const char *name, char *bytes, size_t cap)
{
    char path[48];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t len = 0;
    for (ssize_t got; len < cap && (got = read(fd, bytes + len, cap - len)) != 0;) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            close(fd);
            return -1;
        }
        len += (size_t)got;
    }
    close(fd);
    return (ssize_t)len;
}

bool stray_read(pid_t pid, struct stray *out)
{
    char line[1024];
    ssize_t got = stray_slurp(pid, "stat", line, sizeof(line) - 1);
    if (got <= 0)
        return false;
    line[got] = '\0';
    return stray_parse(line, out);
}

static bool stray_runs(const struct stray *stray)
{
    return stray->state != 'Z' && stray->state != 'X' && stray->state != 'x';
}

bool stray_is_alive(pid_t pid, int64_t start)
{
    struct stray now;
    return stray_read(pid, &now) && now.start == start && stray_runs(&now);
}

/* Every process, by growing pid as the kernel lists them. */
static struct stray *stray_table(size_t *count)
{
    struct stray *table = NULL;
    size_t used = 0, cap = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && used < STRAY_TABLE_MAX && (entry = readdir(proc));) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        if (used == cap) {
            cap = cap ? 2 * cap : 256;
            table = mem_resize(table, cap, sizeof(*table));
        }
        if (stray_read((pid_t)strtol(entry->d_name, NULL, 10), &table[used]))
            used++;
    }
    if (proc)
        closedir(proc);
    *count = used;
    return table;
}

static int stray_compare(const void *a, const void *b)
{
    const struct stray *left = a, *right = b;
    return (left->pid > right->pid) - (left->pid < right->pid);
}

static size_t stray_index(const struct stray *table, size_t count, pid_t pid)
{
    const struct stray key = {.pid = pid};
    const struct stray *hit = bsearch(&key, table, count, sizeof(*table), stray_compare);
    return hit ? (size_t)(hit - table) : count;
}

/* A process may be younger than its child's pid suggests (pids wrap), so the chain of parents is
 * followed, with a bound, for each. */
static bool stray_descends(const struct stray *table, size_t count, const struct stray *stray,
                           pid_t root)
{
    for (int depth = 0; depth < 4096 && stray->parent > 1; depth++) {
        if (stray->parent == root)
            return true;
        size_t at = stray_index(table, count, stray->parent);
        if (at == count)
            return false;
        stray = &table[at];
    }
    return false;
}

static bool stray_has_tag(pid_t pid, const struct stray_query *query, char **bytes)
{
    static const char name[] = "RONDO_WORKER=", place[] = "RONDO_DIR=";
    bool tagged = false;
    if (!*bytes)
        *bytes = mem_resize(NULL, STRAY_ENVIRON_MAX, 1); /* touched only as far as it is used */
    ssize_t got = stray_slurp(pid, "environ", *bytes, STRAY_ENVIRON_MAX - 1);
    if (got <= 0)
        return false;
    (*bytes)[got] = '\0';
    for (char *at = *bytes; at < *bytes + got; at += strlen(at) + 1) {
        if (strncmp(at, name, sizeof(name) - 1) == 0)
            tagged = tagged || strcmp(at + sizeof(name) - 1, query->tag) == 0;
        else if (query->dir && strncmp(at, place, sizeof(place) - 1) == 0 &&
                 strcmp(at + sizeof(place) - 1, query->dir) != 0)
            return false;
    }
    return tagged;
}

void stray_find(const struct stray_query *query, struct stray_list *out)
{
    size_t count = 0;
    char *bytes = NULL;
    struct stray *table = stray_table(&count);
    qsort(table, count, sizeof(*table), stray_compare);
    *out = (struct stray_list){mem_array(STRAY_LIST_MAX, sizeof(struct stray)), 0, false};
    for (size_t i = 0; i < count; i++) {
        const struct stray *stray = &table[i];
        if (stray->pid == getpid() || stray->pid == query->root || stray->pid <= 1 ||
            stray->parent == 2 || !stray_runs(stray))
            continue;
        bool young = stray->start >= query->since;
        if (!(query->root > 0 && stray_descends(table, count, stray, query->root)) &&
            !(young && query->session > 0 && stray->session == query->session) &&
            !(young && query->tag && stray_has_tag(stray->pid, query, &bytes)))
            continue;
        if (out->count == STRAY_LIST_MAX) {
            out->cut = true;
            break;
        }
        out->items[out->count++] = *stray;
    }
    mem_free(bytes);
    mem_free(table);
}

void stray_list_fini(struct stray_list *list)
{
    mem_free(list->items);
    *list = (struct stray_list){0};
}

bool stray_kill(const struct stray *stray, int signo)
{
    struct stray now;
    int fd = (int)syscall(SYS_pidfd_open, stray->pid, 0u);
    if (fd < 0)
        return false;
    bool same = stray_read(stray->pid, &now) && now.start == stray->start;
    bool sent = same && syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0u) == 0;
    close(fd);
    return sent;
}

pid_t stray_find_shim(const char *dir)
{
    size_t count = 0, len = strlen(dir);
    char bytes[4096];
    pid_t found = 0;
    struct stray *table = stray_table(&count);
    for (size_t i = 0; i < count && found == 0; i++) {
        ssize_t got = stray_slurp(table[i].pid, "cmdline", bytes, sizeof(bytes) - 1);
        if (got <= 0)
            continue;
        bytes[got] = '\0';
        const char *second = bytes + strlen(bytes) + 1;
        const char *base = strrchr(bytes, '/');
        if (strcmp(base ? base + 1 : bytes, "rondo-shim") == 0 &&
            (size_t)(bytes + got - second) > len && strcmp(second, dir) == 0)
            found = table[i].pid;
    }
    mem_free(table);
    return found;
}
