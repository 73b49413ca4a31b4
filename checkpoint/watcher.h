/* watcher.h - who looks on while many bytes move: progress, warnings, and a way to stop.
 *
 * Calls come from the thread that called the function; everything may be NULL. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

struct watcher {
    void (*moved)(void *arg, uint64_t bytes); /* that many more */
    void (*warn)(void *arg, const char *sentence);
    void *arg;
    const atomic_bool *stop; /* set by anybody: ends with STATUS_CANCELLED */
};

static inline void watcher_moved(const struct watcher *watcher, uint64_t bytes)
{
    if (watcher && watcher->moved)
        watcher->moved(watcher->arg, bytes);
}

static inline void watcher_warn(const struct watcher *watcher, const char *sentence)
{
    if (watcher && watcher->warn)
        watcher->warn(watcher->arg, sentence);
}

static inline int watcher_stopped(const struct watcher *watcher)
{
    return watcher && watcher->stop && atomic_load(watcher->stop);
}
