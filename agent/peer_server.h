/* peer_server.h - gives other agents byte ranges of this node's checkpoints, by ticket.
 *
 * create, key and destroy: one thread, which may be the loop's (destroy waits for the threads,
 * which see it at once). Everything else runs on threads of its own: one that accepts, one a
 * connection, PEER_SERVER_LINKS at most, a piece of memory each; more are closed at once, slow ones
 * dropped. Reads nothing but what is below the ticket's checkpoint and covered by it, and follows
 * no link. */
#pragma once
#include "agent/peer_link.h"

#define PEER_SERVER_LINKS     16
#define PEER_SERVER_VAULTS    16
#define PEER_SERVER_KEY_BYTES 32

struct peer_server;
struct peer_server_options {
    const char *address; /* numeric */
    uint16_t port;       /* 0: any */
    const char *node;    /* our name: the audience of tickets */
    struct peer_link_files files;
    const char *const *vaults; /* of this node; the first that has the checkpoint */
    size_t vaults_count;
    uint32_t limit_ms; /* a greeting, a request once begun, a piece: each within; 0: 20 s */
    uint32_t idle_ms;  /* between two requests; 0: 60 s */
};

enum status peer_server_create(const struct peer_server_options *options, struct peer_server **out,
                               struct error *err) MUST_CHECK;
void peer_server_destroy(struct peer_server *server); /* NULL is fine */
uint16_t peer_server_port(const struct peer_server *server);
/* PEER_SERVER_KEY_BYTES that tickets for us are signed with. Before the first one all are refused.
 */
void peer_server_key(struct peer_server *server, const unsigned char *key);
