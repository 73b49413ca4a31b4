/* ca.h - the private certificate authority: makes keys and certificates (ECDSA P-256, TLS 1.3 use),
 * PEM files, mode 0600 for keys.
 *
 * Any thread; blocking (used at start and by `rondod ca`). Files are written by rename; an existing
 * CA is kept. */
#pragma once
#include "base/error.h"
#include <stdint.h>

struct ca_request {
    const char *kind; /* user, agent, daemon */
    const char *name; /* ada, node-7: becomes CN and the URI SAN spiffe://rondo/<kind>/<name> */
    const char *unit; /* OU: "role=admin,project=*"; NULL: none */
    const char *const *hosts; /* DNS names and IP addresses for SAN */
    size_t hosts_count;
    uint32_t days; /* valid from five minutes ago; 0: 365 */
};

/* Makes dir/ca.pem and dir/ca.key unless both exist. */
enum status ca_init(const char *dir, const char *cluster, struct error *err) MUST_CHECK;
/* Writes out_dir/<file>.pem and out_dir/<file>.key signed by the CA in ca_dir, and copies ca.pem
 * there. */
enum status ca_issue(const char *ca_dir, const struct ca_request *request, const char *out_dir,
                     const char *file, struct error *err) MUST_CHECK;
/* Adds the certificate's serial to ca_dir/crl.pem and to ca_dir/crl/<hash>.r0. */
enum status ca_revoke(const char *ca_dir, const char *cert_path, struct error *err) MUST_CHECK;
