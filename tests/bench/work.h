/* work.h - a job of the bench, ready to be submitted: one role, small, no checkpoints.
 *
 * Points into itself: never copied. One thread. */
#pragma once
#include "proto/pb.h"

#define WORK_ARGS_MAX 8

struct work {
    Pb__SubmitRequest request;
    Pb__JobSpec spec;
    Pb__Role role, *roles[1];
    Pb__Restart restart;
    char *argv[WORK_ARGS_MAX];
    char id[64];
};

/* argv: NULL-terminated, borrowed. restart budget 0, back-off 0, one worker on one CPU slot. */
void work_init(struct work *work, const char *name, const char *const *argv);
/* The request under a new id; a loan until the next. */
const ProtobufCMessage *work_next(struct work *work);
