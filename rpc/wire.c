#include "rpc/wire.h"
#include "base/text.h"
#include <stdbool.h>

#define DEPTH_MAX 32

enum wire_type { WIRE_VARINT = 0, WIRE_64BIT = 1, WIRE_BYTES = 2, WIRE_32BIT = 5 };

struct reader {
    const uint8_t *at, *end;
};

static bool read_varint(struct reader *in, uint64_t *out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 70 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool skip(struct reader *in, uint64_t len)
{
    if (len > (uint64_t)(in->end - in->at))
        return false;
    in->at += len;
    return true;
}

static enum status check(const ProtobufCMessageDescriptor *type, struct reader in, unsigned depth,
                         struct error *err);

/* A length-prefixed field: text, bytes, packed numbers or a message. */
static enum status check_bytes(const ProtobufCMessageDescriptor *type, unsigned id,
                               struct reader in, unsigned depth, struct error *err)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(type, id);

    if (!field)
        return STATUS_OK;
    if (field->type == PROTOBUF_C_TYPE_STRING &&
        !text_is_utf8((const char *)in.at, (size_t)(in.end - in.at)))
        return error_set(err, STATUS_INVALID, "%s.%s is not UTF-8 text", type->short_name,
                         field->name);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return check(field->descriptor, in, depth + 1, err);
    return STATUS_OK;
}

static enum status check(const ProtobufCMessageDescriptor *type, struct reader in, unsigned depth,
                         struct error *err)
{
    if (depth > DEPTH_MAX)
        return error_set(err, STATUS_INVALID, "%s is nested too deep", type->short_name);
    while (in.at < in.end) {
        uint64_t tag, value;
        bool good;
        if (!read_varint(&in, &tag) || (tag >> 3) == 0 || (tag >> 3) >= (1u << 29))
            return error_set(err, STATUS_INVALID, "%s holds a bad field number", type->short_name);
        switch (tag & 7) {
        case WIRE_VARINT:
            good = read_varint(&in, &value);
            break;
        case WIRE_64BIT:
            good = skip(&in, 8);
            break;
        case WIRE_32BIT:
            good = skip(&in, 4);
            break;
        case WIRE_BYTES:
            good = read_varint(&in, &value) && skip(&in, value);
            if (good) {
                struct reader inner = {in.at - value, in.at};
                enum status st = check_bytes(type, (unsigned)(tag >> 3), inner, depth, err);
                if (st != STATUS_OK)
                    return st;
            }
            break;
        default:
            good = false;
        }
        if (!good)
            return error_set(err, STATUS_INVALID, "%s is cut short or garbled at field %u",
                             type->short_name, (unsigned)(tag >> 3));
    }
    return STATUS_OK;
}

enum status rpc_wire_check(const ProtobufCMessageDescriptor *type, const void *bytes, size_t len,
                           struct error *err)
{
    const uint8_t *start = bytes;

    if (len == 0)
        return STATUS_OK;
    return check(type, (struct reader){start, start + len}, 0, err);
}
