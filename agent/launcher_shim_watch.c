/* launcher_shim_watch.c - uv_poll with an owner for its descriptor. */
#include "agent/launcher_shim_watch.h"
#include "base/mem.h"
#include <unistd.h>
#include <uv.h>

struct launcher_shim_watch {
    uv_poll_t poll;
    int fd;
    void (*fn)(void *arg);
    void *arg;
};

static void watch_ready(uv_poll_t *poll, int status, int events)
{
    struct launcher_shim_watch *watch = CONTAINER_OF(poll, struct launcher_shim_watch, poll);
    (void)status; /* an error is for the reader to find */
    (void)events;
    watch->fn(watch->arg);
}

static void watch_closed(uv_handle_t *handle)
{
    mem_free(CONTAINER_OF(handle, struct launcher_shim_watch, poll));
}

struct launcher_shim_watch *launcher_shim_watch_create(struct uv_loop_s *uv, int fd,
                                                       void (*fn)(void *arg), void *arg)
{
    struct launcher_shim_watch *watch = NEW(struct launcher_shim_watch);
    watch->fd = fd;
    watch->fn = fn;
    watch->arg = arg;
    if (uv_poll_init(uv, &watch->poll, fd) != 0) {
        close(fd);
        mem_free(watch);
        return NULL;
    }
    uv_poll_start(&watch->poll, UV_READABLE, watch_ready);
    return watch;
}

int launcher_shim_watch_fd(const struct launcher_shim_watch *watch)
{
    return watch->fd;
}

void launcher_shim_watch_close(struct launcher_shim_watch **place)
{
    struct launcher_shim_watch *watch = TAKE(*place);
    if (!watch)
        return;
    uv_poll_stop(&watch->poll);
    close(watch->fd);
    uv_close((uv_handle_t *)&watch->poll, watch_closed);
}
