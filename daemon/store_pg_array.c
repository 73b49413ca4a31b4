#include "daemon/store_pg_array.h"
#include <assert.h>
#include <endian.h>
#include <limits.h>
#include <string.h>

#define OID_BOOL        16u
#define OID_BYTEA       17u
#define OID_TEXT        25u
#define OID_TIMESTAMPTZ 1184u
#define HEAD_BYTES      20 /* dimensions, has nulls, element type, count, lower bound */
#define COLUMN_MAX      ((size_t)512 << 20)

void store_pg_array_init(struct store_pg_array *array)
{
    memset(array, 0, sizeof(*array));
}

void store_pg_array_fini(struct store_pg_array *array)
{
    for (size_t i = 0; i < array->count; i++)
        text_fini(&array->columns[i].data);
    memset(array, 0, sizeof(*array));
}

static void add_u32(struct text *data, uint32_t value)
{
    uint32_t wire = htobe32(value);
    text_add_bytes(data, &wire, sizeof(wire));
}

static struct store_pg_column *next_column(struct store_pg_array *array, uint32_t oid)
{
    assert(array->at < STORE_PG_VALUES_MAX);
    struct store_pg_column *column = &array->columns[array->at++];

    if (array->at > array->count) {
        static const char head[HEAD_BYTES];
        assert(array->rows == 0);
        array->count = array->at;
        column->oid = oid;
        text_init(&column->data, COLUMN_MAX);
        text_add_bytes(&column->data, head, sizeof(head));
    }
    assert(column->oid == oid);
    return column;
}

static void add_value(struct store_pg_array *array, uint32_t oid, const void *bytes, size_t len)
{
    struct store_pg_column *column = next_column(array, oid);

    if (!bytes) {
        column->nulls = true;
        add_u32(&column->data, UINT32_MAX);
        return;
    }
    if (len > INT32_MAX / 2) {
        array->full = true;
        return;
    }
    add_u32(&column->data, (uint32_t)len);
    text_add_bytes(&column->data, bytes, len);
    array->full |= column->data.full;
}

void store_pg_array_i64(struct store_pg_array *array, bool has, int64_t value)
{
    uint64_t wire = htobe64((uint64_t)value);
    add_value(array, STORE_PG_INT8, has ? &wire : NULL, sizeof(wire));
}

void store_pg_array_bool(struct store_pg_array *array, bool value)
{
    char wire = value ? 1 : 0;
    add_value(array, OID_BOOL, &wire, 1);
}

void store_pg_array_time(struct store_pg_array *array, bool has, int64_t us)
{
    uint64_t wire = htobe64((uint64_t)us - (uint64_t)STORE_PG_EPOCH_US);
    add_value(array, OID_TIMESTAMPTZ, has && us ? &wire : NULL, sizeof(wire));
}

/* The longest good start, then one '?' for the byte behind it, and on. */
static char *text_repair(const char *text, size_t len)
{
    char *out = mem_dup(text, len + 1);

    for (size_t at = 0; at < len;) {
        size_t good = 1;
        unsigned char c = (unsigned char)out[at];
        if (c >= 0xc0)
            good = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
        if (at + good <= len && text_is_utf8(out + at, good)) {
            at += good;
            continue;
        }
        out[at++] = '?';
    }
    return out;
}

void store_pg_array_text(struct store_pg_array *array, const char *text)
{
    size_t len = text ? strlen(text) : 0;

    if (!text || text_is_utf8(text, len)) {
        add_value(array, OID_TEXT, text, len);
        return;
    }
    SCOPED_TEXT char *good = text_repair(text, len);
    add_value(array, OID_TEXT, good, len);
}

void store_pg_array_bytes(struct store_pg_array *array, bool has, const void *bytes, size_t len)
{
    add_value(array, OID_BYTEA, has ? (bytes ? bytes : "") : NULL, len);
}

void store_pg_array_row_end(struct store_pg_array *array)
{
    assert(array->at == array->count);
    array->at = 0;
    array->rows++;
}

static void put_head(char *data, bool nulls, uint32_t oid, size_t count)
{
    uint32_t head[5] = {htobe32(1), htobe32(nulls ? 1 : 0), htobe32(oid), htobe32((uint32_t)count),
                        htobe32(1)};
    memcpy(data, head, HEAD_BYTES);
}

void store_pg_array_close(struct store_pg_array *array)
{
    for (size_t i = 0; i < array->count; i++) {
        struct store_pg_column *column = &array->columns[i];
        put_head(column->data.data, column->nulls, column->oid, array->rows);
    }
}

void store_pg_array_send_raw(struct store_pg_array *array, struct store_pg_array_raw *const *raws,
                             size_t raws_count, struct store_pg_link *link,
                             enum store_statement statement)
{
    const char *values[STORE_PG_VALUES_MAX];
    int lengths[STORE_PG_VALUES_MAX];
    int count = 0;

    if (array->rows == 0)
        return;
    assert(array->count + raws_count == (size_t)store_pg_statements[statement].values);
    store_pg_array_close(array);
    for (size_t i = 0; i < array->count; i++) {
        struct store_pg_column *column = &array->columns[i];
        values[count] = column->data.data;
        lengths[count++] = (int)column->data.len;
    }
    for (size_t i = 0; i < raws_count; i++) {
        put_head(raws[i]->data.data, false, raws[i]->oid, raws[i]->count);
        values[count] = raws[i]->data.data;
        lengths[count++] = (int)raws[i]->data.len;
    }
    store_pg_link_call(link, store_pg_statements[statement].name, count, values, lengths);
}

void store_pg_array_send(struct store_pg_array *array, struct store_pg_link *link,
                         enum store_statement statement)
{
    store_pg_array_send_raw(array, NULL, 0, link, statement);
}

void store_pg_array_raw_init(struct store_pg_array_raw *raw, uint32_t oid)
{
    static const char head[HEAD_BYTES];

    raw->oid = oid;
    raw->count = 0;
    text_init(&raw->data, COLUMN_MAX);
    text_add_bytes(&raw->data, head, sizeof(head));
}

void store_pg_array_raw_add(struct store_pg_array_raw *raw, const uint64_t *bits, size_t count)
{
    struct {
        uint32_t len;
        uint64_t bits;
    } __attribute__((packed)) items[256];

    raw->count += count;
    while (count > 0) {
        size_t now = count < COUNT_OF(items) ? count : COUNT_OF(items);
        for (size_t i = 0; i < now; i++) {
            items[i].len = htobe32(8);
            items[i].bits = htobe64(bits[i]);
        }
        text_add_bytes(&raw->data, items, now * sizeof(items[0]));
        bits += now;
        count -= now;
    }
}
