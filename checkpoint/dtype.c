/* dtype.c - element types of tensors. See dtype.h. */
#include "checkpoint/dtype.h"
#include <string.h>

#define X(name, bits) {#name, bits},
static const struct dtype_row {
    const char *name;
    uint32_t bits;
} dtype_rows[] = {DTYPES(X)};
#undef X

const char *dtype_name(enum dtype dtype)
{
    return (unsigned)dtype < DTYPE_COUNT ? dtype_rows[dtype].name : "?";
}

bool dtype_find(const char *name, size_t len, enum dtype *out)
{
    for (unsigned i = 0; i < DTYPE_COUNT; i++) {
        if (strlen(dtype_rows[i].name) == len && memcmp(dtype_rows[i].name, name, len) == 0) {
            *out = (enum dtype)i;
            return true;
        }
    }
    return false;
}

uint32_t dtype_bits(enum dtype dtype)
{
    return (unsigned)dtype < DTYPE_COUNT ? dtype_rows[dtype].bits : 0;
}

bool dtype_bytes(enum dtype dtype, uint64_t elements, uint64_t *out)
{
    uint64_t bits;

    if (__builtin_mul_overflow(elements, (uint64_t)dtype_bits(dtype), &bits) || bits % 8)
        return false;
    *out = bits / 8;
    return true;
}
