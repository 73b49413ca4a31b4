/* ask.h - requests to the agent over the unix socket `sock` in the worker's directory.
 *
 * One thread at a time (rondo.c holds a lock, with a deadline). Every wait has a deadline; the
 * agent may go away and come back in between: the same request is sent again, so requests are
 * idempotent by kind and step. A request that ran into its deadline may be made again with the same
 * contents: it then waits on for the answer that is still due. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ask_kind { /* WorkerAsk.Kind */
                ASK_SAVE_DIR = 2,
                ASK_COMMIT = 3,
                ASK_ABORT_SAVE = 4,
                ASK_STAGE = 7,
                ASK_STAGED = 8
};

struct ask_request {
    enum ask_kind kind;
    int64_t step, samples;
    uint64_t bytes;         /* STAGE; 0: not said */
    bool no_wait;           /* STAGE: CANCELLED rather than UNAVAILABLE while slots are busy */
    char layout_digest[33]; /* of a sharded part, once it is complete; "": not said */
};
struct ask_answer {
    int status; /* enum rondo_status */
    char error[240];
    char dir[4096];
};
struct ask {
    int dir; /* of the worker; borrowed */
    int fd;  /* -1: not connected */
    uint64_t number;
    int waiting; /* last was sent on fd and has no answer yet */
    struct ask_request last;
    uint64_t backoff_us;
};

void ask_init(struct ask *ask, int dir);
/* 0 and *out (whose status may be anything the agent says), or -RONDO_DEADLINE. An agent that says
 * UNAVAILABLE is asked again until the deadline (microseconds of CLOCK_MONOTONIC). */
int ask_call(struct ask *ask, const struct ask_request *request, int64_t deadline_us,
             struct ask_answer *out);
void ask_close(struct ask *ask);
int64_t ask_now_us(void);
