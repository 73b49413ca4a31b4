/* reader_scatter.h - one run of a plan against ranges of a file: which of them it needs, and what
 * of a range goes where. For reader_load.c only.
 *
 * Pure. base: where the run's source piece begins in the file. */
#pragma once
#include "checkpoint/plan.h"
#include <stddef.h>
#include <stdint.h>

/* Bytes from the run's first to behind its last, in the source. */
uint64_t reader_scatter_extent(const struct plan_run *run);
/* Sets the bits of all blocks that hold bytes of the run. */
void reader_scatter_mark(const struct plan_run *run, uint64_t base, uint64_t block_bytes,
                         unsigned char *bits);
/* Copies what the run takes from bytes [at, at + len) of the file to the target's piece. */
void reader_scatter_copy(const struct plan_run *run, uint64_t base, uint64_t at,
                         const unsigned char *bytes, size_t len, unsigned char *piece);
/* Where bytes [at, at + len) of the file go when one row of the run holds them all; else NULL. */
unsigned char *reader_scatter_place(const struct plan_run *run, uint64_t base, uint64_t at,
                                    size_t len, unsigned char *piece);
