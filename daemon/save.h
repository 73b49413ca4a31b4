/* save.h - checkpoints as the daemon knows them: parts reported, sealed, committed, retired.
 *
 * Loop thread, inside a turn. STAGED grows part by part; when every expected part is there an agent
 * is asked to seal; its answer makes it SEALED and COMMITTED in one transaction, if the attempt
 * that wrote it is still the job's last one. Only COMMITTED ones are resumed from. */
#pragma once
#include "daemon/hub.h"

void save_run_reports(
    struct node *node); /* staged, sealed, deleted, verified, copies: what the node reported */
void save_drop_reports(struct node *node, uint64_t through_seq); /* they are durable */
const struct save *save_resume(const struct job *job); /* newest usable; NULL: from the start */
int64_t save_cursor(const struct job *job);            /* samples of the newest committed one; 0 */
bool save_in_flight(const struct job *job);            /* all parts staged, not yet committed */
bool save_is_whole(const struct job *job,
                   int64_t step); /* one of this attempt at or past step has all its parts */
void save_attempt_broken(
    struct job *job, Pb__Reason__Code code); /* a checkpoint that could not be loaded is DAMAGED */
void save_give_up(struct job *job, const char *why); /* in flight too long: TORN */
void save_restarted(struct job *job); /* what the incarnations before left uncommitted is TORN */
void save_job_ended(struct job *job); /* unfinished ones are TORN */
void save_attempt_ended(struct job *job); /* parts that can never become whole are TORN */
int64_t save_wait_until(const struct job *job);
bool save_is_of_now(const struct job *job,
                    const Pb__Checkpoint *row); /* written by the workers that run now? */
struct save *save_load_take(struct hub *hub, Pb__Checkpoint *row_take);
/* One that the database had forgotten; in a turn. Its id is kept where it is free. */
struct save *save_register_take(struct job *job, Pb__Checkpoint *row_take);
void save_destroy_all(struct job *job);
