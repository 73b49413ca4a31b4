/* digest_crc32c.c - CRC32C (Castagnoli) by the processor's instruction, or by table.
 *
 * Any thread. Apart from digest.c and free of base/, because librondo is linked with it. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "checkpoint/digest.h"

#define POLYNOMIAL UINT32_C(0x82f63b78)

static uint32_t table[256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void table_fill(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
        table[i] = crc;
    }
}

static uint32_t crc_by_table(uint32_t crc, const unsigned char *at, size_t len)
{
    (void)pthread_once(&table_once, table_fill);
    for (; len > 0; len--)
        crc = (crc >> 8) ^ table[(crc ^ *at++) & 0xff];
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t
crc_by_hardware(uint32_t crc, const unsigned char *at, size_t len)
{
    uint64_t wide = crc;
    for (; len >= 8; len -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; len > 0; len--)
        crc = __builtin_ia32_crc32qi(crc, *at++);
    return crc;
}

static int has_hardware(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
static uint32_t crc_by_hardware(uint32_t crc, const unsigned char *at, size_t len)
{
    for (; len >= 8; len -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        crc = __crc32cd(crc, word);
    }
    for (; len > 0; len--)
        crc = __crc32cb(crc, *at++);
    return crc;
}

static int has_hardware(void)
{
    return 1;
}
#else
static uint32_t crc_by_hardware(uint32_t crc, const unsigned char *at, size_t len)
{
    return crc_by_table(crc, at, len);
}

static int has_hardware(void)
{
    return 0;
}
#endif

uint32_t digest_crc32c(uint32_t crc, const void *bytes, size_t len)
{
    return has_hardware() ? ~crc_by_hardware(~crc, bytes, len) : ~crc_by_table(~crc, bytes, len);
}

uint32_t digest_crc32c_by_table(uint32_t crc, const void *bytes, size_t len)
{
    return ~crc_by_table(~crc, bytes, len);
}
