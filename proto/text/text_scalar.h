/* text_scalar.h - one written value to one typed value of a field, and back for doubles.
 *
 * Any thread; no I/O. Outputs are untouched on failure; `why` then says what is wrong and what is
 * allowed. */
#pragma once
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct text_scalar {
    const char *bytes;
    size_t len;
    bool plain; /* not quoted: numbers and booleans must be plain, 64-bit integers need not */
};
enum { TEXT_SCALAR_WHY = 512, TEXT_SCALAR_DOUBLE = 32 };

/* Size of one element in memory: sizeof(int32_t), sizeof(char *) ... */
size_t text_scalar_size(const ProtobufCFieldDescriptor *field);
/* *out has that size. Strings and bytes are allocated with the default allocator. Durations ("90s",
 * "1h30m") for fields named ..._ms, ..._s; sizes ("4GiB") for ..._mib. Not for messages. */
bool text_scalar_parse(const ProtobufCFieldDescriptor *field, struct text_scalar in, void *out,
                       char why[TEXT_SCALAR_WHY]);
/* The value of an enum by name in any case, '-' for '_' allowed. */
const ProtobufCEnumValue *text_scalar_enum(const ProtobufCEnumDescriptor *type, const char *name);
/* Names of an enum without the UNSPECIFIED one; returns how many, at most max. */
size_t text_scalar_enum_names(const ProtobufCEnumDescriptor *type, const char **names, size_t max);
/* Fewest digits that read back as the same double; "NaN", "Infinity", "-Infinity". */
void text_scalar_print_double(double value, char out[TEXT_SCALAR_DOUBLE]);
void text_scalar_print_float(float value, char out[TEXT_SCALAR_DOUBLE]);
