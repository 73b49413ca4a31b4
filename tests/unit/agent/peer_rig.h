/* peer_rig.h - a CA, nodes n1 (serves) and n2 (asks), a vault each, and a checkpoint on n1. */
#pragma once
#include "agent/peer_client.h"
#include "agent/peer_server.h"
#include "checkpoint/digest.h"
#include "rpc/ca.h"
#include "rpc/ticket.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PEER_STEP  "job-7/step-120.3"
#define PEER_BYTES ((size_t)5 * 1024 * 1024 + 77)

static const unsigned char peer_key[TICKET_KEY_BYTES] = "the secret of node n1, 32 bytes";

struct peer_rig {
    char *dir, *from, *to;
    struct peer_server *server;
    struct text ticket;
    struct manifest_file file; /* trainer-0/a, PEER_BYTES */
};

static inline struct peer_link_files peer_files(const struct peer_rig *rig, const char *who)
{
    struct peer_link_files files = {0};

    files.cert = mem_printf("%s/%s.pem", rig->dir, who);
    files.key = mem_printf("%s/%s.key", rig->dir, who);
    files.ca = mem_printf("%s/ca.pem", rig->dir);
    return files;
}

static inline void peer_files_fini(struct peer_link_files *files)
{
    mem_free((char *)files->cert);
    mem_free((char *)files->key);
    mem_free((char *)files->ca);
}

static inline void peer_issue(struct peer_rig *rig, const char *kind, const char *name)
{
    struct ca_request request = {.kind = kind, .name = name};
    char ca[512];

    (void)snprintf(ca, sizeof(ca), "%s/ca", rig->dir);
    assert_int_equal(ca_issue(ca, &request, rig->dir, name, NULL), STATUS_OK);
}

static inline void peer_ticket(struct peer_rig *rig, const char *bearer, int64_t life_s)
{
    static const char *const entries[] = {"trainer-0", "manifest.json"};
    struct ticket ticket = {
        7, 4, ((int64_t)time(NULL) + life_s) * 1000000, "n1", bearer, PEER_STEP, NULL, entries, 2};
    char digest[65];

    digest_sha256("", 0, digest);
    ticket.digest = digest;
    text_reset(&rig->ticket);
    assert_int_equal(ticket_sign(&ticket, peer_key, &rig->ticket, NULL), STATUS_OK);
}

static inline void peer_serve(struct peer_rig *rig)
{
    struct peer_link_files files = peer_files(rig, "n1");
    const char *vaults[] = {rig->from};
    struct peer_server_options options = {.address = "127.0.0.1",
                                          .node = "n1",
                                          .files = files,
                                          .vaults = vaults,
                                          .vaults_count = 1,
                                          .limit_ms = 3000};

    assert_int_equal(peer_server_create(&options, &rig->server, NULL), STATUS_OK);
    peer_server_key(rig->server, peer_key);
    peer_files_fini(&files);
}

static inline void peer_fill(struct peer_rig *rig)
{
    struct digest_file digest;
    char *bytes = mem_alloc(PEER_BYTES);

    for (size_t i = 0; i < PEER_BYTES; i++)
        bytes[i] = (char)(i * 2654435761U >> 13);
    assert_int_equal(file_make_dirs(unit_path(rig->from, PEER_STEP "/trainer-0"), 0755, NULL),
                     STATUS_OK);
    const char *path = unit_path(rig->from, PEER_STEP "/trainer-0/a");
    assert_int_equal(file_write_atomic(path, bytes, PEER_BYTES, 0644, NULL), STATUS_OK);
    assert_int_equal(digest_file(path, false, &digest, NULL), STATUS_OK);
    unit_write(unit_path(rig->from, PEER_STEP "/manifest.json"), "{}");
    rig->file = (struct manifest_file){
        .path = "trainer-0/a", .bytes = digest.bytes, .crc32c = digest.crc32c};
    memcpy(rig->file.xxh3, digest.xxh3, sizeof(digest.xxh3));
    mem_free(bytes);
}

static inline int peer_setup(void **state)
{
    struct peer_rig *rig = NEW(struct peer_rig);

    (void)signal(SIGPIPE, SIG_IGN);
    rig->dir = unit_dir_create();
    rig->from = mem_printf("%s/from", rig->dir);
    rig->to = mem_printf("%s/to", rig->dir);
    text_init(&rig->ticket, 0);
    assert_int_equal(ca_init(unit_path(rig->dir, "ca"), "test", NULL), STATUS_OK);
    peer_issue(rig, "agent", "n1");
    peer_issue(rig, "agent", "n2");
    peer_issue(rig, "user", "ada");
    assert_int_equal(file_make_dirs(rig->to, 0755, NULL), STATUS_OK);
    peer_fill(rig);
    peer_ticket(rig, "n2", 60);
    peer_serve(rig);
    *state = rig;
    return 0;
}

static inline int peer_teardown(void **state)
{
    struct peer_rig *rig = *state;

    peer_server_destroy(rig->server);
    text_fini(&rig->ticket);
    unit_dir_destroy(rig->dir);
    mem_free(rig->from);
    mem_free(rig->to);
    mem_free(rig);
    return 0;
}

/* A client with who's certificate that expects node; closed by the caller. */
static inline enum status peer_open(struct peer_rig *rig, const char *who, const char *node,
                                    struct peer_client **out, struct error *err)
{
    static struct peer_link_files files; /* until the next call */

    peer_files_fini(&files);
    files = peer_files(rig, who);
    struct peer_client_options options = {.address = "127.0.0.1",
                                          .port = peer_server_port(rig->server),
                                          .node = node,
                                          .files = files,
                                          .ticket = rig->ticket.data,
                                          .ticket_len = rig->ticket.len,
                                          .vault = rig->to,
                                          .path = PEER_STEP,
                                          .limit_ms = 10000};
    return peer_client_open(&options, out, err);
}
