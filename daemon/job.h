/* job.h - a job's life: every change of its state goes through job_apply, by a row of job_fsm.
 *
 * Loop thread, inside a turn (but job_load_*). Deadlines are monotonic and derived: a restart of
 * the daemon starts them anew. */
#pragma once
#include "daemon/hub.h"
#include "daemon/job_fsm.h"

int64_t job_submit(struct hub *hub, const Pb__JobSpec *spec, const char *actor);
enum status job_cancel(struct job *job, const char *actor, const char *why, bool now,
                       struct error *err);
enum status job_hold(struct job *job, const char *actor, bool release, struct error *err);

/* The one door. STATUS_PRECONDITION when no row allows it: nothing changes. text: for people; code:
 * why. */
enum status job_apply(struct job *job, enum job_event event, Pb__Reason__Code code,
                      const char *text, struct error *err);
/* The current attempt is over for a reason that is not a worker's own exit (a lost node, a limit).
 */
void job_break(struct job *job, Pb__Reason__Code code, const char *text);
void job_review(struct job *job);  /* workers of the current attempt have news: what follows? */
void job_run(struct job *job);     /* deadlines that have passed */
void job_arm(struct job *job);     /* sets the timer to the next deadline */
void job_started(struct job *job); /* after PLACED: limits begin */
void job_start_goes_on(struct job *job); /* the time to start in begins anew */
void job_requeue_all(struct hub *hub);   /* after an undone turn: look at every active job anew */

struct job *job_load_take(struct hub *hub, Pb__Job *row_take);
void job_loaded(struct job *job); /* all rows are there: derive the rest */
void job_destroy(struct job *job);
/* Is it the fence's job and attempt, and not over? */
struct job *job_fenced(struct hub *hub, const Pb__WorkerKey *key);
void job_load_project_take(struct hub *hub, Pb__ProjectRow *row_take);
const char *job_user(const struct job *job); /* unix user of its project; NULL: the agent's rule */
void job_projects_fini(struct hub *hub);
void job_stop_asked(struct job *job, Pb__Job__Next next, const char *text, bool now);
