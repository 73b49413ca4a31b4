/* stamp.c - see stamp.h. */
#include "tests/bench/stamp.h"
#include "base/file.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

struct stamp_reader {
    uv_poll_t poll;
    int fd;
    stamp_fn fn;
    void *arg;
};

static void stamp_readable(uv_poll_t *poll, int st, int events)
{
    struct stamp_reader *reader = CONTAINER_OF(poll, struct stamp_reader, poll);
    struct stamp stamp;

    (void)st;
    (void)events;
    while (read(reader->fd, &stamp, sizeof(stamp)) == (ssize_t)sizeof(stamp))
        reader->fn(reader->arg, &stamp);
}

enum status stamp_reader_open(struct loop *loop, const char *path, stamp_fn fn, void *arg,
                              struct stamp_reader **out, struct error *err)
{
    if (mkfifo(path, 0622) != 0 || chmod(path, 0622) != 0)
        return error_set(err, file_status(errno), "make %s: %s", path, strerror(errno));
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, file_status(errno), "open %s: %s", path, strerror(errno));
    struct stamp_reader *reader = NEW(struct stamp_reader);
    *reader = (struct stamp_reader){.fd = fd, .fn = fn, .arg = arg};
    uv_poll_init(loop_uv_handle(loop), &reader->poll, fd);
    uv_poll_start(&reader->poll, UV_READABLE, stamp_readable);
    *out = reader;
    return STATUS_OK;
}

static void stamp_closed(uv_handle_t *handle)
{
    struct stamp_reader *reader = CONTAINER_OF(handle, struct stamp_reader, poll);

    close(reader->fd);
    mem_free(reader);
}

void stamp_reader_close(struct stamp_reader *reader)
{
    if (reader)
        uv_close((uv_handle_t *)(void *)&reader->poll, stamp_closed);
}
