/* cgroup.c - probing the mounted trees, and the few files of a group. */
#include "agent/cgroup.h"
#include "base/mem.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CGROUP_OLD_SECONDS 60 /* younger ones may be about to get their worker */

struct cgroup {
    char v2[CGROUP_PATH_MAX - 32];   /* .../rondo; empty: none */
    char v1[CGROUP_PATH_MAX - 32];   /* memory */
    char pids[CGROUP_PATH_MAX - 32]; /* v1's; empty: none, or v2 has it */
    bool v2_memory, v2_pids;
    uint64_t tasks_max;
    char limits[64];
};

static ssize_t cgroup_read(const char *dir, const char *name, char *out, size_t cap)
{
    char path[CGROUP_PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, out, cap - 1);
    if (fd >= 0)
        close(fd);
    out[got > 0 ? got : 0] = '\0';
    return got;
}

static bool cgroup_write(const char *dir, const char *name, const char *value)
{
    char path[CGROUP_PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
    if (fd >= 0)
        close(fd);
    return written;
}

static bool cgroup_has(const char *dir, const char *name)
{
    char path[CGROUP_PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, W_OK) == 0;
}

/* Is word one of the blank-separated words of the file? */
static bool cgroup_lists(const char *dir, const char *name, const char *word)
{
    char words[1024], *save = NULL;
    if (cgroup_read(dir, name, words, sizeof(words)) <= 0)
        return false;
    for (char *at = strtok_r(words, " \n", &save); at; at = strtok_r(NULL, " \n", &save))
        if (strcmp(at, word) == 0)
            return true;
    return false;
}

/* --- probing */

static bool cgroup_has_option(const char *options, const char *wanted)
{
    size_t len = strlen(wanted);
    for (const char *at = options; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, wanted, len) == 0 && (at[len] == ',' || at[len] == '\0'))
            return true;
    }
    return false;
}

/* The mount point of cgroup2 (controller NULL), or of that controller of v1. Our own group's path
 * below it comes from /proc/self/cgroup; a mount of a subtree shows that subtree as its root. */
static bool cgroup_mount(FILE *mountinfo, const char *controller, char *out, size_t cap, char *root,
                         size_t root_cap)
{
    char line[4096];
    rewind(mountinfo);
    while (fgets(line, sizeof(line), mountinfo)) {
        char from[512], at[512], type[64], options[1024];
        char *dash = strstr(line, " - ");
        if (!dash || sscanf(line, "%*s %*s %*s %511s %511s", from, at) != 2 ||
            sscanf(dash, " - %63s %*s %1023s", type, options) != 2)
            continue;
        bool hit = controller
                       ? strcmp(type, "cgroup") == 0 && cgroup_has_option(options, controller)
                       : strcmp(type, "cgroup2") == 0;
        if (!hit || strlen(at) >= cap || strlen(from) >= root_cap)
            continue;
        memcpy(out, at, strlen(at) + 1);
        memcpy(root, from, strlen(from) + 1);
        return true;
    }
    return false;
}

/* Our own group: third part of "0::/path" or of "4:memory:/path". */
static bool cgroup_own(FILE *membership, const char *controller, char *out, size_t cap)
{
    char line[1024];
    rewind(membership);
    while (fgets(line, sizeof(line), membership)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *controllers++ = '\0';
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        bool hit = controller ? cgroup_has_option(controllers, controller)
                              : *controllers == '\0' && strcmp(line, "0") == 0;
        if (!hit || path[0] != '/' || strstr(path, "..") || strlen(path) >= cap)
            continue;
        snprintf(out, cap, "%s", strcmp(path, "/") == 0 ? "" : path);
        return true;
    }
    return false;
}

/* base/rondo with what a worker needs, or nothing. want_memory: only if it has the controller. */
static bool cgroup_try_v2(struct cgroup *cgroup, const char *base, bool want_memory)
{
    char path[sizeof(cgroup->v2)], leaf[CGROUP_PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/rondo", base) >= (int)sizeof(path))
        return false;
    if (want_memory && !cgroup_lists(base, "cgroup.subtree_control", "memory") &&
        !cgroup_write(base, "cgroup.subtree_control", "+memory"))
        return false;
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return false;
    bool memory = want_memory && cgroup_write(path, "cgroup.subtree_control", "+memory");
    snprintf(leaf, sizeof(leaf), "%s/probe-%d", path, (int)getpid());
    bool usable = (mkdir(leaf, 0755) == 0 || errno == EEXIST) && cgroup_has(leaf, "cgroup.kill") &&
                  cgroup_has(leaf, "cgroup.procs") &&
                  (!want_memory || (memory && cgroup_has(leaf, "memory.max")));
    /* Asked for last: the rest is of use without it. */
    bool pids = usable && cgroup->tasks_max > 0 &&
                (cgroup_lists(base, "cgroup.subtree_control", "pids") ||
                 cgroup_write(base, "cgroup.subtree_control", "+pids")) &&
                cgroup_write(path, "cgroup.subtree_control", "+pids") &&
                cgroup_has(leaf, "pids.max");
    rmdir(leaf);
    if (!usable) {
        rmdir(path); /* refuses where another agent has use for it */
        return false;
    }
    snprintf(cgroup->v2, sizeof(cgroup->v2), "%s", path);
    cgroup->v2_memory = want_memory;
    cgroup->v2_pids = pids;
    return true;
}

/* Where to put ours, best first: beside the group that a unit delegated to us (ours is then its
 * leaf `agent`), below our own, at the top. */
static void cgroup_probe_v2(struct cgroup *cgroup, const char *mount, const char *own)
{
    char bases[3][CGROUP_PATH_MAX] = {"", "", ""};
    const char *leaf = strrchr(own, '/');
    if (leaf && strcmp(leaf, "/agent") == 0)
        snprintf(bases[0], sizeof(bases[0]), "%s%.*s", mount, (int)(leaf - own), own);
    snprintf(bases[1], sizeof(bases[1]), "%s%s", mount, own);
    snprintf(bases[2], sizeof(bases[2]), "%s", mount);
    for (int want_memory = 1; want_memory >= 0; want_memory--)
        for (size_t i = 0; i < COUNT_OF(bases); i++)
            if (bases[i][0] && cgroup_try_v2(cgroup, bases[i], want_memory))
                return;
}

/* out: of CGROUP_PATH_MAX - 32. Used only where the limit, in that file, can be written. */
static void cgroup_probe_v1(char *out, const char *limit, const char *value, const char *mount,
                            const char *own)
{
    char path[CGROUP_PATH_MAX - 32], leaf[CGROUP_PATH_MAX];
    if (snprintf(path, sizeof(path), "%s%s/rondo", mount, own) >= (int)sizeof(path) ||
        (mkdir(path, 0755) != 0 && errno != EEXIST))
        return;
    snprintf(leaf, sizeof(leaf), "%s/probe-%d", path, (int)getpid());
    if ((mkdir(leaf, 0755) == 0 || errno == EEXIST) && cgroup_write(leaf, limit, value))
        snprintf(out, sizeof(path), "%s", path);
    rmdir(leaf);
}

/* Where the mount shows only our own subtree, its root is not part of the path below it. */
static const char *cgroup_below(const char *own, const char *root)
{
    size_t len = strlen(root);
    if (strcmp(root, "/") != 0 && strncmp(own, root, len) == 0 &&
        (own[len] == '/' || own[len] == '\0'))
        return own + len;
    return own;
}

/* Empty groups of workers that nobody was left to clean up after. Those in use refuse to go. */
static void cgroup_sweep(const char *parent)
{
    DIR *dir = *parent ? opendir(parent) : NULL;
    const time_t now = time(NULL);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat st;
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.' ||
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            now - st.st_ctime < CGROUP_OLD_SECONDS)
            continue;
        unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    }
    if (dir)
        closedir(dir);
}

static void cgroup_probe(struct cgroup *cgroup, const struct cgroup_options *options)
{
    FILE *mountinfo = fopen(options->mountinfo ? options->mountinfo : "/proc/self/mountinfo", "re");
    FILE *membership = fopen(options->membership ? options->membership : "/proc/self/cgroup", "re");
    static const char *const controllers[] = {NULL, "memory", "pids"};
    for (size_t i = 0; i < COUNT_OF(controllers) && mountinfo && membership; i++) {
        char mount[CGROUP_PATH_MAX / 2], root[CGROUP_PATH_MAX], own[CGROUP_PATH_MAX / 2];
        if (!cgroup_mount(mountinfo, controllers[i], mount, sizeof(mount), root, sizeof(root)) ||
            !cgroup_own(membership, controllers[i], own, sizeof(own)))
            continue;
        if (i == 0)
            cgroup_probe_v2(cgroup, mount, cgroup_below(own, root));
        else if (i == 1 && !cgroup->v2_memory)
            cgroup_probe_v1(cgroup->v1, "memory.limit_in_bytes", "1073741824", mount,
                            cgroup_below(own, root));
        else if (i == 2 && !cgroup->v2_pids && cgroup->tasks_max > 0)
            cgroup_probe_v1(cgroup->pids, "pids.max", "64", mount, cgroup_below(own, root));
    }
    if (mountinfo)
        fclose(mountinfo);
    if (membership)
        fclose(membership);
}

struct cgroup *cgroup_create(const struct cgroup_options *options)
{
    static const struct cgroup_options none;
    struct cgroup *cgroup = NEW(struct cgroup);
    cgroup->tasks_max = options ? options->tasks_max : 0;
    cgroup_probe(cgroup, options ? options : &none);
    cgroup_sweep(cgroup->v2);
    cgroup_sweep(cgroup->v1);
    cgroup_sweep(cgroup->pids);
    const bool memory = cgroup_has_memory(cgroup), tasks = cgroup_has_tasks(cgroup);
    snprintf(cgroup->limits, sizeof(cgroup->limits), "%s%s%s%s%s",
             cgroup->v2[0] ? "cgroup2.kill" : "", cgroup->v2[0] && memory ? "," : "",
             memory ? "memory" : "", tasks && (cgroup->v2[0] || memory) ? "," : "",
             tasks ? "pids" : "");
    if (!cgroup->limits[0])
        snprintf(cgroup->limits, sizeof(cgroup->limits), "none");
    return cgroup;
}

void cgroup_destroy(struct cgroup *cgroup)
{
    if (!cgroup)
        return;
    /* All refuse to go while a worker of ours or of another agent is below. */
    if (cgroup->v2[0])
        rmdir(cgroup->v2);
    if (cgroup->v1[0])
        rmdir(cgroup->v1);
    if (cgroup->pids[0])
        rmdir(cgroup->pids);
    mem_free(cgroup);
}

const char *cgroup_limits(const struct cgroup *cgroup)
{
    return cgroup->limits;
}

bool cgroup_has_memory(const struct cgroup *cgroup)
{
    return cgroup->v2_memory || cgroup->v1[0];
}

bool cgroup_has_tasks(const struct cgroup *cgroup)
{
    return cgroup->v2_pids || cgroup->pids[0];
}

/* --- one worker's groups */

static bool cgroup_make(const char *parent, char *out)
{
    uint64_t name = 0;
    if (getrandom(&name, sizeof(name), 0) != sizeof(name))
        return false;
    snprintf(out, CGROUP_PATH_MAX, "%s/%016llx", parent, (unsigned long long)name);
    if (mkdir(out, 0755) == 0)
        return true;
    /* Another agent's end may have taken the empty parent away. */
    if (errno == ENOENT && mkdir(parent, 0755) == 0 && mkdir(out, 0755) == 0)
        return true;
    out[0] = '\0';
    return false;
}

static bool cgroup_limit(const struct cgroup *cgroup, const struct cgroup_paths *paths,
                         uint64_t memory_mib)
{
    char bytes[32];
    snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)memory_mib << 20);
    if (paths->v1[0]) {
        if (!cgroup_write(paths->v1, "memory.limit_in_bytes", bytes))
            return false;
        cgroup_write(paths->v1, "memory.memsw.limit_in_bytes", bytes); /* as swap.max below */
        return true;
    }
    if (!cgroup->v2_memory)
        return true;
    cgroup_write(paths->v2, "memory.swap.max", "0"); /* absent without swap accounting */
    cgroup_write(paths->v2, "memory.oom.group", "1");
    return cgroup_write(paths->v2, "memory.max", bytes);
}

static bool cgroup_limit_tasks(const struct cgroup *cgroup, const struct cgroup_paths *paths)
{
    char tasks[32];
    snprintf(tasks, sizeof(tasks), "%llu", (unsigned long long)cgroup->tasks_max);
    return cgroup_write(paths->pids[0] ? paths->pids : paths->v2, "pids.max", tasks);
}

enum status cgroup_add(const struct cgroup *cgroup, uint64_t memory_mib, struct cgroup_paths *out,
                       struct error *err)
{
    struct cgroup_paths paths = {"", "", ""};
    if (memory_mib > UINT64_MAX >> 20)
        return error_set(err, STATUS_INVALID, "a memory limit of %llu MiB",
                         (unsigned long long)memory_mib);
    bool made = !cgroup->v2[0] || cgroup_make(cgroup->v2, paths.v2);
    if (made && memory_mib > 0 && cgroup->v1[0])
        made = cgroup_make(cgroup->v1, paths.v1);
    if (made && memory_mib > 0)
        made = cgroup_limit(cgroup, &paths, memory_mib);
    if (made && cgroup->pids[0])
        made = cgroup_make(cgroup->pids, paths.pids);
    if (made && cgroup_has_tasks(cgroup))
        made = cgroup_limit_tasks(cgroup, &paths);
    if (!made) {
        const char *parent = cgroup->v2[0] ? cgroup->v2 : cgroup->v1;
        enum status st = error_set(err, STATUS_UNAVAILABLE, "make a cgroup in %s: %s",
                                   *parent ? parent : cgroup->pids, strerror(errno));
        cgroup_remove(&paths);
        return st;
    }
    *out = paths;
    return STATUS_OK;
}

bool cgroup_kill(const struct cgroup_paths *paths)
{
    return paths->v2[0] && cgroup_write(paths->v2, "cgroup.kill", "1");
}

bool cgroup_remove(const struct cgroup_paths *paths)
{
    bool v2 = !paths->v2[0] || rmdir(paths->v2) == 0 || errno == ENOENT;
    bool v1 = !paths->v1[0] || rmdir(paths->v1) == 0 || errno == ENOENT;
    bool pids = !paths->pids[0] || rmdir(paths->pids) == 0 || errno == ENOENT;
    return v2 && v1 && pids;
}

/* v2: memory.events, v1: memory.oom_control; both have a line "oom_kill N". */
bool cgroup_is_out_of_memory(const struct cgroup_paths *paths)
{
    char lines[1024];
    if (paths->v1[0])
        cgroup_read(paths->v1, "memory.oom_control", lines, sizeof(lines));
    else if (!paths->v2[0] || cgroup_read(paths->v2, "memory.events", lines, sizeof(lines)) <= 0)
        return false;
    const char *at = strstr(lines, "oom_kill ");
    return at && strtoull(at + strlen("oom_kill "), NULL, 10) > 0;
}
