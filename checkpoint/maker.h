/* maker.h - makes a sealed, sharded checkpoint out of nothing but bytes: imports and copies into
 * other layouts.
 *
 * Blocking; one thread a maker. All is written into <target>.making-<pid> and appears under the
 * target's name by one rename at the end, durable; until then, or without it, nothing is left of
 * it. Uses the umask. Rank after rank: begin, write every piece whole, end. */
#pragma once
#include "checkpoint/shard_image.h"
#include "proto/pb.h"

struct maker;
/* What the manifest says beside the files; texts are borrowed until seal. */
struct maker_facts {
    const char *role; /* NULL: "trainer" */
    const char *code; /* NULL: not known */
    int64_t id, job, step, samples, parent;
    uint32_t attempt;
};

/* Borrows storage. STATUS_EXISTS: something of that name is there (an empty directory is fine). */
enum status maker_create(const char *target, const struct layout_table *storage,
                         const struct maker_facts *facts, struct maker **out,
                         struct error *err) MUST_CHECK;
void maker_destroy(struct maker *maker); /* NULL is fine; removes what was not sealed */
SCOPED_DESTRUCTOR(struct maker *, maker_destroy)

/* Ranks come in order from 0. *image: a loan until the rank's end. */
enum status maker_rank_begin(struct maker *maker, const struct shard_image **image,
                             struct error *err) MUST_CHECK;
/* Bytes [at, at + len) of the image's piece of that index. */
enum status maker_write(struct maker *maker, size_t piece, uint64_t at, const void *bytes,
                        size_t len, struct error *err) MUST_CHECK;
/* Another file of the part: "state.json". */
enum status maker_file(struct maker *maker, const char *name, const void *bytes, size_t len,
                       struct error *err) MUST_CHECK;
/* STATUS_DATA_LOSS: not every byte of every piece was written. */
enum status maker_rank_end(struct maker *maker, struct error *err) MUST_CHECK;
/* All ranks have ended. digest (NULL: not wanted): SHA-256 of the manifest, in hex. */
enum status maker_seal(struct maker *maker, char digest[65], struct error *err) MUST_CHECK;
