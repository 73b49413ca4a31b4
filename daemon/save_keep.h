/* save_keep.h - which checkpoints of a job stay: policy, pins, readers' leases. See
 * checkpoint/retain.h for the rules.
 *
 * Loop thread, inside a turn, but for save_keep_plan and save_keep_tick. */
#pragma once
#include "checkpoint/retain.h"
#include "daemon/hub.h"

/* Lets go what need not stay, and sees when to look again. */
void save_keep_run(struct job *job);
/* Jobs of which a lease or a lifetime has ended are looked at in a turn soon. */
void save_keep_tick(struct hub *hub);
/* Why each committed one stays or goes; rows oldest first, both arrays of `max`. Returns how many
 * there are. */
size_t save_keep_plan(const struct job *job, const Pb__Checkpoint **rows, enum retain_why *why,
                      size_t max);
/* May its bytes not go? An attempt begins from it and has committed nothing yet, or a reader has a
 * lease. */
bool save_keep_is_held(const struct job *job, const Pb__Checkpoint *row);

enum status save_keep_pin(struct save *save, bool pinned, const char *note, const char *actor,
                          struct error *err) MUST_CHECK;
/* seconds 0: the lease ends. */
enum status save_keep_hold(struct save *save, const char *holder, uint32_t seconds,
                           struct error *err) MUST_CHECK;
/* A value of the policy's metric, for checkpoints at or past that step. */
void save_keep_metric(struct job *job, int64_t step, double value);
