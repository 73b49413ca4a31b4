/* reshard.h - copies a checkpoint into another layout: the same tensors, bit for bit, in the files
 * of other ranks.
 *
 * Blocking; memory is bounded by a window (reader_stream.h). The copy is a sealed checkpoint that
 * any reader opens; it says the same step, samples and job, and the source as its parent. */
#pragma once
#include "checkpoint/reader.h"
#include "checkpoint/watcher.h"

/* reader: opened with options.partial. storage: the layout to write (layout_table_assign), of the
 * same tensors. Plain values: rank r gets those of the source's rank r, or of rank 0 where there
 * was no such rank. watcher and digest (of the manifest) may be NULL. */
enum status reshard_copy(struct reader *reader, const struct layout_table *storage,
                         const char *target, const struct watcher *watcher, char digest[65],
                         struct error *err) MUST_CHECK;
