/* ticket.h - what one node may read of one checkpoint on another node, for a short time: signed by
 * the daemon, checked by the node that serves.
 *
 * Any thread; values only. The signature is HMAC-SHA256 with a secret that the daemon and the
 * serving node alone have. A ticket is worth nothing to whoever copies it: it names the node whose
 * certificate must be at the other end. Everything but the checkpoint's directory and the listed
 * entries is refused by whoever serves. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"
#include <stdbool.h>

#define TICKET_KEY_BYTES   32
#define TICKET_BYTES_MAX   ((size_t)64 << 10)
#define TICKET_ENTRIES_MAX 256
#define TICKET_LIFE_US_MAX ((int64_t)3600 * 1000000)

struct ticket {
    uint64_t job;
    uint32_t attempt; /* that wants to resume */
    int64_t expires_us;
    const char *audience; /* node that serves */
    const char *bearer;   /* node that asks */
    const char *path;     /* "job-7/step-120.3" */
    const char *digest;   /* of the manifest: SHA-256, lower-case hex */
    /* Files, or directories with all below: "manifest.json", "trainer-0". At least one. */
    const char *const *entries;
    size_t entries_count;
};

/* A node's key, from the secret of who signs for all nodes (TICKET_KEY_BYTES each). */
void ticket_key(const unsigned char *root, const char *node, unsigned char *out);

/* Who looks at a ticket: the serving node's key and name, the name in the certificate at the other
 * end, and the time. */
struct ticket_gate {
    const unsigned char *key; /* TICKET_KEY_BYTES */
    const char *node, *peer;
    int64_t now_us;
};

/* Appends the signed bytes to out. STATUS_INVALID: a member is empty, malformed or too long. */
enum status ticket_sign(const struct ticket *ticket, const unsigned char *key, struct text *out,
                        struct error *err) MUST_CHECK;
/* The signature is checked before a byte is looked at. STATUS_UNAUTHENTICATED: not signed with this
 * key, or malformed; DENIED: for another node, from another node; DEADLINE: it has expired, or
 * claims to live longer than tickets do. Freed with ticket_close. */
enum status ticket_open(const void *bytes, size_t len, const struct ticket_gate *gate,
                        struct ticket **out, struct error *err) MUST_CHECK;
void ticket_close(struct ticket *ticket); /* of ticket_open; NULL is fine */
SCOPED_DESTRUCTOR(struct ticket *, ticket_close)
/* Is the file (relative to the checkpoint's directory) one of the entries, or below one? Never with
 * "..", "." or an empty part in it. */
bool ticket_covers(const struct ticket *ticket, const char *file);
