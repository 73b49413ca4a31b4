/* checkpoint_peer.c - entry checkpoint.peer: a file from one agent's server into another's vault
 * over loopback TLS, checked and synced, beside `openssl s_server` and `s_client`, which throw the
 * same bytes away. */
#include "agent/peer_client.h"
#include "agent/peer_server.h"
#include "base/file.h"
#include "checkpoint/digest.h"
#include "rpc/ca.h"
#include "rpc/ticket.h"
#include "tests/bench/checkpoint_stand.h"
#include "tests/bench/figure.h"
#include "tests/bench/process.h"
#include "tests/bench/sample.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BYTES    ((size_t)1 << 30)
#define PATH     "job-1/step-1.1"
#define FILE_1   "trainer-0/shard"
#define LIMIT_MS 120000
#define RUNS     5

static const unsigned char key[TICKET_KEY_BYTES] = "both ends of a loop know this...";

struct stand {
    char *dir, *from, *to, *cert, *key, *ca;
    struct manifest_file file;
    struct peer_server *server;
    struct text ticket;
    pid_t rival;
    char port[16]; /* of the rival */
};

static struct peer_link_files files_of(const struct stand *stand)
{
    return (struct peer_link_files){.cert = stand->cert, .key = stand->key, .ca = stand->ca};
}

/* --- what is sent */
static enum status make_file(struct stand *stand, struct error *err)
{
    SCOPED_TEXT char *parts = mem_printf("%s/" PATH "/trainer-0", stand->from);
    SCOPED_TEXT char *path = mem_printf("%s/" PATH "/" FILE_1, stand->from);
    void *bytes = checkpoint_stand_map(BYTES, true);
    struct digest_file digest;
    enum status st = file_make_dirs(parts, 0755, err);

    if (st == STATUS_OK)
        st = file_write_atomic(path, bytes, BYTES, 0644, err);
    (void)munmap(bytes, BYTES + 64);
    if (st == STATUS_OK)
        st = digest_file(path, true, &digest, err);
    if (st != STATUS_OK)
        return st;
    stand->file =
        (struct manifest_file){.path = FILE_1, .bytes = digest.bytes, .crc32c = digest.crc32c};
    memcpy(stand->file.xxh3, digest.xxh3, sizeof(digest.xxh3));
    return file_make_dirs(stand->to, 0755, err);
}

static enum status make_ticket(struct stand *stand, struct error *err)
{
    static const char *const entries[] = {"trainer-0"};
    char digest[65];
    struct ticket ticket = {.job = 1,
                            .attempt = 2,
                            .expires_us = ((int64_t)time(NULL) + 3000) * 1000000,
                            .audience = "n1",
                            .bearer = "n1",
                            .path = PATH,
                            .digest = digest,
                            .entries = entries,
                            .entries_count = 1};

    digest_sha256("", 0, digest);
    return ticket_sign(&ticket, key, &stand->ticket, err);
}

static enum status make_server(struct stand *stand, struct error *err)
{
    const char *vaults[] = {stand->from};
    struct peer_server_options options = {.address = "127.0.0.1",
                                          .node = "n1",
                                          .files = files_of(stand),
                                          .vaults = vaults,
                                          .vaults_count = 1};
    enum status st = peer_server_create(&options, &stand->server, err);

    if (st == STATUS_OK)
        peer_server_key(stand->server, key);
    return st;
}

/* --- the rival: serves the directory of the same file */
static bool find_port(const char *log, char out[16])
{
    char *text = NULL;
    size_t len = 0;

    if (file_read(log, 4096, &text, &len, NULL) != STATUS_OK)
        return false;
    const char *line = strstr(text, "ACCEPT"), *end = line ? strchr(line, '\n') : NULL;
    const char *colon = end ? memrchr(line, ':', (size_t)(end - line)) : NULL;
    if (colon)
        (void)snprintf(out, 16, "%.*s", (int)(end - colon - 1), colon + 1);
    mem_free(text);
    return colon != NULL;
}

static enum status make_rival(struct stand *stand, struct error *err)
{
    SCOPED_TEXT char *log = mem_printf("%s/rival.log", stand->dir);
    SCOPED_TEXT char *where = mem_printf("%s/" PATH "/trainer-0", stand->from);
    const char *argv[] = {"openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", stand->cert,
                          "-key",    stand->key, "-tls1_3", "-WWW",        NULL};
    enum status st = process_start(argv, where, log, &stand->rival, err);

    for (int i = 0; st == STATUS_OK && i < 500; i++) {
        if (find_port(log, stand->port))
            return STATUS_OK;
        (void)usleep(20000);
    }
    return st == STATUS_OK ? error_set(err, STATUS_DEADLINE, "openssl s_server does not listen")
                           : st;
}

static enum status run_rival(const struct stand *stand, double *seconds, struct error *err)
{
    SCOPED_TEXT char *command =
        mem_printf("printf 'GET /shard HTTP/1.0\\r\\n\\r\\n' | openssl s_client -quiet -tls1_3 "
                   "-connect 127.0.0.1:%s > /dev/null",
                   stand->port);
    const char *argv[] = {"sh", "-c", command, NULL};

    return checkpoint_stand_time(argv, stand->dir, seconds, err);
}

/* --- ours */
static enum status run_ours(struct stand *stand, double *seconds, struct error *err)
{
    SCOPED(peer_client_close) struct peer_client *client = NULL;
    SCOPED_TEXT char *arrived = mem_printf("%s/" PATH "/" FILE_1, stand->to);
    struct peer_client_options options = {.address = "127.0.0.1",
                                          .port = peer_server_port(stand->server),
                                          .node = "n1",
                                          .files = files_of(stand),
                                          .ticket = stand->ticket.data,
                                          .ticket_len = stand->ticket.len,
                                          .vault = stand->to,
                                          .path = PATH};

    (void)unlink(arrived);
    double begin = checkpoint_stand_now();
    enum status st = peer_client_open(&options, &client, err);
    if (st == STATUS_OK)
        st = peer_client_fetch(client, &stand->file, err);
    *seconds = checkpoint_stand_now() - begin;
    return st;
}

static enum status make(const struct bench *bench, struct stand *stand, struct error *err)
{
    const struct ca_request request = {.kind = "agent", .name = "n1"};
    enum status st = checkpoint_stand_begin(bench, &stand->dir, err);

    if (st != STATUS_OK)
        return st;
    stand->from = mem_printf("%s/from", stand->dir);
    stand->to = mem_printf("%s/to", stand->dir);
    stand->cert = mem_printf("%s/n1.pem", stand->dir);
    stand->key = mem_printf("%s/n1.key", stand->dir);
    stand->ca = mem_printf("%s/ca.pem", stand->dir);
    SCOPED_TEXT char *ca = mem_printf("%s/ca", stand->dir);
    st = ca_init(ca, "bench", err);
    if (st == STATUS_OK)
        st = ca_issue(ca, &request, stand->dir, "n1", err);
    if (st == STATUS_OK)
        st = make_file(stand, err);
    if (st == STATUS_OK)
        st = make_ticket(stand, err);
    if (st == STATUS_OK)
        st = make_server(stand, err);
    return st == STATUS_OK ? make_rival(stand, err) : st;
}

static void unmake(struct stand *stand)
{
    struct process_result result;

    peer_server_destroy(stand->server);
    if (stand->rival > 0) {
        (void)kill(stand->rival, SIGTERM);
        if (process_wait(stand->rival, LIMIT_MS, &result, NULL) != STATUS_OK)
            (void)fprintf(stderr, "rondo-bench: openssl s_server does not end\n");
    }
    checkpoint_stand_end(stand->dir);
    text_fini(&stand->ticket);
    mem_free(stand->from);
    mem_free(stand->to);
    mem_free(stand->cert);
    mem_free(stand->key);
    mem_free(stand->ca);
}

enum status bench_checkpoint_peer(struct bench *bench, struct error *err)
{
    struct stand stand = {0};
    struct sample ratio = {0}, rate = {0}, rival_rate = {0};

    (void)signal(SIGPIPE, SIG_IGN);
    text_init(&stand.ticket, 0);
    enum status st = make(bench, &stand, err);
    for (uint32_t i = 0; i < bench_runs(bench, RUNS) && st == STATUS_OK; i++) {
        double ours = 0, rival = 0;
        st = run_rival(&stand, &rival, err);
        if (st == STATUS_OK)
            st = run_ours(&stand, &ours, err);
        if (st != STATUS_OK)
            break;
        sample_add(&ratio, rival / ours);
        sample_add(&rate, (double)BYTES / ours / 1e9);
        sample_add(&rival_rate, (double)BYTES / rival / 1e9);
    }
    if (st == STATUS_OK) {
        figure_report("checkpoint.peer.ratio_to_openssl", sample_quantile(&ratio, 0.5));
        figure_note("checkpoint.peer.gb_per_s", sample_quantile(&rate, 0.5), "GB/s");
        figure_note("checkpoint.peer.openssl_gb_per_s", sample_quantile(&rival_rate, 0.5), "GB/s");
    }
    sample_fini(&ratio);
    sample_fini(&rate);
    sample_fini(&rival_rate);
    unmake(&stand);
    return st;
}
