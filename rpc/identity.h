/* identity.h - who is at the other end, and what each kind of caller may do.
 *
 * Any thread; values only. The identity is the URI SAN of the peer's certificate:
 * spiffe://rondo/<kind>/<name>. Roles of users are in the certificate's organisational unit. */
#pragma once
#include "base/error.h"
#include <stdbool.h>

enum identity_role { /* bits */
                     IDENTITY_NONE = 0,
                     IDENTITY_ADMIN = 1,
                     IDENTITY_SUBMITTER = 2,
                     IDENTITY_VIEWER = 4,
                     IDENTITY_AGENT = 8,
                     IDENTITY_DAEMON = 16,
                     IDENTITY_ANY_USER = IDENTITY_ADMIN | IDENTITY_SUBMITTER | IDENTITY_VIEWER,
};
struct identity {
    unsigned roles;     /* of enum identity_role */
    char kind[16];      /* user, agent, daemon */
    char name[256];     /* ada, node-7 */
    char projects[512]; /* comma-separated projects a submitter may use; "*": all */
};

/* From "spiffe://rondo/user/ada" and the OU list "role=submitter,project=default".
 * STATUS_UNAUTHENTICATED when malformed. */
enum status identity_parse(const char *uri, const char *unit, struct identity *out,
                           struct error *err) MUST_CHECK;
bool identity_may_use(const struct identity *who, const char *project);
void identity_text(const struct identity *who, char *out, size_t cap); /* "user/ada" */
