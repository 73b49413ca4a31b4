#include "daemon/store_pg_standby.h"

/* A leader that is back after an outage renews at once: an expired lease must last. */
#define EXPIRED_US_MIN 500000

enum store_pg_standby_move store_pg_standby_decide(const struct store_pg_standby_view *view,
                                                   int64_t grace_us)
{
    if (view->locked)
        return view->expired_us >= EXPIRED_US_MIN ? STORE_PG_STANDBY_EVICT : STORE_PG_STANDBY_WAIT;
    if (view->ours || view->free_us >= grace_us)
        return STORE_PG_STANDBY_TAKE;
    return STORE_PG_STANDBY_WAIT;
}
