/* status.c - libmicrohttpd on the loop: start, run, requests from headers to answer. See status.h.
 */
#include "base/log.h"
#include "base/mem.h"
#include "daemon/listener.h"
#include "daemon/status_request.h"
#include "proto/text/text_format.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define STATUS_CONNECTIONS  256
#define STATUS_IDLE_S       30
#define STATUS_MEMORY_BYTES ((size_t)32 << 10) /* a connection's headers */
#define STATUS_BODY_BYTES   ((size_t)16 << 20)
#define STATUS_PEM_BYTES    ((size_t)256 << 10)

struct status_poll { /* outlives the server until libuv has closed it */
    uv_poll_t handle;
    struct status_server *server;
};

/* --- running */

static void status_arm(struct status_server *server)
{
    MHD_UNSIGNED_LONG_LONG ms;

    if (MHD_get_timeout(server->mhd, &ms) == MHD_YES)
        loop_timer_set(server->timer, (int64_t)ms * 1000);
    else
        loop_timer_stop(server->timer);
}

static void status_run(void *arg)
{
    struct status_server *server = arg;

    server->kicked = false;
    MHD_run(server->mhd);
    status_arm(server);
}

static void status_readable(uv_poll_t *handle, int st, int events)
{
    struct status_poll *poll = CONTAINER_OF(handle, struct status_poll, handle);

    (void)st;
    (void)events;
    if (poll->server)
        status_run(poll->server);
}

void status_kick(struct status_server *server)
{
    if (server->kicked || server->closing)
        return;
    server->kicked = true;
    loop_timer_set(server->timer, 0);
}

/* --- one request */

void status_request_text(struct status_request *request, unsigned code, const char *type)
{
    struct status_server *server = request->server;

    request->code = code;
    request->type = type;
    request->ready = true;
    if (!request->asked)
        return;
    request->asked = false;
    list_remove(&request->node);
    if (request->connection) {
        MHD_resume_connection(request->connection);
        status_kick(server);
    }
}

void status_request_json(struct status_request *request, unsigned code,
                         const ProtobufCMessage *message)
{
    text_format_json(message, TEXT_FORMAT_COMPACT, &request->body);
    text_add(&request->body, "\n");
    status_request_text(request, code, "application/json");
}

/* The text is ours or a reader's: no quotes get through unescaped. */
void status_request_error(struct status_request *request, unsigned code, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    text_reset(&request->body);
    text_add(&request->body, "{\"error\":\"");
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            text_addf(&request->body, "\\%c", *c);
        else if ((unsigned char)*c >= 0x20)
            text_add_bytes(&request->body, c, 1);
        else
            text_add(&request->body, " ");
    }
    text_add(&request->body, "\"}\n");
    status_request_text(request, code, "application/json");
}

static void status_request_destroy(struct status_request *request)
{
    text_fini(&request->body);
    mem_free(request);
}

static enum MHD_Result status_request_answer(struct status_request *request)
{
    size_t len = request->body.len;
    enum MHD_Result result;

    if (request->body.full) {
        text_reset(&request->body);
        status_request_error(request, 500, "the answer is too large: ask for less (limit)");
        len = request->body.len;
    }
    struct MHD_Response *response = MHD_create_response_from_buffer(
        len, (void *)text_get(&request->body), MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", request->type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'");
    if (request->code == 405)
        MHD_add_response_header(response, "Allow", "GET, HEAD");
    if (request->code >= 400)
        request->server->refused++;
    result = MHD_queue_response(request->connection, request->code, response);
    MHD_destroy_response(response);
    return result;
}

/* On loopback a request must be meant for this machine: else any web page could read us through a
 * browser that was told that its own name is 127.0.0.1. */
static bool status_host_ok(const struct status_server *server, struct MHD_Connection *connection)
{
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

    if (!server->loopback || !host)
        return true;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        size_t len = strlen(names[i]);
        if (strncasecmp(host, names[i], len) == 0 && (host[len] == '\0' || host[len] == ':'))
            return true;
    }
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.:") == strlen(host);
}

static enum MHD_Result status_request_start(struct status_request *request, const char *path,
                                            const char *method)
{
    enum MHD_Result result = MHD_YES;

    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        status_request_error(request, 405, "this endpoint only reads: GET or HEAD");
    else if (!status_host_ok(request->server, request->connection))
        status_request_error(request, 403, "this Host is not served on a loopback address");
    else if (status_route(request, path, &result))
        return result;
    if (request->ready)
        return status_request_answer(request);
    request->asked = true;
    list_add_last(&request->server->waiting, &request->node);
    MHD_suspend_connection(request->connection);
    return MHD_YES;
}

static enum MHD_Result status_handle(void *cls, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version, const char *data,
                                     size_t *data_len, void **place)
{
    struct status_server *server = cls;
    struct status_request *request = *place;

    (void)version;
    (void)data;
    if (!request) { /* headers only */
        request = NEW(struct status_request);
        request->server = server;
        request->connection = connection;
        text_init(&request->body, STATUS_BODY_BYTES);
        list_init(&request->node);
        *place = request;
        server->requests++;
        return MHD_YES;
    }
    if (*data_len > 0) { /* a body that nobody asked for */
        *data_len = 0;
        return MHD_YES;
    }
    if (request->ready)
        return status_request_answer(request);
    return status_request_start(request, url, method);
}

static void status_completed(void *cls, struct MHD_Connection *connection, void **place,
                             enum MHD_RequestTerminationCode why)
{
    struct status_request *request = *place;

    (void)cls;
    (void)connection;
    (void)why;
    *place = NULL;
    if (!request)
        return;
    request->connection = NULL;
    if (!request->asked)
        status_request_destroy(request);
}

static void status_log(void *cls, const char *fmt, va_list args)
{
    char line[300];

    (void)cls;
    vsnprintf(line, sizeof(line), fmt, args);
    line[strcspn(line, "\n")] = '\0';
    log_debug("status.http", log_str("text", line));
}

/* --- life */

static char *status_read_pem(const char *path, struct error *err)
{
    FILE *file = fopen(path, "re");
    char *pem = mem_alloc(STATUS_PEM_BYTES);
    size_t len = file ? fread(pem, 1, STATUS_PEM_BYTES - 1, file) : 0;

    if (file)
        fclose(file);
    if (len > 0)
        return pem;
    mem_free(pem);
    error_set(err, STATUS_INVALID, "read %s: no such file, or empty", path);
    return NULL;
}

static enum status status_start(struct status_server *server, int fd, const char *cert,
                                const char *key, struct error *err)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG |
                     (cert ? (unsigned)MHD_USE_TLS : 0u);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)key},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};

    server->mhd = MHD_start_daemon(
        flags, 0, NULL, NULL, status_handle, server, MHD_OPTION_EXTERNAL_LOGGER, status_log, server,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)STATUS_CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)STATUS_IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        STATUS_MEMORY_BYTES, MHD_OPTION_NOTIFY_COMPLETED, status_completed, server,
        MHD_OPTION_ARRAY, cert ? tls : none, MHD_OPTION_END);
    if (!server->mhd) {
        close(fd);
        return error_set(err, STATUS_UNAVAILABLE, "start the status endpoint on %s%s",
                         server->options.listen, cert ? ": is the certificate right?" : "");
    }
    return STATUS_OK;
}

static enum status status_attach(struct status_server *server, struct error *err)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    struct status_poll *poll = NEW(struct status_poll);

    if (!info ||
        uv_poll_init(loop_uv_handle(server->options.loop), &poll->handle, info->epoll_fd) != 0) {
        mem_free(poll);
        return error_set(err, STATUS_INTERNAL, "watch the status endpoint's descriptor");
    }
    poll->server = server;
    server->poll = poll;
    uv_poll_start(&poll->handle, UV_READABLE, status_readable);
    status_kick(server);
    return STATUS_OK;
}

static enum status status_open(struct status_server *server, struct error *err)
{
    SCOPED_TEXT char *cert = NULL;
    SCOPED_TEXT char *key = NULL;
    const struct status_options *options = &server->options;
    int fd = -1;

    if (options->cert && (!(cert = status_read_pem(options->cert, err)) ||
                          !(key = status_read_pem(options->key ? options->key : "", err))))
        return STATUS_INVALID;
    enum status st = listener_open(options->listen, &fd, &server->port, err);
    if (st == STATUS_OK)
        st = status_start(server, fd, cert, key, err);
    if (st == STATUS_OK)
        st = status_attach(server, err);
    return st;
}

enum status status_server_create(const struct status_options *options, struct status_server **out,
                                 struct error *err)
{
    struct status_server *server = NEW(struct status_server);

    server->options = *options;
    server->loopback = listener_is_loopback(options->listen);
    list_init(&server->waiting);
    list_init(&server->open_streams);
    server->timer = loop_timer_create(options->loop, status_run, server);
    enum status st = status_open(server, err);
    if (st != STATUS_OK) {
        status_server_destroy(server);
        return st;
    }
    *out = server;
    return STATUS_OK;
}

uint16_t status_server_port(const struct status_server *server)
{
    return server->port;
}

static void status_poll_closed(uv_handle_t *handle)
{
    mem_free(CONTAINER_OF((uv_poll_t *)(void *)handle, struct status_poll, handle));
}

/* Requests whose answer is still on its way are let go by their connections; the answer frees them.
 */
static void status_end_requests(struct status_server *server)
{
    struct list *item;

    status_events_end_all(server);
    while ((item = list_take_first(&server->waiting)))
        MHD_resume_connection(LIST_ITEM(item, struct status_request, node)->connection);
}

void status_server_destroy(struct status_server *server)
{
    if (!server)
        return;
    server->closing = true;
    if (server->poll) {
        server->poll->server = NULL;
        uv_poll_stop(&server->poll->handle);
        uv_close((uv_handle_t *)(void *)&server->poll->handle, status_poll_closed);
    }
    if (server->mhd) {
        status_end_requests(server);
        MHD_stop_daemon(server->mhd);
    }
    loop_timer_destroy(server->timer);
    mem_free(server);
}
