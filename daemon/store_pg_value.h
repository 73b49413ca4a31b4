/* store_pg_value.h - single values: into a statement's parameters, out of a binary result.
 *
 * Loop thread. Lists borrow what they are given until they are sent. */
#pragma once
#include "daemon/store_pg_array.h"

struct store_pg_value_list {
    const char *values[STORE_PG_VALUES_MAX];
    int lengths[STORE_PG_VALUES_MAX];
    uint64_t wire[STORE_PG_VALUES_MAX];
    int count;
};
void store_pg_value_i64(struct store_pg_value_list *list, bool has, int64_t value);
void store_pg_value_bool(struct store_pg_value_list *list, bool value);
void store_pg_value_text(struct store_pg_value_list *list, const char *text); /* NULL: null */
/* The first column of array, as one value; null when it has no rows. */
void store_pg_value_array(struct store_pg_value_list *list, struct store_pg_array *array);
void store_pg_value_send(struct store_pg_value_list *list, struct store_pg_link *link,
                         enum store_statement statement);

/* Out of a result: 0, false, NULL for null. */
int64_t store_pg_value_get_i64(const PGresult *result, int row, int column);
bool store_pg_value_get_bool(const PGresult *result, int row, int column);
int64_t store_pg_value_get_time(const PGresult *result, int row, int column); /* us since 1970 */
char *store_pg_value_get_text(const PGresult *result, int row, int column);   /* malloc'd */
/* One-dimensional arrays of 8-byte numbers without nulls: a cursor over raw bits. */
struct store_pg_value_numbers {
    const unsigned char *at; /* of the next element */
    size_t count;
};
/* False: not such an array, or torn. A null gives an empty one. */
bool store_pg_value_get_numbers(const PGresult *result, int row, int column,
                                struct store_pg_value_numbers *out);
uint64_t store_pg_value_number(const struct store_pg_value_numbers *numbers, size_t index);
