/* alone.h - checkpoints outside Rondo: the same calls, plain directories.
 *
 * <root>/step-<n>/<role>-<rank>/ and beside it, written last, <role>-<rank>.done with "step samples
 * world". A checkpoint counts when every rank of the world that wrote it is done. Any thread;
 * blocks on the disk only. Functions give 0 or -errno. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct alone {
    char root[3072];
    char role[64];
    uint32_t rank, world;
};
struct alone_point {
    int64_t step, samples;
    char dir[4096];
};

int alone_init(struct alone *alone, const char *root, const char *role, uint32_t rank,
               uint32_t world);
int alone_save_dir(const struct alone *alone, int64_t step, char *out, size_t cap);
int alone_commit(const struct alone *alone, int64_t step, int64_t samples);
int alone_abort(const struct alone *alone, int64_t step);
/* The newest complete one: 1, or 0 when there is none. */
int alone_newest(const struct alone *alone, struct alone_point *out);
