/* store_pg_hub.h - what the files of the PostgreSQL store share. Nobody else includes it.
 *
 * Loop thread. store_pg.c owns the hub, its commits and answers; store_pg_lane.c the two lanes and
 * leadership; store_pg_load.c the loading; store_pg_history.c the third connection. */
#pragma once
#include "daemon/store_pg.h"
#include "daemon/store_pg_link.h"
#include "daemon/store_pg_point.h"
#include "daemon/store_pg_row.h"

struct store_pg;
struct store_pg_commit;

struct store_pg_lane {
    struct store_pg *pg;
    enum store_lane number;
    struct store_pg_link *link;
    struct loop_timer *timer;       /* polls for the lock; later renews the lease */
    int pid;                        /* our session's backend, also after it was lost */
    bool usable;                    /* has its lock, is prepared, and the term is still ours */
    struct store_pg_commit *commit; /* in flight */
    uint64_t commits;
    struct store_pg_op op; /* taking the term, renewing the lease */
    bool op_busy;
    int migration;                     /* index of the one being applied */
    int64_t free_since, expired_since; /* loop time; 0: not so */
};

/* Something to run later on the loop, once: run, or drop when the store is destroyed. */
struct store_pg_later {
    struct list node;
    void (*run)(struct store_pg_later *later, bool dropped);
};

struct store_pg {
    struct store base;
    struct loop *loop;
    char *conninfo, *holder;
    uint64_t lease_ms, grace_ms, answer_ms_max;
    struct store_pg_keep keep;
    struct store_pg_lane lanes[STORE_LANE_COUNT];
    struct store_pg_link *history;
    size_t asked; /* questions to history without an answer */
    bool leading, loading, fenced, destroying, told_usable;
    uint64_t term;
    char cluster[64];
    int64_t jobs_known; /* jobs up to this id are in the table */
    uint32_t ended_max;
    store_row lead_row;
    void (*lead_done)(void *arg, enum status st, const struct error *err, uint64_t term,
                      const char *cluster); /* NULL: was called, or not asked for */
    void *lead_arg;
    struct store_pg_point_cache *series;
    struct store_pg_op load, care;
    bool care_busy, care_more;
    struct loop_timer *later_timer, *care_timer;
    struct list laters;
};

void store_pg_later_add(struct store_pg *pg, struct store_pg_later *later);
/* Ends lead, later: OK when everything is loaded and both lanes are usable. */
void store_pg_lead_end(struct store_pg *pg, enum status st, const struct error *err);

/* store_pg_lane.c */
enum status store_pg_lane_init(struct store_pg_lane *lane, struct store_pg *pg,
                               enum store_lane number, struct error *err) MUST_CHECK;
void store_pg_lane_fini(struct store_pg_lane *lane);
void store_pg_lane_fence(struct store_pg *pg, const char *why); /* another term leads: stop */
void store_pg_lane_tell(struct store_pg *pg, const char *text); /* on_state, when it changed */

/* store_pg_load.c */
void store_pg_load_start(struct store_pg *pg);

/* store_pg_care.c: upkeep, on the bulk lane's connection */
void store_pg_care_init(struct store_pg *pg);
void store_pg_care_start(struct store_pg *pg);
void store_pg_care_fini(struct store_pg *pg);

/* store_pg_history.c */
enum status store_pg_history_init(struct store_pg *pg, struct error *err) MUST_CHECK;
void store_pg_history_query(struct store *store, const ProtobufCMessage *request, store_reply done,
                            void *arg);
