/* digest_crc32c.c - CRC32C (Castagnoli): by wide registers, by the processor's instruction in three
 * chains, or by table; with a copy in the same pass.
 *
 * Any thread. Apart from digest.c and free of base/, because librondo is linked with it. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "checkpoint/digest.h"
#include "checkpoint/digest_crc32c_wide.h"

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
#define HARDWARE __attribute__((target("sse4.2")))
HARDWARE static inline uint32_t crc_word(uint32_t crc, uint64_t word)
{
    return (uint32_t)__builtin_ia32_crc32di(crc, word);
}

HARDWARE static inline uint32_t crc_byte(uint32_t crc, unsigned char byte)
{
    return __builtin_ia32_crc32qi(crc, byte);
}

static int has_hardware(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HARDWARE
static inline uint32_t crc_word(uint32_t crc, uint64_t word)
{
    return __crc32cd(crc, word);
}

static inline uint32_t crc_byte(uint32_t crc, unsigned char byte)
{
    return __crc32cb(crc, byte);
}

static int has_hardware(void)
{
    return 1;
}
#else
#define HARDWARE
static inline uint32_t crc_word(uint32_t crc, uint64_t word)
{
    return crc_by_table(crc, (const unsigned char *)&word, sizeof word);
}

static inline uint32_t crc_byte(uint32_t crc, unsigned char byte)
{
    return crc_by_table(crc, &byte, 1);
}

static int has_hardware(void)
{
    return 0;
}
#endif

static inline uint64_t word_at(const unsigned char *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return word;
}

/* The instruction needs three steps and can begin one each step: three chains keep it busy. Each
 * is `chain` bytes long; crc is not inverted. */
HARDWARE static uint32_t crc_of_three(uint32_t crc, const unsigned char *at, size_t chain)
{
    uint32_t second = 0, third = 0;

    for (size_t i = 0; i < chain; i += 8) {
        crc = crc_word(crc, word_at(at + i));
        second = crc_word(second, word_at(at + chain + i));
        third = crc_word(third, word_at(at + 2 * chain + i));
    }
    crc = digest_crc32c_combine(crc, second, chain);
    return digest_crc32c_combine(crc, third, chain);
}

HARDWARE static uint32_t crc_by_hardware(uint32_t crc, const unsigned char *at, size_t len)
{
    static const size_t chains[] = {8192, 1024};

    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++)
        for (; len >= 3 * chains[i]; len -= 3 * chains[i], at += 3 * chains[i])
            crc = crc_of_three(crc, at, chains[i]);
    for (; len >= 8; len -= 8, at += 8)
        crc = crc_word(crc, word_at(at));
    for (; len > 0; len--)
        crc = crc_byte(crc, *at++);
    return crc;
}

uint32_t digest_crc32c(uint32_t crc, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    size_t done;

    if (!has_hardware())
        return ~crc_by_table(~crc, at, len);
    crc = ~crc;
    done = len >= DIGEST_CRC32C_WIDE_MIN && digest_crc32c_wide_there()
               ? digest_crc32c_wide(&crc, NULL, at, len)
               : 0;
    return ~crc_by_hardware(crc, at + done, len - done);
}

/* What was copied is in the nearest cache when it is digested. */
#define COPY_BYTES ((size_t)8192)

static uint32_t copy_by_pieces(uint32_t crc, unsigned char *dst, const unsigned char *src,
                               size_t len)
{
    while (len > 0) {
        size_t n = len < COPY_BYTES ? len : COPY_BYTES;
        memcpy(dst, src, n);
        crc = digest_crc32c(crc, dst, n);
        dst += n;
        src += n;
        len -= n;
    }
    return crc;
}

uint32_t digest_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t len)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t head = (64 - ((uintptr_t)to & 63)) & 63, done;

    if (len < 2 * DIGEST_CRC32C_WIDE_MIN || !digest_crc32c_wide_there())
        return copy_by_pieces(crc, to, from, len);
    crc = ~copy_by_pieces(crc, to, from, head); /* then dst is aligned */
    done = head + digest_crc32c_wide(&crc, to + head, from + head, len - head);
    return copy_by_pieces(~crc, to + done, from + done, len - done);
}

uint32_t digest_crc32c_by_chains(uint32_t crc, const void *bytes, size_t len)
{
    return has_hardware() ? ~crc_by_hardware(~crc, bytes, len) : ~crc_by_table(~crc, bytes, len);
}

uint32_t digest_crc32c_by_table(uint32_t crc, const void *bytes, size_t len)
{
    return ~crc_by_table(~crc, bytes, len);
}
