/* peer.h - who is behind a call: certificate to identity, remembered per certificate.
 *
 * Loop thread. A struct rpc_peer is immutable and counted; a call holds one. Revocation and expiry
 * are checked at each call, for connections outlive both. */
#pragma once
#include "rpc/crl.h"
#include "rpc/identity.h"
#include <grpc/grpc.h>
#include <stdint.h>

struct rpc_peers;
struct rpc_peer {
    struct identity identity;
    char *serial; /* upper-case hexadecimal; NULL: local */
    int64_t expires_s;
    unsigned holds;
};

/* crl is borrowed, NULL: none. local: callers over an unencrypted (unix) socket are admin
 * user/local, else they are refused. */
struct rpc_peers *rpc_peers_create(const struct rpc_crl *crl, bool local);
void rpc_peers_destroy(struct rpc_peers *peers); /* NULL is fine */
/* Gives a hold, to be dropped with rpc_peer_drop. STATUS_UNAUTHENTICATED: nobody we know. */
enum status rpc_peers_of_call(struct rpc_peers *peers, grpc_call *call, struct rpc_peer **out,
                              struct error *err) MUST_CHECK;
/* STATUS_UNAUTHENTICATED when revoked or expired by now. */
enum status rpc_peers_check(const struct rpc_peers *peers, const struct rpc_peer *peer,
                            struct error *err) MUST_CHECK;
void rpc_peer_drop(struct rpc_peer *peer); /* NULL is fine */
