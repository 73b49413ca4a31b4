/* job_deadline.c - a job's deadlines: all derived, all monotonic, one timer a job. See job.h. */
#include "daemon/attempt.h"
#include "daemon/gate.h"
#include "daemon/job.h"
#include "daemon/job_queue.h"
#include "daemon/node.h"
#include "daemon/save.h"
#include "daemon/save_keep.h"
#include "daemon/turn.h"

static void earliest(int64_t *best, int64_t at)
{
    if (at && (!*best || at < *best))
        *best = at;
}

void job_arm(struct job *job)
{
    int64_t next = 0;

    switch ((int)job_view(job)->state) {
    case PB__JOB__STATE__QUEUED:
        earliest(&next, job->not_before_us);
        break;
    case PB__JOB__STATE__STARTING:
        earliest(&next, job->start_by_us);
        earliest(&next, job->settle_by_us);
        break;
    case PB__JOB__STATE__RUNNING:
    case PB__JOB__STATE__SAVING:
        earliest(&next, job->limit_at_us);
        earliest(&next, job->settle_by_us);
        /* Each only where job_run looks at it: one that nobody takes away would be due for ever. */
        earliest(&next, job_view(job)->state == PB__JOB__STATE__SAVING ? job->stop_by_us
                                                                       : job->save_at_us);
        break;
    default:
        break;
    }
    if (next) {
        int64_t delay = next - loop_now_us(job->hub->loop);
        loop_timer_set(job_timer_get(job), delay > 0 ? delay : 0);
    } else if (job->timer) {
        loop_timer_stop(job->timer);
    }
}

void job_started(struct job *job)
{
    const Pb__JobSpec *spec = job_view(job)->spec;
    int64_t now = loop_now_us(job->hub->loop);

    job->not_before_us = job->stop_by_us = job->settle_by_us = job->save_at_us = 0;
    job->running_us = 0;
    job->stop_grace_ms = 0;
    job->start_by_us = spec->phases->start_ms ? now + (int64_t)spec->phases->start_ms * 1000 : 0;
    job->limit_at_us = spec->time_limit_s ? now + (int64_t)spec->time_limit_s * 1000000 : 0;
}

void job_start_goes_on(struct job *job)
{
    if (job->start_by_us)
        job->start_by_us =
            loop_now_us(job->hub->loop) + (int64_t)job_view(job)->spec->phases->start_ms * 1000;
}

static bool passed(int64_t *deadline, int64_t now)
{
    if (!*deadline || now < *deadline)
        return false;
    *deadline = 0;
    return true;
}

static void start_timeout(struct job *job)
{
    const Pb__Attempt *row = attempt_view(job->attempt);
    char text[300];
    size_t missing = 0, first = 0;

    for (size_t i = job->live_count; i-- > 0;)
        if (!job->live[i].up) {
            missing++;
            first = i;
        }
    snprintf(text, sizeof(text),
             "%zu of %zu workers did not start within %llu ms, first %s rank %u on %s", missing,
             job->live_count, (unsigned long long)job_view(job)->spec->phases->start_ms,
             row->places[first]->role, row->places[first]->rank, row->places[first]->node);
    job_break(job, PB__REASON__CODE__START_TIMEOUT, text);
}

void job_run(struct job *job)
{
    int64_t now = loop_now_us(job->hub->loop);

    job_review(job); /* news of this turn come before its deadlines */
    Pb__Job__State state = job_view(job)->state;
    if (state == PB__JOB__STATE__QUEUED && passed(&job->not_before_us, now))
        job->hub->pass_needed = true;
    if (state == PB__JOB__STATE__STARTING && passed(&job->start_by_us, now))
        start_timeout(job);
    if ((state == PB__JOB__STATE__RUNNING || state == PB__JOB__STATE__SAVING) &&
        passed(&job->limit_at_us, now))
        job_break(job, PB__REASON__CODE__TIME_LIMIT, "the attempt's time limit has passed");
    if (state == PB__JOB__STATE__SAVING && passed(&job->stop_by_us, now))
        job_stop_asked(job, job_view(job)->next, "the save did not end in time; stopping", false);
    if (passed(&job->settle_by_us, now))
        save_give_up(job, "not committed in time after the workers had ended");
    if (state == PB__JOB__STATE__RUNNING && passed(&job->save_at_us, now))
        gate_save_due(job);
    job_review(job);
    if (job->keep_look_us)
        save_keep_run(job);
    job_arm(job);
}

void job_requeue_all(struct hub *hub)
{
    job_queue_rebuild(hub);
    for (size_t i = 0; i < hub->order_count; i++)
        if (!job_fsm_ended(job_view(hub->order[i])->state) && list_is_empty(&hub->order[i]->due))
            list_add_last(&hub->due, &hub->order[i]->due);
}

/* Wall time is only used to carry a back-off over a restart, and is bounded by the longest
 * back-off. */
static int64_t rest_of_backoff(const struct job *job)
{
    const Pb__Job *row = job_view(job);
    int64_t rest = row->not_before_us - loop_wall_us(job->hub->loop);
    int64_t most = (int64_t)row->spec->restart->backoff_ms_max * 1000;

    if (row->state != PB__JOB__STATE__QUEUED || rest <= 0)
        return 0;
    return loop_now_us(job->hub->loop) + (rest < most ? rest : most);
}

void job_loaded(struct job *job)
{
    const Pb__Job *row = job_view(job);
    Pb__Job__State state = row->state;
    int64_t now = loop_now_us(job->hub->loop);

    attempt_live_reset(job);
    job->step = row->step;
    job->samples = row->samples;
    if (job_fsm_active(state)) {
        bool was_up = state != PB__JOB__STATE__STARTING;
        job_started(job);
        job->running_us = was_up ? now : 0;
        if (was_up)
            job->start_by_us = 0;
        for (size_t i = 0; i < job->live_count; i++)
            job->live[i].up = was_up && state != PB__JOB__STATE__STOPPING;
        if (state == PB__JOB__STATE__SAVING)
            job->stop_by_us = now + (int64_t)row->spec->phases->save_ms * 1000;
        gate_schedule(job);
        if (list_is_empty(&job->due)) /* its last news may be durable, and nobody has looked */
            list_add_last(&job->hub->due, &job->due);
    }
    job->not_before_us = rest_of_backoff(job);
    job_queue_update(job);
    job_arm(job);
}
