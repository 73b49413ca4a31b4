/* feed.h - one reader's place in the stream of events: no gap, no event twice, nothing queued.
 *
 * Loop thread. A feed holds only its position (the seq of the last event given). Recent events come
 * from the core's ring, older ones from the store, so a slow reader falls behind without costing
 * memory and catches up later. Callbacks run later, never inside feed_open; feed_close is not
 * allowed inside them. */
#pragma once
#include "daemon/reader.h"

struct feed;
struct feed_options {
    struct loop *loop;
    struct core *core;
    struct reader *reader; /* for what the ring has no more */
    int64_t after;         /* last seq seen; 0: from now; below 0: from the first kept */
    int64_t job;           /* only this one; 0: all */
    /* False: enough for now; the event counts as given, feed_resume goes on. */
    bool (*event)(void *arg, const Pb__Event *event);
    void (*caught_up)(void *arg); /* each time that the end is reached after being behind */
    void (*failed)(void *arg, enum status st, const char *text); /* nothing follows: close it */
    void *arg;
};
struct feed *feed_open(const struct feed_options *options);
void feed_resume(struct feed *feed);
void feed_close(struct feed *feed); /* NULL is fine; no callback afterwards */
