/* option.c - rows of options: defaults, values from text, the YAML file and the flags.
 *
 * The pages that people read (--help, Markdown) are printed by option_page.c. */
#include "base/option.h"
#include "base/mem.h"
#include "base/option_row.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION_TEXT_MAX ((int64_t)4096)
#define OPTION_LIST_MAX ((size_t)1000)

static void *option_member(const struct option *row, void *config)
{
    return (char *)config + row->offset;
}

/* --- ranges */

int64_t option_row_least(const struct option *row)
{
    if (row->min || row->max)
        return row->min;
    return row->type == OPT_I64 ? INT64_MIN : 0;
}

int64_t option_row_most(const struct option *row)
{
    if (row->type == OPT_TEXT || row->type == OPT_LIST)
        return row->max ? row->max : OPTION_TEXT_MAX;
    if (row->min || row->max)
        return row->max;
    return row->type == OPT_U32 ? UINT32_MAX : INT64_MAX;
}

/* --- one value from text */

static bool option_set_bool(bool *member, const char *value)
{
    if (strcmp(value, "true") == 0 || strcmp(value, "yes") == 0 || strcmp(value, "on") == 0)
        *member = true;
    else if (strcmp(value, "false") == 0 || strcmp(value, "no") == 0 || strcmp(value, "off") == 0)
        *member = false;
    else
        return false;
    return true;
}

static bool option_set_number(const struct option *row, void *member, const char *value)
{
    int64_t number;

    if (!text_to_i64(value, option_row_least(row), option_row_most(row), &number))
        return false;
    if (row->type == OPT_U32)
        *(uint32_t *)member = (uint32_t)number;
    else if (row->type == OPT_U64)
        *(uint64_t *)member = (uint64_t)number;
    else
        *(int64_t *)member = number;
    return true;
}

static bool option_list_add(struct option_list *list, const char *value)
{
    if (list->count >= OPTION_LIST_MAX)
        return false;
    list->items = mem_resize(list->items, list->count + 1, sizeof(*list->items));
    list->items[list->count++] = mem_strdup(value);
    return true;
}

static void option_list_clear(struct option_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        mem_free(list->items[i]);
    mem_free(list->items);
    *list = (struct option_list){NULL, 0};
}

bool option_row_set(const struct option *row, void *config, const char *value, size_t len)
{
    void *member = option_member(row, config);

    if (!text_is_utf8(value, len) ||
        (int64_t)len > (row->type == OPT_TEXT || row->type == OPT_LIST ? option_row_most(row)
                                                                       : OPTION_TEXT_MAX))
        return false;
    switch (row->type) {
    case OPT_BOOL:
        return option_set_bool(member, value);
    case OPT_U32:
    case OPT_U64:
    case OPT_I64:
        return option_set_number(row, member, value);
    case OPT_TEXT:
        mem_free(*(char **)member);
        *(char **)member = mem_strdup(value);
        return true;
    case OPT_LIST:
        return option_list_add(member, value);
    }
    return false;
}

void option_row_clear(const struct option *row, void *config)
{
    if (row->type == OPT_LIST)
        option_list_clear(option_member(row, config));
}

void option_row_expected(const struct option *row, char *out, size_t cap)
{
    if (row->type == OPT_BOOL)
        snprintf(out, cap, "true or false");
    else if (row->type == OPT_TEXT || row->type == OPT_LIST)
        snprintf(out, cap, "text of at most %" PRId64 " bytes", option_row_most(row));
    else if (option_row_most(row) == INT64_MAX && option_row_least(row) == INT64_MIN)
        snprintf(out, cap, "a whole number");
    else if (option_row_most(row) == INT64_MAX)
        snprintf(out, cap, "a whole number from %" PRId64, option_row_least(row));
    else
        snprintf(out, cap, "a whole number from %" PRId64 " to %" PRId64, option_row_least(row),
                 option_row_most(row));
}

/* --- rows */

const struct option *option_row_find(const struct option *rows, const char *name)
{
    for (; rows->name; rows++)
        if (strcmp(rows->name, name) == 0)
            return rows;
    return NULL;
}

const char *option_row_nearest(const struct option *rows, const char *name)
{
    const char *names[256];
    size_t count = 0;

    for (; rows->name && count < COUNT_OF(names); rows++)
        names[count++] = rows->name;
    return text_nearest(name, names, count);
}

/* A list's default is one text, cut at commas. */
static void option_default_list(const struct option *row, void *config)
{
    SCOPED_TEXT char *copy = mem_strdup(row->value);
    char *rest = copy, *item;

    while ((item = strsep(&rest, ",")))
        option_row_set(row, config, item, strlen(item));
}

void option_defaults(const struct option *rows, void *config)
{
    for (const struct option *row = rows; row->name; row++) {
        void *member = option_member(row, config);
        if (row->type == OPT_TEXT)
            *(char **)member = mem_strdup("");
        else if (row->type == OPT_LIST)
            *(struct option_list *)member = (struct option_list){NULL, 0};
        if (!row->value)
            continue;
        if (row->type == OPT_LIST)
            option_default_list(row, config);
        else if (!option_row_set(row, config, row->value, strlen(row->value)))
            abort(); /* the table itself is wrong */
    }
}

void option_fini(const struct option *rows, void *config)
{
    for (const struct option *row = rows; row->name; row++) {
        void *member = option_member(row, config);
        if (row->type == OPT_TEXT) {
            mem_free(*(char **)member);
            *(char **)member = NULL;
        } else if (row->type == OPT_LIST) {
            option_list_clear(member);
        }
    }
}
