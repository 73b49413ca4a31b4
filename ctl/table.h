/* table.h - rows of cells under headers, laid out to fit a number of columns.
 *
 * Any thread, one at a time. Cells are copied, bounded, and cleaned of control characters. Where
 * the natural widths do not fit, columns marked TABLE_SHRINK give way, the widest first. */
#pragma once
#include "base/text.h"
#include "ctl/term.h"

enum { TABLE_LEFT = 0, TABLE_RIGHT = 1, TABLE_SHRINK = 2, TABLE_STATE = 4 /* painted */ };
enum { TABLE_COLUMNS_MAX = 16, TABLE_CELL_MAX = 512 };

struct table_column {
    const char *header;
    unsigned flags;
};
struct table;

struct table *table_create(const struct table_column *columns, size_t count);
void table_destroy(struct table *table); /* NULL is fine */
/* Cells fill rows from left to right. Empty text shows as "-". */
void table_add(struct table *table, const char *cell);
void table_addf(struct table *table, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
size_t table_rows(const struct table *table);
void table_print(const struct table *table, size_t width, bool colour, struct text *out);
