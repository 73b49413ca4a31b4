/* reader_stream.h - the bytes of tensors in their order, a window at a time: for exports, copies
 * into other layouts and comparisons, which need no more memory than two windows.
 *
 * Blocking; one thread a reader, which must have been opened with options.partial. The next window
 * is loaded by another thread while one is handed over. Every byte is checked before that. */
#pragma once
#include "checkpoint/reader.h"

#define READER_STREAM_WINDOW ((size_t)64 << 20) /* bytes; a good choice for disks */

struct reader_stream_piece {
    size_t tensor; /* of reader_layout */
    struct layout_box box;
};
/* Bytes [at, at + len) of a piece (row-major, contiguous); a loan. Pieces come in their order, each
 * from its beginning to its end; a piece without bytes does not come. Anything but STATUS_OK ends
 * the stream with it. */
typedef enum status (*reader_stream_fn)(void *arg, size_t piece, uint64_t at, const void *bytes,
                                        size_t len, struct error *err);

/* window: 0 is READER_STREAM_WINDOW; one row of 8 elements is read whole even if it is longer. */
enum status reader_stream(struct reader *reader, const struct reader_stream_piece *pieces,
                          size_t count, size_t window, reader_stream_fn fn, void *arg,
                          struct error *err) MUST_CHECK;
/* The box that is all of a tensor. */
struct layout_box reader_stream_whole(const struct layout_tensor *tensor);
