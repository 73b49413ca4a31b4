/* store_pg_load.c - everything that the daemon keeps in memory, row by row, in one snapshot.
 *
 * Runs once, on the state lane, under our own term: nobody else writes. Memory is bounded by one
 * row: results arrive row by row. */
#include "base/mem.h"
#include "daemon/store_pg_hub.h"
#include "daemon/store_pg_value.h"

static const struct load_step {
    enum store_statement statement;
    enum change_kind kind;
    const ProtobufCMessageDescriptor *packed; /* NULL: a kind of its own */
} load_steps[] = {
    {STORE_LOAD_PROJECT, CHANGE_PROJECT, &pb__project_row__descriptor},
    {STORE_LOAD_NODE, CHANGE_NODE, &pb__node__descriptor},
    {STORE_LOAD_JOB, CHANGE_JOB, NULL},
    {STORE_LOAD_ATTEMPT, CHANGE_ATTEMPT, &pb__attempt__descriptor},
    {STORE_LOAD_CHECKPOINT, CHANGE_CHECKPOINT, &pb__checkpoint__descriptor},
    {STORE_LOAD_MARK, CHANGE_MARK, NULL},
    {STORE_LOAD_REQUEST, CHANGE_REQUEST, NULL},
    {STORE_LOAD_EVENT, CHANGE_EVENT, NULL},
    {STORE_LOAD_JOB_MAX, CHANGE_KIND_COUNT, NULL},
};

static ProtobufCMessage *load_row(const struct load_step *step, const PGresult *result, int row)
{
    if (step->packed)
        return store_pg_row_packed(result, row, step->packed);
    switch (step->kind) {
    case CHANGE_JOB: {
        Pb__Job *job = store_pg_row_job(result, row);
        return job ? &job->base : NULL;
    }
    case CHANGE_MARK:
        return &store_pg_row_mark(result, row)->base;
    case CHANGE_REQUEST:
        return &store_pg_row_request(result, row)->base;
    case CHANGE_EVENT:
        return &store_pg_row_event(result, row)->base;
    default:
        return NULL;
    }
}

static void load_result(struct store_pg_op *op, size_t call, const PGresult *result)
{
    struct store_pg *pg = CONTAINER_OF(op, struct store_pg, load);
    const struct load_step *step = &load_steps[call];

    for (int row = 0; row < PQntuples(result); row++) {
        if (step->statement == STORE_LOAD_JOB_MAX) {
            pg->jobs_known = store_pg_value_get_i64(result, row, 0);
            continue;
        }
        ProtobufCMessage *message = load_row(step, result, row);
        if (message)
            pg->lead_row(pg->lead_arg, step->kind, message);
        else if (op->st == STATUS_OK)
            op->st = error_set(&op->err, STATUS_DATA_LOSS, "load: a row of %s can't be read",
                               store_pg_statements[step->statement].name);
    }
}

static void load_done(struct store_pg_op *op, enum status st, const struct error *err)
{
    struct store_pg *pg = CONTAINER_OF(op, struct store_pg, load);
    struct error wrapped = {0};

    if (pg->destroying)
        return;
    pg->loading = false;
    if (st == STATUS_OK) {
        store_pg_lane_tell(pg, "loaded");
        return;
    }
    /* Rows were handed over already: only a new store can begin again. */
    error_set(&wrapped, st == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : st, "load: %s", err->text);
    store_pg_lead_end(pg, wrapped.code, &wrapped);
}

void store_pg_load_start(struct store_pg *pg)
{
    struct store_pg_link *link = pg->lanes[STORE_STATE].link;

    pg->loading = true;
    pg->load = (struct store_pg_op){.result = load_result, .done = load_done, .by_row = true};
    store_pg_link_begin(link, &pg->load);
    for (size_t i = 0; i < COUNT_OF(load_steps); i++) {
        struct store_pg_value_list list = {0};
        if (store_pg_statements[load_steps[i].statement].values == 1)
            store_pg_value_i64(&list, true, pg->ended_max);
        store_pg_value_send(&list, link, load_steps[i].statement);
    }
    store_pg_link_end(link);
}
