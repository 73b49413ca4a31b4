#include "daemon/store_pg.h"
#include "base/mem.h"
#include "daemon/store_pg_hub.h"
#include "daemon/store_pg_value.h"
#include <assert.h>
#include <string.h>

#define PRUNE_EVERY   500 /* commits of a lane */
#define SERIES_CACHED 200000

struct store_pg_commit {
    struct store_pg_op op;
    struct store_pg_later later;
    struct store_pg_lane *lane;
    uint64_t term, number;
    store_done done;
    void *arg;
    struct store_pg_row_set rows;
    struct store_pg_point_set *points; /* NULL: none */
    enum status st;                    /* for later */
    struct error err;
};

/* --- answers on a later turn */

static void later_run(void *arg)
{
    struct store_pg *pg = arg;
    struct list now;

    list_init(&now);
    for (struct list *node; (node = list_take_first(&pg->laters));)
        list_add_last(&now, node);
    for (struct list *node; (node = list_take_first(&now));) {
        struct store_pg_later *later = LIST_ITEM(node, struct store_pg_later, node);
        later->run(later, false);
    }
}

void store_pg_later_add(struct store_pg *pg, struct store_pg_later *later)
{
    list_add_last(&pg->laters, &later->node);
    loop_timer_set(pg->later_timer, 0);
}

struct lead_answer {
    struct store_pg_later later;
    struct store_pg *pg;
    enum status st;
    struct error err;
};

static void lead_answer_run(struct store_pg_later *later, bool dropped)
{
    struct lead_answer *answer = CONTAINER_OF(later, struct lead_answer, later);
    struct store_pg *pg = answer->pg;
    __typeof__(pg->lead_done) done = pg->lead_done;

    if (!dropped && done) {
        pg->lead_done = NULL;
        bool ok = answer->st == STATUS_OK;
        done(pg->lead_arg, answer->st, ok ? NULL : &answer->err, ok ? pg->term : 0,
             ok ? pg->cluster : NULL);
    }
    mem_free(answer);
}

void store_pg_lead_end(struct store_pg *pg, enum status st, const struct error *err)
{
    if (!pg->lead_done)
        return;
    struct lead_answer *answer = NEW(struct lead_answer);
    answer->later.run = lead_answer_run;
    answer->pg = pg;
    answer->st = st;
    if (err)
        answer->err = *err;
    store_pg_later_add(pg, &answer->later);
}

/* --- commits */

static void commit_free(struct store_pg_commit *commit)
{
    store_pg_row_fini(&commit->rows);
    store_pg_point_destroy(commit->points);
    mem_free(commit);
}

static void commit_later(struct store_pg_later *later, bool dropped)
{
    struct store_pg_commit *commit = CONTAINER_OF(later, struct store_pg_commit, later);

    if (!dropped)
        commit->done(commit->arg, commit->st, commit->st == STATUS_OK ? NULL : &commit->err);
    commit_free(commit);
}

static void commit_refuse(struct store_pg *pg, struct store_pg_commit *commit, enum status st,
                          const char *text)
{
    commit->st = st;
    if (text)
        error_set(&commit->err, st, "%s", text);
    commit->later.run = commit_later;
    store_pg_later_add(pg, &commit->later);
}

static void commit_done(struct store_pg_op *op, enum status st, const struct error *err)
{
    struct store_pg_commit *commit = CONTAINER_OF(op, struct store_pg_commit, op);
    struct store_pg_lane *lane = commit->lane;
    struct store_pg *pg = lane->pg;

    lane->commit = NULL;
    if (st == STATUS_OK && commit->rows.job_max > pg->jobs_known)
        pg->jobs_known = commit->rows.job_max;
    if (st == STATUS_ABORTED)
        store_pg_lane_fence(pg, err->text);
    if (!pg->destroying)
        commit->done(commit->arg, st, err);
    commit_free(commit);
}

static void commit_send(struct store_pg_commit *commit)
{
    struct store_pg_lane *lane = commit->lane;
    struct store_pg_value_list batch = {0}, prune = {0};

    commit->op = (struct store_pg_op){.done = commit_done};
    store_pg_link_begin(lane->link, &commit->op);
    store_pg_value_i64(&batch, true, lane->number);
    store_pg_value_i64(&batch, true, (int64_t)commit->term);
    store_pg_value_i64(&batch, true, (int64_t)commit->number);
    store_pg_value_send(&batch, lane->link, STORE_BATCH_PUT);
    store_pg_row_send(&commit->rows, lane->link);
    if (commit->points)
        store_pg_point_send(commit->points, lane->link);
    if (++lane->commits % PRUNE_EVERY == 0) {
        store_pg_value_i64(&prune, true, lane->number);
        store_pg_value_send(&prune, lane->link, STORE_BATCH_PRUNE);
    }
    store_pg_link_end(lane->link);
}

static void series_result(struct store_pg_op *op, size_t call, const PGresult *result)
{
    struct store_pg_commit *commit = CONTAINER_OF(op, struct store_pg_commit, op);

    if (call == 1)
        store_pg_point_series(commit->points, result);
}

/* Nothing of the batch was sent yet: an unknown outcome here means that nothing changed. */
static void series_done(struct store_pg_op *op, enum status st, const struct error *err)
{
    struct store_pg_commit *commit = CONTAINER_OF(op, struct store_pg_commit, op);

    if (st != STATUS_OK) {
        commit_done(op, st == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : st, err);
        return;
    }
    store_pg_point_learn(commit->points);
    commit_send(commit);
}

/* False: every series is known. */
static bool commit_send_series(struct store_pg_commit *commit)
{
    struct store_pg_link *link = commit->lane->link;
    struct store_pg_value_list fence = {0};

    if (!commit->points || !store_pg_point_unknown(commit->points))
        return false;
    commit->op = (struct store_pg_op){.result = series_result, .done = series_done};
    store_pg_link_begin(link, &commit->op);
    store_pg_value_i64(&fence, true, (int64_t)commit->term);
    store_pg_value_send(&fence, link, STORE_FENCE);
    store_pg_point_send_series(commit->points, link);
    store_pg_link_end(link);
    return true;
}

static void commit_gather(struct store_pg_commit *commit, const struct batch *batch)
{
    struct store_pg *pg = commit->lane->pg;

    store_pg_row_gather(&commit->rows, batch, pg->jobs_known);
    for (const struct change *change = batch->first; change; change = change->next) {
        if (change->kind != CHANGE_REPORTS)
            continue;
        if (!commit->points)
            commit->points = store_pg_point_create(pg->series);
        store_pg_point_add(commit->points, (const Pb__ReportBatch *)change->row);
    }
}

static void store_pg_commit(struct store *store, const struct batch *batch, store_done done,
                            void *arg)
{
    struct store_pg *pg = CONTAINER_OF(store, struct store_pg, base);
    struct store_pg_lane *lane = &pg->lanes[batch->lane];
    struct store_pg_commit *commit = NEW(struct store_pg_commit);
    struct error err = {0};

    assert(!lane->commit);
    commit->lane = lane;
    commit->term = batch->term;
    commit->number = batch->number;
    commit->done = done;
    commit->arg = arg;
    store_pg_row_init(&commit->rows);
    if (pg->fenced || (pg->term && batch->term != pg->term)) {
        commit_refuse(pg, commit, STATUS_ABORTED, "a newer term leads");
        return;
    }
    if (!lane->usable) {
        commit_refuse(pg, commit, STATUS_UNAVAILABLE, "the database is away");
        return;
    }
    commit_gather(commit, batch);
    enum status st = store_pg_row_check(&commit->rows, &err);
    if (st == STATUS_OK && commit->points)
        st = store_pg_point_check(commit->points, &err);
    if (st != STATUS_OK) {
        commit_refuse(pg, commit, st, err.text);
        return;
    }
    lane->commit = commit;
    if (!commit_send_series(commit))
        commit_send(commit);
}

static void find_result(struct store_pg_op *op, size_t call, const PGresult *result)
{
    struct store_pg_commit *commit = CONTAINER_OF(op, struct store_pg_commit, op);

    (void)call;
    commit->st = PQntuples(result) == 1 && store_pg_value_get_bool(result, 0, 0) ? STATUS_OK
                                                                                 : STATUS_NOT_FOUND;
}

static void find_done(struct store_pg_op *op, enum status st, const struct error *err)
{
    struct store_pg_commit *commit = CONTAINER_OF(op, struct store_pg_commit, op);

    if (st != STATUS_OK)
        error_set(&commit->err, STATUS_UNAVAILABLE, "%s", err->text);
    else if (commit->st == STATUS_NOT_FOUND)
        error_set(&commit->err, STATUS_NOT_FOUND, "batch %llu of term %llu is not stored",
                  (unsigned long long)commit->number, (unsigned long long)commit->term);
    enum status answer = st == STATUS_OK ? commit->st : STATUS_UNAVAILABLE;
    if (!commit->lane->pg->destroying)
        commit->done(commit->arg, answer, answer == STATUS_OK ? NULL : &commit->err);
    commit_free(commit);
}

/* Asked on the lane's own connection: that one has the lane's lock, so the session that was lost
 * has ended, and with it whatever it was doing. */
static void store_pg_batch_done(struct store *store, enum store_lane number, uint64_t term,
                                uint64_t batch, store_done done, void *arg)
{
    struct store_pg *pg = CONTAINER_OF(store, struct store_pg, base);
    struct store_pg_lane *lane = &pg->lanes[number];
    struct store_pg_commit *find = NEW(struct store_pg_commit);
    struct store_pg_value_list list = {0};

    find->lane = lane;
    find->term = term;
    find->number = batch;
    find->done = done;
    find->arg = arg;
    store_pg_row_init(&find->rows);
    if (!lane->usable) {
        commit_refuse(pg, find, STATUS_UNAVAILABLE, "the database is away");
        return;
    }
    find->st = STATUS_NOT_FOUND;
    find->op = (struct store_pg_op){.result = find_result, .done = find_done};
    store_pg_link_begin(lane->link, &find->op);
    store_pg_value_i64(&list, true, number);
    store_pg_value_i64(&list, true, (int64_t)term);
    store_pg_value_i64(&list, true, (int64_t)batch);
    store_pg_value_send(&list, lane->link, STORE_BATCH_FIND);
    store_pg_link_end(lane->link);
}

/* --- life */

static void store_pg_lead(struct store *store, uint32_t ended_max, store_row row,
                          void (*done)(void *arg, enum status st, const struct error *err,
                                       uint64_t term, const char *cluster),
                          void *arg)
{
    struct store_pg *pg = CONTAINER_OF(store, struct store_pg, base);

    assert(!pg->leading);
    pg->leading = true;
    pg->ended_max = ended_max;
    pg->lead_row = row;
    pg->lead_done = done;
    pg->lead_arg = arg;
    store_pg_link_open(pg->lanes[STORE_STATE].link);
    store_pg_care_start(pg);
}

static void store_pg_destroy(struct store *store)
{
    struct store_pg *pg = CONTAINER_OF(store, struct store_pg, base);

    pg->destroying = true;
    for (size_t i = 0; i < STORE_LANE_COUNT; i++)
        store_pg_lane_fini(&pg->lanes[i]);
    store_pg_link_destroy(pg->history);
    for (struct list *node; (node = list_take_first(&pg->laters));) {
        struct store_pg_later *later = LIST_ITEM(node, struct store_pg_later, node);
        later->run(later, true);
    }
    loop_timer_destroy(pg->later_timer);
    store_pg_care_fini(pg);
    store_pg_point_cache_destroy(pg->series);
    mem_free(pg->conninfo);
    mem_free(pg->holder);
    mem_free(pg);
}

static const struct store_ops store_pg_ops = {
    .lead = store_pg_lead,
    .commit = store_pg_commit,
    .batch_done = store_pg_batch_done,
    .query = store_pg_history_query,
    .destroy = store_pg_destroy,
};

enum status store_pg_create(const struct store_pg_options *options, struct store **out,
                            struct error *err)
{
    struct store_pg *pg = NEW(struct store_pg);

    pg->base.ops = &store_pg_ops;
    pg->loop = options->loop;
    pg->conninfo = mem_strdup(options->conninfo);
    pg->holder = mem_strdup(options->holder ? options->holder : "rondod");
    pg->lease_ms = options->lease_ms ? options->lease_ms : 10000;
    pg->grace_ms = options->grace_ms ? options->grace_ms : 2000;
    pg->answer_ms_max = options->answer_ms_max ? options->answer_ms_max : 20000;
    pg->keep = options->keep;
    list_init(&pg->laters);
    pg->later_timer = loop_timer_create(pg->loop, later_run, pg);
    store_pg_care_init(pg);
    pg->series = store_pg_point_cache_create(SERIES_CACHED);
    enum status st = store_pg_lane_init(&pg->lanes[STORE_STATE], pg, STORE_STATE, err);
    if (st == STATUS_OK)
        st = store_pg_lane_init(&pg->lanes[STORE_BULK], pg, STORE_BULK, err);
    if (st == STATUS_OK)
        st = store_pg_history_init(pg, err);
    if (st != STATUS_OK) {
        store_pg_destroy(&pg->base);
        return st;
    }
    *out = &pg->base;
    return STATUS_OK;
}
