/* shim_floor.c - see shim_floor.h. */
#include "tests/bench/shim_floor.h"
#include "agent/launcher_shim_wire.h"
#include "base/file.h"
#include "base/mem.h"
#include "tests/bench/process.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLOOR_MAX 2000

static enum status floor_prepare(const char *dir, const struct text *request, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, SHIM_WIRE_REQUEST_FILE);
    enum status st = file_make_dirs(dir, 0700, err);
    int fd;

    if (st != STATUS_OK)
        return st;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, request->data, request->len) != (ssize_t)request->len)
        st = error_set(err, file_status(errno), "write %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return st;
}

static enum status floor_request(struct text *out, struct error *err)
{
    const char *const argv[] = {"/bin/true", NULL}, *const env[] = {"PATH=/usr/bin:/bin", NULL};

    launcher_shim_wire_begin(out);
    launcher_shim_wire_strings(out, SHIM_WIRE_ARGV, argv);
    launcher_shim_wire_strings(out, SHIM_WIRE_ENV, env);
    launcher_shim_wire_text(out, SHIM_WIRE_CWD, "/");
    launcher_shim_wire_text(out, SHIM_WIRE_OUT, "out");
    launcher_shim_wire_text(out, SHIM_WIRE_ERR, "err");
    launcher_shim_wire_text(out, SHIM_WIRE_TAG, "floor");
    launcher_shim_wire_text(out, SHIM_WIRE_BOOT_ID, "floor");
    return launcher_shim_wire_finish(out, err);
}

static enum status floor_start(const char *program, char *dir, int ready, pid_t *pid,
                               struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, SHIM_WIRE_REQUEST_FILE);
    char name[] = "rondo-shim", *argv[] = {name, dir, NULL}, *env[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int request = open(path, O_RDWR | O_CLOEXEC);

    if (request < 0 || flock(request, LOCK_EX | LOCK_NB) != 0)
        return error_set(err, file_status(errno), "open %s: %s", path, strerror(errno));
    int raised = fcntl(request, F_DUPFD_CLOEXEC, 10);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ready, SHIM_WIRE_READY_FD);
    posix_spawn_file_actions_adddup2(&actions, raised, SHIM_WIRE_REQUEST_FD);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
    int failed = posix_spawn(pid, program, &actions, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    close(raised);
    close(request);
    return failed ? error_set(err, file_status(failed), "run %s: %s", program, strerror(failed))
                  : STATUS_OK;
}

/* The bench has no other children while this runs, but for the daemon: pids are awaited in order of
 * their start, the oldest first. */
static enum status floor_loop(const struct stand *stand, char *const *dirs, unsigned count,
                              unsigned at_once, struct error *err)
{
    SCOPED_TEXT char *program = mem_printf("%s/rondo-shim", stand->bench->bin);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC), ready = fcntl(null, F_DUPFD_CLOEXEC, 10);
    pid_t pids[FLOOR_MAX];
    unsigned started = 0, ended = 0;
    enum status st = STATUS_OK;

    close(null);
    while (ended < started || (started < count && st == STATUS_OK)) {
        while (st == STATUS_OK && started < count && started - ended < at_once) {
            st = floor_start(program, dirs[started], ready, &pids[started], err);
            started += st == STATUS_OK;
        }
        int status = 0;
        while (ended < started && waitpid(pids[ended], &status, 0) < 0 && errno == EINTR)
            ;
        ended += ended < started;
    }
    close(ready);
    return st;
}

enum status shim_floor_run(const struct stand *stand, unsigned count, unsigned at_once,
                           double *per_s, struct error *err)
{
    SCOPED_TEXT char *root = mem_printf("%s/floor", stand->dir);
    char *dirs[FLOOR_MAX] = {0};
    struct text request = {0};
    enum status st = floor_request(&request, err);

    count = count < FLOOR_MAX ? count : FLOOR_MAX;
    for (unsigned i = 0; i < count && st == STATUS_OK; i++) {
        dirs[i] = mem_printf("%s/%u", root, i);
        st = floor_prepare(dirs[i], &request, err);
    }
    int64_t start_us = process_now_us();
    if (st == STATUS_OK)
        st = floor_loop(stand, dirs, count, at_once, err);
    *per_s = count * 1e6 / (double)(process_now_us() - start_us);
    text_fini(&request);
    for (unsigned i = 0; i < count; i++)
        mem_free(dirs[i]);
    enum status removed = file_remove_tree(root, st == STATUS_OK ? err : NULL);
    return st == STATUS_OK ? removed : st;
}
