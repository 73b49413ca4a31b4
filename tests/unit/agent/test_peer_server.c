/* test_peer_server.c - what the server refuses, and that nothing a client does stops it. */
#include "tests/unit/agent/peer_rig.h"
#include <arpa/inet.h>
#include <sys/socket.h>

static int dial(const struct peer_rig *rig)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(peer_server_port(rig->server))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Slots of connections that have just ended may still be taken for a moment. */
static void assert_serves(struct peer_rig *rig)
{
    enum status st = STATUS_UNAVAILABLE;

    for (int i = 0; i < 600 && st != STATUS_OK; i++) {
        SCOPED(peer_client_close) struct peer_client *client = NULL;
        st = peer_open(rig, "n2", "n1", &client, NULL);
        if (st == STATUS_OK)
            st = peer_client_fetch(client, &rig->file, NULL);
        else
            (void)usleep(50000);
    }
    assert_int_equal(st, STATUS_OK);
}

static enum status opened(struct peer_rig *rig, const char *who)
{
    SCOPED(peer_client_close) struct peer_client *client = NULL;

    return peer_open(rig, who, "n1", &client, NULL);
}

static void tickets_that_are_not_good_open_nothing(void **state)
{
    struct peer_rig *rig = *state;

    peer_ticket(rig, "n3", 60);
    assert_int_equal(opened(rig, "n2"), STATUS_DENIED);
    peer_ticket(rig, "n2", -1);
    assert_int_equal(opened(rig, "n2"), STATUS_DEADLINE);
    peer_ticket(rig, "n2", 60);
    rig->ticket.data[20] ^= 1;
    assert_int_equal(opened(rig, "n2"), STATUS_UNAUTHENTICATED);
    rig->ticket.data[20] ^= 1;
    peer_server_key(rig->server, (const unsigned char *)"another secret, also of 32 bytes");
    assert_int_equal(opened(rig, "n2"), STATUS_UNAUTHENTICATED);
    peer_server_key(rig->server, peer_key);
    assert_serves(rig);
}

static void whoever_is_no_agent_is_not_heard(void **state)
{
    struct peer_rig *rig = *state;

    peer_ticket(rig, "ada", 60);
    assert_int_not_equal(opened(rig, "ada"), STATUS_OK);
    peer_ticket(rig, "n2", 60);
    assert_serves(rig);
}

static void what_the_ticket_does_not_cover_is_refused(void **state)
{
    static const char *const bad[] = {"trainer-1/a", "trainer-0/../../../x", "/etc/passwd", "x"};
    struct peer_rig *rig = *state;

    assert_int_equal(file_make_dirs(unit_path(rig->from, PEER_STEP "/trainer-1"), 0755, NULL),
                     STATUS_OK);
    unit_write(unit_path(rig->from, PEER_STEP "/trainer-1/a"), "other");
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        SCOPED(peer_client_close) struct peer_client *client = NULL;
        struct manifest_file file = {.path = bad[i], .bytes = 5};
        assert_int_equal(peer_open(rig, "n2", "n1", &client, NULL), STATUS_OK);
        enum status st = peer_client_fetch(client, &file, NULL);
        assert_true(st == STATUS_DENIED || st == STATUS_INVALID);
    }
}

static void links_are_not_followed(void **state)
{
    struct peer_rig *rig = *state;
    SCOPED(peer_client_close) struct peer_client *client = NULL;
    struct manifest_file file = {.path = "trainer-0/link", .bytes = 5};

    assert_int_equal(symlink("/etc/passwd", unit_path(rig->from, PEER_STEP "/trainer-0/link")), 0);
    assert_int_equal(peer_open(rig, "n2", "n1", &client, NULL), STATUS_OK);
    assert_int_equal(peer_client_fetch(client, &file, NULL), STATUS_INVALID);
}

static void garbage_ends_its_own_connection_only(void **state)
{
    struct peer_rig *rig = *state;
    char junk[4096];

    for (unsigned seed = 0; seed < 50; seed++) {
        int fd = dial(rig);
        for (size_t i = 0; i < sizeof(junk); i++)
            junk[i] = (char)((seed + 1) * 2654435761U * (unsigned)(i + 1) >> 11);
        (void)!write(fd, junk, sizeof(junk));
        (void)close(fd);
    }
    assert_serves(rig);
}

static void a_thousand_that_connect_and_go_stop_nothing(void **state)
{
    struct peer_rig *rig = *state;

    for (int i = 0; i < 1000; i++)
        (void)close(dial(rig));
    assert_serves(rig);
}

/* All places are taken by clients that say nothing: they are dropped within the limit. */
static void silent_ones_are_dropped(void **state)
{
    struct peer_rig *rig = *state;
    int silent[PEER_SERVER_LINKS];

    for (size_t i = 0; i < COUNT_OF(silent); i++)
        silent[i] = dial(rig);
    assert_serves(rig);
    for (size_t i = 0; i < COUNT_OF(silent); i++)
        (void)close(silent[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, peer_setup, peer_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tickets_that_are_not_good_open_nothing),
        TEST(whoever_is_no_agent_is_not_heard),
        TEST(what_the_ticket_does_not_cover_is_refused),
        TEST(links_are_not_followed),
        TEST(garbage_ends_its_own_connection_only),
        TEST(a_thousand_that_connect_and_go_stop_nothing),
        TEST(silent_ones_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
