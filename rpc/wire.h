/* wire.h - checks protobuf bytes against a message type before anything is allocated.
 *
 * Any thread; pure. Accepts exactly what can be decoded safely: well-formed fields, strings that
 * are UTF-8 without NUL, messages nested at most 32 deep. Unknown fields are skipped. */
#pragma once
#include "base/error.h"
#include <protobuf-c/protobuf-c.h>

/* STATUS_INVALID names the message and the field. */
enum status rpc_wire_check(const ProtobufCMessageDescriptor *type, const void *bytes, size_t len,
                           struct error *err) MUST_CHECK;
