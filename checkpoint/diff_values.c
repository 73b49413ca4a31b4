/* diff_values.c - how much two runs of elements differ. See diff_values.h. */
#include "checkpoint/diff_values.h"
#include <math.h>
#include <string.h>

static double of_f32(const void *at)
{
    float value;

    memcpy(&value, at, sizeof(value));
    return (double)value;
}

static double of_f64(const void *at)
{
    double value;

    memcpy(&value, at, sizeof(value));
    return value;
}

static double of_bf16(const void *at)
{
    uint16_t half;
    uint32_t bits;
    float value;

    memcpy(&half, at, sizeof(half));
    bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* IEEE 754 binary16. */
static double of_f16(const void *at)
{
    uint16_t half;

    memcpy(&half, at, sizeof(half));
    int exponent = half >> 10 & 0x1F, fraction = half & 0x3FF;
    double value = exponent == 0x1F ? (fraction ? NAN : INFINITY)
                   : exponent       ? ldexp(1024 + fraction, exponent - 25)
                                    : ldexp(fraction, -24);
    return half & 0x8000 ? -value : value;
}

#define INTEGER(name, type)                                                                        \
    static double of_##name(const void *at)                                                        \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, at, sizeof(value));                                                         \
        return (double)value;                                                                      \
    }
INTEGER(u8, uint8_t)
INTEGER(i8, int8_t)
INTEGER(u16, uint16_t)
INTEGER(i16, int16_t)
INTEGER(u32, uint32_t)
INTEGER(i32, int32_t)
INTEGER(u64, uint64_t)
INTEGER(i64, int64_t)

typedef double (*value_fn)(const void *at);

static value_fn value_of(enum dtype dtype)
{
    static const value_fn values[DTYPE_COUNT] = {
        [DTYPE_U8] = of_u8,     [DTYPE_I8] = of_i8,   [DTYPE_I16] = of_i16, [DTYPE_U16] = of_u16,
        [DTYPE_F16] = of_f16,   [DTYPE_I32] = of_i32, [DTYPE_U32] = of_u32, [DTYPE_F32] = of_f32,
        [DTYPE_BF16] = of_bf16, [DTYPE_F64] = of_f64, [DTYPE_I64] = of_i64, [DTYPE_U64] = of_u64,
    };

    return values[dtype];
}

bool diff_values_measured(enum dtype dtype)
{
    return value_of(dtype) != NULL;
}

void diff_values(enum dtype dtype, const void *first, const void *second, size_t len,
                 uint64_t *differing, double *max_abs)
{
    size_t size = dtype_bits(dtype) % 8 ? 1 : dtype_bits(dtype) / 8;
    value_fn value = value_of(dtype);
    const char *a = first, *b = second;

    if (memcmp(first, second, len) == 0)
        return;
    for (size_t i = 0; i + size <= len; i += size) {
        if (memcmp(a + i, b + i, size) == 0)
            continue;
        ++*differing;
        double gap = value ? fabs(value(a + i) - value(b + i)) : 0;
        if (isnan(gap))
            gap = INFINITY;
        *max_abs = gap > *max_abs ? gap : *max_abs;
    }
}
