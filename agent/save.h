/* save.h - checkpoints: parts that workers write, their digests, seals, deletions, verification.
 *
 * Loop thread; bytes are read in the vault pool. What a worker was told to be done survives this
 * agent: a commit is a small file in the worker's directory until the daemon has acknowledged the
 * staged part. Everything here may be asked twice. */
#pragma once
#include "agent/worker.h"

struct saves;
struct saves *saves_create(struct agent *agent);
void saves_destroy(struct saves *saves); /* NULL is fine */
/* The agent ends and no worker is left here: nothing of its slots stays. Blocks for a moment. */
void saves_leave(struct saves *saves);
/* Path of a vault of this node by name; NULL: none. Borrowed from the options. */
const char *saves_vault(struct saves *saves, const char *name, char *out, size_t cap);

/* Asks of a worker: SAVE_DIR, COMMIT, ABORT_SAVE, STAGE, STAGED. */
void saves_ask(struct saves *saves, struct worker *worker, uint64_t connection,
               const Pb__WorkerAsk *ask);
/* Looks for finished checkpoints of programs without the SDK. */
void saves_watch(struct saves *saves, struct worker *worker);
/* A last look, then the end of every digest of this worker: releases WORKER_HOLD_SAVES. */
void saves_finish(struct saves *saves, struct worker *worker);
/* Nobody waits for what is still being read of it: given up, told as failed. */
void saves_stop(struct saves *saves, const struct worker *worker);
void saves_forget(struct saves *saves, const char *tag); /* the worker has left the table */
/* A worker of an earlier agent: commits that nobody acknowledged (files of its directory). */
void saves_adopt(struct saves *saves, struct worker *worker, char *const *names, size_t count);
/* Is the checkpoint good? Workers of a node share one reading. done may come at once. */
void saves_verify(struct saves *saves, const char *vault, const char *path, const char *digest,
                  void (*done)(void *arg, enum status st, const struct error *err), void *arg);

/* The worker's resume point is brought here, once for all workers of a node. done may come at once.
 * STATUS_DATA_LOSS: nobody has it as it was committed; EXHAUSTED: no room. */
void saves_fetch(struct saves *saves, const struct worker *worker,
                 void (*done)(void *arg, enum status st, const struct error *err), void *arg);
/* How far that is, for people, and in bytes; NULL: nothing is fetched for it. A loan until the loop
 * goes on. */
const char *saves_fetch_text(struct saves *saves, const Pb__ResumePoint *resume, uint64_t *bytes);

/* Directory in which what that checkpoint's ranks handed over here may still lie; NULL: nowhere.
 * The caller frees it. */
char *saves_resume_shm(const struct saves *saves, const Pb__ResumePoint *resume);
/* Directory of this node's slots; NULL: none are given out. Borrowed. */
const char *saves_slot_dir(const struct saves *saves);
/* Slots below job-7/3.1: has the job workers here, or are they kept for its next attempt? */
bool saves_keeps_slots(const struct saves *saves, const char *path);
/* What is being written into vaults from slots. */
void saves_persisting(const struct saves *saves, uint32_t *count, uint64_t *bytes_left);
/* When the oldest save of that incarnation of the gang was made that the daemon does not know of;
 * 0: there is none. */
int64_t saves_waiting_since(const struct saves *saves, const Pb__WorkerKey *key);
void saves_desired(struct saves *saves, const Pb__Desired *desired);
/* Adds entries that are not on their way to a report. True: more wait. */
bool saves_fill(struct saves *saves, Pb__ActualReport *report);
void saves_sent(struct saves *saves, Pb__ActualReport *report, uint64_t seq); /* 0: it was not */
void saves_acked(struct saves *saves, uint64_t seq);
void saves_down(
    struct saves *saves); /* what is not acknowledged goes again after the next connect */
