/* serve.h - the gRPC services Control and Agents over the core: their method tables and their
 * state.
 *
 * Loop thread. Borrows loop, core, store, reader. Life: create, give serve_services to the server;
 * at the end destroy the server (its calls close), then core and store (what still waits there is
 * answered), then this. Every call holds nothing but its own small struct; all counts are bounded.
 */
#pragma once
#include "daemon/core.h"
#include "daemon/reader.h"
#include "rpc/server.h"

struct serve;
struct serve_options {
    struct loop *loop;
    struct core *core;
    struct store *store;
    struct reader *reader;
};
struct serve *serve_create(const struct serve_options *options);
void serve_destroy(struct serve *serve); /* NULL is fine */
/* Loan until destroy. */
const struct rpc_service *serve_services(struct serve *serve, size_t *count);

struct serve_counts {
    uint32_t watches, log_relays, uploads, code_fetches, agents, bulk_streams;
};
void serve_counts(const struct serve *serve, struct serve_counts *out);
