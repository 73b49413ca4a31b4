#include "agent/peer_server.h"
#include "base/log.h"
#include "checkpoint/vault_store.h"
#include "rpc/ticket.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SLICE_MS   100
#define ANSWER_LEN 13 /* status, bytes of the file, length */

_Static_assert(PEER_SERVER_KEY_BYTES == TICKET_KEY_BYTES, "one kind of key");

struct slot { /* of a connection */
    struct peer_server *server;
    pthread_t thread;
    int fd;
    bool started;     /* accepting thread's */
    atomic_bool over; /* may be joined */
};

struct peer_server {
    char *node, *cert, *key, *ca, *crl_dir;
    char *vaults[PEER_SERVER_VAULTS];
    size_t vaults_count;
    uint32_t limit_ms, idle_ms;
    int fd;
    uint16_t port;
    pthread_t thread;
    atomic_bool stop;
    pthread_mutex_t lock; /* of ticket_key, keyed */
    unsigned char ticket_key[TICKET_KEY_BYTES];
    bool keyed;
    struct slot slots[PEER_SERVER_LINKS];
};

static int64_t wall_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* --- a connection */
struct guest {
    struct peer_server *server;
    struct peer_link *link;
    struct ticket *ticket;
    struct vault_store *store;
    unsigned char *piece; /* ANSWER_LEN + PEER_LINK_PIECE */
};

static enum status refuse(struct guest *guest, const struct error *why, struct error *err)
{
    unsigned char frame[3 + PEER_LINK_TEXT_MAX];
    size_t len = strnlen(why->text, PEER_LINK_TEXT_MAX);

    peer_link_put(frame, (uint64_t)why->code, 1);
    peer_link_put(frame + 1, len, 2);
    memcpy(frame + 3, why->text, len);
    return peer_link_write(guest->link, frame, 3 + len, guest->server->limit_ms, err);
}

static enum status open_ticket(struct guest *guest, const void *bytes, size_t len,
                               struct error *err)
{
    struct peer_server *server = guest->server;
    unsigned char key[TICKET_KEY_BYTES];
    struct ticket_gate gate = {key, server->node, peer_link_name(guest->link), wall_us()};

    (void)pthread_mutex_lock(&server->lock);
    bool keyed = server->keyed;
    memcpy(key, server->ticket_key, sizeof(key));
    (void)pthread_mutex_unlock(&server->lock);
    if (!keyed)
        return error_set(err, STATUS_UNAVAILABLE, "this node has no key for tickets yet");
    return ticket_open(bytes, len, &gate, &guest->ticket, err);
}

/* The vault of ours that has the sealed checkpoint or at least one of the ticket's entries. */
static enum status find_vault(struct guest *guest, struct error *err)
{
    const struct ticket *ticket = guest->ticket;
    uint64_t size;

    for (size_t i = 0; i < guest->server->vaults_count; i++) {
        SCOPED(vault_store_close) struct vault_store *store = NULL;
        if (vault_store_open_dir(guest->server->vaults[i], VAULT_STORE_NODE, &store, NULL) !=
            STATUS_OK)
            continue;
        for (size_t j = 0; j < ticket->entries_count; j++) {
            SCOPED_TEXT char *name = mem_printf("%s/%s", ticket->path, ticket->entries[j]);
            enum status st = vault_store_size(store, name, &size, NULL);
            if (st != STATUS_OK && st != STATUS_INVALID) /* INVALID: a directory */
                continue;
            guest->store = TAKE(store);
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_NOT_FOUND, "%s is in no vault of node %s", ticket->path,
                     guest->server->node);
}

static enum status greet(struct guest *guest, struct error *err)
{
    SCOPED_TEXT char *bytes = NULL;
    unsigned char head[4];
    struct error why = {0};
    size_t len;
    enum status st = peer_link_read(guest->link, head, 4, guest->server->limit_ms, err);

    if (st != STATUS_OK)
        return st;
    len = (size_t)peer_link_get(head, 4);
    if (len == 0 || len > TICKET_BYTES_MAX)
        return error_set(err, STATUS_INVALID, "a ticket of %zu bytes", len);
    bytes = mem_array(len, 1);
    st = peer_link_read(guest->link, bytes, len, guest->server->limit_ms, err);
    if (st != STATUS_OK)
        return st;
    st = open_ticket(guest, bytes, len, &why);
    if (st == STATUS_OK)
        st = find_vault(guest, &why);
    if (st == STATUS_OK)
        return refuse(guest, &(struct error){0}, err); /* status 0, no text */
    (void)refuse(guest, &why, NULL);
    return error_set(err, st, "%s", why.text);
}

static enum status read_piece(struct guest *guest, const char *file, uint64_t at, uint32_t len,
                              size_t *frame_len, struct error *err)
{
    SCOPED_TEXT char *name = mem_printf("%s/%s", guest->ticket->path, file);
    uint64_t size = 0;
    enum status st;

    if (!ticket_covers(guest->ticket, file))
        return error_set(err, STATUS_DENIED, "the ticket is not for %.120s", file);
    if (wall_us() >= guest->ticket->expires_us)
        return error_set(err, STATUS_DEADLINE, "the ticket has expired");
    st = vault_store_size(guest->store, name, &size, err);
    if (st == STATUS_OK && at > size)
        st = error_set(err, STATUS_OUT_OF_RANGE, "%.120s is shorter", file);
    if (st != STATUS_OK)
        return st;
    if (len > size - at)
        len = (uint32_t)(size - at);
    peer_link_put(guest->piece, 0, 1);
    peer_link_put(guest->piece + 1, size, 8);
    peer_link_put(guest->piece + 9, len, 4);
    *frame_len = ANSWER_LEN + len;
    return vault_store_read(guest->store, name, at, guest->piece + ANSWER_LEN, len, err);
}

static enum status serve_one(struct guest *guest, struct error *err)
{
    unsigned char head[PEER_LINK_REQUEST];
    char name[PEER_LINK_NAME_MAX + 1];
    struct error why = {0};
    size_t frame_len = 0;
    uint32_t limit_ms = guest->server->limit_ms;
    enum status st = peer_link_read(guest->link, head, 1, guest->server->idle_ms, err);

    if (st == STATUS_OK)
        st = peer_link_read(guest->link, head + 1, sizeof(head) - 1, limit_ms, err);
    if (st != STATUS_OK)
        return st;
    uint64_t at = peer_link_get(head, 8);
    uint32_t len = (uint32_t)peer_link_get(head + 8, 4);
    size_t name_len = (size_t)peer_link_get(head + 12, 2);
    if (len > PEER_LINK_PIECE || name_len == 0 || name_len > PEER_LINK_NAME_MAX)
        return error_set(err, STATUS_INVALID, "malformed request");
    st = peer_link_read(guest->link, name, name_len, limit_ms, err);
    if (st != STATUS_OK)
        return st;
    name[name_len] = '\0';
    if (strlen(name) != name_len)
        return error_set(err, STATUS_INVALID, "malformed request");
    if (read_piece(guest, name, at, len, &frame_len, &why) != STATUS_OK)
        return refuse(guest, &why, err);
    return peer_link_write(guest->link, guest->piece, frame_len, limit_ms, err);
}

static enum status guest_serve(struct guest *guest, struct error *err)
{
    enum status st = greet(guest, err);

    if (st != STATUS_OK)
        return st;
    guest->piece = mem_alloc(ANSWER_LEN + PEER_LINK_PIECE);
    while (st == STATUS_OK)
        st = serve_one(guest, err);
    return st;
}

static void *slot_thread(void *arg)
{
    struct slot *slot = arg;
    struct peer_server *server = slot->server;
    struct guest guest = {.server = server};
    struct peer_link_files files = {server->cert, server->key, server->ca, server->crl_dir};
    struct error err = {0};
    SSL_CTX *context = NULL;
    enum status st = peer_link_context(&files, &context, &err); /* anew: files may have changed */

    if (st != STATUS_OK)
        (void)close(slot->fd);
    else
        st =
            peer_link_accept(context, slot->fd, server->limit_ms, &server->stop, &guest.link, &err);
    if (st == STATUS_OK)
        st = guest_serve(&guest, &err);
    if (st != STATUS_UNAVAILABLE && st != STATUS_CANCELLED)
        log_warn("peer.dropped", log_str("node", guest.link ? peer_link_name(guest.link) : "?"),
                 log_str("st", status_name(st)), log_str("err", err.text));
    mem_free(guest.piece);
    ticket_close(guest.ticket);
    vault_store_close(guest.store);
    peer_link_close(guest.link);
    SSL_CTX_free(context);
    atomic_store(&slot->over, true);
    return NULL;
}

/* --- the thread that accepts */
static void slot_join(struct slot *slot)
{
    if (slot->started)
        (void)pthread_join(slot->thread, NULL);
    slot->started = false;
}

static struct slot *slot_free(struct peer_server *server)
{
    for (size_t i = 0; i < PEER_SERVER_LINKS; i++) {
        struct slot *slot = &server->slots[i];
        if (slot->started && atomic_load(&slot->over))
            slot_join(slot);
        if (!slot->started)
            return slot;
    }
    return NULL;
}

static void take_guest(struct peer_server *server, int fd)
{
    struct slot *slot = slot_free(server);

    if (!slot) {
        (void)close(fd);
        return;
    }
    slot->server = server;
    slot->fd = fd;
    atomic_store(&slot->over, false);
    if (pthread_create(&slot->thread, NULL, slot_thread, slot) == 0)
        slot->started = true;
    else
        (void)close(fd);
}

static void *accept_thread(void *arg)
{
    struct peer_server *server = arg;

    while (!atomic_load(&server->stop)) {
        struct pollfd poll_fd = {.fd = server->fd, .events = POLLIN};
        if (poll(&poll_fd, 1, SLICE_MS) <= 0)
            continue;
        int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            take_guest(server, fd);
        else if (errno == EMFILE || errno == ENFILE)
            (void)poll(NULL, 0, SLICE_MS); /* it stays in the queue: no busy loop */
    }
    for (size_t i = 0; i < PEER_SERVER_LINKS; i++)
        slot_join(&server->slots[i]);
    return NULL;
}

/* --- its life */
static enum status listen_at(struct peer_server *server, const char *address, uint16_t port,
                             struct error *err)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    bool is_six = inet_pton(AF_INET, address, &four.sin_addr) != 1;
    struct sockaddr *at = is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    socklen_t len = is_six ? sizeof(six) : sizeof(four);
    int on = 1;

    if (is_six && inet_pton(AF_INET6, address, &six.sin6_addr) != 1)
        return error_set(err, STATUS_INVALID, "'%.60s' is no address", address);
    server->fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server->fd < 0 || setsockopt(server->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(server->fd, at, len) != 0 || listen(server->fd, 64) != 0 ||
        getsockname(server->fd, at, &len) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "listen at %s port %u: %s", address,
                         (unsigned)port, strerror(errno));
    server->port = ntohs(is_six ? six.sin6_port : four.sin_port);
    return STATUS_OK;
}

static void server_free(struct peer_server *server)
{
    if (server->fd >= 0)
        (void)close(server->fd);
    for (size_t i = 0; i < server->vaults_count; i++)
        mem_free(server->vaults[i]);
    mem_free(server->node);
    mem_free(server->cert);
    mem_free(server->key);
    mem_free(server->ca);
    mem_free(server->crl_dir);
    OPENSSL_cleanse(server->ticket_key, sizeof(server->ticket_key));
    (void)pthread_mutex_destroy(&server->lock);
    mem_free(server);
}

static struct peer_server *server_new(const struct peer_server_options *options)
{
    struct peer_server *server = NEW(struct peer_server);

    server->fd = -1;
    (void)pthread_mutex_init(&server->lock, NULL);
    server->node = mem_strdup(options->node);
    server->cert = mem_strdup(options->files.cert);
    server->key = mem_strdup(options->files.key);
    server->ca = mem_strdup(options->files.ca);
    server->crl_dir = mem_strdup(options->files.crl_dir);
    for (size_t i = 0; i < options->vaults_count; i++)
        server->vaults[server->vaults_count++] = mem_strdup(options->vaults[i]);
    server->limit_ms = options->limit_ms ? options->limit_ms : 20000;
    server->idle_ms = options->idle_ms ? options->idle_ms : 60000;
    return server;
}

/* Threads of ours take no signals: the loop does. */
static int start_thread(struct peer_server *server)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&server->thread, NULL, accept_thread, server);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

enum status peer_server_create(const struct peer_server_options *options, struct peer_server **out,
                               struct error *err)
{
    SSL_CTX *context = NULL;
    enum status st =
        options->vaults_count <= PEER_SERVER_VAULTS
            ? peer_link_context(&options->files, &context, err)
            : error_set(err, STATUS_INVALID, "more than %d vaults", PEER_SERVER_VAULTS);

    SSL_CTX_free(context); /* only to say now what is wrong with the files */
    if (st != STATUS_OK)
        return st;
    struct peer_server *server = server_new(options);
    st = listen_at(server, options->address, options->port, err);
    if (st == STATUS_OK && start_thread(server) != 0)
        st = error_set(err, STATUS_EXHAUSTED, "start a thread");
    if (st != STATUS_OK)
        server_free(server);
    else
        *out = server;
    return st;
}

void peer_server_destroy(struct peer_server *server)
{
    if (!server)
        return;
    atomic_store(&server->stop, true);
    (void)pthread_join(server->thread, NULL);
    server_free(server);
}

uint16_t peer_server_port(const struct peer_server *server)
{
    return server->port;
}

void peer_server_key(struct peer_server *server, const unsigned char *key)
{
    (void)pthread_mutex_lock(&server->lock);
    memcpy(server->ticket_key, key, TICKET_KEY_BYTES);
    server->keyed = true;
    (void)pthread_mutex_unlock(&server->lock);
}
