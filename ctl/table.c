#include "ctl/table.h"
#include "base/mem.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHRUNK_MIN = 6, GAP = 2 };

struct table {
    const struct table_column *columns;
    size_t columns_count;
    char **cells;
    size_t count, cap;
};

struct table *table_create(const struct table_column *columns, size_t count)
{
    struct table *table = NEW(struct table);
    assert(count > 0 && count <= TABLE_COLUMNS_MAX);
    table->columns = columns;
    table->columns_count = count;
    return table;
}

void table_destroy(struct table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->count; i++)
        mem_free(table->cells[i]);
    mem_free(table->cells);
    mem_free(table);
}

void table_add(struct table *table, const char *cell)
{
    char clean[TABLE_CELL_MAX];
    if (table->count == table->cap) {
        table->cap = table->cap ? table->cap * 2 : 64;
        table->cells = mem_resize(table->cells, table->cap, sizeof(char *));
    }
    term_fit(cell && *cell ? cell : "-", TABLE_CELL_MAX / 4, clean, sizeof clean);
    table->cells[table->count++] = mem_strdup(clean);
}

void table_addf(struct table *table, const char *fmt, ...)
{
    char cell[TABLE_CELL_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(cell, sizeof cell, fmt, args);
    va_end(args);
    table_add(table, cell);
}

size_t table_rows(const struct table *table)
{
    assert(table->columns_count > 0);
    return table->count / table->columns_count;
}

static void natural_widths(const struct table *table, size_t *widths)
{
    assert(table->columns_count > 0);
    for (size_t c = 0; c < table->columns_count; c++)
        widths[c] = term_width(table->columns[c].header);
    for (size_t i = 0; i < table->count; i++) {
        size_t width = term_width(table->cells[i]);
        if (width > widths[i % table->columns_count])
            widths[i % table->columns_count] = width;
    }
}

/* The widest column that may still give way; columns_count when none can. */
static size_t widest(const struct table *table, const size_t *widths)
{
    size_t best = table->columns_count;
    for (size_t c = 0; c < table->columns_count; c++)
        if ((table->columns[c].flags & TABLE_SHRINK) && widths[c] > SHRUNK_MIN &&
            (best == table->columns_count || widths[c] > widths[best]))
            best = c;
    return best;
}

static void fit_widths(const struct table *table, size_t width, size_t *widths)
{
    size_t total = GAP * (table->columns_count - 1), at;
    for (size_t c = 0; c < table->columns_count; c++)
        total += widths[c];
    while (total > width && (at = widest(table, widths)) < table->columns_count) {
        widths[at]--;
        total--;
    }
}

static void put_cell(const struct table *table, size_t c, const char *cell, size_t width,
                     bool colour, enum term_paint paint, struct text *out)
{
    char fitted[TABLE_CELL_MAX + 8];
    bool last = c + 1 == table->columns_count;
    bool right = table->columns[c].flags & TABLE_RIGHT;
    size_t used = term_fit(cell, width, fitted, sizeof fitted), pad = width - used;
    text_addf(out, "%*s%s%s%s", right ? (int)pad : 0, "", paint ? term_code(colour, paint) : "",
              fitted, paint ? term_code(colour, TERM_PLAIN) : "");
    if (!last)
        text_addf(out, "%*s", right ? GAP : (int)pad + GAP, "");
}

void table_print(const struct table *table, size_t width, bool colour, struct text *out)
{
    size_t widths[TABLE_COLUMNS_MAX];
    natural_widths(table, widths);
    fit_widths(table, width, widths);
    for (size_t c = 0; c < table->columns_count; c++)
        put_cell(table, c, table->columns[c].header, widths[c], colour, TERM_BOLD, out);
    text_add(out, "\n");
    for (size_t i = 0; i < table_rows(table) * table->columns_count; i++) {
        size_t c = i % table->columns_count;
        enum term_paint paint =
            table->columns[c].flags & TABLE_STATE ? term_state_paint(table->cells[i]) : TERM_PLAIN;
        put_cell(table, c, table->cells[i], widths[c], colour, paint, out);
        if (c + 1 == table->columns_count)
            text_add(out, "\n");
    }
}
