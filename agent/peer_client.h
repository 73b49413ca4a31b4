/* peer_client.h - fetches files of a checkpoint from another node into a vault of this one.
 *
 * Blocking: for the pool or a thread of its own; one thread at a time. Several ranges are in
 * flight. What has come lies in a file of its own beside the one it becomes; the next fetch goes on
 * behind it. A file gets its name only when its size, CRC32C and XXH3-128 are those of the manifest
 * and it is on the disk. */
#pragma once
#include "agent/peer_link.h"
#include "base/text.h"
#include "checkpoint/manifest.h"

struct peer_client;
struct peer_client_options {
    const char *address; /* numeric */
    uint16_t port;
    const char *node; /* whose certificate must be there */
    struct peer_link_files files;
    const void *ticket;
    size_t ticket_len;
    const char *vault, *path; /* where it goes: "job-7/step-120.3" */
    uint32_t limit_ms;        /* connecting, and each piece; 0: 20 s */
    const atomic_bool *stop;  /* NULL: nobody will */
    _Atomic uint64_t *count;  /* bytes of files that have come are added; NULL: nowhere */
};

/* Borrows what options point to until it is closed. STATUS_UNAUTHENTICATED, DENIED, DEADLINE,
 * NOT_FOUND: what the other node says of the ticket, or who it is. */
enum status peer_client_open(const struct peer_client_options *options, struct peer_client **out,
                             struct error *err) MUST_CHECK;
void peer_client_close(struct peer_client *client); /* NULL is fine */
SCOPED_DESTRUCTOR(struct peer_client *, peer_client_close)
/* A file that is here already and right is a success without a byte sent. STATUS_DATA_LOSS names
 * the file and the node whose bytes are wrong; they are thrown away. After a failure to
 * receive this client is of no further use; a new one goes on where it was. */
enum status peer_client_fetch(struct peer_client *client, const struct manifest_file *file,
                              struct error *err) MUST_CHECK;
/* manifest.json, into out, which says how long it may be. STATUS_DATA_LOSS: it is not the one whose
 * SHA-256 that is. */
enum status peer_client_manifest(struct peer_client *client, const char *digest, struct text *out,
                                 struct error *err) MUST_CHECK;
uint64_t peer_client_received(const struct peer_client *client); /* bytes of files so far */
