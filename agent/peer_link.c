#include "agent/peer_link.h"
#include "rpc/identity.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SLICE_MS 100 /* how soon a stop is seen */

struct peer_link {
    SSL *ssl;
    int fd;
    const atomic_bool *stop;
    struct identity who;
};

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int no_password(char *out, int size, int writing, void *arg)
{
    (void)out;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

static bool context_fill(SSL_CTX *context, const struct peer_link_files *files)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context);

    SSL_CTX_set_default_passwd_cb(context, no_password);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(context, 0);
    (void)SSL_CTX_set_mode(context,
                           SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_use_certificate_chain_file(context, files->cert) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, files->key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1 ||
        SSL_CTX_load_verify_locations(context, files->ca, NULL) != 1)
        return false;
    if (!files->crl_dir)
        return true;
    return SSL_CTX_load_verify_locations(context, NULL, files->crl_dir) == 1 &&
           X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK) == 1;
}

enum status peer_link_context(const struct peer_link_files *files, SSL_CTX **out, struct error *err)
{
    SSL_CTX *context = SSL_CTX_new(TLS_method());

    if (!context || !context_fill(context, files)) {
        SSL_CTX_free(context);
        ERR_clear_error();
        return error_set(err, STATUS_INVALID, "no certificate, key and CA that fit in %s",
                         files->cert);
    }
    *out = context;
    return STATUS_OK;
}

/* The one URI in the certificate, if it is an agent's. */
static enum status identify(struct peer_link *link, struct error *err)
{
    X509 *cert = SSL_get1_peer_certificate(link->ssl);
    GENERAL_NAMES *names = cert ? X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL) : NULL;
    char uri[1024] = "";
    int uris = 0;
    enum status st;

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI)
            continue;
        int len = ASN1_STRING_length(name->d.uniformResourceIdentifier);
        if (uris++ == 0 && len > 0 && (size_t)len < sizeof(uri)) {
            memcpy(uri, ASN1_STRING_get0_data(name->d.uniformResourceIdentifier), (size_t)len);
            uri[len] = '\0';
        }
    }
    GENERAL_NAMES_free(names);
    X509_free(cert);
    st = identity_parse(uris == 1 ? uri : NULL, NULL, &link->who, err);
    if (st == STATUS_OK && !(link->who.roles & IDENTITY_AGENT))
        st = error_set(err, STATUS_UNAUTHENTICATED, "%s %.80s is no agent", link->who.kind,
                       link->who.name);
    return st;
}

static enum status wait_for(struct peer_link *link, short events, int64_t until, struct error *err)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = link->fd, .events = events};
        int64_t left = until - now_ms();
        if (link->stop && atomic_load(link->stop))
            return error_set(err, STATUS_CANCELLED, "stopped");
        if (left <= 0)
            return error_set(err, STATUS_DEADLINE, "the other node is too slow");
        int n = poll(&poll_fd, 1, left < SLICE_MS ? (int)left : SLICE_MS);
        if (n > 0)
            return STATUS_OK;
        if (n < 0 && errno != EINTR)
            return error_set(err, STATUS_UNAVAILABLE, "poll: %s", strerror(errno));
    }
}

/* After a call of OpenSSL that did nothing: waits for what it waits for, or says why not. */
static enum status again(struct peer_link *link, int result, int64_t until, struct error *err)
{
    int why = SSL_get_error(link->ssl, result);

    if (why == SSL_ERROR_WANT_READ)
        return wait_for(link, POLLIN, until, err);
    if (why == SSL_ERROR_WANT_WRITE)
        return wait_for(link, POLLOUT, until, err);
    long verified = SSL_get_verify_result(link->ssl);
    ERR_clear_error();
    if (verified != X509_V_OK)
        return error_set(err, STATUS_UNAUTHENTICATED, "certificate: %s",
                         X509_verify_cert_error_string(verified));
    return error_set(err, STATUS_UNAVAILABLE, "the other node has ended the connection");
}

static enum status shake(struct peer_link *link, bool server, int64_t until, struct error *err)
{
    enum status st = STATUS_OK;

    while (st == STATUS_OK) {
        ERR_clear_error();
        int done = server ? SSL_accept(link->ssl) : SSL_connect(link->ssl);
        if (done == 1)
            return identify(link, err);
        st = again(link, done, until, err);
    }
    return st;
}

static struct peer_link *link_create(SSL_CTX *context, int fd, const atomic_bool *stop)
{
    struct peer_link *link = NEW(struct peer_link);
    int on = 1;

    link->fd = fd;
    link->stop = stop;
    link->ssl = SSL_new(context);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (link->ssl && SSL_set_fd(link->ssl, fd) == 1)
        return link;
    peer_link_close(link);
    return NULL;
}

enum status peer_link_accept(SSL_CTX *context, int fd, uint32_t limit_ms, const atomic_bool *stop,
                             struct peer_link **out, struct error *err)
{
    SCOPED(peer_link_close) struct peer_link *link = link_create(context, fd, stop);
    enum status st = link ? shake(link, true, now_ms() + limit_ms, err)
                          : error_set(err, STATUS_INTERNAL, "make a TLS connection");

    if (st == STATUS_OK)
        *out = TAKE(link);
    return st;
}

static enum status finish_connect(struct peer_link *link, int64_t until, struct error *err)
{
    int failure = 0;
    socklen_t len = sizeof(failure);
    enum status st = wait_for(link, POLLOUT, until, err);

    if (st == STATUS_OK &&
        (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &failure, &len) != 0 || failure != 0))
        st = error_set(err, STATUS_UNAVAILABLE, "%s", strerror(failure ? failure : errno));
    return st;
}

enum status peer_link_connect(SSL_CTX *context, const char *address, uint16_t port,
                              uint32_t limit_ms, const atomic_bool *stop, struct peer_link **out,
                              struct error *err)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool six = inet_pton(AF_INET, address, &to.sin_addr) != 1;
    int64_t until = now_ms() + limit_ms;
    enum status st = STATUS_OK;

    if (six && inet_pton(AF_INET6, address, &to6.sin6_addr) != 1)
        return error_set(err, STATUS_INVALID, "'%.60s' is no address", address);
    int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(err, STATUS_UNAVAILABLE, "socket: %s", strerror(errno));
    SCOPED(peer_link_close) struct peer_link *link = link_create(context, fd, stop);
    if (!link)
        return error_set(err, STATUS_INTERNAL, "make a TLS connection");
    if (connect(fd, six ? (const struct sockaddr *)&to6 : (const struct sockaddr *)&to,
                six ? sizeof(to6) : sizeof(to)) != 0 &&
        errno != EINPROGRESS)
        st = error_set(err, STATUS_UNAVAILABLE, "%s", strerror(errno));
    if (st == STATUS_OK)
        st = finish_connect(link, until, err);
    if (st == STATUS_OK)
        st = shake(link, false, until, err);
    if (st != STATUS_OK)
        (void)error_wrap(err, "connect to %s port %u", address, (unsigned)port);
    else
        *out = TAKE(link);
    return st;
}

void peer_link_close(struct peer_link *link)
{
    if (!link)
        return;
    SSL_free(link->ssl);
    (void)close(link->fd);
    mem_free(link);
}

const char *peer_link_name(const struct peer_link *link)
{
    return link->who.name;
}

enum status peer_link_read(struct peer_link *link, void *out, size_t len, uint32_t limit_ms,
                           struct error *err)
{
    int64_t until = now_ms() + limit_ms;
    enum status st = STATUS_OK;

    for (size_t have = 0; st == STATUS_OK && have < len;) {
        size_t left = len - have;
        ERR_clear_error();
        int got = SSL_read(link->ssl, (char *)out + have, left < INT_MAX ? (int)left : INT_MAX);
        if (got > 0)
            have += (size_t)got;
        else
            st = again(link, got, until, err);
        if (st == STATUS_OK && have < len && now_ms() > until)
            st = error_set(err, STATUS_DEADLINE, "the other node is too slow");
    }
    return st;
}

enum status peer_link_write(struct peer_link *link, const void *bytes, size_t len,
                            uint32_t limit_ms, struct error *err)
{
    int64_t until = now_ms() + limit_ms;
    enum status st = STATUS_OK;

    for (size_t gone = 0; st == STATUS_OK && gone < len;) {
        size_t left = len - gone;
        ERR_clear_error();
        int put =
            SSL_write(link->ssl, (const char *)bytes + gone, left < INT_MAX ? (int)left : INT_MAX);
        if (put > 0)
            gone += (size_t)put;
        else
            st = again(link, put, until, err);
    }
    return st;
}

enum status peer_link_resolve(const char *name, char out[PEER_LINK_ADDRESS], struct error *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int problem = getaddrinfo(name, NULL, &hints, &found);
    bool done = problem == 0 && getnameinfo(found->ai_addr, found->ai_addrlen, out,
                                            PEER_LINK_ADDRESS, NULL, 0, NI_NUMERICHOST) == 0;

    if (problem == 0)
        freeaddrinfo(found);
    if (done)
        return STATUS_OK;
    return error_set(err, STATUS_UNAVAILABLE, "resolve %.100s: %s", name, gai_strerror(problem));
}
