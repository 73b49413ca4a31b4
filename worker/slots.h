/* slots.h - the slots in tmpfs (checkpoint/slot.h) that the agent has named, mapped.
 *
 * A mapping is kept: the same path again is the same file, whose pages are there. The file's blocks
 * are taken before it is touched, so that a full tmpfs is an error and no signal. One thread at a
 * time. */
#pragma once
#include "base/error.h"
#include "checkpoint/slot.h"

/* STATUS_EXHAUSTED: no room; other failures: that slot is of no use. */
enum status slots_map(const char *path, uint64_t bytes, struct slot_head **out,
                      struct error *err) MUST_CHECK;
