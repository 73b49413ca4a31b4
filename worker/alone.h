/* alone.h - checkpoints outside Rondo: the same calls, plain directories.
 *
 * <root>/step-<n>/<role>-<rank>/ and beside it, written last, <role>-<rank>.done with "step samples
 * world", and of a sharded part its layout's digest and its files. A checkpoint counts when every
 * rank of the world that wrote it is done; a sharded one when its manifest is there too, which
 * whoever comes last writes (alone_manifest.h): ranks never wait for one another. Any thread;
 * blocks on the disk only. Functions give 0 or -errno. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct alone {
    char root[3072];
    char role[64];
    uint32_t rank, world;
    bool over; /* the program starts over: what is there is written again */
};
#define ALONE_FILES_MAX 1024
struct alone_file {
    char name[96]; /* no spaces */
    uint64_t bytes;
    uint32_t crc32c;
    char xxh3[33];
};
struct alone_part {
    char layout_digest[33]; /* "": not sharded */
    uint32_t files_count;
    const struct alone_file *files;
};
struct alone_point {
    int64_t step, samples;
    char dir[4096];
};

int alone_init(struct alone *alone, const char *root, const char *role, uint32_t rank,
               uint32_t world);
int alone_save_dir(const struct alone *alone, int64_t step, char *out, size_t cap);
int alone_commit(const struct alone *alone, int64_t step, int64_t samples);
/* The same for a sharded part. -EINVAL: another rank has declared another layout. */
int alone_commit_sharded(const struct alone *alone, int64_t step, int64_t samples,
                         const struct alone_part *part);
int alone_abort(const struct alone *alone, int64_t step);
/* Is a sharded one of that step whole? It is not written again: what is there may be gone on from.
 */
bool alone_is_sealed(const struct alone *alone, int64_t step);
/* At the join: what this rank wrote for steps that never became whole is no part of anybody's
 * checkpoint any more, whoever else of an earlier run was done with his. With `over`, nor is what
 * it wrote for those that did. */
void alone_disown(const struct alone *alone);
/* The newest complete one: 1, or 0 when there is none. */
int alone_newest(const struct alone *alone, struct alone_point *out);
