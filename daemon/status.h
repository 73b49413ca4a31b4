/* status.h - the status endpoint: health, Prometheus, JSON, live events over HTTP. Reads only.
 *
 * Loop thread, no thread of its own: libmicrohttpd runs when its epoll descriptor is readable. It
 * is up before the core leads, so that readyz can say what is missing. Nobody is asked who he is,
 * so values of environment variables are never shown; on a loopback address the Host header must
 * name this machine (a browser's page from elsewhere must not read us). */
#pragma once
#include "daemon/reader.h"

struct status_server;
struct status_counts { /* of others, for /metrics */
    uint64_t rpc_calls, rpc_refused, rpc_open;
    uint32_t watches, log_relays, uploads, code_fetches, agents, bulk_streams;
};
struct status_options {
    struct loop *loop; /* of libuv */
    struct core *core;
    struct reader *reader;
    const char *listen;     /* "127.0.0.1:7412", port 0: any free one */
    const char *cert, *key; /* PEM files; NULL: no TLS */
    void (*counts)(void *arg, struct status_counts *out);
    void *counts_arg;
};
enum status status_server_create(const struct status_options *options, struct status_server **out,
                                 struct error *err) MUST_CHECK;
uint16_t status_server_port(const struct status_server *server);
/* Ends open streams. Before the core and the reader go. NULL is fine. */
void status_server_destroy(struct status_server *server);
