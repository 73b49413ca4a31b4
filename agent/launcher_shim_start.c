/* launcher_shim_start.c - everything of a start that may block, on a pool thread. */
#include "agent/launcher_shim_start.h"
#include "agent/device.h"
#include "agent/launcher_shim_spawn.h"
#include "agent/launcher_shim_wire.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#define START_FILES_MAX 1048576u /* open files a worker may ask for, where our own limit allows */

/* memory_mib: of each process, where no cgroup holds them together; 0: no limit. What it may write
 * to counts, not what it has mapped: libraries of devices map far more than they use. */
static void start_limits(struct text *request, uint64_t memory_mib)
{
    struct rlimit files = {1024, 1024};
    struct rlimit data = {RLIM_INFINITY, RLIM_INFINITY};
    uint64_t bytes = memory_mib < UINT64_MAX >> 20 ? memory_mib << 20 : UINT64_MAX;
    getrlimit(RLIMIT_DATA, &data);
    bytes = bytes < data.rlim_max ? bytes : data.rlim_max;
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max > START_FILES_MAX)
        files.rlim_max = START_FILES_MAX;
    const struct shim_wire_rlimit rows[] = {
        {RLIMIT_CORE, 0, 0, 0},
        {RLIMIT_NOFILE, 0, files.rlim_max, files.rlim_max},
        {RLIMIT_DATA, 0, bytes, bytes},
    };
    launcher_shim_wire_bytes(request, SHIM_WIRE_RLIMITS, rows,
                             (memory_mib ? COUNT_OF(rows) : COUNT_OF(rows) - 1) * sizeof(rows[0]));
}

static void start_cpus(struct text *out, const struct launcher_request *request)
{
    size_t count = request->cpus_count;
    if (count == 0)
        return;
    if (count > SHIM_WIRE_CPUS_MAX)
        count = SHIM_WIRE_CPUS_MAX;
    uint32_t *cpus = mem_array(count, sizeof(*cpus));
    for (size_t i = 0; i < count; i++)
        cpus[i] = device_cpu_of_slot(request->cpus[i]);
    launcher_shim_wire_bytes(out, SHIM_WIRE_CPUS, cpus, count * sizeof(*cpus));
    mem_free(cpus);
}

/* What may stand in a record's line. */
static bool start_is_name(const char *tag)
{
    size_t len = strlen(tag);
    for (const char *at = tag; *at; at++)
        if ((unsigned char)*at < ' ')
            return false;
    return len > 0 && len <= SHIM_WIRE_NAME_MAX;
}

void launcher_shim_start_init(struct launcher_shim_start *start, const char *shim_path,
                              const char *boot_id, const struct cgroup *cgroup,
                              const struct launcher_request *request)
{
    *start = (struct launcher_shim_start){
        .dir = mem_strdup(request->dir),
        .shim_path = mem_strdup(shim_path),
        .user = mem_strdup(request->user),
        .program = mem_strdup(request->argv[0] ? request->argv[0] : ""),
        .cwd = mem_strdup(request->cwd ? request->cwd : "/"),
        .memory_mib = request->memory_mib,
        .cgroup = cgroup,
        .shim_fd = -1,
        .ready_fd = -1,
    };
    struct text *out = &start->request;
    launcher_shim_wire_begin(out);
    if (!start_is_name(request->tag) || request->dir[0] != '/' || !request->argv[0]) {
        error_set(&start->err, STATUS_INVALID, "start a worker without directory, tag or program");
        return;
    }
    launcher_shim_wire_strings(out, SHIM_WIRE_ARGV, request->argv);
    launcher_shim_wire_strings(out, SHIM_WIRE_ENV, request->env);
    launcher_shim_wire_text(out, SHIM_WIRE_CWD, start->cwd);
    launcher_shim_wire_number(out, SHIM_WIRE_UMASK, request->umask);
    launcher_shim_wire_text(out, SHIM_WIRE_OUT, "out");
    launcher_shim_wire_text(out, SHIM_WIRE_ERR, "err");
    launcher_shim_wire_text(out, SHIM_WIRE_TAG, request->tag);
    launcher_shim_wire_text(out, SHIM_WIRE_BOOT_ID, boot_id);
    start_cpus(out, request);
    start_limits(out, cgroup_has_memory(cgroup) ? 0 : request->memory_mib);
}

void launcher_shim_start_fini(struct launcher_shim_start *start)
{
    mem_free(start->dir);
    mem_free(start->shim_path);
    mem_free(start->user);
    mem_free(start->program);
    mem_free(start->cwd);
    text_fini(&start->request);
    start->dir = start->shim_path = start->user = start->program = start->cwd = NULL;
}

/* Uid, gid and groups of the user, as fields of the request. */
static enum status start_user(struct launcher_shim_start *start)
{
    struct passwd entry, *found = NULL;
    char bytes[16384];
    if (!start->user)
        return STATUS_OK;
    int failed = getpwnam_r(start->user, &entry, bytes, sizeof(bytes), &found);
    if (failed || !found)
        return error_set(&start->err, failed ? STATUS_UNAVAILABLE : STATUS_NOT_FOUND,
                         "run as user %s: %s", start->user,
                         failed ? strerror(failed) : "no such user");
    if (geteuid() != 0) {
        if (entry.pw_uid == geteuid())
            return STATUS_OK;
        return error_set(&start->err, STATUS_DENIED, "run as user %s: the agent is not root",
                         start->user);
    }
    gid_t groups[SHIM_WIRE_GROUPS_MAX];
    int count = COUNT_OF(groups);
    if (getgrouplist(start->user, entry.pw_gid, groups, &count) < 0)
        return error_set(&start->err, STATUS_EXHAUSTED, "run as user %s: over %u groups",
                         start->user, SHIM_WIRE_GROUPS_MAX);
    launcher_shim_wire_number(&start->request, SHIM_WIRE_UID, entry.pw_uid);
    launcher_shim_wire_number(&start->request, SHIM_WIRE_GID, entry.pw_gid);
    launcher_shim_wire_bytes(&start->request, SHIM_WIRE_GROUPS, groups,
                             (size_t)count * sizeof(groups[0]));
    return STATUS_OK;
}

static enum status start_cgroup(struct launcher_shim_start *start)
{
    enum status st = cgroup_add(start->cgroup, start->memory_mib, &start->cgroups, &start->err);
    if (st != STATUS_OK && (start->memory_mib > 0 || cgroup_has_tasks(start->cgroup)))
        return st;
    start->err = (struct error){0}; /* only killing would have been easier */
    if (start->cgroups.v2[0])
        launcher_shim_wire_text(&start->request, SHIM_WIRE_CGROUP2, start->cgroups.v2);
    if (start->cgroups.v1[0])
        launcher_shim_wire_text(&start->request, SHIM_WIRE_CGROUP1, start->cgroups.v1);
    if (start->cgroups.pids[0])
        launcher_shim_wire_text_new(&start->request, SHIM_WIRE_CGROUP_PIDS, start->cgroups.pids);
    return STATUS_OK;
}

/* The request, written, locked: while the lock is held a shim lives or is about to. */
static int start_request(struct launcher_shim_start *start)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", start->dir, SHIM_WIRE_REQUEST_FILE);
    int fd = launcher_shim_spawn_raise(
        open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)); /* made before, or now */
    if (fd < 0) {
        error_set(&start->err, STATUS_UNAVAILABLE, "create %s: %s", path, strerror(errno));
        return -1;
    }
    size_t at = 0;
    bool good = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (good && lseek(fd, 0, SEEK_END) != 0) {
        errno = EEXIST; /* another start's */
        good = false;
    }
    while (good && at < start->request.len) {
        ssize_t sent = pwrite(fd, start->request.data + at, start->request.len - at, (off_t)at);
        if (sent > 0)
            at += (size_t)sent;
        else
            good = sent < 0 && errno == EINTR;
    }
    if (good)
        return fd;
    error_set(&start->err,
              errno == ENOSPC || errno == EDQUOT ? STATUS_EXHAUSTED : STATUS_UNAVAILABLE,
              "write %s: %s", path, strerror(errno));
    close(fd);
    return -1;
}

/* By one that waits, if there is one that listens; else by a new one. An errno. */
static int start_shim(struct launcher_shim_start *start, int ready, int request)
{
    char name[] = "rondo-shim", *argv[] = {name, start->dir, NULL};
    const bool has_spare = start->has_spare;
    start->has_spare = false;
    if (has_spare && launcher_shim_spare_send(&start->spare, start->dir, ready, request)) {
        start->shim = start->spare.pid;
        start->shim_fd = start->spare.pidfd;
        return 0;
    }
    pid_t pid;
    int failed = launcher_shim_spawn(start->shim_path, argv, ready, request, &pid, &start->shim_fd);
    start->shim = failed ? 0 : pid;
    return failed;
}

static void start_process(struct launcher_shim_start *start, int request)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        error_set(&start->err, STATUS_EXHAUSTED, "create a pipe: %s", strerror(errno));
        return;
    }
    ends[1] = launcher_shim_spawn_raise(ends[1]);
    int failed = ends[1] < 0 ? errno : start_shim(start, ends[1], request);
    if (ends[1] >= 0)
        close(ends[1]);
    if (failed) {
        close(ends[0]);
        error_set(&start->err, STATUS_UNAVAILABLE, "run %s: %s", start->shim_path,
                  strerror(failed));
        return;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    start->ready_fd = ends[0];
}

static void start_run(struct launcher_shim_start *start)
{
    if (start->err.code != STATUS_OK || start_user(start) != STATUS_OK ||
        start_cgroup(start) != STATUS_OK ||
        launcher_shim_wire_finish(&start->request, &start->err) != STATUS_OK)
        return;
    int request = start_request(start);
    if (request < 0)
        return;
    start_process(start, request);
    close(request);
    text_fini(&start->request);
}

void launcher_shim_start_run(struct launcher_shim_start *start)
{
    start_run(start);
    if (start->has_spare) { /* failed before it was needed */
        launcher_shim_spare_end(&start->spare);
        start->has_spare = false;
    }
}
