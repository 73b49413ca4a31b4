/* tls.h - credentials from PEM files that are watched, for both ends.
 *
 * Loop thread; reads files. Both ends must prove themselves; a client accepts only a certificate of
 * kind daemon that names the host. */
#pragma once
#include "base/error.h"
#include <grpc/grpc_security.h>

struct rpc_tls_files {
    const char *cert, *key, *ca;
    const char *crl_dir; /* NULL: none */
};

/* Says what is wrong with the files now rather than at each handshake. */
enum status rpc_tls_check(const struct rpc_tls_files *files, struct error *err) MUST_CHECK;
enum status rpc_tls_server(const struct rpc_tls_files *files, grpc_server_credentials **out,
                           struct error *err) MUST_CHECK;
enum status rpc_tls_client(const struct rpc_tls_files *files, grpc_channel_credentials **out,
                           struct error *err) MUST_CHECK;
