/* job.c - a job's life: the one door of its state, and what follows from news of its workers. See
 * job.h. */
#include "daemon/job.h"
#include "base/log.h"
#include "daemon/attempt.h"
#include "daemon/gate.h"
#include "daemon/job_queue.h"
#include "daemon/node.h"
#include "daemon/restart.h"
#include "daemon/save.h"
#include "daemon/turn.h"
#include "daemon/watch.h"

#define STATE(value)    HUB_NAME(job__state, value)
#define CODE(value)     HUB_NAME(reason__code, value)
#define FAILED_GRACE_MS 1000     /* survivors of a broken attempt have nothing left to save */
#define STEADY_US       60000000 /* an attempt that ran so long begins the count of launches anew */

static Pb__Job *job_edit(struct job *job)
{
    return (Pb__Job *)draft_edit(&job->hub->drafts, &job->entry);
}

static void job_set_reason(Pb__Job *row, Pb__Reason__Code code, const char *text)
{
    if (!row->reason) {
        row->reason = NEW(Pb__Reason);
        pb__reason__init(row->reason);
    }
    row->reason->has_code = true;
    row->reason->code = code;
    draft_text(&row->reason->text, text);
}

static void job_event_row(struct job *job, Pb__Job__State from, Pb__Job__State to,
                          Pb__Reason__Code code, const char *text, const char *actor)
{
    const Pb__Job *row = job_view(job);
    Pb__Event *event = watch_event(job->hub, "job.state");

    event->has_job = event->has_attempt = true;
    event->job = row->id;
    event->attempt = row->attempt;
    event->from = mem_strdup(from ? STATE(from) : "");
    event->to = mem_strdup(STATE(to));
    event->reason = mem_strdup(CODE(code));
    event->text = mem_strdup(text);
    event->actor = mem_strdup(actor);
    log_info("job.state", log_int("job", row->id), log_int("attempt", row->attempt),
             log_str("from", from ? STATE(from) : ""), log_str("to", STATE(to)),
             log_str("reason", CODE(code)), log_str("text", text));
}

enum status job_apply(struct job *job, enum job_event event, Pb__Reason__Code code,
                      const char *text, struct error *err)
{
    Pb__Job__State from = job_view(job)->state;
    const struct job_rule *rule = job_fsm_find(from, event);

    if (!rule)
        return error_set(err, STATUS_PRECONDITION, "job %lld is %s: %s is not possible",
                         (long long)job_view(job)->id, STATE(from), job_fsm_event_name(event));
    Pb__Job *row = job_edit(job);
    int64_t now_us = loop_wall_us(job->hub->loop);
    row->state = rule->to;
    row->version++;
    row->has_step = row->has_samples = true;
    row->step =
        job->step ? job->step : row->step; /* of the current attempt, once it has told any */
    row->samples = job->samples ? job->samples : row->samples;
    job_set_reason(row, code, text ? text : rule->shown);
    if (rule->to == PB__JOB__STATE__RUNNING && !row->has_started_us) {
        row->has_started_us = true;
        row->started_us = now_us;
    }
    if (job_fsm_ended(rule->to)) {
        row->has_ended_us = true;
        row->ended_us = now_us;
    }
    job_event_row(job, from, rule->to, code, text ? text : rule->shown, NULL);
    job_queue_update(job);
    if (job->attempt && job_fsm_active(rule->to))
        node_desired_dirty_job(job);
    if (job_fsm_ended(rule->to))
        save_job_ended(job);
    job_arm(job);
    return STATUS_OK;
}

/* A row that must exist: anything else is a fault of ours. */
static void job_must(struct job *job, enum job_event event, Pb__Reason__Code code, const char *text)
{
    struct error err;

    if (job_apply(job, event, code, text, &err) != STATUS_OK)
        log_error("job.event-refused", log_int("job", job_view(job)->id), log_err(&err));
}

/* --- what a failure costs */
static void set_not_before(struct job *job, uint64_t ms)
{
    Pb__Job *row = job_edit(job);

    row->has_not_before_us = true;
    row->not_before_us = ms ? loop_wall_us(job->hub->loop) + (int64_t)ms * 1000 : 0;
    job->not_before_us = ms ? loop_now_us(job->hub->loop) + (int64_t)ms * 1000 : 0;
}

/* Sets what follows the stop, and what it costs. */
static void plan_after_break(struct job *job, Pb__Reason__Code code)
{
    Pb__Job *row = job_edit(job);
    const Pb__Restart *restart = row->spec->restart;

    row->has_next = row->has_restarts_used = row->has_launch_failures = true;
    row->next = PB__JOB__NEXT__REQUEUE;
    if (code == PB__REASON__CODE__TIME_LIMIT) {
        row->next = PB__JOB__NEXT__END_FAILED;
    } else if (restart_is_charged(code)) {
        if (row->restarts_used >= restart->budget)
            row->next = PB__JOB__NEXT__END_FAILED;
        else
            set_not_before(job, restart_backoff_ms(restart, ++row->restarts_used));
    } else { /* free of charge, but never in a tight loop */
        if (job->running_us && loop_now_us(job->hub->loop) - job->running_us >= STEADY_US)
            row->launch_failures = 0;
        row->launch_failures++;
        set_not_before(job, code == PB__REASON__CODE__START_TIMEOUT || row->launch_failures > 2
                                ? restart_backoff_ms(restart, row->launch_failures)
                                : 0);
    }
}

/* Work was committed and none of it can be loaded: beginning at step 0 would bury that. */
static const char *refuse_start_over(struct job *job)
{
    const Pb__CheckpointPolicy *policy = job_view(job)->spec->checkpoint;

    if (job_view(job)->next != PB__JOB__NEXT__REQUEUE || !job_view(job)->last_checkpoint ||
        save_resume(job) || (policy && policy->start_over))
        return NULL;
    job_edit(job)->next = PB__JOB__NEXT__END_FAILED;
    return "no committed checkpoint can be loaded; checkpoint.start_over allows step 0";
}

static void job_gone(struct job *job);

static void job_stopping(struct job *job, uint64_t grace_ms)
{
    job->stop_by_us = loop_now_us(job->hub->loop) + (int64_t)grace_ms * 1000;
    job->settle_by_us = 0;
    job_arm(job);
    node_desired_dirty_job(job);
}

void job_break(struct job *job, Pb__Reason__Code code, const char *text)
{
    Pb__Job__State state = job_view(job)->state;
    char longer[700];

    if (state == PB__JOB__STATE__STOPPING || !job_fsm_find(state, JOB_EV_BROKEN))
        return;
    plan_after_break(job, code);
    const char *refused = refuse_start_over(job);
    if (refused) {
        snprintf(longer, sizeof(longer), "%s: %.500s", refused, text);
        text = longer;
    }
    job_must(job, JOB_EV_BROKEN, code, text);
    job->stop_grace_ms = FAILED_GRACE_MS;
    job_stopping(job, FAILED_GRACE_MS);
}

/* --- news of workers */
static bool never_started(const Pb__WorkerPlace *place)
{
    return place->class_ == PB__REASON__CODE__LAUNCH_FAILED ||
           place->class_ == PB__REASON__CODE__NODE_EXHAUSTED ||
           place->class_ == PB__REASON__CODE__SOURCE_LOST;
}

static const char *exit_text(const Pb__WorkerPlace *place, char *out, size_t cap)
{
    char how[64] = "";

    if (place->signal)
        snprintf(how, sizeof(how), "signal %d", place->signal);
    else if (place->has_exit_code)
        snprintf(how, sizeof(how), "exit code %d", place->exit_code);
    else if (never_started(place))
        snprintf(how, sizeof(how), "did not start");
    const char *gap = never_started(place) ? ": " : ", ";
    snprintf(out, cap, "%.63s rank %u on %.100s: %s%s%.300s", place->role, place->rank, place->node,
             how, place->message && *how ? gap : "", place->message ? place->message : "");
    return out;
}

static void keep_first_failure(struct job *job, size_t index)
{
    const Pb__Attempt *attempt = attempt_view(job->attempt);
    const Pb__WorkerPlace *place = attempt->places[index];
    Pb__Job *row = job_edit(job);
    struct node *node = map_get_text(job->hub->nodes, place->node);
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;

    if (row->first_failure)
        pb__first_failure__free_unpacked(row->first_failure, NULL);
    Pb__FirstFailure *first = row->first_failure = NEW(Pb__FirstFailure);
    pb__first_failure__init(first);
    first->role = mem_strdup(place->role);
    first->node = mem_strdup(place->node);
    first->has_rank = first->has_attempt = true;
    first->has_exit_code = place->has_exit_code;
    first->has_signal = place->has_signal;
    first->rank = place->rank;
    first->exit_code = place->exit_code;
    first->signal = place->signal;
    first->attempt = attempt->number;
    first->message = mem_strdup(place->message);
    key.job = attempt->job;
    key.role = place->role;
    key.rank = place->rank;
    key.attempt = attempt->number;
    const struct actual *actual = node ? node_actual(node, &key) : NULL;
    if (actual && actual->said->traceback)
        first->traceback = mem_strdup(actual->said->traceback);
    if (actual && actual->said->message) /* whole: that of its place is short */
        draft_text(&first->message, actual->said->message);
}

static int64_t fail_time(struct job *job, const Pb__WorkerPlace *place, uint32_t number)
{
    struct node *node = map_get_text(job->hub->nodes, place->node);
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;

    key.job = job_view(job)->id;
    key.role = place->role;
    key.rank = place->rank;
    key.attempt = number;
    const struct actual *actual = node ? node_actual(node, &key) : NULL;
    return actual && actual->said->has_fail_us ? actual->said->fail_us : INT64_MAX;
}

/* Of the failures known now the earliest; -1: none. */
static long first_failed(struct job *job)
{
    const Pb__Attempt *row = attempt_view(job->attempt);
    long best = -1;

    for (size_t i = 0; i < row->n_places; i++) {
        if (!row->places[i]->ended || !row->places[i]->has_class_)
            continue;
        if (best < 0 || fail_time(job, row->places[i], row->number) <
                            fail_time(job, row->places[best], row->number))
            best = (long)i;
    }
    return best;
}

/* Every rank ended with 0: does the success rule hold? A save in flight is waited for. */
static void all_zero(struct job *job)
{
    const Pb__Job *row = job_view(job);
    const Pb__Success *success = row->spec->success;
    char text[200];

    if (save_in_flight(job)) {
        if (!job->settle_by_us)
            job->settle_by_us =
                loop_now_us(job->hub->loop) + (int64_t)row->spec->phases->save_ms * 1000;
        job_arm(job);
        return;
    }
    if (row->state == PB__JOB__STATE__SAVING && row->next == PB__JOB__NEXT__END_HELD) {
        attempt_close(job, PB__REASON__CODE__ASKED, "saved and stopped");
        job_must(job, JOB_EV_GONE_HELD, PB__REASON__CODE__ASKED, NULL);
        return;
    }
    int64_t reached = save_cursor(job);
    if (success->rule == PB__SUCCESS__RULE__TARGET && reached < success->target_samples) {
        snprintf(text, sizeof(text),
                 "every rank ended with 0, but the newest committed checkpoint is at sample %lld "
                 "of %lld",
                 (long long)reached, (long long)success->target_samples);
        job_break(job, PB__REASON__CODE__TARGET_MISSED, text);
        job_gone(job);
        return;
    }
    bool target = success->rule == PB__SUCCESS__RULE__TARGET;
    attempt_close(job, PB__REASON__CODE__ALL_ZERO, "every rank ended with 0");
    job_must(job, JOB_EV_ENDED_WELL,
             target ? PB__REASON__CODE__TARGET_REACHED : PB__REASON__CODE__ALL_ZERO, NULL);
}

/* No worker is left: to what was planned. */
static void job_gone(struct job *job)
{
    Pb__Reason__Code code = job_view(job)->reason->code;
    SCOPED_TEXT char *why = mem_strdup(job_view(job)->reason->text);
    char text[400];

    attempt_close(job, code, why);
    const char *refused = refuse_start_over(job); /* damage may have been told last */
    if (refused) {
        snprintf(text, sizeof(text), "%s: %.250s", refused, why ? why : "");
        mem_free(why);
        why = mem_strdup(text);
    }
    const Pb__Job *row = job_view(job);
    job->stop_by_us = 0;
    job->stop_grace_ms = 0;
    switch ((int)row->next) {
    case PB__JOB__NEXT__END_FAILED:
        snprintf(text, sizeof(text), "%.300s%s", why ? why : "",
                 row->spec->restart->budget && restart_is_charged(code) &&
                         row->restarts_used >= row->spec->restart->budget &&
                         code != PB__REASON__CODE__TIME_LIMIT
                     ? " (restart budget used up)"
                     : "");
        job_must(job, JOB_EV_GONE_FAILED, code, text);
        break;
    case PB__JOB__NEXT__END_CANCELLED:
        job_must(job, JOB_EV_GONE_CANCELLED, code, why);
        break;
    case PB__JOB__NEXT__END_HELD:
        job_must(job, JOB_EV_GONE_HELD, code, why);
        break;
    case PB__JOB__NEXT__END_SUCCEEDED:
        job_must(job, JOB_EV_GONE_SUCCEEDED, code, why);
        break;
    default:
        job_must(job, JOB_EV_GONE_REQUEUE, code, why);
        break;
    }
    job->hub->pass_needed = true;
}

/* One that has ended well has been up, though a restarted daemon has not seen it. */
static bool all_up(const struct job *job)
{
    const Pb__Attempt *row = attempt_view(job->attempt);

    for (size_t i = 0; i < job->live_count; i++)
        if (!job->live[i].up && !(row->places[i]->ended && !row->places[i]->has_class_))
            return false;
    return job->live_count > 0;
}

static void workers_up(struct job *job)
{
    Pb__Attempt *row = (Pb__Attempt *)draft_edit(&job->hub->drafts, &job->attempt->entry);

    row->has_running_us = true;
    row->running_us = loop_wall_us(job->hub->loop);
    job->start_by_us = 0;
    job->running_us = loop_now_us(job->hub->loop);
    gate_schedule(job);
    job_must(job, JOB_EV_WORKERS_UP, PB__REASON__CODE__WORKERS_UP, NULL);
}

void job_review(struct job *job)
{
    if (!attempt_is_open(job))
        return;
    if (job_view(job)->state == PB__JOB__STATE__STARTING && all_up(job))
        workers_up(job);
    long failed = first_failed(job);
    if (failed >= 0 && job_fsm_find(job_view(job)->state, JOB_EV_BROKEN)) {
        const Pb__WorkerPlace *place = attempt_view(job->attempt)->places[failed];
        Pb__Reason__Code code = place->class_;
        char text[600];
        exit_text(place, text, sizeof(text));
        keep_first_failure(job, (size_t)failed);
        save_attempt_broken(job, code);
        job_break(job, code, text);
    }
    gate_review(job);
    if (attempt_unended(job))
        return;
    if (job_view(job)->state == PB__JOB__STATE__STOPPING)
        job_gone(job);
    else if (job_fsm_active(job_view(job)->state))
        all_zero(job);
}

/* --- asked by people */
void job_stop_asked(struct job *job, Pb__Job__Next next, const char *text, bool now)
{
    Pb__Job *row = job_edit(job);

    row->has_next = true;
    row->next = next;
    job_must(job, JOB_EV_STOP_ASKED, PB__REASON__CODE__ASKED, text);
    job->stop_grace_ms = now ? 1 : 0;
    job_stopping(job, now ? 0 : row->spec->grace_ms_max);
    job_review(job);
}

enum status job_cancel(struct job *job, const char *actor, const char *why, bool now,
                       struct error *err)
{
    Pb__Job__State state = job_view(job)->state;
    char text[300];

    snprintf(text, sizeof(text), "cancelled by %.100s%s%.150s", actor, why && *why ? ": " : "",
             why ? why : "");
    if (job_fsm_active(state)) {
        job_stop_asked(job, PB__JOB__NEXT__END_CANCELLED, text, now);
        return STATUS_OK;
    }
    return job_apply(job, JOB_EV_CANCEL, PB__REASON__CODE__ASKED, text, err);
}

enum status job_hold(struct job *job, const char *actor, bool release, struct error *err)
{
    Pb__Job__State state = job_view(job)->state;
    char text[200];

    snprintf(text, sizeof(text), "%s by %.100s", release ? "released" : "held", actor);
    if (release)
        return job_apply(job, JOB_EV_RELEASE, PB__REASON__CODE__RELEASED, text, err);
    if (!job_fsm_active(state))
        return job_apply(job, JOB_EV_HOLD, PB__REASON__CODE__ASKED, text, err);
    if (state == PB__JOB__STATE__RUNNING && gate_stop(job)) { /* save at a named step, then stop */
        Pb__Job *row = job_edit(job);
        row->has_next = true;
        row->next = PB__JOB__NEXT__END_HELD;
        job->stop_by_us = loop_now_us(job->hub->loop) + (int64_t)row->spec->phases->save_ms * 1000;
        return job_apply(job, JOB_EV_SAVE_ASKED, PB__REASON__CODE__ASKED, text, err);
    }
    if (state == PB__JOB__STATE__STOPPING && job_view(job)->next == PB__JOB__NEXT__END_CANCELLED)
        return error_set(err, STATUS_PRECONDITION, "job %lld is being cancelled",
                         (long long)job_view(job)->id);
    job_stop_asked(job, PB__JOB__NEXT__END_HELD, text, false);
    return STATUS_OK;
}
