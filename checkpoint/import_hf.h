/* import_hf.h - makes a checkpoint of safetensors files by others: one file, or a Hugging Face
 * directory with its index.
 *
 * Blocking; memory is bounded by a window. The checkpoint has one rank, which holds all; any layout
 * loads from it. Names of files in the index are data: a path, a drive, ".." or another extension
 * is refused. Files that the index does not name are left alone. */
#pragma once
#include "base/error.h"
#include "checkpoint/watcher.h"
#include <stdint.h>

struct import_hf_options {
    const char *prefix; /* put before every name; NULL: none */
    int64_t step;
    const struct watcher *watcher; /* warn: fields that we do not know, tensors left out */
};
struct import_hf_result {
    uint64_t bytes;
    uint32_t files, tensors;
};

/* source: a file, or a directory with model.safetensors.index.json or model.safetensors. options
 * and out may be NULL. */
enum status import_hf_read(const char *source, const char *target,
                           const struct import_hf_options *options, struct import_hf_result *out,
                           struct error *err) MUST_CHECK;
