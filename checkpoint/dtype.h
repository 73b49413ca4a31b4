/* dtype.h - element types of tensors: safetensors' names and widths.
 *
 * Any thread; pure. Values are in the order in which safetensors ranks them for its layout of a
 * file (the widest come first there, so the order is walked backwards). Never written to disk as
 * numbers: names are. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* name, bits an element */
#define DTYPES(X)                                                                                  \
    X(BOOL, 8)                                                                                     \
    X(F4, 4)                                                                                       \
    X(F6_E2M3, 6)                                                                                  \
    X(F6_E3M2, 6)                                                                                  \
    X(U8, 8)                                                                                       \
    X(I8, 8)                                                                                       \
    X(F8_E5M2, 8)                                                                                  \
    X(F8_E4M3, 8)                                                                                  \
    X(F8_E8M0, 8)                                                                                  \
    X(F8_E4M3FNUZ, 8)                                                                              \
    X(F8_E5M2FNUZ, 8)                                                                              \
    X(I16, 16)                                                                                     \
    X(U16, 16)                                                                                     \
    X(F16, 16)                                                                                     \
    X(BF16, 16)                                                                                    \
    X(I32, 32)                                                                                     \
    X(U32, 32)                                                                                     \
    X(F32, 32)                                                                                     \
    X(C64, 64)                                                                                     \
    X(F64, 64)                                                                                     \
    X(I64, 64)                                                                                     \
    X(U64, 64)
#define X(name, bits) DTYPE_##name,
enum dtype { DTYPES(X) DTYPE_COUNT };
#undef X

const char *dtype_name(enum dtype dtype); /* "BF16"; "?" when out of range */
/* Exact, by bytes. False leaves *out alone. */
bool dtype_find(const char *name, size_t len, enum dtype *out);
uint32_t dtype_bits(enum dtype dtype);
/* Of that many elements; false: more than 64 bits hold, or no whole number of bytes. */
bool dtype_bytes(enum dtype dtype, uint64_t elements, uint64_t *out);
