/* status_request.h - inside the status endpoint: one HTTP request, from its headers to its answer.
 *
 * Loop thread. Made with the first call of the handler, freed when the connection is done with it
 * and no answer of the reader is on its way. */
#pragma once
#include "base/list.h"
#include "base/text.h"
#include "daemon/feed.h"
#include "daemon/status.h"
#include <microhttpd.h>

struct status_stream;
struct status_server {
    struct status_options options;
    struct MHD_Daemon *mhd;
    struct status_poll *poll;
    struct loop_timer *timer;
    uint16_t port;
    bool loopback, kicked, closing;
    uint64_t requests, refused;
    uint32_t streams;
    struct list waiting; /* requests that wait for the reader */
    struct list open_streams;
};
struct status_request {
    struct list node; /* in server->waiting while suspended */
    struct status_server *server;
    struct MHD_Connection *connection; /* NULL: gone */
    bool asked, ready;
    unsigned code;
    const char *type;
    struct text body;
};

/* status.c */
void status_kick(struct status_server *server); /* run the HTTP server soon */
/* The answer is in request->body; code 200 unless set. */
void status_request_text(struct status_request *request, unsigned code, const char *type);
void status_request_json(struct status_request *request, unsigned code,
                         const ProtobufCMessage *message);
void status_request_error(struct status_request *request, unsigned code, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* status_route.c: fills the answer, or asks the reader and returns with asked set. True when the
 * answer was queued by the route itself. */
bool status_route(struct status_request *request, const char *path, enum MHD_Result *result);
/* status_metrics.c */
void status_metrics(struct status_request *request);
/* status_page.c */
void status_page(struct status_request *request);
/* status_events.c: queues a response that goes on until its client leaves. */
enum MHD_Result status_events(struct status_request *request);
void status_events_end_all(struct status_server *server);
