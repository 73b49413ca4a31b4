#include "proto/text/message.h"
#include "base/mem.h"
#include <stdint.h>

ProtobufCMessage *message_copy(const ProtobufCMessage *message)
{
    if (!message)
        return NULL;
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = mem_alloc(size + 1);
    protobuf_c_message_pack(message, bytes);
    ProtobufCMessage *copy = protobuf_c_message_unpack(message->descriptor, NULL, size, bytes);
    mem_free(bytes);
    if (!copy) /* what we packed unpacks; only memory can be short */
        mem_array(SIZE_MAX, 2);
    return copy;
}
