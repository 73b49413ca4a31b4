/* pieces.h - the caller's memory, piece by piece as a declared layout cuts it.
 *
 * A rank's tensor is given as one or more stretches of contiguous memory; the layout knows it as
 * boxes (a flat range is up to 15 of them). Sizes must agree to the byte: a wrong pointer list is
 * refused before a byte is touched. Allocates by base/mem: within edge_run. */
#pragma once
#include <stddef.h>

#include "checkpoint/layout.h"
#include "worker/rondo.h"

struct pieces {
    void **memory; /* of each piece of the rank, tensors in the table's order */
    size_t count;
};
void pieces_fini(struct pieces *pieces);
/* STATUS_INVALID names the tensor whose memory does not fit. */
enum status pieces_map(const struct layout_table *table, uint32_t rank,
                       const struct rondo_piece *given, size_t given_count, struct pieces *out,
                       struct error *err) MUST_CHECK;
