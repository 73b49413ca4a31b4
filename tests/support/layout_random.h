/* layout_random.h - random layouts of given tensors, and what their bytes must be.
 *
 * One thread. The same seed gives the same table. Every byte of a tensor is a hash of the tensor's
 * number and the byte's place in its row-major order, so that a wrong byte tells where it is from.
 */
#pragma once
#include "checkpoint/layout_build.h"

struct layout_random {
    uint64_t state;
};

uint64_t layout_random_next(struct layout_random *random);
/* 0..below - 1; below > 0. */
uint64_t layout_random_below(struct layout_random *random, uint64_t below);

/* Shapes of 0 to 5 dims with primes, ones and zeros, all sizes of elements; names "t0", "t1" ... in
 * names (at least count * 8 bytes). */
void layout_random_tensors(struct layout_random *random, struct layout_tensor *out, size_t count,
                           char *names);
/* torch.chunk, balanced and ragged cuts, empty ranks, grids of several dims, fused blocks,
 * replicas, flat ranges with padding, guillotine boxes. single: one holder each. Aborts on failure.
 */
struct layout_table *layout_random_table(struct layout_random *random, uint32_t world,
                                         const struct layout_tensor *tensors, size_t count,
                                         bool single);
/* What the piece's memory holds. */
void layout_random_fill(const struct layout_tensor *tensor, uint32_t number,
                        const struct layout_box *box, uint8_t *out);
