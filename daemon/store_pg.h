/* store_pg.h - the store in PostgreSQL: two lanes for commits, a third connection for history.
 *
 * Loop thread only; needs loop_uv. Leadership: the session lock of the state lane, a term that
 * every transaction checks, and a lease on the database's clock that a timer renews. A store that
 * is asked to lead while another one does waits: until the lock is free (at once for the same
 * holder, after grace_ms for another one's) or until the lease has run out, then it ends the
 * holder's sessions. Destroy drops callbacks that have not run yet; it must not be called from one.
 */
#pragma once
#include "daemon/store.h"

struct store_pg_options {
    struct loop *loop;
    const char *conninfo;   /* host=/socket/dir or hostaddr=..., dbname=..., user=... */
    const char *holder;     /* who leads, stable over restarts of this daemon: host and directory */
    uint64_t lease_ms;      /* 0: 10,000 */
    uint64_t grace_ms;      /* 0: 2,000 */
    uint64_t answer_ms_max; /* 0: 20,000; a connection silent for so long while asked is dead */
    struct store_pg_keep {
        uint32_t points_days;               /* 0: for ever */
        uint32_t events_days, events_count; /* older ones, and more than so many, go; 0: no bound */
        uint32_t code_days;                 /* since upload and last use; 0: for ever */
    } keep;
};
/* STATUS_INVALID: conninfo. Nothing connects before lead. */
enum status store_pg_create(const struct store_pg_options *options, struct store **out,
                            struct error *err) MUST_CHECK;
