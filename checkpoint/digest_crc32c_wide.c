/* digest_crc32c_wide.c - see digest_crc32c_wide.h.
 *
 * The remainder of a polynomial does not change when 128 bits of it are multiplied onto a place
 * further on by x^distance mod P. Sixteen such lanes (four registers) walk over the bytes side by
 * side; at the end they are folded into one register, whose 64 bytes stand for all before them. */
#include "checkpoint/digest_crc32c_wide.h"

#if defined(__x86_64__)
#include <assert.h>
#include <immintrin.h>

#define WIDE __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))
#define STEP ((size_t)256)

/* x^(distance + 32) and x^(distance - 32) mod P, bits reversed, for 2048 and 512 bits. */
#define FOLD_2048_LOW  INT64_C(0x0dcb17aa4)
#define FOLD_2048_HIGH INT64_C(0x0b9e02b86)
#define FOLD_512_LOW   INT64_C(0x0740eef02)
#define FOLD_512_HIGH  INT64_C(0x09e4addf8)

bool digest_crc32c_wide_there(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("sse4.2");
}

/* Three-way exclusive or is one instruction here: truth table 0x96. */
WIDE static inline __m512i fold(__m512i lanes, __m512i by, __m512i onto)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lanes, by, 0x00),
                                     _mm512_clmulepi64_epi128(lanes, by, 0x11), onto, 0x96);
}

WIDE static inline __m512i load(const unsigned char *at)
{
    return _mm512_loadu_si512((const void *)at);
}

struct wide {
    __m512i lane[4];
};

WIDE static inline struct wide begin(const unsigned char *src)
{
    return (struct wide){{load(src), load(src + 64), load(src + 128), load(src + 192)}};
}

/* What came before is added to the first bytes, once they are stored. */
WIDE static inline void seed(struct wide *wide, uint32_t crc)
{
    wide->lane[0] =
        _mm512_xor_si512(wide->lane[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
}

WIDE static inline uint32_t end(const struct wide *wide)
{
    const __m512i by = _mm512_set_epi64(FOLD_512_HIGH, FOLD_512_LOW, FOLD_512_HIGH, FOLD_512_LOW,
                                        FOLD_512_HIGH, FOLD_512_LOW, FOLD_512_HIGH, FOLD_512_LOW);
    __m512i lanes = wide->lane[0];
    uint64_t words[8], crc = 0;

    for (size_t i = 1; i < 4; i++)
        lanes = fold(lanes, by, wide->lane[i]);
    _mm512_storeu_si512(words, lanes);
    for (size_t i = 0; i < 8; i++)
        crc = _mm_crc32_u64(crc, words[i]);
    return (uint32_t)crc;
}

WIDE static inline __m512i distance_2048(void)
{
    return _mm512_set_epi64(FOLD_2048_HIGH, FOLD_2048_LOW, FOLD_2048_HIGH, FOLD_2048_LOW,
                            FOLD_2048_HIGH, FOLD_2048_LOW, FOLD_2048_HIGH, FOLD_2048_LOW);
}

WIDE static size_t wide_read(uint32_t *crc, const unsigned char *src, size_t len)
{
    const __m512i by = distance_2048();
    struct wide wide = begin(src);
    size_t at;

    seed(&wide, *crc);
    for (at = STEP; at + STEP <= len; at += STEP)
        for (size_t i = 0; i < 4; i++)
            wide.lane[i] = fold(wide.lane[i], by, load(src + at + 64 * i));
    *crc = end(&wide);
    return at;
}

/* dst is aligned to 64: the stores go past the caches, which keep what the program works on. */
WIDE static size_t wide_stream(uint32_t *crc, unsigned char *dst, const unsigned char *src,
                               size_t len)
{
    const __m512i by = distance_2048();
    struct wide wide = begin(src);
    size_t at;

    for (size_t i = 0; i < 4; i++)
        _mm512_stream_si512((void *)(dst + 64 * i), wide.lane[i]);
    seed(&wide, *crc);
    for (at = STEP; at + STEP <= len; at += STEP) {
        for (size_t i = 0; i < 4; i++) {
            __m512i bytes = load(src + at + 64 * i);
            _mm512_stream_si512((void *)(dst + at + 64 * i), bytes);
            wide.lane[i] = fold(wide.lane[i], by, bytes);
        }
    }
    _mm_sfence();
    *crc = end(&wide);
    return at;
}

WIDE static size_t wide_copy(uint32_t *crc, unsigned char *dst, const unsigned char *src,
                             size_t len)
{
    const __m512i by = distance_2048();
    struct wide wide = begin(src);
    size_t at;

    for (size_t i = 0; i < 4; i++)
        _mm512_storeu_si512((void *)(dst + 64 * i), wide.lane[i]);
    seed(&wide, *crc);
    for (at = STEP; at + STEP <= len; at += STEP) {
        for (size_t i = 0; i < 4; i++) {
            __m512i bytes = load(src + at + 64 * i);
            _mm512_storeu_si512((void *)(dst + at + 64 * i), bytes);
            wide.lane[i] = fold(wide.lane[i], by, bytes);
        }
    }
    *crc = end(&wide);
    return at;
}

size_t digest_crc32c_wide(uint32_t *crc, unsigned char *dst, const unsigned char *src, size_t len)
{
    assert(len >= DIGEST_CRC32C_WIDE_MIN);
    if (!dst)
        return wide_read(crc, src, len);
    return ((uintptr_t)dst & 63) == 0 && len >= 4096 ? wide_stream(crc, dst, src, len)
                                                     : wide_copy(crc, dst, src, len);
}
#else
bool digest_crc32c_wide_there(void)
{
    return false;
}

size_t digest_crc32c_wide(uint32_t *crc, unsigned char *dst, const unsigned char *src, size_t len)
{
    (void)crc, (void)dst, (void)src, (void)len;
    return 0;
}
#endif
