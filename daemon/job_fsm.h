/* job_fsm.h - the life of a job as rows: (state, event) -> state. Pure. docs/states.md is printed
 * from them. */
#pragma once
#include "base/mem.h"
#include "base/text.h"
#include "proto/pb.h"

#define JOB_EVENTS(X)                                                                              \
    X(PLACED, "placed")         /* nodes reserved, the gang is being launched */                   \
    X(WORKERS_UP, "workers-up") /* every worker runs */                                            \
    X(BROKEN, "broken")         /* a worker failed, a node was lost, a limit was passed */         \
    X(STOP_ASKED, "stop-asked") /* cancel, hold, resize: by request */                             \
    X(SAVE_ASKED, "save-asked") /* save at a named step, then stop */                              \
    X(ENDED_WELL, "ended-well") /* every rank ended with 0 and the success rule holds */           \
    X(CANCEL, "cancel")         /* while no worker exists */                                       \
    X(HOLD, "hold")                                                                                \
    X(RELEASE, "release")                                                                          \
    X(GONE_REQUEUE, "gone-requeue") /* no worker is left: back to the queue */                     \
    X(GONE_FAILED, "gone-failed")                                                                  \
    X(GONE_CANCELLED, "gone-cancelled")                                                            \
    X(GONE_HELD, "gone-held")                                                                      \
    X(GONE_SUCCEEDED, "gone-succeeded")
enum job_event {
#define X(name, text) JOB_EV_##name,
    JOB_EVENTS(X)
#undef X
        JOB_EV_COUNT
};

struct job_rule {
    Pb__Job__State from;
    enum job_event event;
    Pb__Job__State to;
    const char *shown; /* to the operator */
};

/* NULL: the event is not allowed in that state. */
const struct job_rule *job_fsm_find(Pb__Job__State from, enum job_event event);
const char *job_fsm_event_name(enum job_event event);
bool job_fsm_ended(Pb__Job__State state);  /* SUCCEEDED, FAILED, CANCELLED */
bool job_fsm_active(Pb__Job__State state); /* holds devices: STARTING, RUNNING, SAVING, STOPPING */
/* The rows as a Markdown table and a drawing. */
void job_fsm_print(struct text *out);
