/* store_pg_lane.c - the two lanes: their locks, the term, the lease, and coming back.
 *
 * A lane's session holds the advisory lock (class, lane): two sessions of one lane never overlap,
 * so what a lost session did is settled once the next one has the lock.
 *
 *   state lane, first time: bootstrap -> look -> (wait | evict | try) -> migrate -> prepare -> LEAD
 *   any lane, later:        try (evicting our own lost session) -> prepare -> usable */
#include "base/mem.h"
#include "daemon/store_pg_hub.h"
#include "daemon/store_pg_migration.h"
#include "daemon/store_pg_standby.h"
#include "daemon/store_pg_value.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCK_CLASS "1919905380" /* "rond" */
#define LOOK_US    100000
#define RETRY_US   20000

/* Plans must not depend on how empty the tables were when the daemon started: by index, always. */
#define SESSION_SQL                                                                                \
    "set client_min_messages = warning; set statement_timeout = '15s'; set lock_timeout = '10s'; " \
    "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; "                         \
    "set enable_hashjoin = off; set enable_mergejoin = off; set jit = off; "                       \
    "set synchronous_commit = on; set bytea_output = hex; set timezone = 'UTC'"
#define HOLDER_SQL                                                                                 \
    "(select min(pid) from pg_locks where locktype = 'advisory' and classid = $1::oid and "        \
    "objid = $2::oid and objsubid = 2 and granted and pid <> pg_backend_pid() and "                \
    "database = (select oid from pg_database where datname = current_database()))"
#define LOOK_SQL                                                                                   \
    "select " HOLDER_SQL ", holder in ('', $3), lease_until < clock_timestamp() from leadership"
#define TRY_SQL                                                                                    \
    "select pg_try_advisory_lock($1::int4, $2::int4), (select term from leadership), " HOLDER_SQL
#define EVICT_SQL                                                                                  \
    "select pg_terminate_backend(pid, 2000) from pg_locks where locktype = 'advisory' and "        \
    "classid = $1::oid and objsubid = 2 and granted and pid <> pg_backend_pid() and "              \
    "database = (select oid from pg_database where datname = current_database()) and "             \
    "($2 = '' or objid = $2::oid)"

static void lane_try(struct store_pg_lane *lane);
static void lane_look(struct store_pg_lane *lane);
static void lane_migrate(struct store_pg_lane *lane);

/* --- telling the owner */

void store_pg_lane_tell(struct store_pg *pg, const char *text)
{
    bool usable = !pg->fenced && pg->lanes[STORE_STATE].usable && pg->lanes[STORE_BULK].usable &&
                  !pg->loading && pg->term;

    if (usable && store_pg_link_is_ready(pg->history)) /* later, reads may come and go alone */
        store_pg_lead_end(pg, STATUS_OK, NULL);
    if (pg->destroying || !pg->base.on_state)
        return;
    if (usable == pg->told_usable && (usable || !text))
        return;
    pg->told_usable = usable;
    pg->base.on_state(pg->base.on_state_arg, usable, pg->fenced, text ? text : "");
}

void store_pg_lane_fence(struct store_pg *pg, const char *why)
{
    struct error err = {0};

    if (pg->fenced)
        return;
    error_set(&err, STATUS_ABORTED, "%s", why);
    pg->fenced = true;
    for (size_t i = 0; i < STORE_LANE_COUNT; i++) {
        pg->lanes[i].usable = false;
        loop_timer_stop(pg->lanes[i].timer);
        store_pg_link_drop(pg->lanes[i].link, true, "a newer term leads");
    }
    store_pg_lane_tell(pg, err.text);
    store_pg_lead_end(pg, STATUS_ABORTED, &err);
}

/* Before anybody leads, a database that refuses what we need ends lead; trouble that passes waits.
 */
static void lane_fail(struct store_pg_lane *lane, const struct error *err)
{
    struct store_pg *pg = lane->pg;
    bool passes = err->code == STATUS_UNAVAILABLE || err->code == STATUS_UNKNOWN;

    if (!pg->lead_done || passes) {
        store_pg_link_drop(lane->link, false, err->text);
        return;
    }
    store_pg_lead_end(pg, err->code, err);
    store_pg_link_drop(lane->link, true, err->text);
}

/* --- the term and its lease */

static void renew_done(struct store_pg_op *op, enum status st, const struct error *err)
{
    struct store_pg_lane *lane = CONTAINER_OF(op, struct store_pg_lane, op);

    (void)err; /* a lost connection was told; else the next renewal may do better */
    lane->op_busy = false;
    if (lane->pg->destroying || lane->pg->fenced || st != STATUS_OK)
        return;
    if (!lane->usable) {
        lane->usable = true;
        store_pg_lane_tell(lane->pg, "the database is back");
    }
}

static void renew_result(struct store_pg_op *op, size_t call, const PGresult *result)
{
    struct store_pg_lane *lane = CONTAINER_OF(op, struct store_pg_lane, op);

    (void)call;
    if (strcmp(PQcmdTuples((PGresult *)(uintptr_t)result), "0") == 0)
        store_pg_lane_fence(lane->pg, "a newer term leads");
}

static void lane_renew(struct store_pg_lane *lane)
{
    struct store_pg_value_list list = {0};

    loop_timer_set(lane->timer, (int64_t)lane->pg->lease_ms * 1000 / 4);
    if (lane->op_busy)
        return;
    lane->op_busy = true;
    lane->op = (struct store_pg_op){.result = renew_result, .done = renew_done};
    store_pg_link_begin(lane->link, &lane->op);
    store_pg_value_i64(&list, true, (int64_t)lane->pg->term);
    store_pg_value_i64(&list, true, (int64_t)lane->pg->lease_ms);
    store_pg_value_send(&list, lane->link, STORE_LEASE_RENEW);
    store_pg_link_end(lane->link);
}

static void lead_result(struct store_pg_op *op, size_t call, const PGresult *result)
{
    struct store_pg_lane *lane = CONTAINER_OF(op, struct store_pg_lane, op);
    struct store_pg *pg = lane->pg;

    (void)call;
    if (PQntuples(result) != 1)
        return;
    pg->term = (uint64_t)store_pg_value_get_i64(result, 0, 0);
    snprintf(pg->cluster, sizeof(pg->cluster), "%s", PQgetvalue(result, 0, 1));
}

static void lead_done(struct store_pg_op *op, enum status st, const struct error *err)
{
    struct store_pg_lane *lane = CONTAINER_OF(op, struct store_pg_lane, op);
    struct store_pg *pg = lane->pg;

    lane->op_busy = false;
    if (pg->destroying)
        return;
    if (st == STATUS_UNKNOWN) { /* if the term was taken it was for nothing: we take the next */
        pg->term = 0;
        return;
    }
    if (st != STATUS_OK) {
        pg->term = 0;
        lane_fail(lane, err);
        return;
    }
    lane->usable = true;
    lane_renew(lane);
    store_pg_load_start(pg);
    store_pg_link_open(pg->lanes[STORE_BULK].link);
    store_pg_link_open(pg->history);
}

static void lane_take_term(struct store_pg_lane *lane)
{
    struct store_pg_value_list list = {0};

    lane->op_busy = true;
    lane->op = (struct store_pg_op){.result = lead_result, .done = lead_done};
    store_pg_link_begin(lane->link, &lane->op);
    store_pg_value_text(&list, lane->pg->holder);
    store_pg_value_i64(&list, true, (int64_t)lane->pg->lease_ms);
    store_pg_value_send(&list, lane->link, STORE_LEAD);
    store_pg_link_end(lane->link);
}

/* --- the lock */

static const char *lane_key(const struct store_pg_lane *lane)
{
    return lane->number == STORE_STATE ? "0" : "1";
}

static bool result_bool(const PGresult *result, int column)
{
    return PQntuples(result) == 1 && PQgetvalue(result, 0, column)[0] == 't';
}

static void lane_evicted(void *arg, const PGresult *result, const struct error *err)
{
    struct store_pg_lane *lane = arg;

    (void)result;
    if (err)
        lane_fail(lane, err);
    else
        lane_try(lane); /* at once: the one we ended may be quick to come back */
}

/* Ends the sessions that hold this lane's lock, or those of every lane. */
static void lane_evict(struct store_pg_lane *lane, bool every)
{
    const char *values[] = {LOCK_CLASS, every ? "" : lane_key(lane)};

    store_pg_link_ask(lane->link, EVICT_SQL, values, 2, lane_evicted, lane);
}

static void lane_tried(void *arg, const PGresult *result, const struct error *err)
{
    struct store_pg_lane *lane = arg;
    struct store_pg *pg = lane->pg;

    if (err) {
        lane_fail(lane, err);
        return;
    }
    bool locked = result_bool(result, 0);
    uint64_t term = strtoull(PQgetvalue(result, 0, 1), NULL, 10);
    int holder = (int)strtol(PQgetvalue(result, 0, 2), NULL, 10);
    if (pg->term && term != pg->term)
        store_pg_lane_fence(pg, "a newer term leads");
    else if (locked && pg->term)
        store_pg_link_prepare(lane->link);
    else if (locked)
        lane_migrate(lane);
    else if (holder && (lane->number == STORE_BULK || (pg->term && holder == lane->pid)))
        lane_evict(lane, false); /* left over from the session that we lost */
    else
        loop_timer_set(lane->timer, RETRY_US);
}

static void lane_try(struct store_pg_lane *lane)
{
    const char *values[] = {LOCK_CLASS, lane_key(lane)};

    store_pg_link_ask(lane->link, TRY_SQL, values, 2, lane_tried, lane);
}

static void age(int64_t *since, bool is, int64_t now)
{
    if (!is)
        *since = 0;
    else if (!*since)
        *since = now;
}

static void lane_looked(void *arg, const PGresult *result, const struct error *err)
{
    struct store_pg_lane *lane = arg;
    int64_t now = loop_now_us(lane->pg->loop);
    struct store_pg_standby_view view = {0};

    if (err || PQntuples(result) != 1) {
        lane_fail(lane, err ? err : &(struct error){STATUS_DATA_LOSS, "no leadership row"});
        return;
    }
    view.locked = !PQgetisnull(result, 0, 0);
    view.ours = result_bool(result, 1);
    age(&lane->free_since, !view.locked, now);
    age(&lane->expired_since, result_bool(result, 2), now);
    view.free_us = lane->free_since ? now - lane->free_since : 0;
    view.expired_us = lane->expired_since ? now - lane->expired_since : 0;
    switch (store_pg_standby_decide(&view, (int64_t)lane->pg->grace_ms * 1000)) {
    case STORE_PG_STANDBY_TAKE:
        lane_try(lane);
        return;
    case STORE_PG_STANDBY_EVICT:
        lane_evict(lane, true);
        return;
    case STORE_PG_STANDBY_WAIT:
        loop_timer_set(lane->timer, LOOK_US);
        return;
    }
}

static void lane_look(struct store_pg_lane *lane)
{
    const char *values[] = {LOCK_CLASS, "0", lane->pg->holder};

    store_pg_link_ask(lane->link, LOOK_SQL, values, 3, lane_looked, lane);
}

static void lane_timer(void *arg)
{
    struct store_pg_lane *lane = arg;

    if (store_pg_link_is_ready(lane->link))
        lane_renew(lane);
    else if (lane->pg->term)
        lane_try(lane);
    else
        lane_look(lane);
}

/* --- migrations: under the lane's lock, each in one transaction with its row */

static void lane_migrated(void *arg, const PGresult *result, const struct error *err)
{
    struct store_pg_lane *lane = arg;
    struct error wrapped = {0};

    (void)result;
    if (err) {
        error_set(&wrapped, err->code, "migration %s: %s",
                  store_pg_migrations[lane->migration].name, err->text);
        lane_fail(lane, &wrapped);
        return;
    }
    lane->migration++;
    lane_migrate(lane);
}

static void lane_migrate_next(struct store_pg_lane *lane, int stored)
{
    const struct store_pg_migration *next = &store_pg_migrations[lane->migration];

    while (next->number >= 0 && next->number <= stored)
        next = &store_pg_migrations[++lane->migration];
    if (next->number < 0) {
        store_pg_link_prepare(lane->link);
        return;
    }
    SCOPED_TEXT char *sql =
        mem_printf("begin; set local statement_timeout = 0; %s; "
                   "insert into schema_migration (number, name) values (%d, '%s'); commit",
                   next->sql, next->number, next->name);
    store_pg_link_ask(lane->link, sql, NULL, 0, lane_migrated, lane);
}

static void lane_migrations_read(void *arg, const PGresult *result, const struct error *err)
{
    struct store_pg_lane *lane = arg;
    int known = 0;

    if (err) {
        lane_fail(lane, err);
        return;
    }
    for (const struct store_pg_migration *m = store_pg_migrations; m->number >= 0; m++)
        known = m->number;
    int stored = (int)strtol(PQgetvalue(result, 0, 0), NULL, 10);
    if (stored > known) {
        struct error newer = {0};
        error_set(&newer, STATUS_PRECONDITION,
                  "the database has migration %d, this program knows %d: start a newer program",
                  stored, known);
        lane_fail(lane, &newer);
        return;
    }
    lane_migrate_next(lane, stored);
}

static void lane_migrate(struct store_pg_lane *lane)
{
    store_pg_link_ask(lane->link, "select coalesce(max(number), 0) from schema_migration", NULL, 0,
                      lane_migrations_read, lane);
}

/* --- life of the connection */

static void lane_bootstrapped(void *arg, const PGresult *result, const struct error *err)
{
    struct store_pg_lane *lane = arg;

    (void)result;
    if (err)
        lane_fail(lane, err);
    else
        lane_look(lane);
}

static void lane_set(void *arg, const PGresult *result, const struct error *err)
{
    struct store_pg_lane *lane = arg;

    (void)result;
    if (err) {
        lane_fail(lane, err);
        return;
    }
    if (lane->pg->term) {
        lane_try(lane);
        return;
    }
    SCOPED_TEXT char *sql = mem_printf("begin; select pg_advisory_xact_lock(%s, 99); %s; commit",
                                       LOCK_CLASS, store_pg_migrations[0].sql);
    store_pg_link_ask(lane->link, sql, NULL, 0, lane_bootstrapped, lane);
}

static void lane_on_open(void *arg)
{
    struct store_pg_lane *lane = arg;

    lane->free_since = lane->expired_since = 0;
    lane->migration = 1;
    store_pg_link_ask(lane->link, SESSION_SQL, NULL, 0, lane_set, lane);
}

static void lane_on_ready(void *arg)
{
    struct store_pg_lane *lane = arg;

    lane->pid = store_pg_link_pid(lane->link);
    if (lane->number == STORE_STATE) {
        if (lane->pg->term)
            lane_renew(lane);
        else
            lane_take_term(lane);
        return;
    }
    lane->usable = true;
    store_pg_lane_tell(lane->pg, "the database is back");
}

static void lane_on_lost(void *arg, const struct error *err)
{
    struct store_pg_lane *lane = arg;

    lane->usable = false;
    loop_timer_stop(lane->timer);
    if (lane->pg->fenced)
        return;
    if (err->code != STATUS_UNKNOWN && err->code != STATUS_UNAVAILABLE) {
        lane_fail(lane, err); /* a statement no longer fits the tables */
        return;
    }
    store_pg_lane_tell(lane->pg, err->text);
}

enum status store_pg_lane_init(struct store_pg_lane *lane, struct store_pg *pg,
                               enum store_lane number, struct error *err)
{
    struct store_pg_link_options options = {
        .loop = pg->loop,
        .name = number == STORE_STATE ? "rondod state" : "rondod bulk",
        .conninfo = pg->conninfo,
        .answer_ms_max = pg->answer_ms_max,
        .on_open = lane_on_open,
        .on_ready = lane_on_ready,
        .on_lost = lane_on_lost,
        .arg = lane,
    };

    lane->pg = pg;
    lane->number = number;
    enum status st = store_pg_link_create(&options, &lane->link, err);
    if (st == STATUS_OK)
        lane->timer = loop_timer_create(pg->loop, lane_timer, lane);
    return st;
}

void store_pg_lane_fini(struct store_pg_lane *lane)
{
    store_pg_link_destroy(lane->link);
    loop_timer_destroy(lane->timer);
}
