/* checkpoint_at.h - which checkpoint an operand means, and where its bytes are.
 *
 * Loop thread. Online: an id; JOB@STEP; JOB@ or a job's name, the newest usable one. Without a
 * daemon: a checkpoint's directory (a word with a '/', or a directory's name); with --vault DIR
 * also a path below it, an id or JOB@STEP, as manifests say them. */
#pragma once
#include "base/error.h"
#include "ctl/connect.h"

struct checkpoint_flags { /* first member of the config of these verbs */
    struct connect_flags connect;
    char *vault;
};
#define CHECKPOINT_ROWS                                                                            \
    CONNECT_ROWS,                                                                                  \
    {                                                                                              \
        "vault", OPT_TEXT, offsetof(struct checkpoint_flags, vault), NULL, 0, 0,                   \
            "Work on this vault's directory, without a daemon."                                    \
    }
#define CHECKPOINT_AT_SEALED                                                                       \
    "SEALED (offline: whether it was committed is known to the daemon only)"

enum { CHECKPOINT_AT_LIST_MAX = 5000 };

struct checkpoint_at_source;
struct checkpoint_at {
    struct checkpoint_at_source *source; /* that found it */
    Pb__Checkpoint *row;                 /* offline: what the manifest says, SEALED */
    bool offline;
    char *dir, *path; /* <dir>/<path> are its bytes; NULL: not on this machine, `away` says why */
    char *away;
    char hold[CONNECT_ID_SIZE]; /* the lease we have; "": none */
};
enum { CHECKPOINT_AT_HELD_MAX = 2 };
struct checkpoint_at_source {
    const struct checkpoint_flags *flags;
    struct connect *connect;                            /* once one is needed */
    struct checkpoint_at *held[CHECKPOINT_AT_HELD_MAX]; /* opened by a lease, not closed yet */
    size_t held_count;
    int64_t renew_ms; /* on the loop's clock: when the leases are asked for again */
};

/* The daemon, connected to at the first call; NULL: *code. */
struct connect *checkpoint_at_connect(struct checkpoint_at_source *source, int *code);
void checkpoint_at_end(struct checkpoint_at_source *source);
/* The newest of the job that a JOB operand means; its id in *id, unless that is NULL. VERB_OK: free
 * *reply; else the exit code, said on stderr. */
int checkpoint_at_list(struct connect *connect, const char *job, uint32_t limit, int64_t *id,
                       Pb__ListCheckpointsReply **reply);
/* VERB_OK, or the exit code; said on stderr. */
int checkpoint_at_find(struct checkpoint_at_source *source, const char *word,
                       struct checkpoint_at *out);
void checkpoint_at_fini(struct checkpoint_at *at);
/* Looks where its bytes are; where they are elsewhere, `away` says it and that is no failure. */
int checkpoint_at_locate(struct checkpoint_at_source *source, struct checkpoint_at *at);
/* Its bytes are to be read here: found on this machine, and kept by a lease of half an hour. Stays
 * where it is until it is closed; at most two at a time. */
int checkpoint_at_open(struct checkpoint_at_source *source, struct checkpoint_at *at);
/* Asks for the leases again, every few minutes: for the meter, whose work may take hours. arg: the
 * source. */
void checkpoint_at_renew(void *arg);
/* The lease is given back. */
void checkpoint_at_close(struct checkpoint_at_source *source, struct checkpoint_at *at);
/* Says the failure of work on files; returns the exit code. Nothing is said of STATUS_CANCELLED. */
int checkpoint_at_fail(const char *verb, enum status st, const char *text);
/* Is the word a place on this machine? */
bool checkpoint_at_is_place(const char *word);
/* Has it been committed, and are its bytes good as far as is known? */
bool checkpoint_at_usable(const Pb__Checkpoint *row);
