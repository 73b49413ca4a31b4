/* test_peer_link.c - connections between agents: files, deadlines, stops, numbers. */
#include "agent/peer_link.h"
#include "tests/unit/agent/peer_rig.h"
#include <arpa/inet.h>
#include <sys/socket.h>

/* Listens and never answers. */
static int mute(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static SSL_CTX *context_of(struct peer_rig *rig, const char *who)
{
    struct peer_link_files files = peer_files(rig, who);
    SSL_CTX *context = NULL;

    assert_int_equal(peer_link_context(&files, &context, NULL), STATUS_OK);
    peer_files_fini(&files);
    return context;
}

static void files_that_do_not_fit_are_said(void **state)
{
    struct peer_link_files files = peer_files(*state, "n1"), other = peer_files(*state, "n2");
    struct peer_link_files mixed = {files.cert, other.key, files.ca, NULL};
    struct peer_link_files none = {"/nowhere.pem", other.key, files.ca, NULL};
    SSL_CTX *context = NULL;

    assert_int_equal(peer_link_context(&mixed, &context, NULL), STATUS_INVALID);
    assert_int_equal(peer_link_context(&none, &context, NULL), STATUS_INVALID);
    assert_null(context);
    peer_files_fini(&files);
    peer_files_fini(&other);
}

static void a_node_that_never_answers_has_a_deadline_and_a_stop(void **state)
{
    SSL_CTX *context = context_of(*state, "n2");
    struct peer_link *link = NULL;
    atomic_bool stop = true;
    uint16_t port = 0;
    int fd = mute(&port);

    assert_int_equal(peer_link_connect(context, "127.0.0.1", port, 200, NULL, &link, NULL),
                     STATUS_DEADLINE);
    assert_int_equal(peer_link_connect(context, "127.0.0.1", port, 60000, &stop, &link, NULL),
                     STATUS_CANCELLED);
    (void)close(fd);
    assert_int_equal(peer_link_connect(context, "127.0.0.1", port, 5000, NULL, &link, NULL),
                     STATUS_UNAVAILABLE);
    assert_int_equal(peer_link_connect(context, "n1", port, 5000, NULL, &link, NULL),
                     STATUS_INVALID);
    assert_null(link);
    SSL_CTX_free(context);
}

static void the_other_end_is_named_by_its_certificate(void **state)
{
    struct peer_rig *rig = *state;
    SSL_CTX *context = context_of(rig, "n2");
    SCOPED(peer_link_close) struct peer_link *link = NULL;

    assert_int_equal(peer_link_connect(context, "127.0.0.1", peer_server_port(rig->server), 10000,
                                       NULL, &link, NULL),
                     STATUS_OK);
    assert_string_equal(peer_link_name(link), "n1");
    SSL_CTX_free(context);
}

static void numbers_are_big_endian(void **state)
{
    unsigned char bytes[8];

    (void)state;
    peer_link_put(bytes, 0x0102030405060708U, 8);
    assert_int_equal(bytes[0], 1);
    assert_int_equal(bytes[7], 8);
    assert_true(peer_link_get(bytes, 8) == 0x0102030405060708U);
    assert_int_equal(peer_link_get(bytes, 2), 0x0102);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, peer_setup, peer_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_that_do_not_fit_are_said),
        TEST(a_node_that_never_answers_has_a_deadline_and_a_stop),
        TEST(the_other_end_is_named_by_its_certificate),
        TEST(numbers_are_big_endian),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
