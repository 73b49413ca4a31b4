/* daemon_rig_http.c - a small HTTP client on the rig's loop. See daemon_rig.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* CMocka needs those four first. */
#include "base/mem.h"
#include "base/text.h"
#include "tests/support/daemon_rig.h"
#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int rig_connect(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)(void *)&to, sizeof(to)), 0);
    return fd;
}

/* Reads until the server closes (requests ask for that), or the answer holds `until`. */
static char *rig_http(struct daemon_rig *rig, const char *request, const char *until)
{
    int fd = rig_connect(status_server_port(rig->status));
    struct text answer;
    char piece[4096];
    ssize_t got = 1;

    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    text_init(&answer, 0);
    int64_t end = loop_now_us(rig->loop) + 60000000;
    while (got != 0 && !(until && strstr(text_get(&answer), until))) {
        uv_run(loop_uv_handle(rig->loop), UV_RUN_NOWAIT);
        got = recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
        if (got > 0)
            text_add_bytes(&answer, piece, (size_t)got);
        else if (got < 0 && errno != EAGAIN)
            break;
        else if (got < 0)
            usleep(500);
        assert_true(loop_now_us(rig->loop) < end);
    }
    close(fd);
    text_add(&answer, "");
    return text_take(&answer);
}

char *daemon_rig_http(struct daemon_rig *rig, const char *request)
{
    return rig_http(rig, request, NULL);
}

char *daemon_rig_events(struct daemon_rig *rig, const char *path, const char *until)
{
    SCOPED_TEXT char *request = mem_printf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);

    return rig_http(rig, request, until);
}

char *daemon_rig_get(struct daemon_rig *rig, const char *path)
{
    SCOPED_TEXT char *request =
        mem_printf("GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);

    return daemon_rig_http(rig, request);
}
