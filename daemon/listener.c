/* listener.c - see listener.h. */
#include "daemon/listener.h"
#include "base/text.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTENER_BACKLOG 128

enum status listener_parse(const char *address, char *host, size_t cap, uint16_t *port,
                           struct error *err)
{
    const char *colon = address ? strrchr(address, ':') : NULL;
    int64_t number;

    if (!colon || colon == address || !text_to_i64(colon + 1, 0, 65535, &number))
        return error_set(err, STATUS_INVALID, "'%.100s' is not address:port",
                         address ? address : "");
    const char *from = address;
    size_t len = (size_t)(colon - address);
    if (address[0] == '[' && len > 2 && colon[-1] == ']') {
        from = address + 1;
        len -= 2;
    }
    if (len >= cap)
        return error_set(err, STATUS_INVALID, "'%.100s': the address is too long", address);
    memcpy(host, from, len);
    host[len] = '\0';
    *port = (uint16_t)number;
    return STATUS_OK;
}

static bool listener_is_localhost(const char *host)
{
    return strcmp(host, "localhost") == 0;
}

bool listener_is_loopback(const char *address)
{
    char host[64];
    uint16_t port;

    if (listener_parse(address, host, sizeof(host), &port, NULL) != STATUS_OK)
        return false;
    return listener_is_localhost(host) || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

static enum status listener_address(const char *text, struct sockaddr_storage *out, socklen_t *len,
                                    struct error *err)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out;
    char host[64];
    uint16_t port;
    enum status st = listener_parse(text, host, sizeof(host), &port, err);

    if (st != STATUS_OK)
        return st;
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, listener_is_localhost(host) ? "127.0.0.1" : host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        *len = sizeof(*v4);
    } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        *len = sizeof(*v6);
    } else {
        return error_set(err, STATUS_INVALID, "'%s': a numeric address or localhost is needed",
                         text);
    }
    return STATUS_OK;
}

static uint16_t listener_port(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } bound = {.v6 = {0}};
    socklen_t len = sizeof(bound);

    if (getsockname(fd, &bound.any, &len) != 0)
        return 0;
    return ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
}

enum status listener_open(const char *address, int *fd, uint16_t *port, struct error *err)
{
    struct sockaddr_storage wanted;
    socklen_t len = 0;
    int on = 1;
    enum status st = listener_address(address, &wanted, &len, err);

    if (st != STATUS_OK)
        return st;
    int got = socket(wanted.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (got < 0)
        return error_set(err, STATUS_UNAVAILABLE, "socket: %s", strerror(errno));
    if (setsockopt(got, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(got, (struct sockaddr *)(void *)&wanted, len) != 0 ||
        listen(got, LISTENER_BACKLOG) != 0) {
        st = error_set(err, STATUS_UNAVAILABLE, "listen on %s: %s", address, strerror(errno));
        close(got);
        return st;
    }
    *port = listener_port(got);
    *fd = got;
    return STATUS_OK;
}
