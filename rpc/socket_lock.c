#include "rpc/socket_lock.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define TRIES_MAX 100

struct rpc_socket_lock {
    int fd;
    char *path;
};

/* The file that was locked may have been removed by its last holder in the meantime. */
static bool is_current(int fd, const char *path)
{
    struct stat open_file, named;

    return fstat(fd, &open_file) == 0 && stat(path, &named) == 0 &&
           open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

static enum status lock_try(const char *path, int *out, struct error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return error_set(err, STATUS_UNAVAILABLE, "open %s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        enum status st = errno == EWOULDBLOCK ? STATUS_EXISTS : STATUS_UNAVAILABLE;
        error_set(err, st, "lock %s: %s", path,
                  st == STATUS_EXISTS ? "another server uses this socket" : strerror(errno));
        close(fd);
        return st;
    }
    if (is_current(fd, path)) {
        *out = fd;
    } else {
        *out = -1;
        close(fd);
    }
    return STATUS_OK;
}

enum status rpc_socket_lock_take(const char *socket_path, struct rpc_socket_lock **out,
                                 struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s.lock", socket_path);
    int fd = -1;

    if (strlen(socket_path) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        return error_set(err, STATUS_INVALID, "socket path longer than %zu bytes: %s",
                         sizeof((struct sockaddr_un *)NULL)->sun_path - 1, socket_path);
    for (int tries = 0; fd < 0 && tries < TRIES_MAX; tries++) {
        enum status st = lock_try(path, &fd, err);
        if (st != STATUS_OK)
            return st;
    }
    if (fd < 0)
        return error_set(err, STATUS_UNAVAILABLE, "lock %s: it keeps vanishing", path);
    *out = NEW(struct rpc_socket_lock);
    (*out)->fd = fd;
    (*out)->path = TAKE(path);
    return STATUS_OK;
}

void rpc_socket_lock_release(struct rpc_socket_lock *lock)
{
    if (!lock)
        return;
    unlink(lock->path); /* while the lock is held: see is_current */
    close(lock->fd);
    mem_free(lock->path);
    mem_free(lock);
}
