/* store_pg_statement.h - the named statements, and what the database's refusals mean for us.
 *
 * Any thread; constant. One row a statement in store_statements.def, prepared at connect, so that
 * one that no longer fits the tables fails at start. */
#pragma once
#include "base/error.h"
#include <libpq-fe.h>

#define STORE_PG_VALUES_MAX 24

enum store_statement {
#define X(name, values, sql) STORE_##name,
#include "daemon/store_statements.def"
#undef X
    STORE_STATEMENT_COUNT
};
struct store_pg_statement {
    const char *name;
    int values;
    const char *sql;
};
extern const struct store_pg_statement store_pg_statements[STORE_STATEMENT_COUNT];

/* Fills err from a failed result: ABORTED fenced; UNAVAILABLE rolled back for a reason that passes
 * (also a full disk); INVALID the data is refused; INTERNAL all else. */
enum status store_pg_statement_error(const PGresult *result, struct error *err);
