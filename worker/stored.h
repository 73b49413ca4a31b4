/* stored.h - a checkpoint that is open for loading.
 *
 * One thread at a time. Allocates by base/mem: within edge_run. */
#pragma once
#include <stdbool.h>

#include "checkpoint/reader.h"
#include "worker/rondo.h"

#define STORED_SHM_MAX 64

struct stored_text { /* state.json of a rank */
    uint32_t rank;
    char *bytes;
    size_t len;
    struct stored_text *next;
};
struct rondo_stored {
    struct reader *reader;
    struct reader_options options;
    const char *shm_dirs[STORED_SHM_MAX];
    char *shm_names;

    bool is_resume; /* what this job is to go on from: damage is told */
    char dir[4096];
    struct text layout;
    struct stored_text *states;
};

/* dir NULL: the one to resume from. */
int stored_open(const char *dir, uint32_t flags, struct rondo_stored **out);
void stored_close(struct rondo_stored *stored); /* NULL is fine */
int stored_state(struct rondo_stored *stored, uint32_t rank, const char **out, size_t *len);
int stored_load(struct rondo_stored *stored, struct rondo_load *load);
