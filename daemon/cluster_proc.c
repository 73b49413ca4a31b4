#include "daemon/cluster_proc.h"
#include "base/file.h"
#include "base/mem.h"
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_PID = 0, LINE_RUN = 4, LINE_STATUS = 7, LINES = 8 };

/* The lines of postmaster.pid; missing ones are "". False: there is no such file. */
static bool read_lines(const struct cluster_dir *dir, char **bytes, const char *lines[LINES])
{
    SCOPED_TEXT char *path = mem_printf("%s/postmaster.pid", dir->data);
    size_t len = 0;

    if (file_read(path, 4096, bytes, &len, NULL) != STATUS_OK)
        return false;
    char *rest = *bytes;
    for (int i = 0; i < LINES; i++) {
        char *line = strsep(&rest, "\n");
        lines[i] = line ? line : "";
    }
    return true;
}

/* 0 when the text does not begin with a number. */
static pid_t to_pid(const char *text)
{
    long pid = strtol(text, NULL, 10);

    return pid > 0 && pid <= INT_MAX ? (pid_t)pid : 0;
}

static bool works_in(pid_t pid, const char *data)
{
    char path[64], target[PATH_MAX];

    snprintf(path, sizeof(path), "/proc/%d/cwd", (int)pid);
    ssize_t len = readlink(path, target, sizeof(target) - 1);
    if (len <= 0)
        return false;
    target[len] = '\0';
    return strcmp(target, data) == 0;
}

static bool is_users(const struct cluster_dir *dir, pid_t pid)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return stat(path, &st) == 0 && st.st_uid == dir->uid;
}

/* Children of the server change their title; the server itself keeps "-D" and the directory. */
static bool is_server(const struct cluster_dir *dir, pid_t pid)
{
    char path[64];
    char *bytes = NULL;
    size_t len = 0;
    bool found = false;

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    if (file_read(path, 65536, &bytes, &len, NULL) != STATUS_OK)
        return false;
    for (size_t at = 0; at + 3 < len && !found; at += strlen(bytes + at) + 1)
        found = strcmp(bytes + at, "-D") == 0 && strcmp(bytes + at + 3, dir->data) == 0;
    mem_free(bytes);
    return found;
}

pid_t cluster_proc_server(const struct cluster_dir *dir)
{
    SCOPED_TEXT char *bytes = NULL;
    const char *lines[LINES];

    if (!read_lines(dir, &bytes, lines))
        return 0;
    pid_t pid = to_pid(lines[LINE_PID]);
    if (pid <= 1 || strcmp(lines[LINE_RUN], dir->run) != 0)
        return 0;
    return is_users(dir, pid) && works_in(pid, dir->data) && is_server(dir, pid) ? pid : 0;
}

bool cluster_proc_is_ready(const struct cluster_dir *dir, pid_t server)
{
    SCOPED_TEXT char *bytes = NULL;
    const char *lines[LINES];

    return read_lines(dir, &bytes, lines) && to_pid(lines[LINE_PID]) == server &&
           strncmp(lines[LINE_STATUS], "ready", 5) == 0;
}

size_t cluster_proc_kill(const struct cluster_dir *dir, int signal)
{
    DIR *proc = opendir("/proc");
    size_t count = 0;

    for (const struct dirent *entry; proc && (entry = readdir(proc));) {
        pid_t pid = to_pid(entry->d_name);
        if (pid <= 1 || pid == getpid() || !is_users(dir, pid) || !works_in(pid, dir->data))
            continue;
        count++;
        if (signal)
            kill(pid, signal);
    }
    if (proc)
        closedir(proc);
    return count;
}

/* Both files name the dead server; the next one would believe them while its zombie is not reaped.
 */
void cluster_proc_forget(const struct cluster_dir *dir)
{
    SCOPED_TEXT char *path = mem_printf("%s/postmaster.pid", dir->data);
    SCOPED_TEXT char *lock = mem_printf("%s/.s.PGSQL.5432.lock", dir->run);

    unlink(path);
    unlink(lock);
}
