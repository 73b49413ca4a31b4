/* store.h - the seam to durable state: load everything, commit changes, ask for history.
 *
 * Two implementations: store_pg.c (the only libpq) and the simulator's. Loop thread only. A change
 * is a whole row as a message; the store keeps rows by their key. One commit at a time; its outcome
 * is exactly one of STATUS_OK           durable STATUS_ABORTED      fenced: a newer term leads.
 * Stop. STATUS_UNAVAILABLE  surely not durable (nothing changed), try again later STATUS_UNKNOWN
 * the connection died in between: ask store_batch_done after it is back anything else       the
 * database refused a change (text says which); nothing changed Rules: `store_commit` writes the
 * batch row (term, number) in the same transaction and checks the leadership row. */
#pragma once
#include "base/error.h"
#include "base/loop.h"
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

struct store;

enum change_kind {
    CHANGE_JOB,        /* Pb__Job, key id */
    CHANGE_ATTEMPT,    /* Pb__Attempt, key (job, number) */
    CHANGE_NODE,       /* Pb__Node, key name */
    CHANGE_CHECKPOINT, /* Pb__Checkpoint, key id */
    CHANGE_EVENT,      /* Pb__Event, key seq; insert only */
    CHANGE_REQUEST,    /* Pb__RequestRow, key id: idempotent answers */
    CHANGE_REPORTS,    /* Pb__ReportBatch: points; insert only */
    CHANGE_MARK,       /* Pb__MarkRow, key node: with the reports that it covers */
    CHANGE_CODE,       /* Pb__CodeRow, key digest */
    CHANGE_PROJECT,    /* Pb__ProjectRow, key name */
    CHANGE_KIND_COUNT
};
struct change {
    enum change_kind kind;
    const ProtobufCMessage *row; /* borrowed until the commit's callback */
    struct change *next;
};
/* Two lanes, each with its own connection, numbers and one commit at a time: bulky points never
 * delay a job's state. */
enum store_lane { STORE_STATE, STORE_BULK, STORE_LANE_COUNT };
struct batch { /* built by the core; borrowed by the store until done */
    enum store_lane lane;
    uint64_t term, number;
    struct change *first, *last;
    size_t count;
};

typedef void (*store_done)(void *arg, enum status st, const struct error *err);
/* One row at a time while loading, then done. */
typedef void (*store_row)(void *arg, enum change_kind kind, ProtobufCMessage *row_take);
typedef void (*store_reply)(void *arg, enum status st, const struct error *err,
                            ProtobufCMessage *reply_take);

struct store_ops {
    /* Takes leadership (term = last + 1) and loads: all projects and nodes; jobs that have not
     * ended and the newest ended `ended_max`; attempts and checkpoints of those jobs; marks;
     * requests of the last day; the newest `ended_max` events (oldest first). Afterwards the store
     * reconnects by itself and tells on_state: usable false when the connection is lost, true when
     * it is back under the same term, fenced when another term leads. */
    void (*lead)(struct store *store, uint32_t ended_max, store_row row,
                 void (*done)(void *arg, enum status st, const struct error *err, uint64_t term,
                              const char *cluster),
                 void *arg);
    void (*commit)(struct store *store, const struct batch *batch, store_done done, void *arg);
    /* Answers OK (it is durable), NOT_FOUND (it is not), UNAVAILABLE. */
    void (*batch_done)(struct store *store, enum store_lane lane, uint64_t term, uint64_t number,
                       store_done done, void *arg);
    /* History that memory does not hold. request: Pb__MetricsRequest -> Pb__MetricsReply,
     * Pb__ListEventsRequest -> ...Reply, Pb__ListJobsRequest -> ...Reply, Pb__ShowJobRequest ->
     * ...Reply, Pb__CodeAsk -> Pb__CodeRow, Pb__HaveCodeRequest ->
     * ...Reply, ... by descriptor. */
    void (*query)(struct store *store, const ProtobufCMessage *request, store_reply done,
                  void *arg);
    void (*destroy)(struct store *store);
};
struct store {
    const struct store_ops *ops;
    /* Set by the owner before lead. */
    void (*on_state)(void *arg, bool usable, bool fenced, const char *text);
    void *on_state_arg;
};
