/* record.c - see record.h. */
#include "worker/record.h"

#include <string.h>

#include "worker/wire.h"

#define FRONT 32 /* room for the head and the outer field, whose length is known last */

enum record_field { RECORD_REPORT = 1, RECORD_FAILURE = 2, RECORD_FINISHED = 3, RECORD_JOINED = 4 };
enum report_field {
    REPORT_STEP = 1,
    REPORT_SAMPLES = 2,
    REPORT_T_US = 3,
    REPORT_NAMES = 4,
    REPORT_VALUES = 5,
    REPORT_INTEGERS = 6
};
enum failure_field { FAILURE_MESSAGE = 1, FAILURE_TRACEBACK = 2, FAILURE_DAMAGED = 3 };

static void begin(struct record *record, struct wire *wire)
{
    wire_init(wire, record->memory + FRONT, sizeof record->memory - FRONT);
}

/* Puts the field's key and length before what was written, and leaves room for the head. */
static void end_inside(struct record *record, const struct wire *wire, uint32_t field)
{
    unsigned char front[16];
    struct wire prefix;

    wire_init(&prefix, front, sizeof front);
    wire_add_head(&prefix, field, wire->len);
    record->bytes = record->memory + FRONT - prefix.len - WIRE_HEAD_BYTES;
    memcpy(record->bytes + WIRE_HEAD_BYTES, front, prefix.len);
    record->len = WIRE_HEAD_BYTES + prefix.len + wire->len;
}

static void end(struct record *record, const struct wire *wire)
{
    record->bytes = record->memory + FRONT - WIRE_HEAD_BYTES;
    record->len = WIRE_HEAD_BYTES + wire->len;
}

static void add_names(struct wire *wire, const struct record_value *values, size_t count,
                      bool integers)
{
    for (size_t i = 0; i < count; i++)
        if (values[i].is_integer == integers)
            wire_add_bytes(wire, REPORT_NAMES, values[i].name, values[i].name_len);
}

static void add_doubles(struct wire *wire, const struct record_value *values, size_t count)
{
    size_t doubles = 0;

    for (size_t i = 0; i < count; i++)
        doubles += !values[i].is_integer;
    if (doubles == 0)
        return;
    wire_add_head(wire, REPORT_VALUES, doubles * 8);
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[8];
        uint64_t bits;
        if (values[i].is_integer)
            continue;
        memcpy(&bits, &values[i].number, sizeof bits);
        wire_put_u32(bytes, (uint32_t)bits);
        wire_put_u32(bytes + 4, (uint32_t)(bits >> 32));
        wire_raw_bytes(wire, bytes, sizeof bytes);
    }
}

static void add_integers(struct wire *wire, const struct record_value *values, size_t count)
{
    size_t len = 0;

    for (size_t i = 0; i < count; i++)
        len += values[i].is_integer ? wire_varint_len(wire_zigzag(values[i].integer)) : 0;
    if (len == 0)
        return;
    wire_add_head(wire, REPORT_INTEGERS, len);
    for (size_t i = 0; i < count; i++)
        if (values[i].is_integer)
            wire_raw_varint(wire, wire_zigzag(values[i].integer));
}

/* Length of the character at the start of bytes, strictly UTF-8 and printable; 0: none such. */
static size_t character(const unsigned char *bytes, size_t len)
{
    unsigned char first = bytes[0];
    size_t want = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    uint32_t value = want == 1 ? first : first & (0x7fu >> want);

    if (want == 0 || want > len || first > 0xf4 || first < 0x20 || first == 0x7f)
        return 0;
    for (size_t i = 1; i < want; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (bytes[i] & 0x3f);
    }
    if ((want == 3 && (value < 0x800 || (value >= 0xd800 && value < 0xe000))) ||
        (want == 4 && (value < 0x10000 || value > 0x10ffff)))
        return 0;
    return want;
}

/* Names go to JSON and SQL later: UTF-8 without control characters. */
static bool name_ok(const char *name, size_t len)
{
    if (len == 0 || len > RECORD_NAME_MAX)
        return false;
    for (size_t at = 0; at < len;) {
        size_t step = character((const unsigned char *)name + at, len - at);
        if (step == 0)
            return false;
        at += step;
    }
    return true;
}

bool record_report(struct record *record, int64_t step, int64_t samples, int64_t t_us,
                   const struct record_value *values, size_t count, const char **why)
{
    struct wire wire;

    if (step < 0 || count > RECORD_VALUES_MAX) {
        *why = step < 0 ? "a step is negative" : "more than 256 values in one report";
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!name_ok(values[i].name, values[i].name_len)) {
            *why = "a name is empty, longer than 255 bytes, not UTF-8, or has control characters";
            return false;
        }
    }
    begin(record, &wire);
    wire_add_number(&wire, REPORT_STEP, (uint64_t)step);
    if (samples >= 0)
        wire_add_number(&wire, REPORT_SAMPLES, (uint64_t)samples);
    wire_add_number(&wire, REPORT_T_US, (uint64_t)t_us);
    add_names(&wire, values, count, false);
    add_names(&wire, values, count, true);
    add_doubles(&wire, values, count);
    add_integers(&wire, values, count);
    if (wire.full) {
        *why = "a report is larger than 64 KiB";
        return false;
    }
    end_inside(record, &wire, RECORD_REPORT);
    return true;
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

void record_failure(struct record *record, const char *message, const char *traceback)
{
    size_t message_len = message ? strnlen(message, RECORD_MESSAGE_MAX) : 0;
    size_t traceback_len = traceback ? strlen(traceback) : 0, skip = 0;
    struct wire wire;

    while (message_len == RECORD_MESSAGE_MAX && message_len > 0 &&
           is_continuation(message[message_len]))
        message_len--;
    if (traceback_len > RECORD_TRACEBACK_MAX)
        skip = traceback_len - RECORD_TRACEBACK_MAX;
    while (skip > 0 && skip < traceback_len && is_continuation(traceback[skip]))
        skip++;
    begin(record, &wire);
    wire_add_bytes(&wire, FAILURE_MESSAGE, message, message_len);
    if (traceback)
        wire_add_bytes(&wire, FAILURE_TRACEBACK, traceback + skip, traceback_len - skip);
    end_inside(record, &wire, RECORD_FAILURE);
}

void record_damaged(struct record *record, const char *message, const char *where)
{
    struct wire wire;

    begin(record, &wire);
    wire_add_bytes(&wire, FAILURE_MESSAGE, message, strnlen(message, RECORD_MESSAGE_MAX));
    wire_add_bytes(&wire, FAILURE_DAMAGED, where, strnlen(where, RECORD_MESSAGE_MAX));
    end_inside(record, &wire, RECORD_FAILURE);
}

static void flag(struct record *record, uint32_t field)
{
    struct wire wire;

    begin(record, &wire);
    wire_add_number(&wire, field, 1);
    end(record, &wire);
}

void record_finished(struct record *record)
{
    flag(record, RECORD_FINISHED);
}

void record_joined(struct record *record)
{
    flag(record, RECORD_JOINED);
}
