/* export_hf.h - a checkpoint as whole tensors in files that Hugging Face's tools open:
 * model.safetensors, or several with model.safetensors.index.json.
 *
 * Blocking; memory is bounded by a window (reader_stream.h). The target appears by one rename of a
 * directory made beside it, durable: stale files never mix in. Tied weights are written once, under
 * the name that holds them; __metadata__ maps the other names to it. */
#pragma once
#include "checkpoint/reader.h"
#include "checkpoint/watcher.h"

#define EXPORT_HF_SHARD_BYTES UINT64_C(5000000000) /* what Hugging Face's own tools take */

struct export_hf_options {
    const char *prefix;       /* only tensors whose names begin so, without it; NULL: all */
    uint64_t max_shard_bytes; /* a longer tensor has a file of its own; 0: EXPORT_HF_SHARD_BYTES */
    const struct watcher *watcher;
};
struct export_hf_result {
    uint64_t bytes; /* of tensors */
    uint32_t files, tensors;
};

/* reader: opened with options.partial. STATUS_EXISTS: the target is there and not empty;
 * NOT_FOUND: no tensor has the prefix. options and out may be NULL. */
enum status export_hf_write(struct reader *reader, const char *target,
                            const struct export_hf_options *options, struct export_hf_result *out,
                            struct error *err) MUST_CHECK;
