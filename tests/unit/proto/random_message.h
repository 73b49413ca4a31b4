/* random_message.h - a message of any type with random content, for property tests. */
#pragma once
#include "base/mem.h"
#include "base/text.h"
#include "proto/text/text_field.h"
#include "proto/text/text_scalar.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t random_next(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline char *random_text(uint64_t *seed)
{
    static const char *const pieces[] = {
        "a",        "B",    " ",      "\n", "\t", "\"",  "\\",         "#",    ": ",
        "- ",       "true", "null",   "~",  "0",  "1e5", "'",          "{",    "}",
        "[",        ",",    "&x",     "*y", "%",  "!t",  "\x01",       "\x7f", "\u00e9",
        "\xc2\x85", "=",    "\u2028", "|",  ">",  "@",   "\U0001f600", "\r\n", "\u4e2d"};
    struct text all;
    text_init(&all, 0);
    for (uint64_t n = random_next(seed) % 8; n > 0; n--)
        text_add(&all, pieces[random_next(seed) % COUNT_OF(pieces)]);
    return text_take(&all);
}

static inline double random_double(uint64_t *seed)
{
    static const double special[] = {
        0.0,  -0.0,   1.0,   0.1,      3e-4,     5e-324, 2.2250738585072014e-308,
        1e22, 1e-300, 1e308, INFINITY, -INFINITY};
    uint64_t bits = random_next(seed);
    double value;
    memcpy(&value, &bits, sizeof value);
    if (bits % 4 == 0 || isnan(value))
        return special[(bits >> 8) % COUNT_OF(special)];
    return value;
}

static inline void random_scalar(uint64_t *seed, const ProtobufCFieldDescriptor *field, void *out)
{
    uint64_t bits = random_next(seed);
    bits = bits % 3 == 0 ? bits : bits % 3 == 1 ? bits % 100 : UINT64_MAX - bits % 100;
    const ProtobufCEnumDescriptor *type = field->descriptor;
    double real = random_double(seed);
    char *text;
    ProtobufCBinaryData data;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        text = random_text(seed);
        memcpy(out, &text, sizeof text);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        data.len = bits % 9;
        data.data = data.len ? mem_dup(&bits, data.len < 8 ? data.len : (data.len = 8)) : NULL;
        memcpy(out, &data, sizeof data);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        memcpy(out, &type->values[bits % type->n_values].value, sizeof(int));
        break;
    case PROTOBUF_C_TYPE_BOOL:
        memcpy(out, &(protobuf_c_boolean){(int)(bits & 1)}, sizeof(protobuf_c_boolean));
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        memcpy(out, &real, sizeof real);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        memcpy(out, &(float){(float)real}, sizeof(float));
        break;
    default:
        memcpy(out, &bits, text_scalar_size(field));
    }
}

static inline ProtobufCMessage *random_message(uint64_t *seed,
                                               const ProtobufCMessageDescriptor *type);

static inline void random_element(uint64_t *seed, const ProtobufCFieldDescriptor *field, void *out)
{
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        ProtobufCMessage *sub = random_message(seed, field->descriptor);
        memcpy(out, &sub, sizeof(ProtobufCMessage *));
    } else {
        random_scalar(seed, field, out);
    }
}

static inline ProtobufCMessage *random_message(uint64_t *seed,
                                               const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *message = text_field_new_message(type);
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        uint64_t count = random_next(seed) % 4;
        if (field->label != PROTOBUF_C_LABEL_REPEATED && count > 1) {
            random_element(seed, field, text_field_place(message, field));
            text_field_mark(message, field);
        }
        for (; field->label == PROTOBUF_C_LABEL_REPEATED && count > 0; count--) {
            random_element(seed, field, text_field_append(message, field));
            text_field_commit(message, field);
        }
    }
    return message;
}
