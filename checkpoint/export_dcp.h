/* export_dcp.h - the shards of a checkpoint in one flat directory, as PyTorch's distributed
 * checkpoints read safetensors (its Hugging Face storage reader): every file says its place.
 *
 * Blocking; one thread. Files are copied as they are, each checked by its digests on the way; the
 * directory appears whole, by one rename. Plain values are not part of it. */
#pragma once
#include "checkpoint/reader.h"
#include "checkpoint/watcher.h"

struct export_dcp_result {
    uint64_t bytes, files;
};

/* dir, path: as the reader was opened with. STATUS_EXISTS: the target is there and not empty. */
enum status export_dcp_write(const char *dir, const char *path, const struct reader *reader,
                             const char *target, const struct watcher *watcher,
                             struct export_dcp_result *out, struct error *err) MUST_CHECK;
