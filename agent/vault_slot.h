/* vault_slot.h - the directory of slots in tmpfs (checkpoint/slot.h): made, found again, removed.
 *
 * Any thread; blocks. <slots>/job-<id>/<attempt>.<incarnation>/<role>-<rank>/slot-<0|1>[.<n>]: the
 * directories are the agent's, so that nobody else makes names in them; a slot belongs to its
 * worker's user. A slot of another size is another file with another name: a mapping of the old
 * one stays good. */
#pragma once
#include "agent/vault_pool.h"

#define VAULT_SLOT_FOUND_MAX 64

struct vault_slot_found { /* a slot of a directory that was looked through */
    char name[32];
    uint64_t bytes;
    int64_t step; /* -1: nothing was ever begun in it */
    enum { VAULT_SLOT_OPEN, VAULT_SLOT_FILLED, VAULT_SLOT_PERSISTED } state;
};
/* "job-7/3.1/trainer-0" */
void vault_slot_dir(const Pb__WorkerKey *key, char *out, size_t cap);
/* Makes job->dir = <vault>/<path>/<below>, of job->bytes, for uid:gid. The top directory must be
 * this user's alone. STATUS_EXHAUSTED: no room. */
enum status vault_slot_make(struct vault_job *job, struct error *err) MUST_CHECK;
/* What lies in <vault>/<path>: job->found. A missing directory has nothing. */
enum status vault_slot_scan(struct vault_job *job, struct error *err) MUST_CHECK;
/* Marks <vault>/<path>/<below> PERSISTED. */
enum status vault_slot_mark(struct vault_job *job, struct error *err) MUST_CHECK;
/* Removes all that is directly below <vault>/<path>, but the names in job->pattern (one a line). */
enum status vault_slot_drop(struct vault_job *job, struct error *err) MUST_CHECK;
