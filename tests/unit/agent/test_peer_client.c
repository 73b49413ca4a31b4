/* test_peer_client.c - a checkpoint's files come to another node: whole, on from where it broke,
 * never wrong. */
#include "tests/unit/agent/peer_rig.h"

#define HERE PEER_STEP "/trainer-0/a"

static void part_path(const struct peer_rig *rig, char *out, size_t cap)
{
    (void)snprintf(out, cap, "%s/%s/trainer-0/.get-%.16s-%08x", rig->to, PEER_STEP, rig->file.xxh3,
                   rig->file.crc32c);
}

static void assert_here(const struct peer_rig *rig)
{
    struct digest_file digest;

    assert_int_equal(digest_file(unit_path(rig->to, HERE), false, &digest, NULL), STATUS_OK);
    assert_string_equal(digest.xxh3, rig->file.xxh3);
}

static void a_file_comes_whole_and_once(void **state)
{
    struct peer_rig *rig = *state;
    SCOPED(peer_client_close) struct peer_client *client = NULL;

    assert_int_equal(peer_open(rig, "n2", "n1", &client, NULL), STATUS_OK);
    assert_int_equal(peer_client_fetch(client, &rig->file, NULL), STATUS_OK);
    assert_here(rig);
    assert_int_equal(peer_client_received(client), PEER_BYTES);
    assert_int_equal(peer_client_fetch(client, &rig->file, NULL), STATUS_OK);
    assert_int_equal(peer_client_received(client), PEER_BYTES);
}

static void it_goes_on_where_it_broke(void **state)
{
    struct peer_rig *rig = *state;
    SCOPED(peer_client_close) struct peer_client *client = NULL;
    char part[512], *bytes = NULL;
    size_t len = 0;

    assert_int_equal(file_make_dirs(unit_path(rig->to, PEER_STEP "/trainer-0"), 0755, NULL),
                     STATUS_OK);
    assert_int_equal(file_read(unit_path(rig->from, HERE), PEER_BYTES, &bytes, &len, NULL),
                     STATUS_OK);
    part_path(rig, part, sizeof(part));
    assert_int_equal(file_write_atomic(part, bytes, 3000001, 0644, NULL), STATUS_OK);
    mem_free(bytes);
    assert_int_equal(peer_open(rig, "n2", "n1", &client, NULL), STATUS_OK);
    assert_int_equal(peer_client_fetch(client, &rig->file, NULL), STATUS_OK);
    assert_here(rig);
    assert_int_equal(peer_client_received(client), PEER_BYTES - 3000001);
}

static void damage_at_the_source_is_named_and_not_kept(void **state)
{
    struct peer_rig *rig = *state;
    SCOPED(peer_client_close) struct peer_client *client = NULL;
    struct error err = {0};
    char part[512];
    int fd = open(unit_path(rig->from, HERE), O_WRONLY);

    assert_int_equal(pwrite(fd, "damage", 6, 4000000), 6);
    (void)close(fd);
    assert_int_equal(peer_open(rig, "n2", "n1", &client, NULL), STATUS_OK);
    assert_int_equal(peer_client_fetch(client, &rig->file, &err), STATUS_DATA_LOSS);
    assert_non_null(strstr(err.text, "trainer-0/a"));
    assert_non_null(strstr(err.text, "n1"));
    part_path(rig, part, sizeof(part));
    assert_int_not_equal(access(part, F_OK), 0);
    assert_int_not_equal(access(unit_path(rig->to, HERE), F_OK), 0);
}

static void another_size_at_the_source_is_damage(void **state)
{
    struct peer_rig *rig = *state;
    SCOPED(peer_client_close) struct peer_client *client = NULL;

    assert_int_equal(truncate(unit_path(rig->from, HERE), 1000), 0);
    assert_int_equal(peer_open(rig, "n2", "n1", &client, NULL), STATUS_OK);
    assert_int_equal(peer_client_fetch(client, &rig->file, NULL), STATUS_DATA_LOSS);
    assert_int_equal(peer_client_fetch(client, &rig->file, NULL), STATUS_UNAVAILABLE);
}

static void a_node_that_is_gone_is_said(void **state)
{
    struct peer_rig *rig = *state;
    SCOPED(peer_client_close) struct peer_client *client = NULL;
    struct peer_client *none = NULL;

    assert_int_equal(peer_open(rig, "n2", "n1", &client, NULL), STATUS_OK);
    assert_int_equal(unlink(unit_path(rig->from, HERE)), 0);
    assert_int_equal(peer_client_fetch(client, &rig->file, NULL), STATUS_NOT_FOUND);
    uint16_t port = peer_server_port(rig->server);
    peer_server_destroy(rig->server);
    rig->server = NULL;
    assert_int_equal(peer_client_fetch(client, &rig->file, NULL), STATUS_UNAVAILABLE);
    struct peer_link_files files = peer_files(rig, "n2");
    struct peer_client_options gone = {.address = "127.0.0.1",
                                       .port = port,
                                       .node = "n1",
                                       .files = files,
                                       .ticket = "x",
                                       .ticket_len = 1,
                                       .vault = rig->to,
                                       .path = PEER_STEP};
    assert_int_equal(peer_client_open(&gone, &none, NULL), STATUS_UNAVAILABLE);
    peer_files_fini(&files);
}

static void another_node_at_that_address_is_refused(void **state)
{
    struct peer_client *client = NULL;

    assert_int_equal(peer_open(*state, "n2", "n3", &client, NULL), STATUS_UNAUTHENTICATED);
    assert_null(client);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, peer_setup, peer_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_comes_whole_and_once),
        TEST(it_goes_on_where_it_broke),
        TEST(damage_at_the_source_is_named_and_not_kept),
        TEST(another_size_at_the_source_is_damage),
        TEST(a_node_that_is_gone_is_said),
        TEST(another_node_at_that_address_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
