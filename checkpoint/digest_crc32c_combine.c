/* digest_crc32c_combine.c - the CRC32C of two pieces from theirs, without the bytes.
 *
 * Any thread. Free of base/, because librondo is linked with it. A CRC is the remainder of a
 * polynomial whose highest power is bit 31 shifted out first: all are kept with bits reversed. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/digest.h"

#define POLYNOMIAL UINT32_C(0x82f63b78)
#define ONE        UINT32_C(0x80000000) /* x^0 */

/* power[n] = x^(8 * 2^n) mod P: a shift by 2^n bytes. */
static uint32_t power[64];
static pthread_once_t power_once = PTHREAD_ONCE_INIT;

static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (; a; a <<= 1) {
        product ^= b & (0U - (a >> 31));
        b = (b >> 1) ^ (POLYNOMIAL & (0U - (b & 1)));
    }
    return product;
}

static void power_fill(void)
{
    power[0] = ONE >> 8;
    for (size_t n = 1; n < sizeof(power) / sizeof(power[0]); n++)
        power[n] = multiply(power[n - 1], power[n - 1]);
}

uint32_t digest_crc32c_combine(uint32_t first, uint32_t second, uint64_t second_len)
{
    (void)pthread_once(&power_once, power_fill);
    for (size_t n = 0; second_len; n++, second_len >>= 1)
        if (second_len & 1)
            first = multiply(power[n], first);
    return first ^ second;
}
