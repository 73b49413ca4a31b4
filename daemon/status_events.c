/* status_events.c - /events: a feed as server-sent events, with ids to resume from.
 *
 * A stream buffers a bounded amount and then stops its feed. A suspended connection never notices
 * that its client has left, so a ping goes out now and then. */
#include "base/mem.h"
#include "daemon/status_request.h"
#include "proto/text/text_format.h"
#include <string.h>
#include <sys/types.h>

#define STATUS_STREAMS_MAX 64
#define STATUS_STREAM_FULL ((size_t)64 << 10) /* then the feed stops */
#define STATUS_PING_US     (15 * 1000000ll)

struct status_stream {
    struct list node;
    struct status_server *server;
    struct MHD_Connection *connection;
    struct feed *feed;
    struct loop_timer *ping;
    struct text buffer;
    size_t at; /* bytes of the buffer that have been sent */
    bool suspended, stopped, ended;
};

static void status_stream_wake(struct status_stream *stream)
{
    if (!stream->suspended)
        return;
    stream->suspended = false;
    MHD_resume_connection(stream->connection);
    status_kick(stream->server);
}

static bool status_stream_event(void *arg, const Pb__Event *event)
{
    struct status_stream *stream = arg;

    text_addf(&stream->buffer, "id: %lld\nevent: %s\ndata: ", (long long)event->seq,
              event->kind ? event->kind : "event");
    text_format_json(&event->base, TEXT_FORMAT_COMPACT, &stream->buffer);
    text_add(&stream->buffer, "\n\n");
    status_stream_wake(stream);
    stream->stopped = stream->buffer.len - stream->at > STATUS_STREAM_FULL;
    return !stream->stopped;
}

static void status_stream_caught_up(void *arg)
{
    struct status_stream *stream = arg;

    text_add(&stream->buffer, "event: caught-up\ndata: {}\n\n");
    status_stream_wake(stream);
}

static void status_stream_failed(void *arg, enum status st, const char *text)
{
    struct status_stream *stream = arg;

    text_addf(&stream->buffer, "event: end\ndata: %s: %s\n\n", status_name(st), text);
    stream->ended = true;
    status_stream_wake(stream);
}

static void status_stream_ping(void *arg)
{
    struct status_stream *stream = arg;

    if (stream->at == stream->buffer.len)
        text_add(&stream->buffer, ": ping\n\n");
    loop_timer_set(stream->ping, STATUS_PING_US);
    status_stream_wake(stream);
}

static ssize_t status_stream_read(void *cls, uint64_t pos, char *out, size_t max)
{
    struct status_stream *stream = cls;
    size_t len = stream->buffer.len - stream->at;

    (void)pos;
    if (len == 0 && stream->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (len == 0) {
        stream->suspended = true;
        MHD_suspend_connection(stream->connection);
        return 0;
    }
    if (len > max)
        len = max;
    memcpy(out, stream->buffer.data + stream->at, len);
    stream->at += len;
    if (stream->at == stream->buffer.len) {
        stream->at = 0;
        text_reset(&stream->buffer);
        if (stream->stopped && !stream->ended) {
            stream->stopped = false;
            feed_resume(stream->feed);
        }
    }
    return (ssize_t)len;
}

static void status_stream_free(void *cls)
{
    struct status_stream *stream = cls;

    feed_close(stream->feed);
    loop_timer_destroy(stream->ping);
    list_remove(&stream->node);
    text_fini(&stream->buffer);
    stream->server->streams--;
    mem_free(stream);
}

void status_events_end_all(struct status_server *server)
{
    LIST_EACH(&server->open_streams, item)
    {
        struct status_stream *stream = LIST_ITEM(item, struct status_stream, node);
        stream->ended = true;
        status_stream_wake(stream);
    }
}

static struct status_stream *status_stream_open(struct status_request *request, int64_t after,
                                                int64_t job)
{
    struct status_server *server = request->server;
    struct status_stream *stream = NEW(struct status_stream);

    stream->server = server;
    stream->connection = request->connection;
    text_init(&stream->buffer, (size_t)1 << 20);
    stream->ping = loop_timer_create(server->options.loop, status_stream_ping, stream);
    loop_timer_set(stream->ping, STATUS_PING_US);
    list_add_last(&server->open_streams, &stream->node);
    server->streams++;
    stream->feed = feed_open(&(struct feed_options){
        .loop = server->options.loop,
        .core = server->options.core,
        .reader = server->options.reader,
        .after = after,
        .job = job,
        .event = status_stream_event,
        .caught_up = status_stream_caught_up,
        .failed = status_stream_failed,
        .arg = stream,
    });
    return stream;
}

/* The browser's Last-Event-ID after a reconnect, else ?after=; absent: from now. */
static bool status_events_number(struct MHD_Connection *connection, const char *name,
                                 enum MHD_ValueKind kind, int64_t *out)
{
    const char *text = MHD_lookup_connection_value(connection, kind, name);

    return !text || text_to_i64(text, -1, INT64_MAX, out);
}

enum MHD_Result status_events(struct status_request *request)
{
    struct MHD_Connection *connection = request->connection;
    int64_t after = 0, job = 0;

    if (!status_events_number(connection, "after", MHD_GET_ARGUMENT_KIND, &after) ||
        !status_events_number(connection, "Last-Event-ID", MHD_HEADER_KIND, &after) ||
        !status_events_number(connection, "job", MHD_GET_ARGUMENT_KIND, &job)) {
        status_request_error(request, 400, "after and job are numbers");
        return MHD_YES;
    }
    if (request->server->streams >= STATUS_STREAMS_MAX) {
        status_request_error(request, 503, "%d streams are open", STATUS_STREAMS_MAX);
        return MHD_YES;
    }
    struct status_stream *stream = status_stream_open(request, after, job);
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, (size_t)16 << 10, status_stream_read, stream, status_stream_free);
    if (!response) {
        status_stream_free(stream);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", "text/event-stream");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    enum MHD_Result result = MHD_queue_response(connection, 200, response);
    MHD_destroy_response(response);
    return result;
}
