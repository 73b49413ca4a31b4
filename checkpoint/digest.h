/* digest.h - digests of files: XXH3-128 and CRC32C in one pass, SHA-256 for manifests and packed
 * code.
 *
 * Any thread; blocking reads: call from a worker thread, never from the loop. Formats: lower-case
 * hex. */
#pragma once
#include "base/error.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Start with 0; hardware where there is any. */
uint32_t digest_crc32c(uint32_t crc, const void *bytes, size_t len);
/* The same without wide registers, and without the hardware: what the test compares. */
uint32_t digest_crc32c_by_chains(uint32_t crc, const void *bytes, size_t len);
uint32_t digest_crc32c_by_table(uint32_t crc, const void *bytes, size_t len);
/* Copies (the ranges are apart) and digests src in one pass; long ranges go past the caches. What
 * is digested is what was copied, also when another thread writes to src meanwhile. */
uint32_t digest_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t len);
/* The digest of first's bytes followed by second's, of which there are second_len. */
uint32_t digest_crc32c_combine(uint32_t first, uint32_t second, uint64_t second_len);
struct digest_file {
    uint64_t bytes;
    uint32_t crc32c;
    char xxh3[33];
};
/* Reads the whole file (a regular one, no link); with sync also fdatasyncs it. A file that changes
 * size meanwhile is STATUS_ABORTED. */
enum status digest_file(const char *path, bool sync, struct digest_file *out,
                        struct error *err) MUST_CHECK;
/* The same for an open descriptor, from its beginning; name is for the error's text. stop, set by
 * another thread, ends it with STATUS_CANCELLED (NULL: nobody will): a file may be as long as its
 * owner says without a byte being written. */
enum status digest_fd(int fd, const char *name, bool sync, const atomic_bool *stop,
                      struct digest_file *out, struct error *err) MUST_CHECK;
struct digest_options {
    bool sync;
    const atomic_bool *stop;
    atomic_uint_least64_t *done; /* grows by what is read; NULL: nobody looks on */
};
enum status digest_fd_with(int fd, const char *name, const struct digest_options *options,
                           struct digest_file *out, struct error *err) MUST_CHECK;
void digest_sha256(const void *bytes, size_t len, char out[65]);
