/* exit_class.h - why a worker ended, from what is known of it. Pure. */
#pragma once
#include "proto/pb.h"
#include <stdbool.h>
#include <stddef.h>

enum exit_cause { /* what this agent did, or could not do, before the end */
                  EXIT_CAUSE_NONE,
                  EXIT_CAUSE_STOP, /* asked by the daemon, or cut off from it with on_unreachable */
                  EXIT_CAUSE_KILL,
                  EXIT_CAUSE_HANG,
                  EXIT_CAUSE_LAUNCH, /* never ran */
                  EXIT_CAUSE_RESUME, /* the checkpoint to resume from is not good */
                  EXIT_CAUSE_SOURCE, /* or is on other nodes, and could not be had */
                  EXIT_CAUSE_SHIM,
                  EXIT_CAUSE_REBOOT,
                  EXIT_CAUSE_PEER, /* stopped by its agent: another rank of its gang had failed */
                  EXIT_CAUSE_COUNT,
};
struct exit_facts {
    enum exit_cause cause;
    int code, signal;
    bool out_of_memory, never_ran;
    bool damaged; /* it found the checkpoint that it was to resume from not to be what was saved */
    const char *launch_text; /* what the system said where it never ran; NULL: nothing */
    /* What was found of its own words, best first; NULL: nothing. */
    const char *failure; /* last line of the SDK's or torch's error */
    const char *traceback;
    const char *stderr_tail;
};
/* CODE_UNSPECIFIED for a clean end: code 0 and nobody killed it. */
Pb__Reason__Code exit_class_decide(const struct exit_facts *facts);
