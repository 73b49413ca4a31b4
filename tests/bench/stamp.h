/* stamp.h - times that workers tell through a FIFO.
 *
 * Loop thread. struct stamp is what a worker writes, in one write. */
#pragma once
#include "base/error.h"
#include "base/loop.h"
#include <stdint.h>

struct stamp {
    int64_t at_us; /* CLOCK_MONOTONIC */
    int32_t pid, rank, attempt, zero;
};
struct stamp_reader;
typedef void (*stamp_fn)(void *arg, const struct stamp *stamp);

/* Makes the FIFO, which everybody may write to. */
enum status stamp_reader_open(struct loop *loop, const char *path, stamp_fn fn, void *arg,
                              struct stamp_reader **out, struct error *err) MUST_CHECK;
void stamp_reader_close(struct stamp_reader *reader); /* NULL is fine */
