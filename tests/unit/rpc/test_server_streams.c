/* test_server_streams.c - a client that keeps to no bound: raw HTTP/2 on one connection, more
 * streams than the server allows. */
#include "rig.h"
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define STREAMS_ALLOWED 1024u
#define STREAMS_OPENED  1100u

enum { FRAME_HEADERS = 1, FRAME_SETTINGS = 4, FLAG_ACK = 1, FLAG_END_HEADERS = 4 };

struct peer {
    int fd;
    uint8_t in[1 << 16];
    size_t len;
    uint32_t streams_max; /* as the server's SETTINGS say; 0: not yet */
    bool ended;
};

static int setup(void **state)
{
    struct rig *rig = rig_create();

    rig_serve(rig, NULL);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

static void peer_connect(struct peer *peer, const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};

    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    peer->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(peer->fd, (struct sockaddr *)&to, sizeof to), 0);
}

/* A few bytes at a time, less than the socket holds: it does not block for long. */
static void peer_send(struct peer *peer, const void *bytes, size_t len)
{
    if (send(peer->fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
        peer->ended = true;
}

static void peer_frame(struct peer *peer, int type, int flags, uint32_t stream, const char *bytes,
                       size_t len)
{
    uint8_t frame[512] = {(uint8_t)(len >> 16),    (uint8_t)(len >> 8),    (uint8_t)len,
                          (uint8_t)type,           (uint8_t)flags,         (uint8_t)(stream >> 24),
                          (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};

    assert_true(len + 9 <= sizeof frame);
    if (len > 0)
        memcpy(frame + 9, bytes, len);
    peer_send(peer, frame, len + 9);
}

static void peer_setting(struct peer *peer, const uint8_t *at, size_t len)
{
    for (; len >= 6; at += 6, len -= 6)
        if (at[0] == 0 && at[1] == 3) /* MAX_CONCURRENT_STREAMS */
            peer->streams_max =
                (uint32_t)at[2] << 24 | (uint32_t)at[3] << 16 | (uint32_t)at[4] << 8 | at[5];
}

/* Takes what has come; what the server sets is acknowledged, so that it holds. */
static void peer_receive(struct peer *peer)
{
    ssize_t got = recv(peer->fd, peer->in + peer->len, sizeof peer->in - peer->len, MSG_DONTWAIT);

    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        peer->ended = true;
    peer->len += got > 0 ? (size_t)got : 0;
    for (size_t size; peer->len >= 9; peer->len -= size) {
        size = 9 + ((size_t)peer->in[0] << 16 | (size_t)peer->in[1] << 8 | peer->in[2]);
        assert_true(size <= sizeof peer->in);
        if (peer->len < size)
            return;
        if (peer->in[3] == FRAME_SETTINGS && !(peer->in[4] & FLAG_ACK)) {
            peer_setting(peer, peer->in + 9, size - 9);
            peer_frame(peer, FRAME_SETTINGS, FLAG_ACK, 0, NULL, 0);
        }
        memmove(peer->in, peer->in + size, peer->len - size);
    }
}

static size_t put_field(char *out, const char *name, const char *value)
{
    const size_t name_len = strlen(name), value_len = strlen(value);

    out[0] = 0; /* a literal, not kept in the table */
    out[1] = (char)name_len;
    memcpy(out + 2, name, name_len);
    out[2 + name_len] = (char)value_len;
    memcpy(out + 3 + name_len, value, value_len);
    return 3 + name_len + value_len;
}

static void peer_open(struct peer *peer, uint32_t stream)
{
    char block[400];
    size_t len = put_field(block, ":method", "POST");

    len += put_field(block + len, ":scheme", "http");
    len += put_field(block + len, ":path", "/rondo.v1.Agents/Control");
    len += put_field(block + len, ":authority", "localhost");
    len += put_field(block + len, "te", "trailers");
    len += put_field(block + len, "content-type", "application/grpc");
    peer_frame(peer, FRAME_HEADERS, FLAG_END_HEADERS, stream, block, len);
}

static void a_connection_has_so_many_streams_and_no_more(void **state)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    struct rig *rig = *state;
    struct peer *peer = NEW(struct peer);
    struct rig_answer answer = {0};
    unsigned most = 0;

    peer_connect(peer, rig->socket_path);
    peer_send(peer, preface, sizeof preface - 1);
    peer_frame(peer, FRAME_SETTINGS, 0, 0, NULL, 0);
    RIG_UNTIL(rig, (peer_receive(peer), peer->streams_max > 0 || peer->ended));
    assert_int_equal(peer->streams_max, STREAMS_ALLOWED);
    for (uint32_t i = 0; i < STREAMS_ALLOWED; i++) {
        peer_open(peer, 2 * i + 1);
        RIG_UNTIL(rig, (peer_receive(peer), rig->streams_open > i || peer->ended));
    }
    assert_false(peer->ended);
    assert_int_equal(rig->streams_open, STREAMS_ALLOWED);
    for (uint32_t i = STREAMS_ALLOWED; i < STREAMS_OPENED; i++)
        peer_open(peer, 2 * i + 1);
    rig->client = rig_client(rig, NULL);
    rig_submit_id(rig, rig->client, "another", &answer); /* its connection has its own share */
    RIG_UNTIL(rig, (peer_receive(peer), most = rig->streams_open > most ? rig->streams_open : most,
                    answer.times));
    assert_int_equal(answer.st, STATUS_OK);
    assert_in_range(most, 0, STREAMS_ALLOWED);
    close(peer->fd);
    RIG_UNTIL(rig, rig->streams_open == 0);
    mem_free(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_connection_has_so_many_streams_and_no_more, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
