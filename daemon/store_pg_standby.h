/* store_pg_standby.h - may we lead now? Decided from what the database shows.
 *
 * Pure; any thread. Ages are monotonic durations for which the same thing was seen without a break
 * on one connection, so that a database that has just come back does not cost a leader its term. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum store_pg_standby_move {
    STORE_PG_STANDBY_WAIT,
    STORE_PG_STANDBY_TAKE,  /* take the lock */
    STORE_PG_STANDBY_EVICT, /* end the sessions of the holder, then look again */
};
struct store_pg_standby_view {
    bool locked;        /* somebody's session holds the lock */
    bool ours;          /* the leadership row names us, or nobody */
    int64_t free_us;    /* the lock has been free for so long */
    int64_t expired_us; /* the lease has been over for so long; 0: it is not */
};
/* The holder's own restart never waits for its lease; another one gives it grace_us to come back.
 */
enum store_pg_standby_move store_pg_standby_decide(const struct store_pg_standby_view *view,
                                                   int64_t grace_us);
