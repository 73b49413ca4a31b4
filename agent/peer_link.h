/* peer_link.h - a TLS 1.3 connection between two agents, with deadlines.
 *
 * Blocking: a thread of its own, or the pool; never the loop. One thread at a time. Both ends prove
 * themselves by the cluster's CA and must be agents: the identity is the URI SAN, hosts are not
 * looked at. The process ignores SIGPIPE. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct peer_link_files {
    const char *cert, *key, *ca;
    const char *crl_dir; /* NULL: none */
};
struct peer_link;

/* Reads the files: made anew, it knows new ones. Freed with SSL_CTX_free. */
enum status peer_link_context(const struct peer_link_files *files, SSL_CTX **out,
                              struct error *err) MUST_CHECK;
/* Takes fd, also on failure. stop, set by another thread, ends every call with STATUS_CANCELLED.
 * STATUS_UNAUTHENTICATED: no agent of this cluster; DEADLINE. */
enum status peer_link_accept(SSL_CTX *context, int fd, uint32_t limit_ms, const atomic_bool *stop,
                             struct peer_link **out, struct error *err) MUST_CHECK;
enum status peer_link_connect(SSL_CTX *context, const char *address, uint16_t port,
                              uint32_t limit_ms, const atomic_bool *stop, struct peer_link **out,
                              struct error *err) MUST_CHECK;
void peer_link_close(struct peer_link *link); /* NULL is fine */
SCOPED_DESTRUCTOR(struct peer_link *, peer_link_close)
const char *peer_link_name(const struct peer_link *link); /* the node at the other end */
/* All len bytes within limit_ms, else STATUS_DEADLINE; UNAVAILABLE: the connection has ended. */
enum status peer_link_read(struct peer_link *link, void *out, size_t len, uint32_t limit_ms,
                           struct error *err) MUST_CHECK;
enum status peer_link_write(struct peer_link *link, const void *bytes, size_t len,
                            uint32_t limit_ms, struct error *err) MUST_CHECK;

/* Numbers on the wire are big-endian. */
static inline void peer_link_put(unsigned char *out, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> (8 * (bytes - 1 - i)));
}
static inline uint64_t peer_link_get(const unsigned char *in, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | in[i];
    return value;
}

/* A host's name or address as a numeric address. Blocks, as names do. */
#define PEER_LINK_ADDRESS 64
enum status peer_link_resolve(const char *name, char out[PEER_LINK_ADDRESS],
                              struct error *err) MUST_CHECK;

/* The frames. Greeting: u32 length, ticket. Its answer and that of a failed request: u8 status, u16
 * length, text. Request: u64 at, u32 length (PEER_LINK_PIECE at most), u16 length, file's name.
 * Answer: u8 0, u64 bytes of the file, u32 length, bytes; fewer than asked only at its end. */
#define PEER_LINK_PIECE    ((uint32_t)1 << 20)
#define PEER_LINK_TEXT_MAX 239
#define PEER_LINK_NAME_MAX 4095
#define PEER_LINK_REQUEST  14 /* bytes before the name */
