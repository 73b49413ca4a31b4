/* digest.h - digests of files: XXH3-128 and CRC32C in one pass, SHA-256 for manifests and packed
 * code.
 *
 * Any thread; blocking reads: call from a worker thread, never from the loop. Formats: lower-case
 * hex. */
#pragma once
#include "base/error.h"
#include "proto/pb.h"
#include <stdint.h>

uint32_t digest_crc32c(uint32_t crc, const void *bytes,
                       size_t len); /* start with 0; hardware where there is any */
struct digest_file {
    uint64_t bytes;
    uint32_t crc32c;
    char xxh3[33];
};
/* Reads the whole file; with sync also fdatasyncs it first. */
enum status digest_file(const char *path, bool sync, struct digest_file *out,
                        struct error *err) MUST_CHECK;
void digest_sha256(const void *bytes, size_t len, char out[65]);
