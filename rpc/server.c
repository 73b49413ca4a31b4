#include "base/log.h"
#include "base/mem.h"
#include "rpc/method.h"
#include "rpc/runtime.h"
#include "rpc/server_state.h"
#include "rpc/tls.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SLOTS_PER_METHOD 16
#define QUOTA_BYTES      ((size_t)512 << 20)
#define PING_INTERVAL_MS 5000
#define STREAMS_MAX      1024 /* of one connection: a client keeps the rest back */
#define HANDSHAKE_MS     10000
#define CRL_REFRESH_US   1000000

static enum status routes_check(const struct rpc_service *services, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        enum status st = rpc_method_check(&services[i], err);
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

static void route_register(struct rpc_server *server, const struct rpc_service *service,
                           const struct rpc_method *row)
{
    struct rpc_route *route = &server->routes[server->routes_count++];
    bool with_payload = row->kind == RPC_UNARY || row->kind == RPC_SERVER_STREAM;
    char path[RPC_METHOD_PATH_MAX];

    route->row = row;
    route->arg = service->arg;
    route->descriptor = rpc_method_find(service->descriptor, row->name);
    rpc_method_path(service->descriptor, route->descriptor, path);
    route->handle = grpc_server_register_method(
        server->server, path, NULL,
        with_payload ? GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER : GRPC_SRM_PAYLOAD_NONE, 0);
}

static void routes_register(struct rpc_server *server, const struct rpc_service *services,
                            size_t count)
{
    size_t total = 1;

    for (size_t i = 0; i < count; i++)
        total += services[i].descriptor->n_methods;
    server->routes = mem_array(total, sizeof *server->routes);
    for (size_t i = 0; i < count; i++)
        for (const struct rpc_method *row = services[i].methods; row->name; row++)
            route_register(server, &services[i], row);
    server->routes_count++; /* the one without a row: unknown methods */
}

static void transport_create(struct rpc_server *server, uint32_t message_bytes_max)
{
    struct rpc_args args = {.count = 0};
    grpc_channel_args list;

    server->quota = grpc_resource_quota_create("rpc");
    grpc_resource_quota_resize(server->quota, QUOTA_BYTES);
    rpc_args_common(&args, message_bytes_max);
    rpc_args_quota(&args, server->quota);
    rpc_args_int(&args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, PING_INTERVAL_MS);
    rpc_args_int(&args, GRPC_ARG_ALLOW_REUSEPORT, 0);
    rpc_args_int(&args, GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_MS);
    rpc_args_int(&args, GRPC_ARG_MAX_CONCURRENT_STREAMS, STREAMS_MAX);
    list = rpc_args_get(&args);
    server->server = grpc_server_create(&list, NULL);
    grpc_server_register_completion_queue(server->server, rpc_queue_handle(server->queue), NULL);
}

static enum status listen_tls(struct rpc_server *server, const struct rpc_server_options *options,
                              struct error *err)
{
    struct rpc_tls_files files = {options->cert, options->key, options->ca, options->crl_dir};
    grpc_server_credentials *credentials = NULL;
    enum status st = rpc_tls_server(&files, &credentials, err);
    int port;

    if (st != STATUS_OK)
        return st;
    port = grpc_server_add_http2_port(server->server, options->listen, credentials);
    grpc_server_credentials_release(credentials);
    if (port <= 0)
        return error_set(err, STATUS_UNAVAILABLE, "listen on %s: the address cannot be bound",
                         options->listen);
    server->port = (uint16_t)port;
    return STATUS_OK;
}

/* The mask is the process's: servers are made at start, before other threads create files. */
static enum status listen_unix(struct rpc_server *server, const char *path, struct error *err)
{
    enum status st = rpc_socket_lock_take(path, &server->socket_lock, err);
    SCOPED_TEXT char *address = mem_printf("unix:%s", path);

    if (st != STATUS_OK)
        return st;
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    mode_t mask = umask(0177);
    int bound = grpc_server_add_http2_port(server->server, address, credentials);
    umask(mask);
    grpc_server_credentials_release(credentials);
    if (bound <= 0)
        return error_set(err, STATUS_UNAVAILABLE, "listen on %s: the socket cannot be bound", path);
    return STATUS_OK;
}

static void crl_check(void *arg)
{
    struct rpc_server *server = arg;

    if (rpc_crl_refresh(server->crl))
        rpc_server_call_recheck(server);
    loop_timer_set(server->crl_timer, CRL_REFRESH_US);
}

static void peers_create(struct rpc_server *server, const struct rpc_server_options *options)
{
    if (options->crl_dir && options->listen) {
        server->crl = rpc_crl_create(options->crl_dir, options->ca);
        server->crl_timer = loop_timer_create(server->loop, crl_check, server);
        loop_timer_set(server->crl_timer, CRL_REFRESH_US);
    }
    server->peers = rpc_peers_create(server->crl, options->unix_path != NULL);
}

enum status rpc_server_create(struct loop *loop, const struct rpc_server_options *options,
                              const struct rpc_service *services, size_t services_count,
                              struct rpc_server **out, struct error *err)
{
    enum status st = routes_check(services, services_count, err);

    if (st != STATUS_OK)
        return st;
    rpc_runtime_acquire();
    struct rpc_server *server = NEW(struct rpc_server);
    server->loop = loop;
    list_init(&server->calls);
    list_init(&server->held);
    server->queue = rpc_queue_create(loop);
    transport_create(server, options->message_bytes_max);
    routes_register(server, services, services_count);
    if (options->listen)
        st = listen_tls(server, options, err);
    if (st == STATUS_OK && options->unix_path)
        st = listen_unix(server, options->unix_path, err);
    peers_create(server, options);
    grpc_server_start(server->server); /* also before giving up: only then can it be shut down */
    if (st != STATUS_OK) {
        rpc_server_destroy(server, 0);
        return st;
    }
    for (size_t i = 0; i < server->routes_count; i++)
        for (int slot = 0; slot < SLOTS_PER_METHOD; slot++)
            rpc_server_call_request(server, &server->routes[i]);
    *out = server;
    return STATUS_OK;
}

uint16_t rpc_server_port(const struct rpc_server *server)
{
    return server->port;
}

struct shutdown_op {
    struct rpc_op op;
    bool done;
};

static void shutdown_done(struct rpc_op *op)
{
    CONTAINER_OF(op, struct shutdown_op, op)->done = true;
}

static bool is_quiet(const struct rpc_server *server, const struct shutdown_op *shutdown)
{
    return shutdown->done && list_is_empty(&server->calls) && server->slots == 0;
}

static void transport_shutdown(struct rpc_server *server, uint32_t grace_ms)
{
    struct shutdown_op shutdown = {.op.fn = shutdown_done};
    int64_t start_us = loop_now_us(server->loop);

    server->stopping = true;
    grpc_server_shutdown_and_notify(server->server, rpc_queue_handle(server->queue),
                                    rpc_queue_tag(server->queue, &shutdown.op));
    rpc_server_call_shut(server);
    while (!is_quiet(server, &shutdown) &&
           loop_now_us(server->loop) - start_us < (int64_t)grace_ms * 1000)
        rpc_queue_pump(server->queue, 5);
    grpc_server_cancel_all_calls(server->server);
    while (!is_quiet(server, &shutdown))
        rpc_queue_pump(server->queue, 50);
    rpc_server_call_abandon(server);
    grpc_server_destroy(server->server);
}

void rpc_server_destroy(struct rpc_server *server, uint32_t grace_ms)
{
    if (!server)
        return;
    transport_shutdown(server, grace_ms);
    rpc_queue_destroy(server->queue);
    grpc_resource_quota_unref(server->quota);
    loop_timer_destroy(server->crl_timer);
    rpc_peers_destroy(server->peers);
    rpc_crl_destroy(server->crl);
    rpc_socket_lock_release(server->socket_lock);
    mem_free(server->routes);
    mem_free(server);
    rpc_runtime_release();
}

void rpc_server_counts(const struct rpc_server *server, uint64_t *calls, uint64_t *refused,
                       uint64_t *open)
{
    *calls = server->calls_count;
    *refused = server->refused_count;
    *open = server->open_count;
}
