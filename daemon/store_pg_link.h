/* store_pg_link.h - one connection to PostgreSQL on the loop: connects, comes back, pipelines.
 *
 * Loop thread only. Owns the PGconn. Life: connecting -> open (setting up, one plain question at a
 * time) -> ready (named statements are prepared, pipeline mode) -> lost -> again after 50 ms..1 s.
 * Invariants: an op's done runs exactly once, with STATUS_CANCELLED from destroy. An op that was
 * sent when the connection died ends with STATUS_UNKNOWN, whatever its results said so far.
 * Callbacks may drop the link, but not destroy it. */
#pragma once
#include "base/error.h"
#include "base/list.h"
#include "base/loop.h"
#include <libpq-fe.h>
#include <stdbool.h>

struct store_pg_link;
struct store_pg_link_options {
    struct loop *loop;           /* loop_uv */
    const char *name;            /* shown in pg_stat_activity */
    const char *conninfo;        /* host is a socket directory, or hostaddr is given; copied */
    uint64_t answer_ms_max;      /* no answer for so long: the connection counts as dead */
    void (*on_open)(void *arg);  /* connected: ask, then prepare */
    void (*on_ready)(void *arg); /* prepared: ops are taken */
    void (*on_lost)(void *arg, const struct error *err); /* lost, or could not be made */
    void *arg;
};

/* Statements sent together: one transaction, that ends where they end. Embedded by its owner. */
struct store_pg_op {
    struct list node;
    /* Each result that holds rows or a command's outcome, of the call-th statement. May be NULL. */
    void (*result)(struct store_pg_op *op, size_t call, const PGresult *result);
    /* OK: every statement succeeded and is committed. ABORTED: fenced. UNAVAILABLE: rolled back,
     * worth another try. UNKNOWN: the connection died. Else refused by the database. May free the
     * op and may send others. */
    void (*done)(struct store_pg_op *op, enum status st, const struct error *err);
    bool by_row; /* rows arrive one a result: for answers of any size */
    /* private */
    size_t at, at_failed; /* statement whose results come; the first that was refused */
    enum status st;
    struct error err;
};

/* STATUS_INVALID: the conninfo is wrong, or would block on a name look-up. */
enum status store_pg_link_create(const struct store_pg_link_options *options,
                                 struct store_pg_link **out, struct error *err) MUST_CHECK;
void store_pg_link_destroy(struct store_pg_link *link); /* NULL is fine */
void store_pg_link_open(struct store_pg_link *link);    /* and keep it open from now on */
/* Gives the connection up; on_lost follows, then it is tried again unless `for_ever`. */
void store_pg_link_drop(struct store_pg_link *link, bool for_ever, const char *why);
bool store_pg_link_is_ready(const struct store_pg_link *link);
int store_pg_link_pid(const struct store_pg_link *link); /* backend; 0 when there is none */

/* While open, one at a time. No values: sql may hold several statements. The result is the last
 * one, borrowed; NULL with an error. Never answered when the connection is lost. */
typedef void (*store_pg_link_answer)(void *arg, const PGresult *result, const struct error *err);
void store_pg_link_ask(struct store_pg_link *link, const char *sql, const char *const *values,
                       int values_count, store_pg_link_answer done, void *arg);
/* Ends the set-up: prepares store_statements.def, then on_ready. */
void store_pg_link_prepare(struct store_pg_link *link);

/* While ready: begin, calls, end. Values are binary, copied. */
void store_pg_link_begin(struct store_pg_link *link, struct store_pg_op *op);
void store_pg_link_call(struct store_pg_link *link, const char *statement, int count,
                        const char *const *values, const int *lengths);
void store_pg_link_end(struct store_pg_link *link);
