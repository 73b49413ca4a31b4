/* enum.h - enum values by name. Any thread. */
#pragma once
#include <protobuf-c/protobuf-c.h>

/* "RUNNING" for (descriptor, 3); "7" for a value without a name. Loan: static, or a buffer of the
 * thread that the eighth next such value takes over. */
const char *enum_name(const ProtobufCEnumDescriptor *type, int value);
