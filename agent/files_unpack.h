/* files_unpack.h - unpacks the code of a job: a tar (plain, gzip or zstd) into a new directory.
 *
 * Any thread; blocks. The archive is not trusted: no absolute paths, no "..", no links that leave
 * the tree, no devices, at most 200,000 entries and bytes_max bytes. Nothing of it is writable
 * afterwards. On failure nothing is left at `to`. */
#pragma once
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

/* hex: SHA-256 of the archive; compared first. bytes (result): size of the unpacked files. */
enum status files_unpack(const char *archive, const char *hex, const char *to, size_t bytes_max,
                         uint64_t *bytes, struct error *err) MUST_CHECK;
