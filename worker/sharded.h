/* sharded.h - a save of tensors: what this rank writes of a declared layout, and how it gets into a
 * checkpoint.
 *
 * The layout's tables are kept from save to save: they are made anew when its text changes. A save
 * goes into a slot of the node's memory where the agent has one (sharded_slot.c), else into files
 * (sharded_file.c). One thread at a time (a lock of rondo_sharded.c); within edge_run. */
#pragma once
#include "checkpoint/shard_image.h"
#include "worker/pieces.h"
#include "worker/rondo.h"

enum {
    SHARDED_FALLBACK = 100, /* there is no slot: save into files */
    SHARDED_DONE = 64
};

/* Of the layout that was used last. */
struct sharded {
    char *text; /* as it was declared */
    size_t text_len;
    struct layout_table *declared, *storage;
    struct shard_image *image;
    struct text layout;  /* layout.json */
    uint64_t slot_bytes; /* as asked for last: the same again is the same slot */
    bool used;           /* a save has been: its slots are there */
    /* A save that ran into its deadline after the bytes were in place: the same call goes on. */
    int64_t due_step; /* -1: none */
    int64_t due_us;   /* when they were */
    uint32_t due_how;
    int64_t done[SHARDED_DONE]; /* steps whose saves ended well, + 1; the oldest is at done_next */
    uint32_t done_next;
};

/* Makes the tables of the layout, checks its cover. 0 or an error of rondo.h. */
int sharded_prepare(struct sharded *sharded, const char *layout, size_t len);
int sharded_save(struct sharded *sharded, struct rondo_save *save);
/* The two ways. Their result is that of the call, or SHARDED_FALLBACK. */
int sharded_slot_save(struct sharded *sharded, const struct pieces *pieces,
                      struct rondo_save *save);
/* Asks for both slots and takes their memory, so that the first save finds it there. */
void sharded_slot_prepare(struct sharded *sharded);
int sharded_slot_finish(struct sharded *sharded, struct rondo_save *save);
int sharded_file_save(struct sharded *sharded, const struct pieces *pieces,
                      struct rondo_save *save);
int sharded_file_finish(struct sharded *sharded, struct rondo_save *save);
/* An error of ours as one of rondo.h's. */
int sharded_fail(enum status st, const struct error *err);
