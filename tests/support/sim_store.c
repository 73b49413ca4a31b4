/* sim_store.c - a simulated database. See sim_store.h. */
#include "tests/support/sim_store.h"
#include "base/mem.h"
#include "proto/pb.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct row {
    const ProtobufCMessageDescriptor *type;
    uint8_t *bytes;
    size_t len;
};
struct sim_db {
    struct sim *sim;
    struct map *rows[CHANGE_KIND_COUNT];
    struct map *batches; /* "term.lane.number" -> this */
    struct map *points;  /* "job.attempt.role.rank.incarnation.step" -> this */
    uint64_t term;
    uint32_t unknown_per_mille;
    bool away;
    struct list stores;
};
struct sim_store {
    struct store store; /* first */
    struct sim_db *db;
    struct sim_process *process;
    struct list node, flights;
    uint64_t term;
    bool usable, dropped;
    store_row row;
    void (*lead_done)(void *, enum status, const struct error *, uint64_t, const char *);
    void *lead_arg;
};
struct flight {              /* one commit: its rows, packed at once */
    struct list node;        /* in store->flights */
    struct sim_store *store; /* NULL: its daemon is dead */
    struct sim_db *db;
    enum store_lane lane;
    uint64_t term, number;
    struct flight_row {
        enum change_kind kind;
        char key[300];
        struct row row;
    } * rows;
    size_t count;
    store_done done;
    void *arg;
    enum status st;
    bool landed; /* only its answer is still to come */
};

/* --- rows */
static void row_key(enum change_kind kind, const ProtobufCMessage *m, char *out, size_t cap)
{
    switch ((int)kind) {
    case CHANGE_JOB:
        snprintf(out, cap, "%" PRId64, ((const Pb__Job *)m)->id);
        break;
    case CHANGE_ATTEMPT:
        snprintf(out, cap, "%" PRId64 ".%u", ((const Pb__Attempt *)m)->job,
                 ((const Pb__Attempt *)m)->number);
        break;
    case CHANGE_NODE:
        snprintf(out, cap, "%s", ((const Pb__Node *)m)->name);
        break;
    case CHANGE_CHECKPOINT:
        snprintf(out, cap, "%" PRId64, ((const Pb__Checkpoint *)m)->id);
        break;
    case CHANGE_EVENT:
        snprintf(out, cap, "%" PRId64, ((const Pb__Event *)m)->seq);
        break;
    case CHANGE_REQUEST:
        snprintf(out, cap, "%s", ((const Pb__RequestRow *)m)->id);
        break;
    case CHANGE_MARK:
        snprintf(out, cap, "%s", ((const Pb__MarkRow *)m)->node);
        break;
    case CHANGE_CODE:
        snprintf(out, cap, "%s", ((const Pb__CodeRow *)m)->digest);
        break;
    case CHANGE_PROJECT:
        snprintf(out, cap, "%s", ((const Pb__ProjectRow *)m)->name);
        break;
    default:
        out[0] = 0;
        break;
    }
}

static void row_put(struct sim_db *db, const struct flight_row *from)
{
    struct row *row = map_get_text(db->rows[from->kind], from->key);

    if (!row) {
        row = NEW(struct row);
        map_put_text(db->rows[from->kind], from->key, row);
    }
    mem_free(row->bytes);
    row->type = from->row.type;
    row->len = from->row.len;
    row->bytes = mem_dup(from->row.bytes, from->row.len + 1);
}

static void points_put(struct sim_db *db, const struct flight_row *from)
{
    Pb__ReportBatch *batch = pb__report_batch__unpack(NULL, from->row.len, from->row.bytes);

    for (size_t i = 0; i < batch->n_reports; i++) {
        char key[200];
        snprintf(key, sizeof(key), "%" PRId64 ".%u.%s.%u.%u.%" PRId64, batch->job, batch->attempt,
                 batch->role, batch->rank, batch->incarnation, batch->reports[i]->step);
        if (map_get_text(db->points, key))
            sim_fail(db->sim, "point stored twice: %s", key);
        map_put_text(db->points, key, db);
    }
    pb__report_batch__free_unpacked(batch, NULL);
}

static void flight_apply(struct flight *flight)
{
    struct sim_db *db = flight->db;
    char key[80];

    for (size_t i = 0; i < flight->count; i++) {
        if (flight->rows[i].kind == CHANGE_REPORTS)
            points_put(db, &flight->rows[i]);
        else
            row_put(db, &flight->rows[i]);
    }
    snprintf(key, sizeof(key), "%" PRIu64 ".%d.%" PRIu64, flight->term, (int)flight->lane,
             flight->number);
    map_put_text(db->batches, key, db);
}

static void flight_destroy(struct flight *flight)
{
    list_remove(&flight->node);
    for (size_t i = 0; i < flight->count; i++)
        mem_free(flight->rows[i].row.bytes);
    mem_free(flight->rows);
    mem_free(flight);
}

/* --- the connection */
static void say_state(struct sim_store *store, bool usable, bool fenced, const char *text)
{
    store->usable = usable;
    if (!store->dropped)
        store->store.on_state(store->store.on_state_arg, usable, fenced, text);
}

static void come_back(void *arg)
{
    struct sim_store *store = arg;

    if (store->usable)
        return;
    if (store->db->away)
        sim_after(store->db->sim, store->process, 50000, come_back, store);
    else if (store->db->term != store->term)
        say_state(store, false, true, "a newer term leads");
    else
        say_state(store, true, false, "back");
}

static void lose(struct sim_store *store)
{
    if (!store->usable)
        return;
    say_state(store, false, false, "connection lost");
    sim_after(store->db->sim, store->process, sim_between(store->db->sim, 50000, 400000), come_back,
              store);
}

static void flight_answer(void *arg)
{
    struct flight *flight = arg;
    struct error err;

    error_set(&err, flight->st, "simulated: %s", status_name(flight->st));
    if (flight->st == STATUS_UNKNOWN)
        lose(flight->store);
    flight->done(flight->arg, flight->st, flight->st == STATUS_OK ? NULL : &err);
    flight_destroy(flight);
}

/* The transaction reaches the database, or does not. Belongs to the world: a killed daemon's may
 * still happen. */
static void flight_land(void *arg)
{
    struct flight *flight = arg;
    struct sim_db *db = flight->db;
    bool alone = flight->store == NULL;

    flight->landed = true;
    if (db->away)
        flight->st = sim_chance(db->sim, 500) ? STATUS_UNKNOWN : STATUS_UNAVAILABLE;
    else if (db->term != flight->term)
        flight->st = STATUS_ABORTED;
    else if (sim_chance(db->sim, db->unknown_per_mille))
        flight->st = STATUS_UNKNOWN;
    else
        flight->st = STATUS_OK;
    bool lands = flight->st == STATUS_OK ||
                 (flight->st == STATUS_UNKNOWN && !db->away && sim_chance(db->sim, 500));
    if (lands)
        flight_apply(flight);
    sim_trace(db->sim, "db: batch %" PRIu64 ".%d.%" PRIu64 " of %zu rows: %s%s", flight->term,
              (int)flight->lane, flight->number, flight->count, status_name(flight->st),
              flight->st == STATUS_UNKNOWN ? lands ? " (durable)" : " (lost)" : "");
    if (alone) {
        flight_destroy(flight);
        return;
    }
    if (flight->st == STATUS_UNAVAILABLE)
        lose(flight->store);
    sim_after(db->sim, flight->store->process, sim_between(db->sim, 50, 600), flight_answer,
              flight);
}

static void store_commit(struct store *base, const struct batch *batch, store_done done, void *arg)
{
    struct sim_store *store = (struct sim_store *)base;
    struct flight *flight = NEW(struct flight);

    flight->store = store;
    flight->db = store->db;
    flight->lane = batch->lane;
    flight->term = batch->term;
    flight->number = batch->number;
    flight->rows = mem_array(batch->count + 1, sizeof(*flight->rows));
    for (const struct change *change = batch->first; change; change = change->next) {
        struct flight_row *row = &flight->rows[flight->count++];
        row->kind = change->kind;
        row->row.type = change->row->descriptor;
        row->row.len = protobuf_c_message_get_packed_size(change->row);
        row->row.bytes = mem_alloc(row->row.len + 1);
        protobuf_c_message_pack(change->row, row->row.bytes);
        row_key(change->kind, change->row, row->key, sizeof(row->key));
    }
    flight->done = done;
    flight->arg = arg;
    list_add_last(&store->flights, &flight->node);
    sim_after(store->db->sim, NULL, sim_between(store->db->sim, 100, 1500), flight_land, flight);
}

struct ask {
    struct sim_store *store;
    uint64_t term, number;
    enum store_lane lane;
    store_done done;
    void *arg;
};

static void ask_answer(void *arg)
{
    struct ask ask = *(struct ask *)arg;
    char key[80];

    mem_free(arg);
    snprintf(key, sizeof(key), "%" PRIu64 ".%d.%" PRIu64, ask.term, (int)ask.lane, ask.number);
    if (!ask.store->usable)
        ask.done(ask.arg, STATUS_UNAVAILABLE, NULL);
    else
        ask.done(ask.arg, map_get_text(ask.store->db->batches, key) ? STATUS_OK : STATUS_NOT_FOUND,
                 NULL);
}

static void store_batch_done(struct store *base, enum store_lane lane, uint64_t term,
                             uint64_t number, store_done done, void *arg)
{
    struct sim_store *store = (struct sim_store *)base;
    struct ask *ask = NEW(struct ask);

    *ask = (struct ask){store, term, number, lane, done, arg};
    sim_after_owned(store->db->sim, store->process, 300, ask_answer, ask);
}

static void lead_now(void *arg)
{
    struct sim_store *store = arg;
    struct sim_db *db = store->db;
    static const enum change_kind order[] = {CHANGE_PROJECT, CHANGE_NODE,       CHANGE_JOB,
                                             CHANGE_ATTEMPT, CHANGE_CHECKPOINT, CHANGE_MARK,
                                             CHANGE_REQUEST, CHANGE_EVENT};

    if (db->away) {
        sim_after(db->sim, store->process, 100000, lead_now, store);
        return;
    }
    store->term = ++db->term;
    store->usable = true;
    for (size_t i = 0; i < COUNT_OF(order); i++) {
        size_t at = 0;
        for (struct row *row; (row = map_next(db->rows[order[i]], &at));)
            store->row(store->lead_arg, order[i],
                       protobuf_c_message_unpack(row->type, NULL, row->len, row->bytes));
    }
    sim_trace(db->sim, "db: term %" PRIu64 " leads", store->term);
    store->lead_done(store->lead_arg, STATUS_OK, NULL, store->term, "sim");
}

static void store_lead(struct store *base, uint32_t ended_max, store_row row,
                       void (*done)(void *, enum status, const struct error *, uint64_t,
                                    const char *),
                       void *arg)
{
    struct sim_store *store = (struct sim_store *)base;

    (void)ended_max;
    store->row = row;
    store->lead_done = done;
    store->lead_arg = arg;
    sim_after(store->db->sim, store->process, 5000, lead_now, store);
}

static void store_query(struct store *base, const ProtobufCMessage *request, store_reply done,
                        void *arg)
{
    struct error err;

    (void)base;
    (void)request;
    error_set(&err, STATUS_UNIMPLEMENTED, "the simulator keeps no history");
    done(arg, STATUS_UNIMPLEMENTED, &err, NULL);
}

void sim_store_drop(struct store *base)
{
    struct sim_store *store = (struct sim_store *)base;

    store->dropped = true;
    store->usable = false;
    list_remove(&store->node);
    for (struct list *item; (item = list_take_first(&store->flights));) {
        struct flight *flight = LIST_ITEM(item, struct flight, node);
        if (flight->landed)
            flight_destroy(flight);
        else
            flight->store = NULL;
    }
    mem_free(store);
}

static const struct store_ops store_ops = {
    .lead = store_lead,
    .commit = store_commit,
    .batch_done = store_batch_done,
    .query = store_query,
    .destroy = sim_store_drop,
};

struct store *sim_store_create(struct sim_db *db, struct sim_process *process)
{
    struct sim_store *store = NEW(struct sim_store);

    store->store.ops = &store_ops;
    store->db = db;
    store->process = process;
    list_init(&store->flights);
    list_add_last(&db->stores, &store->node);
    return &store->store;
}

/* --- the database */
struct sim_db *sim_db_create(struct sim *sim)
{
    struct sim_db *db = NEW(struct sim_db);

    db->sim = sim;
    for (int kind = 0; kind < CHANGE_KIND_COUNT; kind++)
        db->rows[kind] = map_create();
    db->batches = map_create();
    db->points = map_create();
    list_init(&db->stores);
    return db;
}

void sim_db_destroy(struct sim_db *db)
{
    for (int kind = 0; kind < CHANGE_KIND_COUNT; kind++) {
        size_t at = 0;
        for (struct row *row; (row = map_next(db->rows[kind], &at));) {
            mem_free(row->bytes);
            mem_free(row);
        }
        map_destroy(db->rows[kind]);
    }
    map_destroy(db->batches);
    map_destroy(db->points);
    mem_free(db);
}

void sim_db_faults(struct sim_db *db, uint32_t unknown_per_mille)
{
    db->unknown_per_mille = unknown_per_mille;
}

void sim_db_away(struct sim_db *db, bool away)
{
    sim_trace(db->sim, "db: %s", away ? "stopped" : "back");
    db->away = away;
    if (!away)
        return;
    LIST_EACH(&db->stores, item)
    {
        lose(LIST_ITEM(item, struct sim_store, node));
    }
}

ProtobufCMessage *sim_db_row(const struct sim_db *db, enum change_kind kind, const char *key)
{
    const struct row *row = map_get_text(db->rows[kind], key);

    return row ? protobuf_c_message_unpack(row->type, NULL, row->len, row->bytes) : NULL;
}

void sim_db_each(const struct sim_db *db, enum change_kind kind,
                 void (*fn)(void *arg, const ProtobufCMessage *row), void *arg)
{
    size_t at = 0;

    for (struct row *row; (row = map_next(db->rows[kind], &at));) {
        ProtobufCMessage *message =
            protobuf_c_message_unpack(row->type, NULL, row->len, row->bytes);
        fn(arg, message);
        protobuf_c_message_free_unpacked(message, NULL);
    }
}

size_t sim_db_points(const struct sim_db *db)
{
    return map_count(db->points);
}
