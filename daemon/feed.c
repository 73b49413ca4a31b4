/* feed.c - see feed.h. */
#include "daemon/feed.h"
#include "base/mem.h"
#include <stdio.h>

#define FEED_CHUNK       64
#define FEED_STORE_LIMIT 500

struct feed {
    struct feed_options options;
    struct core_watch *watch;
    int64_t after;
    int64_t floor; /* oldest seq in the ring when the store was asked */
    bool full;     /* the reader wants no more for now */
    bool behind;   /* caught_up is owed */
    bool asking;   /* the store's answer is on its way and holds this object */
    bool pumping;
    bool started;
    bool ended;  /* failed was called */
    bool closed; /* waits only for asking or the deferred start */
};

static void feed_pump(struct feed *feed);

static void feed_fail(struct feed *feed, enum status st, const char *text)
{
    feed->ended = true;
    feed->options.failed(feed->options.arg, st, text);
}

static void feed_give(struct feed *feed, const Pb__Event *event)
{
    if (event->seq <= feed->after)
        return;
    feed->after = event->seq;
    if (feed->options.job > 0 && event->job != feed->options.job)
        return;
    if (!feed->options.event(feed->options.arg, event))
        feed->full = true;
}

/* Deleted events leave no hole that the watcher would miss: he wants what there is, or the events
 * of a job that has not ended, which are all kept. */
static bool feed_is_whole(const struct feed *feed)
{
    const Pb__Job *job =
        feed->options.job > 0 ? core_job(feed->options.core, feed->options.job) : NULL;

    return (feed->options.after < 0 && feed->after == 0) || (job && !view_job_is_ended(job));
}

static void feed_stored(void *arg, enum status st, const struct error *err,
                        const ProtobufCMessage *message)
{
    struct feed *feed = arg;
    const Pb__ListEventsReply *reply = (const Pb__ListEventsReply *)(const void *)message;

    feed->asking = false;
    if (feed->closed) {
        mem_free(feed);
        return;
    }
    if (st != STATUS_OK) {
        char text[320];
        snprintf(text, sizeof(text), "older events are in the database: %s; watch again from %lld",
                 err ? err->text : "no answer", (long long)feed->after);
        feed_fail(feed, STATUS_UNAVAILABLE, text);
        return;
    }
    if (reply->pruned_through > feed->after && !feed_is_whole(feed)) {
        char text[320];
        snprintf(text, sizeof(text),
                 "events up to %lld are no longer kept, and you have seen those up to %lld: watch "
                 "from %lld, the oldest that is kept whole, or from -1 for all that there are",
                 (long long)reply->pruned_through, (long long)feed->after,
                 (long long)reply->pruned_through);
        feed_fail(feed, STATUS_OUT_OF_RANGE, text);
        return;
    }
    size_t given = 0;
    while (given < reply->n_events && !feed->full)
        feed_give(feed, reply->events[given++]);
    /* All of them given and fewer than asked for: nothing older than the ring is left. */
    if (given == reply->n_events && given < FEED_STORE_LIMIT && feed->after < feed->floor - 1)
        feed->after = feed->floor - 1;
    feed_pump(feed);
}

static void feed_ask_store(struct feed *feed, int64_t oldest)
{
    Pb__ListEventsRequest request = PB__LIST_EVENTS_REQUEST__INIT;

    request.has_after_seq = request.has_limit = true;
    request.after_seq = feed->after;
    request.limit = FEED_STORE_LIMIT;
    request.has_job = feed->options.job > 0;
    request.job = feed->options.job;
    feed->floor = oldest;
    feed->asking = true;
    reader_ask(feed->options.reader, NULL, &request.base, feed_stored, feed);
}

/* Gives what the ring has after our position. False when there is no more to do here. */
static bool feed_pump_ring(struct feed *feed)
{
    const Pb__Event *chunk[FEED_CHUNK];
    int64_t oldest = 0;
    size_t got = core_events(feed->options.core, feed->after, chunk, FEED_CHUNK, &oldest);

    if (oldest > feed->after + 1) {
        feed->behind = true;
        feed_ask_store(feed, oldest);
        return false;
    }
    for (size_t i = 0; i < got && !feed->full; i++)
        feed_give(feed, chunk[i]);
    if (got < FEED_CHUNK && !feed->full && feed->behind) {
        feed->behind = false;
        feed->options.caught_up(feed->options.arg);
    }
    return got == FEED_CHUNK;
}

static void feed_pump(struct feed *feed)
{
    if (!feed->started || feed->pumping || feed->ended)
        return;
    feed->pumping = true;
    while (!feed->full && !feed->asking && feed_pump_ring(feed))
        ;
    if (feed->full)
        feed->behind = true;
    feed->pumping = false;
}

static void feed_committed(void *arg, const Pb__Event *const *events, size_t count)
{
    (void)events; /* the ring holds them: one path for all */
    (void)count;
    feed_pump(arg);
}

/* The newest seq that the ring holds. */
static int64_t feed_newest(const struct core *core)
{
    const Pb__Event *chunk[FEED_CHUNK];
    int64_t at = 0, oldest = 0;
    size_t got;

    while ((got = core_events(core, at, chunk, FEED_CHUNK, &oldest)) > 0)
        at = chunk[got - 1]->seq;
    return at;
}

static void feed_start(void *arg)
{
    struct feed *feed = arg;

    feed->started = true;
    if (feed->closed) {
        mem_free(feed);
        return;
    }
    if (feed->options.after > 0 && feed->options.after > feed_newest(feed->options.core)) {
        feed_fail(feed, STATUS_OUT_OF_RANGE,
                  "the resume token is ahead of this cluster's events: was it another cluster's?");
        return;
    }
    feed_pump(feed);
}

struct feed *feed_open(const struct feed_options *options)
{
    struct feed *feed = NEW(struct feed);

    feed->options = *options;
    feed->after = options->after > 0   ? options->after
                  : options->after < 0 ? 0
                                       : feed_newest(options->core);
    feed->behind = true;
    feed->watch = core_watch_add(options->core, feed_committed, feed);
    loop_defer(options->loop, feed_start, feed);
    return feed;
}

void feed_resume(struct feed *feed)
{
    feed->full = false;
    feed_pump(feed);
}

void feed_close(struct feed *feed)
{
    if (!feed)
        return;
    core_watch_remove(feed->options.core, feed->watch);
    feed->watch = NULL;
    feed->closed = true;
    if (!feed->asking && feed->started)
        mem_free(feed);
}
