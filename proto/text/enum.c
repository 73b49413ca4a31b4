#include "proto/text/enum.h"
#include "base/mem.h"
#include <stdio.h>

const char *enum_name(const ProtobufCEnumDescriptor *type, int value)
{
    static _Thread_local char buffers[8][16];
    static _Thread_local unsigned next;
    const ProtobufCEnumValue *found = protobuf_c_enum_descriptor_get_value(type, value);
    if (found)
        return found->name;
    char *buffer = buffers[next++ % COUNT_OF(buffers)];
    snprintf(buffer, sizeof buffers[0], "%d", value);
    return buffer;
}
