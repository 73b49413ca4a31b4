/* worker_part.h - the chapters of a worker's life, each a file: start, watch, end.
 *
 * Called by worker.c's actions and by the agent's timers; loop thread only. */
#pragma once
#include "agent/worker.h"

/* worker_start.c: prepares and launches. Ends in STARTED or FAILED. */
void worker_start_begin(struct worker *worker);
const struct sock_events *worker_start_sock_events(void);
/* worker_watch.c: doorbells, progress, grace, hang: all workers, every 100 ms. */
void worker_watch_tick(struct agent *agent);
void worker_watch_begin(struct worker *worker);
/* worker_end.c: after GONE. Ends in CLEARED, or STUCK. */
void worker_end_begin(struct worker *worker);
void worker_end_release(struct worker *worker, enum worker_hold hold);
void worker_end_leave(struct worker *worker); /* final and not desired: reports acked, then away */
void worker_end_left(struct worker *worker);
/* worker_adopt.c: workers of an earlier agent. */
void worker_adopt_all(struct agent *agent, char *const *names, size_t count,
                      void (*done)(struct agent *agent));
