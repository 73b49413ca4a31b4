/* test_tls.c - mutual TLS: which certificates make a connection, rotation, other protocols. */
#include "rig.h"
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

static int setup(void **state)
{
    struct rig *rig = rig_create();

    rig_make_ca(rig);
    rig_serve(rig, "127.0.0.1:0");
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

/* One Submit by a fresh client of that name. */
static struct rig_answer submit_as(struct rig *rig, const char *who)
{
    struct rig_answer answer = {0};
    struct rpc_client *client = rig_client(rig, who);

    rig_submit_id(rig, client, "tls", &answer);
    RIG_UNTIL(rig, answer.times);
    rpc_client_destroy(client);
    return answer;
}

/* Expired: valid for no day more than the five minutes it is backdated would need a clock; instead
 * the certificate is made by hand. */
static void expire(const char *cert_path, const char *ca_key_path)
{
    FILE *in = fopen(cert_path, "r"), *key_in = fopen(ca_key_path, "r");
    X509 *cert = PEM_read_X509(in, NULL, NULL, NULL);
    EVP_PKEY *key = PEM_read_PrivateKey(key_in, NULL, NULL, NULL);

    fclose(in);
    fclose(key_in);
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(cert), -60));
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    FILE *out = fopen(cert_path, "w");
    assert_int_equal(PEM_write_X509(out, cert), 1);
    fclose(out);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static int connect_to(struct rig *rig)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(rpc_server_port(rig->server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void handshake(struct rig *rig, int version, const char *who, int *result, char *got)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    char path[160];
    int fd = connect_to(rig);

    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    if (who) {
        SSL_CTX_use_certificate_file(context, rig_path(rig, who, ".pem", path), SSL_FILETYPE_PEM);
        SSL_CTX_use_PrivateKey_file(context, rig_path(rig, who, ".key", path), SSL_FILETYPE_PEM);
    }
    SSL *ssl = SSL_new(context);
    SSL_set_alpn_protos(ssl, (const unsigned char *)"\2h2", 3);
    SSL_set_fd(ssl, fd);
    *result = SSL_connect(ssl);
    if (*result == 1) /* with TLS 1.3 the refusal comes with the first read */
        *result = SSL_read(ssl, got, 1);
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
}

static void bidi_runs_over_tls(void **state)
{
    struct rig *rig = *state;
    struct rig_stream stream = {0};

    rig->client = rig_client(rig, "node-7");
    rig_stream_open(rig->client, &pb__agents__descriptor, "Control", &stream);
    for (uint64_t seq = 1; seq <= 300; seq++)
        rig_control_send(&stream, seq);
    RIG_UNTIL(rig, stream.ack == 300);
    rpc_stream_end_sending(stream.stream);
    RIG_UNTIL(rig, stream.closed);
    assert_int_equal(stream.st, STATUS_OK);
}

static void certificate_of_another_ca_is_refused(void **state)
{
    struct rig *rig = *state;
    char other[128];

    snprintf(other, sizeof other, "%s/other", rig->dir);
    assert_int_equal(ca_init(other, "other", NULL), STATUS_OK);
    rig_issue_from(rig, other, "user", "eve", "role=admin,project=*", 30);
    /* That also replaced ca.pem; the right one comes back, or eve would refuse the server. */
    rig_issue(rig, "user", "vera", "role=viewer");
    assert_int_equal(submit_as(rig, "eve").st, STATUS_UNAVAILABLE);
    assert_int_equal(rig->submits, 0);
    assert_int_equal(submit_as(rig, "ada").st, STATUS_OK);
}

static void server_of_another_ca_is_refused(void **state)
{
    struct rig *rig = *state;
    char other[128];

    snprintf(other, sizeof other, "%s/other", rig->dir);
    assert_int_equal(ca_init(other, "other", NULL), STATUS_OK);
    rpc_server_destroy(rig->server, 0);
    rig_serve(rig, "127.0.0.1:0");
    rig_issue_from(rig, other, "user", "eve", "role=admin", 30);
    assert_int_equal(submit_as(rig, "eve").st, STATUS_UNAVAILABLE);
    assert_int_equal(rig->submits, 0);
}

static void wrong_server_name_is_refused(void **state)
{
    struct rig *rig = *state;
    char cert[160], key[160], ca[160];
    struct rpc_client_options options = {
        .target = rig->tls_target,
        .cert = rig_path(rig, "ada", ".pem", cert),
        .key = rig_path(rig, "ada", ".key", key),
        .ca = rig_path(rig, "ca", ".pem", ca),
        .server_name = "elsewhere.example",
    };
    struct rig_answer answer = {0};

    assert_int_equal(rpc_client_create(rig->loop, &options, &rig->client, NULL), STATUS_OK);
    rig_submit_id(rig, rig->client, "x", &answer);
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_UNAVAILABLE);
    rpc_client_destroy(rig->client);
    options.server_name = "localhost";
    assert_int_equal(rpc_client_create(rig->loop, &options, &rig->client, NULL), STATUS_OK);
    answer = (struct rig_answer){0};
    rig_submit_id(rig, rig->client, "x", &answer);
    RIG_UNTIL(rig, answer.times);
    assert_int_equal(answer.st, STATUS_OK);
}

/* An agent's certificate names hosts, too: it must not do for a daemon's. */
static void agent_cannot_pose_as_the_daemon(void **state)
{
    struct rig *rig = *state;
    char cert[160], key[160], ca[160];
    struct rpc_service service = {&pb__agents__descriptor, rig_agents_methods, rig};
    struct rpc_server_options options = {
        .listen = "127.0.0.1:0",
        .cert = rig_path(rig, "node-7", ".pem", cert),
        .key = rig_path(rig, "node-7", ".key", key),
        .ca = rig_path(rig, "ca", ".pem", ca),
    };

    rpc_server_destroy(rig->server, 0);
    assert_int_equal(rpc_server_create(rig->loop, &options, &service, 1, &rig->server, NULL),
                     STATUS_OK);
    snprintf(rig->tls_target, sizeof rig->tls_target, "127.0.0.1:%u", rpc_server_port(rig->server));
    assert_int_equal(submit_as(rig, "ada").st, STATUS_UNAVAILABLE);
}

static void expired_certificate_is_refused(void **state)
{
    struct rig *rig = *state;
    char cert[160], key[160];

    snprintf(key, sizeof key, "%s/ca.key", rig->ca_dir);
    expire(rig_path(rig, "ada", ".pem", cert), key);
    assert_int_equal(submit_as(rig, "ada").st, STATUS_UNAVAILABLE);
    assert_int_equal(rig->submits, 0);
}

/* A whole new CA in the same files: old clients are out, new ones in, without restart. */
static void replaced_certificates_are_taken_without_restart(void **state)
{
    struct rig *rig = *state;
    char other[128];

    assert_int_equal(submit_as(rig, "ada").st, STATUS_OK);
    snprintf(other, sizeof other, "%s/other", rig->dir);
    assert_int_equal(ca_init(other, "other", NULL), STATUS_OK);
    /* The server checks lists in the folder it was given: the new CA's must be there. */
    assert_int_equal(file_remove_tree(rig->crl_dir, NULL), STATUS_OK);
    snprintf(other, sizeof other, "%s/other/crl", rig->dir);
    assert_int_equal(rename(other, rig->crl_dir), 0);
    snprintf(other, sizeof other, "%s/other", rig->dir);
    rig_issue_from(rig, other, "daemon", "main", NULL, 30);
    rig_issue_from(rig, other, "user", "new", "role=admin", 30);
    struct rig_answer answer;
    do
        answer = submit_as(rig, "new");
    while (answer.st == STATUS_UNAVAILABLE);
    assert_int_equal(answer.st, STATUS_OK);
    assert_string_equal(rig->identity, "user/new");
    assert_int_equal(submit_as(rig, "ada").st, STATUS_UNAVAILABLE);
}

static void plaintext_gets_nothing(void **state)
{
    struct rig *rig = *state;
    static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    char answer[512];
    int fd = connect_to(rig);
    struct timeval limit = {60, 0};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(write(fd, hello, sizeof hello - 1), sizeof hello - 1);
    ssize_t got;
    while ((got = read(fd, answer, sizeof answer)) > 0)
        assert_null(memmem(answer, (size_t)got, "grpc", 4)); /* a TLS alert, perhaps */
    assert_true(got == 0 || errno == ECONNRESET);
    close(fd);
    assert_int_equal(submit_as(rig, "ada").st, STATUS_OK);
}

static void older_tls_and_missing_certificate_are_refused(void **state)
{
    struct rig *rig = *state;
    int result;
    char got;

    handshake(rig, TLS1_3_VERSION, "ada", &result, &got);
    assert_int_equal(result, 1);
    handshake(rig, TLS1_2_VERSION, "ada", &result, &got);
    assert_true(result <= 0);
    handshake(rig, TLS1_3_VERSION, NULL, &result, &got);
    assert_true(result <= 0);
}

static void bad_files_are_named_at_the_start(void **state)
{
    struct rig *rig = *state;
    char cert[160], key[160], ca[160];
    struct rpc_client_options options = {.target = rig->tls_target,
                                         .cert = rig_path(rig, "ada", ".pem", cert),
                                         .key = rig_path(rig, "vera", ".key", key),
                                         .ca = rig_path(rig, "ca", ".pem", ca)};
    struct rpc_client *client = NULL;
    struct error err = {0};

    assert_int_equal(rpc_client_create(rig->loop, &options, &client, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "is not the key of"));
    options.key = "/nowhere";
    assert_int_equal(rpc_client_create(rig->loop, &options, &client, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "/nowhere"));
    options.key = NULL;
    assert_int_equal(rpc_client_create(rig->loop, &options, &client, &err), STATUS_INVALID);
    assert_null(client);
}

static void second_server_cannot_share_the_port(void **state)
{
    struct rig *rig = *state;
    struct rpc_server *first = rig->server;
    struct error err = {0};

    assert_int_equal(rig_serve_on(rig, rig->tls_target, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, rig->tls_target));
    assert_ptr_equal(rig->server, first);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(bidi_runs_over_tls),
        CASE(certificate_of_another_ca_is_refused),
        CASE(server_of_another_ca_is_refused),
        CASE(wrong_server_name_is_refused),
        CASE(agent_cannot_pose_as_the_daemon),
        CASE(expired_certificate_is_refused),
        CASE(replaced_certificates_are_taken_without_restart),
        CASE(plaintext_gets_nothing),
        CASE(older_tls_and_missing_certificate_are_refused),
        CASE(bad_files_are_named_at_the_start),
        CASE(second_server_cannot_share_the_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
