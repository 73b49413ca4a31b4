/* sock_spare.c - see sock_spare.h. Binding is done in libuv's pool: it writes to the disk. */
#include "agent/sock_spare.h"
#include "agent/sock_bind.h"
#include "agent/stock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#define SPARES_MAX 64u

struct sock_spares {
    uv_loop_t *uv;
    uv_work_t work;
    struct stock *stock;
    char *dir;
    bool closed;
    uint64_t made, taken; /* names count up: taken + 1 up to made are ready */
    int fds[SPARES_MAX];  /* of number n: fds[n % SPARES_MAX] */
    /* of the work in the pool, which has them meanwhile */
    bool cleared;
    int fd;
    struct error err;
};

static char *spare_path(const struct sock_spares *spares, uint64_t number)
{
    return mem_printf("%s/%" PRIu64, spares->dir, number);
}

static void make_run(uv_work_t *work)
{
    struct sock_spares *spares = CONTAINER_OF(work, struct sock_spares, work);
    SCOPED_TEXT char *path = spare_path(spares, spares->made + 1);
    spares->fd = -1;
    if (!spares->cleared) {
        if (file_remove_tree(spares->dir, &spares->err) != STATUS_OK)
            return;
        spares->cleared = mkdir(spares->dir, 0700) == 0;
    }
    spares->fd = spares->cleared ? sock_bind(path) : -1;
    if (spares->fd < 0)
        error_set(&spares->err, STATUS_UNAVAILABLE, "bind %s: %s", path, strerror(errno));
}

static void spares_free(struct sock_spares *spares)
{
    while (stock_ready(spares->stock) > 0) {
        int fd = -1;
        mem_free(sock_spares_take(spares, &fd));
        (void)close(fd);
    }
    stock_destroy(spares->stock);
    mem_free(spares->dir);
    mem_free(spares);
}

static void make_done(uv_work_t *work, int status)
{
    struct sock_spares *spares = CONTAINER_OF(work, struct sock_spares, work);
    const bool good = spares->fd >= 0;
    (void)status;
    if (good)
        spares->fds[++spares->made % SPARES_MAX] = spares->fd;
    else
        log_warn("sock.spare", log_err(&spares->err));
    stock_made(spares->stock, good);
    if (spares->closed)
        spares_free(spares);
}

static void make(void *arg)
{
    struct sock_spares *spares = arg;
    (void)uv_queue_work(spares->uv, &spares->work, make_run, make_done);
}

struct sock_spares *sock_spares_create(struct loop *loop, const char *dir, uint32_t count)
{
    struct sock_spares *spares = NEW(struct sock_spares);
    spares->uv = loop_uv_handle(loop);
    spares->dir = mem_strdup(dir);
    spares->stock = stock_create(loop, count < SPARES_MAX ? count : SPARES_MAX, make, spares);
    stock_begin(spares->stock);
    return spares;
}

void sock_spares_destroy(struct sock_spares *spares)
{
    if (!spares)
        return;
    stock_end(spares->stock);
    spares->closed = true;
    if (!stock_is_making(spares->stock))
        spares_free(spares);
}

char *sock_spares_take(struct sock_spares *spares, int *fd)
{
    if (!stock_take(spares->stock))
        return NULL;
    *fd = spares->fds[++spares->taken % SPARES_MAX];
    return spare_path(spares, spares->taken);
}

uint32_t sock_spares_ready(const struct sock_spares *spares)
{
    return stock_ready(spares->stock);
}
