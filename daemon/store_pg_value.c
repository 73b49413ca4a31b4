#include "daemon/store_pg_value.h"
#include <assert.h>
#include <endian.h>
#include <string.h>

static void add(struct store_pg_value_list *list, const char *bytes, size_t len)
{
    assert(list->count < STORE_PG_VALUES_MAX);
    list->values[list->count] = bytes;
    list->lengths[list->count++] = (int)len;
}

void store_pg_value_i64(struct store_pg_value_list *list, bool has, int64_t value)
{
    uint64_t *wire = &list->wire[list->count];

    *wire = htobe64((uint64_t)value);
    add(list, has ? (const char *)wire : NULL, sizeof(*wire));
}

void store_pg_value_bool(struct store_pg_value_list *list, bool value)
{
    add(list, value ? "\1" : "\0", 1);
}

void store_pg_value_text(struct store_pg_value_list *list, const char *text)
{
    add(list, text, text ? strlen(text) : 0);
}

void store_pg_value_array(struct store_pg_value_list *list, struct store_pg_array *array)
{
    if (array->rows == 0) {
        add(list, NULL, 0);
        return;
    }
    store_pg_array_close(array);
    add(list, array->columns[0].data.data, array->columns[0].data.len);
}

void store_pg_value_send(struct store_pg_value_list *list, struct store_pg_link *link,
                         enum store_statement statement)
{
    assert(list->count == store_pg_statements[statement].values);
    store_pg_link_call(link, store_pg_statements[statement].name, list->count, list->values,
                       list->lengths);
}

static uint64_t get_bits(const char *bytes)
{
    uint64_t wire;

    memcpy(&wire, bytes, sizeof(wire));
    return be64toh(wire);
}

int64_t store_pg_value_get_i64(const PGresult *result, int row, int column)
{
    if (PQgetlength(result, row, column) != 8)
        return 0;
    return (int64_t)get_bits(PQgetvalue(result, row, column));
}

bool store_pg_value_get_bool(const PGresult *result, int row, int column)
{
    return PQgetlength(result, row, column) == 1 && PQgetvalue(result, row, column)[0] != 0;
}

int64_t store_pg_value_get_time(const PGresult *result, int row, int column)
{
    if (PQgetlength(result, row, column) != 8)
        return 0;
    return (int64_t)(get_bits(PQgetvalue(result, row, column)) + (uint64_t)STORE_PG_EPOCH_US);
}

char *store_pg_value_get_text(const PGresult *result, int row, int column)
{
    if (PQgetisnull(result, row, column))
        return NULL;
    return mem_strdup(PQgetvalue(result, row, column)); /* libpq ends it with NUL */
}

bool store_pg_value_get_numbers(const PGresult *result, int row, int column,
                                struct store_pg_value_numbers *out)
{
    const char *bytes = PQgetvalue(result, row, column);
    size_t len = (size_t)PQgetlength(result, row, column);
    uint32_t head[5];

    *out = (struct store_pg_value_numbers){0};
    if (PQgetisnull(result, row, column))
        return true;
    if (len == 12) /* no dimensions: empty */
        return true;
    if (len < sizeof(head))
        return false;
    memcpy(head, bytes, sizeof(head));
    size_t count = be32toh(head[3]);
    if (be32toh(head[0]) != 1 || be32toh(head[1]) != 0 || len != sizeof(head) + count * 12)
        return false;
    out->at = (const unsigned char *)bytes + sizeof(head);
    out->count = count;
    return true;
}

uint64_t store_pg_value_number(const struct store_pg_value_numbers *numbers, size_t index)
{
    return get_bits((const char *)numbers->at + index * 12 + 4);
}
