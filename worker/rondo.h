/* rondo.h - librondo: what a training program links to talk to Rondo.
 *
 * Any thread. One member a process: state is the process's own. A forked child (a data loader) is
 * not a member: its reports are ignored (1) and it is told "no". Never logs, never aborts, never
 * blocks without a bound, but for rondo_should_save and rondo_should_stop at a step whose answer is
 * being agreed on. Outside Rondo (RONDO_DIR unset) everything works alone: rank and world from RANK
 * and WORLD_SIZE, checkpoints in ./checkpoints (RONDO_CHECKPOINT_DIR).
 *
 * Results: 0 or a documented positive outcome; negative: -(status), for which rondo_error has a
 * sentence. ABI: structs start with their size as the caller knows it; later versions only add at
 * their ends. */
#ifndef RONDO_H
#define RONDO_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RONDO_VERSION_NUMBER 100 /* 0.1.0 */

/* Status numbers (gRPC's), negated in results. */
enum rondo_status {
    RONDO_OK = 0,
    RONDO_INVALID = 3,
    RONDO_DEADLINE = 4,     /* the agent did not answer in time: the same call may be repeated */
    RONDO_NOT_FOUND = 5,    /* no checkpoint to load */
    RONDO_EXISTS = 6,       /* that step is sealed already */
    RONDO_EXHAUSTED = 8,    /* disk full, or a limit */
    RONDO_PRECONDITION = 9, /* not joined, or a forked child */
    RONDO_ABORTED = 10,     /* a newer attempt of this job exists */
    RONDO_INTERNAL = 13,
    RONDO_UNAVAILABLE = 14,
    RONDO_DATA_LOSS = 15, /* bytes of a checkpoint are not what was saved */
};
#define RONDO_IGNORED   1 /* rondo_report and the like: not the member; nothing was written */
#define RONDO_UNDECIDED 2 /* the *_within questions: ask again */
#define RONDO_DROPPED   3 /* rondo_report: there is no room for it now; the loss is counted */
#define RONDO_SKIPPED   4 /* rondo_save_sharded: the two saves before are still being written */

struct rondo_options {
    uint32_t size; /* sizeof(struct rondo_options) */
    uint32_t reserved;
    uint64_t every_steps;       /* policy where the job names none; 0: off */
    const char *checkpoint_dir; /* outside Rondo; NULL: ./checkpoints */
};

struct rondo_job {
    uint32_t size;                                 /* sizeof(struct rondo_job), set by the caller */
    uint32_t rank, world, local_rank, local_world; /* in the role */
    uint32_t attempt, incarnation;
    uint32_t managed;        /* 1: under an agent; 0: alone */
    int64_t job;             /* id; 0 when alone */
    const char *name, *role; /* texts: valid until the process ends */
    const char *resume_dir;  /* NULL: start from the beginning */
    int64_t resume_checkpoint, resume_step, resume_samples;
    uint64_t every_steps;
};

/* Fills *out; options may be NULL. Calling it again gives the same answer. */
int rondo_join(const struct rondo_options *options, struct rondo_job *out);

struct rondo_value {
    const char *name;
    uint32_t is_integer;
    union {
        double number;   /* NaN and infinities are values */
        int64_t integer; /* kept exactly */
    };
};
/* One step's values. samples: the data cursor, cumulative; -1: unknown. At most 256 values, names
 * of at most 255 bytes. One write: what it returned 0 for survives kill -9. A full disk is no
 * reason to stop: RONDO_DROPPED. */
int rondo_report(int64_t step, int64_t samples, const struct rondo_value *values, size_t count);
/* The same with names and values apart, for callers that keep the names: schema is per value its
 * kind ('d' double, 'q' integer), its name and a NUL; values are 8 bytes each, native order. */
int rondo_report_packed(int64_t step, int64_t samples, const char *schema, size_t schema_len,
                        const void *values, size_t count);

/* 1: yes, 0: no; the same on every rank of the attempt that asks at the same steps. Steps only
 * grow; asking for the latest one again repeats its answer. */
int rondo_should_save(int64_t step);
int rondo_should_stop(int64_t step); /* once 1, always 1 */
/* The same, but RONDO_UNDECIDED after that long at an undecided gate. */
int rondo_should_save_within(int64_t step, uint32_t ms);
int rondo_should_stop_within(int64_t step, uint32_t ms);
/* 1 after a SIGTERM, when rondo_catch_sigterm was called: stop soon. This is one rank's view: not
 * the same on every rank. Alone, or in a world of one, rondo_should_stop says it too. */
int rondo_stopping(void);
int rondo_catch_sigterm(void);
/* Sets what rondo_stopping says: for callers with signal handling of their own. */
void rondo_set_stopping(int stopping);

/* A save: make the directory, write files into it, commit. Every rank of the role does this, also
 * one with nothing to write (unless the job says that rank 0 alone writes). ms 0: ten minutes, in
 * which an agent may be away and come back. The directory is empty. */
int rondo_save_dir(int64_t step, char *out, size_t cap, uint32_t ms);
/* 0: this rank's files are durable and digested. The checkpoint counts once all ranks are there. */
int rondo_commit(int64_t step, int64_t samples, uint32_t ms);
int rondo_abort_save(int64_t step, uint32_t ms);
/* "I am saving, by whatever means": extends the grace period up to the job's hard cap. */
int rondo_saving(int on);

/* --- sharded checkpoints: tensors by their memory, any layout into any other
 *
 * A declared layout is JSON (docs/reference/checkpoint-format.md): for all tensors of the job, and
 * which rank holds which part. It is the same text on every rank. Parts that several ranks hold are
 * written by one of them each. */
struct rondo_piece {
    void *data;      /* contiguous, row-major, in the machine's order of bytes */
    uint64_t bytes;  /* a whole box or range of this rank, or all of its boxes one behind another */
    uint32_t tensor; /* its place in the layout's list; pieces are in that order */
    uint32_t reserved;
};

#define RONDO_SAVE_SYNC 1u /* return when this rank's part is durable */
#define RONDO_SAVE_SKIP 2u /* RONDO_SKIPPED at once, rather than wait for the saves before */
#define RONDO_IN_FILE   0u /* how: the part is durable */
#define RONDO_IN_MEMORY 1u /* how: copied; the agent makes it durable, whatever becomes of us */
struct rondo_save {
    uint32_t size; /* sizeof(struct rondo_save) */
    uint32_t flags;
    int64_t step, samples;
    const char *layout;
    size_t layout_len;
    const struct rondo_piece *pieces; /* of what this rank holds */
    size_t pieces_count;
    const char *state; /* JSON: {"common": {...}, "rank": {...}} */
    size_t state_len;
    uint32_t ms;  /* 0: ten minutes; after RONDO_DEADLINE the same call goes on */
    uint32_t how; /* out */
};
/* Every rank of the role, at the same step. 0: copied or durable, see how. -RONDO_EXISTS: sealed
 * before. RONDO_SKIPPED: as was asked for; the checkpoint of that step comes to nothing, on all
 * ranks, and the job has an event that says so. */
int rondo_save_sharded(struct rondo_save *save);
/* Makes room in the node's memory for saves of that layout, in the background; returns at once. */
int rondo_prepare_sharded(const char *layout, size_t layout_len);

#define RONDO_LOAD_PARTIAL 1u /* tensors that one side lacks are passed over */
/* An open checkpoint. dir NULL: the one to resume from. One thread at a time. */
struct rondo_stored;
int rondo_stored_open(const char *dir, uint32_t flags, struct rondo_stored **out);
void rondo_stored_close(struct rondo_stored *stored); /* NULL is fine */
/* Loans, until it is closed: who has written what; the plain values of a rank that saved. */
int rondo_stored_layout(struct rondo_stored *stored, const char **out, size_t *len);
int rondo_stored_state(struct rondo_stored *stored, uint32_t rank, const char **out, size_t *len);

struct rondo_load {
    uint32_t size; /* sizeof(struct rondo_load) */
    uint32_t reserved;
    const char *layout; /* as this job holds the tensors */
    size_t layout_len;
    const struct rondo_piece *pieces; /* filled */
    size_t pieces_count;
    uint64_t bytes, bytes_memory, bytes_disk; /* out: of all, from the node's memory, from disk */
};
/* Every byte is checked before it counts. -RONDO_DATA_LOSS names file and block, and the agent is
 * told: the next attempt begins at an older checkpoint. */
int rondo_load_sharded(struct rondo_stored *stored, struct rondo_load *load);

/* The program did what it had to do. */
int rondo_finish(void);
/* Why it is about to fail; cut to 4 KiB and 16 KiB. traceback may be NULL. */
int rondo_failure(const char *message, const char *traceback);

/* What the last negative result in this thread was about; "" when none. */
const char *rondo_error(void);
uint32_t rondo_version(void);

#ifdef __cplusplus
}
#endif
#endif
