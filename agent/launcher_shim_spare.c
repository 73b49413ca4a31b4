/* launcher_shim_spare.c - see launcher_shim_spare.h. */
#include "agent/launcher_shim_spare.h"
#include "agent/launcher_shim_pool.h"
#include "agent/launcher_shim_spawn.h"
#include "agent/shim/shim_wire.h"
#include "agent/stock.h"
#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPARES_MAX 64u

struct launcher_shim_spares {
    struct launcher_shim_job job;
    struct launcher_shim_pool *pool;
    struct stock *stock;
    char *shim_path;
    struct launcher_shim_spare items[SPARES_MAX]; /* as many as the stock says */
    /* of the one being made: the pool thread's meanwhile */
    struct launcher_shim_spare made;
    int failed;
};

void launcher_shim_spare_end(struct launcher_shim_spare *spare)
{
    syscall(SYS_pidfd_send_signal, spare->pidfd, SIGKILL, NULL, 0u);
    while (waitpid(spare->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    close(spare->pidfd);
    close(spare->socket);
}

bool launcher_shim_spare_send(struct launcher_shim_spare *spare, const char *dir, int ready,
                              int request)
{
    const int fds[2] = {ready, request};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(fds))];
    } control = {0};
    struct iovec piece = {(void *)(uintptr_t)dir, strlen(dir)};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(&control.header), fds, sizeof(fds));
    ssize_t sent = -1;
    if (piece.iov_len < SHIM_WIRE_WAIT_DIR_MAX)
        sent = sendmsg(spare->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != (ssize_t)piece.iov_len) {
        launcher_shim_spare_end(spare);
        return false;
    }
    close(spare->socket);
    return true;
}

/* --- making */

static void spares_make_run(struct launcher_shim_job *job)
{
    struct launcher_shim_spares *spares = CONTAINER_OF(job, struct launcher_shim_spares, job);
    struct launcher_shim_spare *made = &spares->made;
    char name[] = "rondo-shim", wait[] = SHIM_WIRE_WAIT, room[SHIM_WIRE_WAIT_DIR_MAX];
    char *argv[] = {name, wait, room, NULL};
    int ends[2];
    memset(room, ' ', sizeof(room) - 1); /* the shim writes its directory there, for ps */
    room[sizeof(room) - 1] = '\0';
    spares->failed = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        spares->failed = errno;
        return;
    }
    ends[1] = launcher_shim_spawn_raise(ends[1]);
    spares->failed = ends[1] < 0 ? errno
                                 : launcher_shim_spawn(spares->shim_path, argv, ends[1], -1,
                                                       &made->pid, &made->pidfd);
    if (ends[1] >= 0)
        close(ends[1]);
    if (spares->failed)
        close(ends[0]);
    else
        made->socket = ends[0];
}

static void spares_make_done(struct launcher_shim_job *job)
{
    struct launcher_shim_spares *spares = CONTAINER_OF(job, struct launcher_shim_spares, job);
    if (spares->failed)
        log_warn("shim.spare", log_str("err", strerror(spares->failed)));
    else
        spares->items[stock_ready(spares->stock)] = spares->made;
    stock_made(spares->stock, spares->failed == 0);
}

static void spares_make(void *arg)
{
    struct launcher_shim_spares *spares = arg;
    spares->job.run = spares_make_run;
    spares->job.done = spares_make_done;
    launcher_shim_pool_submit(spares->pool, &spares->job);
}

struct launcher_shim_spares *launcher_shim_spares_create(struct loop *loop,
                                                         struct launcher_shim_pool *pool,
                                                         const char *shim_path, unsigned count)
{
    struct launcher_shim_spares *spares = NEW(struct launcher_shim_spares);
    spares->pool = pool;
    spares->shim_path = mem_strdup(shim_path);
    spares->stock =
        stock_create(loop, count < SPARES_MAX ? count : SPARES_MAX, spares_make, spares);
    stock_begin(spares->stock);
    return spares;
}

void launcher_shim_spares_stop(struct launcher_shim_spares *spares)
{
    stock_end(spares->stock);
}

void launcher_shim_spares_destroy(struct launcher_shim_spares *spares)
{
    struct launcher_shim_spare spare;
    if (!spares)
        return;
    while (launcher_shim_spares_take(spares, &spare))
        launcher_shim_spare_end(&spare);
    if (stock_is_making(spares->stock)) /* its thread hangs: it is left behind with what it holds */
        return;
    stock_destroy(spares->stock);
    mem_free(spares->shim_path);
    mem_free(spares);
}

bool launcher_shim_spares_take(struct launcher_shim_spares *spares, struct launcher_shim_spare *out)
{
    if (!stock_take(spares->stock))
        return false;
    *out = spares->items[stock_ready(spares->stock)];
    return true;
}
