/* ask.c - see ask.h. */
#include "worker/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "worker/rondo.h"
#include "worker/wire.h"

#define PROTOCOL       1
#define ANSWER_MAX     65536
#define BACKOFF_MIN_US 20000
#define BACKOFF_MAX_US 1000000

enum ask_field {
    ASK_PROTOCOL = 1,
    ASK_NUMBER = 2,
    ASK_KIND = 3,
    ASK_STEP = 4,
    ASK_SAMPLES = 5,
    ASK_BYTES = 7,
    ASK_LAYOUT_DIGEST = 8,
    ASK_NO_WAIT = 9
};
enum answer_field { ANSWER_NUMBER = 1, ANSWER_STATUS = 2, ANSWER_ERROR = 3, ANSWER_DIR = 4 };

int64_t ask_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void ask_init(struct ask *ask, int dir)
{
    *ask = (struct ask){.dir = dir, .fd = -1, .backoff_us = BACKOFF_MIN_US};
}

void ask_close(struct ask *ask)
{
    if (ask->fd >= 0)
        (void)close(ask->fd);
    ask->fd = -1;
    ask->waiting = 0;
}

/* True when the descriptor is ready before the deadline. */
static bool wait_for(int fd, short events, int64_t deadline_us)
{
    for (;;) {
        struct pollfd item = {.fd = fd, .events = events};
        int64_t left_us = deadline_us - ask_now_us();
        int ready;
        if (left_us <= 0)
            return false;
        ready = poll(&item, 1, left_us > 60000000 ? 60000 : (int)(left_us / 1000) + 1);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return false;
    }
}

static void pause_until(struct ask *ask, int64_t deadline_us)
{
    int64_t left_us = deadline_us - ask_now_us();
    int64_t pause_us = (int64_t)ask->backoff_us < left_us ? (int64_t)ask->backoff_us : left_us;

    ask->backoff_us = ask->backoff_us * 2 > BACKOFF_MAX_US ? BACKOFF_MAX_US : ask->backoff_us * 2;
    if (pause_us > 0) {
        struct timespec pause = {pause_us / 1000000, pause_us % 1000000 * 1000};
        (void)nanosleep(&pause, NULL);
    }
}

/* By the directory's descriptor: the path may be longer than a socket's address can hold. */
static bool connect_agent(struct ask *ask)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return false;
    (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/sock", ask->dir);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        (void)close(fd);
        return false; /* also EAGAIN, a full backlog: later */
    }
    ask->fd = fd;
    return true;
}

static bool send_all(int fd, const unsigned char *bytes, size_t len, int64_t deadline_us)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno != EAGAIN || !wait_for(fd, POLLOUT, deadline_us)))
            return false;
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        }
    }
    return true;
}

static bool receive_all(int fd, unsigned char *bytes, size_t len, int64_t deadline_us)
{
    while (len > 0) {
        ssize_t n = recv(fd, bytes, len, 0);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
            return false;
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN && !wait_for(fd, POLLIN, deadline_us)) {
            return false;
        }
    }
    return true;
}

static bool send_request(struct ask *ask, const struct ask_request *request, int64_t deadline_us)
{
    unsigned char bytes[128];
    struct wire wire;

    wire_init(&wire, bytes + 4, sizeof bytes - 4);
    wire_add_number(&wire, ASK_PROTOCOL, PROTOCOL);
    wire_add_number(&wire, ASK_NUMBER, ++ask->number);
    wire_add_number(&wire, ASK_KIND, (uint64_t)request->kind);
    wire_add_number(&wire, ASK_STEP, (uint64_t)request->step);
    if (request->samples >= 0)
        wire_add_number(&wire, ASK_SAMPLES, (uint64_t)request->samples);
    if (request->bytes > 0)
        wire_add_number(&wire, ASK_BYTES, request->bytes);
    if (request->layout_digest[0])
        wire_add_bytes(&wire, ASK_LAYOUT_DIGEST, request->layout_digest,
                       strnlen(request->layout_digest, sizeof request->layout_digest));
    if (request->no_wait)
        wire_add_number(&wire, ASK_NO_WAIT, 1);
    wire_put_u32(bytes, (uint32_t)wire.len);
    ask->last = *request;
    ask->waiting = send_all(ask->fd, bytes, wire.len + 4, deadline_us);
    return ask->waiting;
}

static bool copy_text(const struct wire_field *field, char *out, size_t cap)
{
    if (!field->is_bytes || field->len >= cap || memchr(field->bytes, 0, field->len))
        return false;
    memcpy(out, field->bytes, field->len);
    out[field->len] = '\0';
    return true;
}

static bool decode_answer(const unsigned char *bytes, size_t len, uint64_t *number,
                          struct ask_answer *out)
{
    struct wire_field field;
    size_t at = 0;
    int more;

    *out = (struct ask_answer){0};
    *number = 0;
    while ((more = wire_next(bytes, len, &at, &field)) > 0) {
        if (field.number == ANSWER_NUMBER && !field.is_bytes)
            *number = field.value;
        else if (field.number == ANSWER_STATUS && !field.is_bytes)
            out->status = (int)field.value;
        else if (field.number == ANSWER_ERROR && field.is_bytes) {
            if (field.len >= sizeof out->error)
                field.len = sizeof out->error - 1;
            (void)copy_text(&field, out->error, sizeof out->error);
        } else if (field.number == ANSWER_DIR && !copy_text(&field, out->dir, sizeof out->dir))
            return false;
    }
    return more == 0 && out->status >= 0 && out->status <= 16;
}

/* One answer to the request that was sent last; answers to older ones are passed over. A wait that
 * merely ran into the deadline keeps the connection. */
static bool receive_answer(struct ask *ask, int64_t deadline_us, struct ask_answer *out)
{
    unsigned char bytes[ANSWER_MAX];
    uint64_t number = 0;

    while (number != ask->number) {
        unsigned char head[4];
        uint32_t len;
        int64_t body_us;
        if (!wait_for(ask->fd, POLLIN, deadline_us))
            return false;
        body_us = ask_now_us() + 5000000; /* a message that has begun arrives at once */
        if (!receive_all(ask->fd, head, sizeof head, body_us) ||
            (len = wire_get_u32(head)) > sizeof bytes ||
            !receive_all(ask->fd, bytes, len, body_us) ||
            !decode_answer(bytes, len, &number, out) || number == 0 || number > ask->number) {
            ask_close(ask);
            return false;
        }
    }
    ask->waiting = 0;
    return true;
}

static bool is_same(const struct ask_request *a, const struct ask_request *b)
{
    return a->kind == b->kind && a->step == b->step && a->samples == b->samples &&
           a->bytes == b->bytes && a->no_wait == b->no_wait &&
           strcmp(a->layout_digest, b->layout_digest) == 0;
}

/* The agent hung up while nobody looked: an answer that was due will not come. */
static void drop_dead_connection(struct ask *ask)
{
    struct pollfd item = {.fd = ask->fd, .events = POLLIN};
    char byte;

    if (ask->fd >= 0 && poll(&item, 1, 0) > 0 && (item.revents & (POLLIN | POLLHUP | POLLERR)) &&
        recv(ask->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
        ask_close(ask);
}

int ask_call(struct ask *ask, const struct ask_request *request, int64_t deadline_us,
             struct ask_answer *out)
{
    drop_dead_connection(ask);
    do {
        bool sent = ask->fd >= 0 && ask->waiting && is_same(&ask->last, request);
        if (!sent)
            sent = (ask->fd >= 0 || connect_agent(ask)) && send_request(ask, request, deadline_us);
        if (sent && receive_answer(ask, deadline_us, out)) {
            ask->backoff_us = BACKOFF_MIN_US;
            if (out->status != RONDO_UNAVAILABLE)
                return 0;
        } else if (!sent) {
            ask_close(ask);
        }
        if (ask_now_us() < deadline_us)
            pause_until(ask, deadline_us);
    } while (ask_now_us() < deadline_us);
    return -RONDO_DEADLINE;
}
