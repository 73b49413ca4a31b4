/* attempt.h - one launch of a job's gang: places, ports, what is known of each worker. */
#pragma once
#include "daemon/hub.h"
#include "scheduler/snapshot.h"

/* Drafts the next attempt from a plan's entry: numbers it, reserves devices and ports on the nodes.
 * Nodes by index of `nodes`. */
struct attempt *attempt_create(struct job *job, const struct plan_entry *entry,
                               struct node *const *nodes);
struct attempt *attempt_load_take(struct job *job, Pb__Attempt *row_take);
/* Index of a worker's place; -1: none. */
long attempt_place(const Pb__Attempt *row, const char *role, uint32_t rank);
void attempt_live_reset(struct job *job); /* forgets what was known: as many `live` as places */
uint32_t attempt_incarnation(const Pb__Attempt *row); /* of its gang, from 1 */
int64_t attempt_resume(const Pb__Attempt *row); /* checkpoint that this incarnation began from */
bool attempt_is_open(const struct job *job);    /* there is one and it has not ended */
uint32_t attempt_unended(const struct job *job);
/* A place has ended: drafts how. said may be NULL (its node is lost). */
void attempt_end_place(struct job *job, size_t place, const Pb__ActualWorker *said,
                       Pb__Reason__Code code, const char *text);
void attempt_close(struct job *job, Pb__Reason__Code code,
                   const char *text); /* no worker is left */
void attempt_destroy(struct attempt *attempt);
const Pb__Role *attempt_role(const struct job *job, const char *name, uint32_t *index);
