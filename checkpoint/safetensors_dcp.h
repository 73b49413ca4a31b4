/* safetensors_dcp.h - where in its tensor a shard's box begins: PyTorch DCP's keys in
 * `__metadata__` (format, DCP_VERSION, DCP_SHARDING_INFO), written and strictly read.
 *
 * DCP_SHARDING_INFO is a JSON text {name: {"saved_offsets": [..]}}, elements a dimension. DCP's own
 * reader takes the largest offset + size for the global shape, so empty boxes are left out of
 * files. Any thread; pure. */
#pragma once
#include "checkpoint/safetensors.h"

#define SAFETENSORS_DCP_VERSION "1.0"
#define SAFETENSORS_DCP_INFO    "DCP_SHARDING_INFO"

struct safetensors_dcp_entry {
    const char *name;
    size_t name_len;
    uint32_t dims;
    const uint64_t *offsets;
};
/* The value of DCP_SHARDING_INFO. */
void safetensors_dcp_print(const struct safetensors_dcp_entry *entries, size_t count,
                           struct text *out);

struct safetensors_dcp;
/* Each tensor of the file is listed with an offset for each dimension, and nothing else is;
 * otherwise STATUS_INVALID. STATUS_NOT_FOUND: the file has no such key. */
enum status safetensors_dcp_read(const struct safetensors *file, struct safetensors_dcp **out,
                                 struct error *err) MUST_CHECK;
void safetensors_dcp_destroy(struct safetensors_dcp *dcp); /* NULL is fine */
SCOPED_DESTRUCTOR(struct safetensors_dcp *, safetensors_dcp_destroy)
/* Of safetensors_at(file, index): as many as it has dimensions. A loan of dcp. */
const uint64_t *safetensors_dcp_offsets(const struct safetensors_dcp *dcp, size_t index);
