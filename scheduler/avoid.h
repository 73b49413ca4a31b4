/* avoid.h - which nodes a job stays away from for a while: those where it just failed to start.
 *
 * Pure: failures in, a set with reasons and ends out; the caller owns all texts. Any thread. The
 * first failure on a node keeps the job away for AVOID_US, each further one in its history twice as
 * long, up to AVOID_US_MAX. What placement makes of it: snapshot.h. */
#pragma once
#include "scheduler/snapshot.h"

#define AVOID_US      ((int64_t)30 * 1000000)
#define AVOID_US_MAX  ((int64_t)600 * 1000000)
#define AVOID_WAIT_US ((int64_t)5 * 1000000) /* for room on another node, then any will do */
#define AVOID_MAX     64                     /* nodes of one job: those with the latest failures */

struct avoid_failure { /* a worker of the job did not start, or its node broke it */
    const char *node;
    int64_t at_us;   /* on the caller's clock; a later one than now counts as now */
    const char *why; /* borrowed, shown to people */
};
/* failures: oldest first; several of one attempt on one node share their at_us and count once.
 * Fills out (room for AVOID_MAX) with the nodes whose time is not over; answers how many. */
size_t avoid_decide(const struct avoid_failure *failures, size_t count, int64_t now_us,
                    struct snapshot_avoid *out);
