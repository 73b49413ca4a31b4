/* crl.h - the serial numbers that were revoked, read from a directory of CRL files and kept fresh.
 *
 * Loop thread; reads files. gRPC looks at CRLs only at a handshake and keeps what it read: this is
 * what cuts off a peer that is already connected. */
#pragma once
#include <stdbool.h>

struct rpc_crl;

/* Reads <dir>/<hash>.r<n> now; only lists signed by the CA count. */
struct rpc_crl *rpc_crl_create(const char *dir, const char *ca_path);
void rpc_crl_destroy(struct rpc_crl *crl); /* NULL is fine */
/* Reads again if a file has changed; true when the set may differ. An unreadable file keeps the
 * set. */
bool rpc_crl_refresh(struct rpc_crl *crl);
bool rpc_crl_has(const struct rpc_crl *crl, const char *serial_hex); /* NULL crl: false */
