/* digest_crc32c_wide.h - CRC32C of 64 bytes an instruction, with or without a copy. For
 * digest_crc32c.c only.
 *
 * Any thread; free of base/, because librondo is linked with it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fewer bytes are not worth it, and are refused by an assertion. */
#define DIGEST_CRC32C_WIDE_MIN ((size_t)512)

/* Does this processor have what it needs? */
bool digest_crc32c_wide_there(void);
/* Takes a whole number of 64-byte groups off the front: *crc is of them (not inverted), the result
 * says how many bytes. With dst, also copies them, past the caches when dst allows it. */
size_t digest_crc32c_wide(uint32_t *crc, unsigned char *dst, const unsigned char *src, size_t len);
