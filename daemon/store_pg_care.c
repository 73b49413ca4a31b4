/* store_pg_care.c - upkeep: partitions of points ahead, and what is old or unused goes.
 *
 * On the bulk lane's connection, between its commits: no turn waits for it. Each round deletes
 * little; while it finds a full batch the next one follows after CARE_MORE_US. What a job that has
 * not ended needs stays: sql/0003_retention.sql. */
#include "base/log.h"
#include "daemon/store_pg_hub.h"
#include "daemon/store_pg_value.h"

#define CARE_US      (600LL * 1000000)
#define CARE_MORE_US 2000000
#define DAYS_AHEAD   7
#define EVENTS_BATCH 2000
#define CODE_BATCH   10

enum care_call { CARE_PARTITIONS, CARE_REQUESTS, CARE_EVENTS, CARE_CODE };

static void care_result(struct store_pg_op *op, size_t call, const PGresult *result)
{
    struct store_pg *pg = CONTAINER_OF(op, struct store_pg, care);

    if ((call != CARE_EVENTS && call != CARE_CODE) || PQntuples(result) != 1)
        return;
    int64_t count = store_pg_value_get_i64(result, 0, 0);
    if (count > 0)
        log_info(call == CARE_EVENTS ? "store.events_pruned" : "store.code_pruned",
                 log_int("count", count));
    pg->care_more |= count >= (call == CARE_EVENTS ? EVENTS_BATCH : CODE_BATCH);
}

static void care_done(struct store_pg_op *op, enum status st, const struct error *err)
{
    struct store_pg *pg = CONTAINER_OF(op, struct store_pg, care);

    if (st != STATUS_OK && st != STATUS_UNAVAILABLE && st != STATUS_UNKNOWN)
        log_warn("store.care", log_err(err)); /* tried again; points go to the default partition */
    pg->care_busy = false;
    loop_timer_set(pg->care_timer, st != STATUS_OK ? CARE_US / 10
                                   : pg->care_more ? CARE_MORE_US
                                                   : CARE_US);
}

static void care_run(void *arg)
{
    struct store_pg *pg = arg;
    struct store_pg_lane *lane = &pg->lanes[STORE_BULK];
    struct store_pg_value_list days = {0}, none = {0}, events = {0}, code = {0};

    if (pg->care_busy)
        return;
    loop_timer_set(pg->care_timer, 1000000);
    if (!lane->usable)
        return;
    pg->care_busy = true;
    pg->care_more = false;
    pg->care = (struct store_pg_op){.result = care_result, .done = care_done};
    store_pg_link_begin(lane->link, &pg->care);
    store_pg_value_i64(&days, true, DAYS_AHEAD);
    store_pg_value_i64(&days, true, pg->keep.points_days);
    store_pg_value_send(&days, lane->link, STORE_METRIC_PARTITIONS);
    store_pg_value_send(&none, lane->link, STORE_REQUEST_PRUNE);
    store_pg_value_i64(&events, true, pg->keep.events_days);
    store_pg_value_i64(&events, true, pg->keep.events_count);
    store_pg_value_i64(&events, true, EVENTS_BATCH);
    store_pg_value_send(&events, lane->link, STORE_EVENT_PRUNE);
    store_pg_value_i64(&code, true, pg->keep.code_days);
    store_pg_value_i64(&code, true, CODE_BATCH);
    store_pg_value_send(&code, lane->link, STORE_CODE_PRUNE);
    store_pg_link_end(lane->link);
}

void store_pg_care_init(struct store_pg *pg)
{
    pg->care_timer = loop_timer_create(pg->loop, care_run, pg);
}

void store_pg_care_start(struct store_pg *pg)
{
    loop_timer_set(pg->care_timer, 0);
}

void store_pg_care_fini(struct store_pg *pg)
{
    loop_timer_destroy(pg->care_timer);
}
