/* store_pg_array.h - rows as parallel binary arrays: the values of one statement for many rows.
 *
 * Loop thread. Owns its memory. `add` calls fill one row column by column in the order of the
 * statement's values, then `row_end`. All rows have the same columns; text that is no UTF-8 has
 * its bad bytes replaced, so that one program's output never refuses a batch. */
#pragma once
#include "base/mem.h"
#include "base/text.h"
#include "daemon/store_pg_link.h"
#include "daemon/store_pg_statement.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_pg_column {
    uint32_t oid; /* of the element */
    bool nulls;
    struct text data;
};
struct store_pg_array {
    struct store_pg_column columns[STORE_PG_VALUES_MAX];
    size_t count, at, rows; /* columns, next column of this row, finished rows */
    bool full;              /* more than one statement can carry: refuse it */
};

void store_pg_array_init(struct store_pg_array *array);
void store_pg_array_fini(struct store_pg_array *array);
void store_pg_array_i64(struct store_pg_array *array, bool has, int64_t value);
void store_pg_array_bool(struct store_pg_array *array, bool value);
void store_pg_array_time(struct store_pg_array *array, bool has, int64_t us); /* 0: null */
void store_pg_array_text(struct store_pg_array *array, const char *text);     /* NULL: null */
void store_pg_array_bytes(struct store_pg_array *array, bool has, const void *bytes, size_t len);
void store_pg_array_row_end(struct store_pg_array *array);
void store_pg_array_close(struct store_pg_array *array); /* columns are as they go over the wire */
/* Sends the statement with one array a column. Nothing when there are no rows. */
void store_pg_array_send(struct store_pg_array *array, struct store_pg_link *link,
                         enum store_statement statement);

/* Raw columns, whose rows do not line up with the others': the caller sends them itself. */
struct store_pg_array_raw {
    uint32_t oid;
    size_t count;
    struct text data;
};
void store_pg_array_raw_init(struct store_pg_array_raw *raw, uint32_t oid);
/* Many numbers at once: their bits. */
void store_pg_array_raw_add(struct store_pg_array_raw *raw, const uint64_t *bits, size_t count);

/* Columns [first, first + columns) and raw columns as values of one call. */
void store_pg_array_send_raw(struct store_pg_array *array, struct store_pg_array_raw *const *raws,
                             size_t raws_count, struct store_pg_link *link,
                             enum store_statement statement);

#define STORE_PG_INT8   20u
#define STORE_PG_FLOAT8 701u
/* Microseconds between 1970 and 2000, where the database's clock starts. */
#define STORE_PG_EPOCH_US 946684800000000LL
