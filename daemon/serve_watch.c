/* serve_watch.c - Watch: a feed of events poured into a stream, as fast as its reader takes them.
 */
#include "base/mem.h"
#include "daemon/feed.h"
#include "daemon/serve_hub.h"

#define SERVE_WATCHES_MAX 1000

struct serve_watch {
    struct serve *serve;
    struct rpc_call *call;
    struct feed *feed;
    struct identity who;
    bool jobs; /* also the job's row with each event */
};

static bool serve_watch_event(void *arg, const Pb__Event *event)
{
    struct serve_watch *watch = arg;
    Pb__WatchReply reply = PB__WATCH_REPLY__INIT;
    SCOPED(arena_destroy) struct arena *arena = NULL;
    const Pb__Job *row =
        watch->jobs && event->job > 0 ? core_job(watch->serve->options.core, event->job) : NULL;

    reply.event = (Pb__Event *)event;
    if (row) {
        arena = arena_create((size_t)8 << 20);
        reply.job = view_job(arena, watch->serve->options.core, &watch->who, row, true);
    }
    return rpc_call_send(watch->call, &reply.base) <= SERVE_QUEUE_BYTES;
}

static void serve_watch_caught_up(void *arg)
{
    struct serve_watch *watch = arg;
    Pb__WatchReply reply = PB__WATCH_REPLY__INIT;

    reply.has_caught_up = reply.caught_up = true;
    rpc_call_send(watch->call, &reply.base);
}

static void serve_watch_failed(void *arg, enum status st, const char *text)
{
    struct serve_watch *watch = arg;

    rpc_call_end(watch->call, st, text);
}

static void serve_watch_drained(void *arg, struct rpc_call *call)
{
    struct serve_watch *watch = arg;

    (void)call;
    feed_resume(watch->feed);
}

static void serve_watch_closed(void *arg, struct rpc_call *call)
{
    struct serve_watch *watch = arg;

    (void)call;
    feed_close(watch->feed);
    watch->serve->counts.watches--;
    mem_free(watch);
}

void serve_watch(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct serve *serve = arg;
    const Pb__WatchRequest *request = (const Pb__WatchRequest *)(const void *)message;

    if (serve->counts.watches >= SERVE_WATCHES_MAX) {
        rpc_call_end(call, STATUS_EXHAUSTED, "1,000 watches are open: end one first");
        return;
    }
    struct serve_watch *watch = NEW(struct serve_watch);
    watch->serve = serve;
    watch->call = call;
    watch->jobs = request->jobs;
    watch->who = *rpc_call_identity(call);
    serve->counts.watches++;
    rpc_call_on_closed(call, serve_watch_closed, watch);
    rpc_call_on_drained(call, serve_watch_drained, watch);
    watch->feed = feed_open(&(struct feed_options){
        .loop = serve->options.loop,
        .core = serve->options.core,
        .reader = serve->options.reader,
        .after = request->after_seq,
        .job = request->job,
        .event = serve_watch_event,
        .caught_up = serve_watch_caught_up,
        .failed = serve_watch_failed,
        .arg = watch,
    });
}
