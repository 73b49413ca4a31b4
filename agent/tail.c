/* tail.c - see tail.h. */
#include "agent/tail.h"
#include "checkpoint/digest.h"
#include <string.h>

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LEN = 2, WIRE_32 = 5 };
struct cursor {
    const uint8_t *at, *end;
};

static bool read_varint(struct cursor *in, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool read_bytes(struct cursor *in, struct cursor *out)
{
    uint64_t len;
    if (!read_varint(in, &len) || len > (uint64_t)(in->end - in->at))
        return false;
    *out = (struct cursor){in->at, in->at + len};
    in->at += len;
    return true;
}

static bool read_tag(struct cursor *in, uint32_t *field, enum wire *wire)
{
    uint64_t tag;
    if (!read_varint(in, &tag) || tag >> 3 == 0 || tag >> 3 > 536870911)
        return false;
    *field = (uint32_t)(tag >> 3);
    *wire = (enum wire)(tag & 7);
    return true;
}

static bool count_varints(struct cursor in, uint32_t *count)
{
    uint64_t value;
    while (in.at < in.end) {
        if (!read_varint(&in, &value))
            return false;
        ++*count;
    }
    return true;
}

/* One length-delimited field of a report: a name, packed doubles or packed integers. */
static bool check_list(uint32_t field, struct cursor in, uint32_t *names, uint32_t *values)
{
    size_t len = (size_t)(in.end - in.at);
    switch (field) {
    case 4:
        ++*names;
        return len > 0 && len <= 253 && text_is_utf8((const char *)in.at, len);
    case 5:
        *values += (uint32_t)(len / 8);
        return len % 8 == 0;
    case 6:
        return count_varints(in, values);
    default:
        return false;
    }
}

bool tail_check_report(const uint8_t *bytes, size_t len, struct tail_record *out)
{
    struct cursor in = {bytes, bytes + len};
    uint32_t names = 0, values = 0, field;
    enum wire wire;
    out->samples = -1;
    out->has_step = false;
    if (len > TAIL_REPORT_BYTES_MAX)
        return false;
    while (in.at < in.end) {
        struct cursor inner;
        uint64_t value = 0;
        if (!read_tag(&in, &field, &wire))
            return false;
        if (wire == WIRE_LEN) {
            if (!read_bytes(&in, &inner) || !check_list(field, inner, &names, &values))
                return false;
            continue;
        }
        if (wire != WIRE_VARINT || field > 3 || !read_varint(&in, &value))
            return false;
        if (field == 1) {
            out->step = (int64_t)value;
            out->has_step = true;
        } else if (field == 2) {
            out->samples = (int64_t)value;
        }
    }
    out->points = values;
    return names == values && names <= TAIL_NAMES_MAX;
}

static bool skip_field(struct cursor *in, enum wire wire)
{
    struct cursor inner;
    uint64_t value;
    size_t width = wire == WIRE_64 ? 8 : 4;
    switch (wire) {
    case WIRE_VARINT:
        return read_varint(in, &value);
    case WIRE_LEN:
        return read_bytes(in, &inner);
    case WIRE_64:
    case WIRE_32:
        if ((size_t)(in->end - in->at) < width)
            return false;
        in->at += width;
        return true;
    }
    return false;
}

static bool read_flag(struct cursor *in, bool *out)
{
    uint64_t value;
    if (!read_varint(in, &value))
        return false;
    *out = value != 0;
    return true;
}

static bool read_dropped(struct cursor *in, uint64_t *out)
{
    uint64_t value;
    if (!read_varint(in, &value))
        return false;
    *out = value < TAIL_DROPPED_MAX ? value : TAIL_DROPPED_MAX;
    return true;
}

/* WorkerRecord. Fields of a later librondo are skipped. */
static bool read_record(struct cursor in, struct tail_record *out)
{
    uint32_t field;
    enum wire wire;
    while (in.at < in.end) {
        struct cursor inner;
        bool good;
        if (!read_tag(&in, &field, &wire))
            return false;
        if (wire == WIRE_LEN && field <= 2) {
            good = read_bytes(&in, &inner);
            if (good && field == 1) {
                out->report = inner.at;
                out->report_len = (size_t)(inner.end - inner.at);
            } else if (good) {
                out->failure = inner.at;
                out->failure_len = (size_t)(inner.end - inner.at);
            }
        } else if (wire == WIRE_VARINT && (field == 3 || field == 4)) {
            good = read_flag(&in, field == 3 ? &out->finished : &out->joined);
        } else if (wire == WIRE_VARINT && field == 5) {
            good = read_dropped(&in, &out->dropped);
        } else {
            good = skip_field(&in, wire);
        }
        if (!good)
            return false;
    }
    return true;
}

static uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

enum tail_result tail_next(const uint8_t *bytes, size_t len, size_t *at, struct tail_record *out)
{
    if (len - *at < 8)
        return TAIL_END;
    const uint8_t *head = bytes + *at;
    size_t size = read_u32(head);
    if (size == 0 || size > TAIL_RECORD_BYTES_MAX)
        return TAIL_BROKEN;
    if (len - *at - 8 < size)
        return TAIL_END;
    if (digest_crc32c(0, head + 8, size) != read_u32(head + 4))
        return TAIL_WRONG_CRC;
    *out = (struct tail_record){.samples = -1};
    out->refused = !read_record((struct cursor){head + 8, head + 8 + size}, out) ||
                   (out->report && !tail_check_report(out->report, out->report_len, out));
    if (out->refused)
        out->report = out->failure = NULL;
    *at += 8 + size;
    return TAIL_RECORD;
}

#define LENGTH_ROOM 5 /* a five-byte varint: its length is known last */

static void add_varint(struct text *out, uint64_t value)
{
    uint8_t buffer[10];
    size_t len = 0;
    do {
        buffer[len++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value);
    text_add_bytes(out, buffer, len);
}

static void add_number(struct text *out, uint32_t field, uint64_t value)
{
    add_varint(out, (uint64_t)field << 3 | WIRE_VARINT);
    add_varint(out, value);
}

static void add_field(struct text *out, uint32_t field, const void *bytes, size_t len)
{
    add_varint(out, (uint64_t)field << 3 | WIRE_LEN);
    add_varint(out, len);
    text_add_bytes(out, bytes, len);
}

void tail_batch_begin(struct tail_batch *batch, struct text *out, const struct tail_key *key)
{
    add_varint(out, 3 << 3 | WIRE_LEN); /* BulkUp.batches */
    text_add_bytes(out, "\0\0\0\0\0", LENGTH_ROOM);
    batch->out = out;
    batch->start = out->len;
    add_number(out, 1, (uint64_t)key->job);
    add_number(out, 2, key->attempt);
    add_field(out, 3, key->role, strlen(key->role));
    add_number(out, 4, key->rank);
    add_number(out, 5, key->incarnation);
}

void tail_batch_add(struct tail_batch *batch, const uint8_t *report, size_t len)
{
    add_field(batch->out, 6, report, len);
}

void tail_batch_end(struct tail_batch *batch, uint64_t dropped)
{
    if (dropped)
        add_number(batch->out, 7, dropped);
    if (batch->out->full || batch->out->len < batch->start)
        return;
    uint64_t len = batch->out->len - batch->start;
    char *room = batch->out->data + batch->start - LENGTH_ROOM;
    for (int i = 0; i < LENGTH_ROOM; i++, len >>= 7)
        room[i] = (char)((len & 0x7f) | (i < LENGTH_ROOM - 1 ? 0x80 : 0));
}
