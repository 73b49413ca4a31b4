/* making.h - a file that is being made: what comes in its order is digested as it comes and goes to
 * the disk past the page cache; anything else goes through the cache and is read back in the end.
 *
 * One thread, but for making_sync. One stage is enough for all files that one thread makes, one
 * after the other: going to and fro between them is right, but slow. */
#pragma once
#include "base/mem.h"
#include "checkpoint/block_sum.h"
#include "checkpoint/io_file.h"
#include "proto/pb.h"

struct making_stage; /* where bytes wait until they fill large requests */
enum status making_stage_create(struct making_stage **out, struct error *err) MUST_CHECK;
void making_stage_destroy(struct making_stage *stage); /* NULL is fine; what waits is lost */
SCOPED_DESTRUCTOR(struct making_stage *, making_stage_destroy)

struct making {
    struct io_file file;
    struct making_stage *stage;
    char *name;
    struct block_sum sum;
    uint32_t *crcs;
    void *xxh3;
    bool apart;  /* bytes came out of their order */
    bool cached; /* the next byte is not where a direct request may begin */
};
/* So that fini is fine. */
void making_init(struct making *file);
/* A new file below dir with room for that many bytes. crcs: a loan, room for its blocks. */
enum status making_begin(struct making *file, struct making_stage *stage, int dir, const char *name,
                         uint64_t bytes, uint32_t *crcs, struct error *err) MUST_CHECK;
enum status making_write(struct making *file, const void *bytes, size_t len, uint64_t at,
                         struct error *err) MUST_CHECK;
/* All bytes came: they are with the kernel; size and digests of the file in *out, crcs are those of
 * its blocks. */
enum status making_end(struct making *file, Pb__CheckpointFile *out, struct error *err) MUST_CHECK;
/* Durable, after the end. Any thread. */
enum status making_sync(struct making *file, struct error *err) MUST_CHECK;
void making_fini(struct making *file);
