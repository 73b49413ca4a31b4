/* wire.c - see wire.h. */
#include "worker/wire.h"

#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

void wire_init(struct wire *wire, void *memory, size_t cap)
{
    *wire = (struct wire){.data = memory, .cap = cap};
}

size_t wire_varint_len(uint64_t value)
{
    size_t len = 1;

    while (value >= 0x80) {
        value >>= 7;
        len++;
    }
    return len;
}

uint64_t wire_zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
}

void wire_raw_bytes(struct wire *wire, const void *bytes, size_t len)
{
    if (wire->full || len > wire->cap - wire->len) {
        wire->full = true;
        return;
    }
    if (len)
        memcpy(wire->data + wire->len, bytes, len);
    wire->len += len;
}

void wire_raw_varint(struct wire *wire, uint64_t value)
{
    unsigned char bytes[10];
    size_t len = 0;

    while (value >= 0x80) {
        bytes[len++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    bytes[len++] = (unsigned char)value;
    wire_raw_bytes(wire, bytes, len);
}

void wire_add_number(struct wire *wire, uint32_t field, uint64_t value)
{
    wire_raw_varint(wire, (uint64_t)field << 3 | WIRE_VARINT);
    wire_raw_varint(wire, value);
}

void wire_add_head(struct wire *wire, uint32_t field, size_t len)
{
    wire_raw_varint(wire, (uint64_t)field << 3 | WIRE_BYTES);
    wire_raw_varint(wire, len);
}

void wire_add_bytes(struct wire *wire, uint32_t field, const void *bytes, size_t len)
{
    wire_add_head(wire, field, len);
    wire_raw_bytes(wire, bytes, len);
}

void wire_put_u32(unsigned char out[4], uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

uint32_t wire_get_u32(const unsigned char in[4])
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static bool read_varint(const unsigned char *data, size_t len, size_t *at, uint64_t *out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (*at >= len)
            return false;
        value |= shift < 64 ? (uint64_t)(data[*at] & 0x7f) << shift : 0;
        if (!(data[(*at)++] & 0x80)) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool read_fixed(const unsigned char *data, size_t len, size_t *at, size_t width,
                       uint64_t *out)
{
    uint64_t value = 0;

    if (len - *at < width)
        return false;
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)data[*at + i] << (8 * i);
    *at += width;
    *out = value;
    return true;
}

int wire_next(const unsigned char *data, size_t len, size_t *at, struct wire_field *out)
{
    uint64_t key = 0;
    bool good;

    if (*at == len)
        return 0;
    if (!read_varint(data, len, at, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return -1;
    *out = (struct wire_field){.number = (uint32_t)(key >> 3)};
    switch (key & 7) {
    case WIRE_VARINT:
        good = read_varint(data, len, at, &out->value);
        break;
    case WIRE_FIXED64:
        good = read_fixed(data, len, at, 8, &out->value);
        break;
    case WIRE_FIXED32:
        good = read_fixed(data, len, at, 4, &out->value);
        break;
    case WIRE_BYTES:
        good = read_varint(data, len, at, &out->value) && out->value <= len - *at;
        if (good) {
            out->is_bytes = true;
            out->bytes = data + *at;
            out->len = (size_t)out->value;
            *at += out->len;
        }
        break;
    default:
        good = false;
    }
    return good ? 1 : -1;
}
