/* message.h - what holds for any message. Any thread. */
#pragma once
#include <protobuf-c/protobuf-c.h>

/* A deep copy through the wire form; NULL gives NULL. Free with protobuf_c_message_free_unpacked(m,
 * NULL). */
ProtobufCMessage *message_copy(const ProtobufCMessage *message);
