/* worker_fsm.h - the life of a worker as rows. Pure: a lookup, nothing else.
 *
 * The state that is reported is ActualWorker.State. EXITED and LOST are final. A worker becomes
 * EXITED only when it is proven gone: no process left, its reports read to their end, its saves
 * digested, its devices empty. */
#pragma once
#include "proto/pb.h"
#include <stddef.h>

#define WORKER_EVENTS(X)                                                                           \
    X(BEGIN, "begin")           /* wanted, and not there yet */                                    \
    X(STARTED, "started")       /* the program runs */                                             \
    X(FAILED, "failed")         /* it cannot be started */                                         \
    X(STOP, "stop")             /* asked to end */                                                 \
    X(KILL, "kill")             /* told to end at once */                                          \
    X(HUNG, "hung")             /* no progress within the phase's limit */                         \
    X(GRACE_OVER, "grace-over") /* asked long enough ago */                                        \
    X(ENDED, "ended")           /* the main process ended */                                       \
    X(SHIM_LOST, "shim-lost")   /* the shim died without a record */                               \
    X(GONE, "gone")             /* no process of it is left */                                     \
    X(STUCK, "stuck")           /* processes survive KILL, or a device is still held */            \
    X(CLEARED, "cleared")       /* everything EXITED waits for is done */                          \
    X(VANISHED, "vanished")     /* the machine was restarted since */
#define X(name, text) WORKER_EV_##name,
enum worker_event { WORKER_EVENTS(X) WORKER_EV_COUNT };
#undef X

enum worker_action {
    WORKER_ACT_NONE,
    WORKER_ACT_PREPARE, /* directory, code, resume point, socket, then the launch */
    WORKER_ACT_WATCH,   /* progress and hang watch begin */
    WORKER_ACT_TERM,    /* SIGTERM to the main process, grace timer */
    WORKER_ACT_KILL,    /* KILL to everything of it */
    WORKER_ACT_ABANDON, /* stop preparing; kill what may have been started */
    WORKER_ACT_DRAIN,   /* read its reports to the end while strays die */
    WORKER_ACT_PROVE,   /* nothing left? files, saves, devices */
    WORKER_ACT_QUARANTINE,
    WORKER_ACT_REPORT, /* final: tell the daemon */
};
struct worker_rule {
    Pb__ActualWorker__State from;
    enum worker_event event;
    Pb__ActualWorker__State to;
    enum worker_action action;
    const char *text; /* shown to the operator */
};
/* NULL: the event changes nothing in that state. */
const struct worker_rule *worker_fsm_find(Pb__ActualWorker__State from, enum worker_event event);
const struct worker_rule *worker_fsm_rows(size_t *count); /* for docs/states.md and the test */
const char *worker_fsm_event_name(enum worker_event event);
