/* reader.h - opens a sealed, sharded checkpoint and loads any layout from it: every byte is checked
 * by its block's CRC32C before it is used.
 *
 * One thread a reader; loading starts threads of its own. Files are found by the manifest alone, by
 * name, with no listing. Memory beyond the target's own: the buffers (32 MiB), tables of what is
 * read (under 1 byte a block of 64 KiB and 40 bytes a run), headers of a few files. Used in
 * librondo. */
#pragma once
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"

struct reader;
struct reader_options {
    /* Is this manifest the one that was asked for? NULL: any is (the agent has looked). */
    bool (*manifest_ok)(void *arg, const void *bytes, size_t len);
    void *arg;
    const char *const *shm_dirs; /* directories with slots that may hold copies of shards */
    size_t shm_dirs_count;
    /* Ranks of this node that load the same checkpoint now, and which of them this is: more than
     * one share the page cache, each beginning elsewhere, so that a byte comes from disk once. */
    uint32_t ranks_here, rank_here;
    uint32_t patience_ms; /* for what another node wrote to appear; 0: 2 s */
    bool partial;         /* tensors that only one side has are left out */
};
struct reader_stats {
    uint64_t bytes;                  /* of the target, filled */
    uint64_t direct, cached, copied; /* read from disk, through the page cache, from slots */
    uint64_t reads, files;
};

/* dir/path: the checkpoint's directory; path "" when dir is it. options may be NULL, and is
 * borrowed as long as the reader lives. STATUS_NOT_FOUND: not sealed here; DATA_LOSS: damaged;
 * INVALID: a plain checkpoint. */
enum status reader_open(const char *dir, const char *path, const struct reader_options *options,
                        struct reader **out, struct error *err) MUST_CHECK;
void reader_close(struct reader *reader); /* NULL is fine */
SCOPED_DESTRUCTOR(struct reader *, reader_close)
/* Loans of the reader. */
const struct manifest *reader_manifest(const struct reader *reader);
const struct layout_table *reader_layout(const struct reader *reader); /* as stored */
/* A small file of the checkpoint ("trainer-0/state.json"), checked by its whole digest. Free with
 * mem_free; a NUL stands behind it. */
enum status reader_file(struct reader *reader, const char *path, size_t max, char **bytes,
                        size_t *len, struct error *err) MUST_CHECK;
/* The same, by rank and name. */
enum status reader_state(struct reader *reader, uint32_t rank, size_t max, char **bytes,
                         size_t *len, struct error *err) MUST_CHECK;
/* Fills pieces: memory of each piece that the rank holds by target, by tensor, then by piece; after
 * a failure they hold anything. stats may be NULL. */
enum status reader_load(struct reader *reader, const struct layout_table *target, uint32_t rank,
                        void *const *pieces, struct reader_stats *stats,
                        struct error *err) MUST_CHECK;
/* After STATUS_DATA_LOSS: which file and block, "trainer-0/shard-...safetensors, block 17"; a loan
 * of the reader. "": it is not known to a file. */
const char *reader_damaged(const struct reader *reader);
