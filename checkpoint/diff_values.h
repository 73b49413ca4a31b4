/* diff_values.h - two runs of elements of one type: how many differ, and by how much at most.
 *
 * Any thread; pure. */
#pragma once
#include "checkpoint/dtype.h"

/* Adds to *differing, raises *max_abs. len: bytes; of types that are no whole bytes, bytes are
 * counted instead of elements. */
void diff_values(enum dtype dtype, const void *first, const void *second, size_t len,
                 uint64_t *differing, double *max_abs);
/* Has max_abs a meaning? */
bool diff_values_measured(enum dtype dtype);
