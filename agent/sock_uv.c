/* sock_uv.c - workers' control sockets on the loop.
 *
 * A socket is bound in libuv's pool (it writes to the disk). Frames: u32 little-endian length,
 * packed message. */
#include "agent/sock.h"
#include "agent/sock_bind.h"
#include "agent/sock_spare.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define FRAME_BYTES_MAX 65536u
#define CONNECTIONS_MAX 16u
#define QUEUED_MAX      ((size_t)1 << 20)
#define ASKS_MAX        64u /* of a worker in a window; what it asks beyond waits for the next */
#define WINDOW_US       250000
#define WINDOW_TICK_US  50000

struct socks_uv {
    struct socks base;
    uv_loop_t *uv;
    struct loop *loop;
    struct loop_timer *window; /* ticks while a socket is paused */
    bool ticking;
    struct list all;
    struct sock_spares *spares; /* NULL: none */
};
struct sock_uv {
    struct sock base;
    struct list node;
    struct socks_uv *socks;
    const struct sock_events *events;
    void *arg;
    char *path, *spare;
    int64_t uid, gid;
    uv_work_t work;
    int fd;
    struct error err;
    enum status st;
    uv_pipe_t server;
    bool listening, binding, closed;
    struct list connections;
    uint32_t connections_count;
    uint64_t connection_last;
    uint32_t asks; /* in the window that began at window_us */
    int64_t window_us;
    bool paused; /* too many: nothing is read until the timer */
};
struct connection {
    struct list node;
    struct sock_uv *sock; /* NULL: the socket was closed */
    uint64_t number;
    uv_pipe_t pipe;
    uint8_t *frame;
    size_t have, cap;
    char buffer[4096];
};
struct answer {
    uv_write_t req;
    uint8_t bytes[];
};

/* --- bind, in the pool */

/* The one made in advance, renamed; or, where that fails, one of its own. */
static int sock_make(struct sock_uv *self)
{
    if (self->spare && rename(self->spare, self->path) == 0)
        return self->fd;
    if (self->spare)
        (void)close(self->fd);
    return sock_bind(self->path);
}

static void sock_bind_run(uv_work_t *work)
{
    struct sock_uv *self = CONTAINER_OF(work, struct sock_uv, work);
    self->fd = sock_make(self);
    if (self->fd < 0 || ((self->uid >= 0 || self->gid >= 0) &&
                         lchown(self->path, (uid_t)self->uid, (gid_t)self->gid) != 0))
        self->st = error_set(&self->err, STATUS_UNAVAILABLE, "make socket %s: %s", self->path,
                             strerror(errno));
}

/* --- connections */

static void connection_freed(uv_handle_t *handle)
{
    struct connection *connection = handle->data;
    mem_free(connection->frame);
    mem_free(connection);
}

static void connection_close(struct connection *connection)
{
    if (connection->sock) {
        connection->sock->connections_count--;
        list_remove(&connection->node);
    }
    connection->sock = NULL;
    if (!uv_is_closing((uv_handle_t *)&connection->pipe))
        uv_close((uv_handle_t *)&connection->pipe, connection_freed);
}

static uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* False: the connection is of no use any more. */
static bool take_frame(struct connection *connection, const uint8_t *bytes, size_t len)
{
    struct sock_uv *sock = connection->sock;
    Pb__WorkerAsk *ask = pb__worker_ask__unpack(NULL, len, bytes);
    if (!ask)
        return false;
    sock->events->ask(sock->arg, connection->number, ask);
    pb__worker_ask__free_unpacked(ask, NULL);
    return true;
}

/* One that ticks already is left alone: each pause would put off the end of all others. */
static void window_tick(struct socks_uv *self)
{
    if (!self->ticking)
        loop_timer_set(self->window, WINDOW_TICK_US);
    self->ticking = true;
}

static void sock_pause(struct sock_uv *sock)
{
    sock->paused = true;
    LIST_EACH(&sock->connections, node)
    (void)uv_read_stop((uv_stream_t *)&LIST_ITEM(node, struct connection, node)->pipe);
    window_tick(sock->socks);
}

/* False: this worker has asked enough for now. All workers share one loop. */
static bool may_ask(struct sock_uv *sock)
{
    const int64_t now = loop_now_us(sock->socks->loop);
    if (now - sock->window_us >= WINDOW_US) {
        sock->window_us = now;
        sock->asks = 0;
    }
    if (!sock->paused && ++sock->asks > ASKS_MAX)
        sock_pause(sock);
    return !sock->paused;
}

static void take_frames(struct connection *connection)
{
    size_t at = 0;
    while (connection->sock && connection->have - at >= 4) {
        size_t len = read_u32(connection->frame + at);
        if (len > FRAME_BYTES_MAX) {
            connection_close(connection);
            return;
        }
        if (connection->have - at - 4 < len || !may_ask(connection->sock))
            break;
        if (!take_frame(connection, connection->frame + at + 4, len)) {
            connection_close(connection);
            return;
        }
        at += 4 + len;
    }
    connection->have -= at;
    if (at > 0)
        memmove(connection->frame, connection->frame + at, connection->have);
}

static void sock_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct connection *connection = handle->data;
    (void)suggested;
    *out = uv_buf_init(connection->buffer, sizeof(connection->buffer));
}

static void sock_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct connection *connection = stream->data;
    if (n == 0 || !connection->sock)
        return;
    if (n < 0) {
        connection_close(connection);
        return;
    }
    size_t need = connection->have + (size_t)n;
    if (need > connection->cap) {
        connection->cap = need * 2; /* bounded: a frame and one read */
        connection->frame = mem_resize(connection->frame, connection->cap, 1);
    }
    memcpy(connection->frame + connection->have, buffer->base, (size_t)n);
    connection->have = need;
    take_frames(connection);
}

static void sock_resume(struct sock_uv *sock)
{
    sock->paused = false;
    sock->window_us = loop_now_us(sock->socks->loop);
    sock->asks = 0;
    LIST_EACH(&sock->connections, node)
    {
        struct connection *connection = LIST_ITEM(node, struct connection, node);
        take_frames(connection);
        if (sock->closed)
            return;
        if (connection->sock && !sock->paused)
            (void)uv_read_start((uv_stream_t *)&connection->pipe, sock_alloc, sock_read);
    }
}

static void window_over(void *arg)
{
    struct socks_uv *self = arg;
    const int64_t now = loop_now_us(self->loop);
    self->ticking = false;
    LIST_EACH(&self->all, node)
    {
        struct sock_uv *sock = LIST_ITEM(node, struct sock_uv, node);
        if (sock->paused && now - sock->window_us >= WINDOW_US)
            sock_resume(sock);
        else if (sock->paused)
            window_tick(self);
    }
}

static void sock_accept(uv_stream_t *server, int status)
{
    struct sock_uv *self = server->data;
    if (status < 0)
        return;
    struct connection *connection = NEW(struct connection);
    (void)uv_pipe_init(self->socks->uv, &connection->pipe, 0);
    connection->pipe.data = connection;
    list_init(&connection->node);
    bool good = uv_accept(server, (uv_stream_t *)&connection->pipe) == 0 &&
                self->connections_count < CONNECTIONS_MAX;
    if (!good) {
        uv_close((uv_handle_t *)&connection->pipe, connection_freed);
        return;
    }
    connection->sock = self;
    connection->number = ++self->connection_last;
    list_add_last(&self->connections, &connection->node);
    self->connections_count++;
    if (!self->paused)
        (void)uv_read_start((uv_stream_t *)&connection->pipe, sock_alloc, sock_read);
}

static void answer_written(uv_write_t *req, int status)
{
    (void)status;
    mem_free(CONTAINER_OF(req, struct answer, req));
}

static void sock_uv_answer(struct sock *sock, uint64_t number, const Pb__WorkerAnswer *message)
{
    struct sock_uv *self = CONTAINER_OF(sock, struct sock_uv, base);
    LIST_EACH(&self->connections, node)
    {
        struct connection *connection = LIST_ITEM(node, struct connection, node);
        if (connection->number != number)
            continue;
        size_t len = pb__worker_answer__get_packed_size(message);
        if (uv_stream_get_write_queue_size((uv_stream_t *)&connection->pipe) > QUEUED_MAX) {
            connection_close(connection); /* asks, and does not read */
            return;
        }
        struct answer *answer = mem_alloc(sizeof(*answer) + len + 4);
        for (int i = 0; i < 4; i++)
            answer->bytes[i] = (uint8_t)(len >> (8 * i));
        (void)pb__worker_answer__pack(message, answer->bytes + 4);
        uv_buf_t buffer = uv_buf_init((char *)answer->bytes, (unsigned)len + 4);
        if (uv_write(&answer->req, (uv_stream_t *)&connection->pipe, &buffer, 1, answer_written) !=
            0)
            mem_free(answer);
        return;
    }
}

/* --- the socket */

static void sock_free(struct sock_uv *self)
{
    mem_free(self->path);
    mem_free(self->spare);
    mem_free(self);
}

static void sock_server_closed(uv_handle_t *handle)
{
    sock_free(handle->data);
}

static void sock_bound(uv_work_t *work, int status)
{
    struct sock_uv *self = CONTAINER_OF(work, struct sock_uv, work);
    (void)status;
    self->binding = false;
    if (self->closed) {
        if (self->fd >= 0)
            (void)close(self->fd);
        sock_free(self);
        return;
    }
    if (self->st == STATUS_OK) {
        (void)uv_pipe_init(self->socks->uv, &self->server, 0);
        self->server.data = self;
        self->listening = true;
        int code = uv_pipe_open(&self->server, self->fd);
        if (code == 0)
            code = uv_listen((uv_stream_t *)&self->server, 8, sock_accept);
        if (code != 0)
            self->st = error_set(&self->err, STATUS_UNAVAILABLE, "listen on %s: %s", self->path,
                                 uv_strerror(code));
    } else if (self->fd >= 0) {
        (void)close(self->fd);
    }
    self->events->opened(self->arg, self->st, self->st == STATUS_OK ? NULL : &self->err);
}

static const struct sock_ops sock_uv_ops;

static struct sock *sock_uv_open(struct socks *socks, const char *path, int64_t uid, int64_t gid,
                                 const struct sock_events *events, void *arg)
{
    struct sock_uv *self = NEW(struct sock_uv);
    self->base.ops = &sock_uv_ops;
    self->socks = CONTAINER_OF(socks, struct socks_uv, base);
    self->events = events;
    self->arg = arg;
    self->path = mem_strdup(path);
    self->uid = uid;
    self->gid = gid;
    self->fd = -1;
    if (self->socks->spares)
        self->spare = sock_spares_take(self->socks->spares, &self->fd);
    list_init(&self->connections);
    list_add_last(&self->socks->all, &self->node);
    self->binding = true;
    (void)uv_queue_work(self->socks->uv, &self->work, sock_bind_run, sock_bound);
    return &self->base;
}

static void sock_uv_close(struct sock *sock)
{
    struct sock_uv *self = CONTAINER_OF(sock, struct sock_uv, base);
    list_remove(&self->node);
    self->closed = true;
    LIST_EACH(&self->connections, node)
    connection_close(LIST_ITEM(node, struct connection, node));
    if (self->listening)
        uv_close((uv_handle_t *)&self->server, sock_server_closed);
    else if (!self->binding)
        sock_free(self);
}

static void sock_uv_destroy(struct socks *socks)
{
    struct socks_uv *self = CONTAINER_OF(socks, struct socks_uv, base);
    LIST_EACH(&self->all, node)
    sock_uv_close(&LIST_ITEM(node, struct sock_uv, node)->base);
    sock_spares_destroy(self->spares);
    loop_timer_destroy(self->window);
    mem_free(self);
}

static const struct sock_ops sock_uv_ops = {sock_uv_open, sock_uv_answer, sock_uv_close,
                                            sock_uv_destroy};

struct socks *sock_uv_create(struct loop *loop, const char *spare_dir, uint32_t spares)
{
    struct socks_uv *self = NEW(struct socks_uv);
    self->base.ops = &sock_uv_ops;
    self->uv = loop_uv_handle(loop);
    self->loop = loop;
    self->window = loop_timer_create(loop, window_over, self);
    list_init(&self->all);
    if (spares)
        self->spares = sock_spares_create(loop, spare_dir, spares);
    return &self->base;
}
