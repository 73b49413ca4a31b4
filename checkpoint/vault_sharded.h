/* vault_sharded.h - a part that a worker wrote itself, into a directory: is it of a sharded
 * checkpoint?
 *
 * It is when it has layout.json (every rank writes it there) and blocks.crc32c, and the layout is
 * one. Then the shards must be what it says. Blocking; any thread. */
#pragma once
#include "base/error.h"
#include "proto/pb.h"

/* Fills layout and layout_digest of a part that was digested; of a plain one nothing.
 * STATUS_DATA_LOSS: sharded, and not what its layout says. */
enum status vault_sharded_describe(const char *vault, const char *path, Pb__CheckpointPart *part,
                                   struct error *err) MUST_CHECK;
