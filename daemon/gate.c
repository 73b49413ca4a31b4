/* gate.c - the same answer on every rank. See gate.h. */
#include "daemon/gate.h"
#include "daemon/attempt.h"
#include "daemon/job.h"
#include "daemon/node.h"
#include "daemon/save.h"

#define AHEAD_S       1.5 /* how far ahead a step is named, by the measured pace */
#define AHEAD_STEPS   2
#define REFUSED_US    100000 /* a refused question is asked again so soon, twice as far ahead */
#define REFUSED_TIMES 4      /* doublings at most */

void gate_schedule(struct job *job)
{
    const Pb__CheckpointPolicy *policy = job_view(job)->spec->checkpoint;

    job->save_at_us = policy && policy->every_s
                          ? loop_now_us(job->hub->loop) + (int64_t)policy->every_s * 1000000
                          : 0;
}

/* A rank that has ended answers no more: nobody waits for it. What it meant for the question that
 * was asked then, gate_place_ends has settled. */
static bool is_over(const struct job *job, size_t place)
{
    return attempt_view(job->attempt)->places[place]->ended;
}

static bool all_joined(const struct job *job)
{
    for (size_t i = 0; i < job->live_count; i++)
        if (!job->live[i].joined && !is_over(job, i))
            return false;
    return job->live_count > 0;
}

static void keep_higher(int64_t *highest, int64_t step)
{
    if (step > *highest)
        *highest = step;
}

/* Saves that are wanted often are named nearer: one that lies ahead keeps the next one waiting.
 * Each refusal in a row says that this was too near for the way to the ranks. */
static double seconds_ahead(const struct job *job, int kind)
{
    const Pb__CheckpointPolicy *policy = job_view(job)->spec->checkpoint;
    double seconds = AHEAD_S;

    if (kind == PB__GATE__KIND__SAVE && policy && policy->every_s &&
        (double)policy->every_s / 2 < seconds)
        seconds = (double)policy->every_s / 2;
    return seconds * (double)(1u << job->gates_refused);
}

/* Past every step that is known to be answered, and past what the pace makes of the time ahead. A
 * rank that has ended refuses no more: what it had answered must be known here. A step that a rank
 * is only bound at is not answered: counting it would put each question behind the last one. */
static int64_t step_ahead(const struct job *job, int kind)
{
    const Pb__Attempt *row = attempt_view(job->attempt);
    int64_t highest = job->step;

    for (size_t i = 0; i < job->live_count; i++) {
        if (job->live[i].gate_phase != PB__GATE__PHASE__PREPARE)
            keep_higher(&highest, job->live[i].gate_step);
        keep_higher(&highest, row->places[i]->answered);
    }
    return highest + AHEAD_STEPS + (int64_t)(job->steps_per_s * seconds_ahead(job, kind));
}

static void gate_ask(struct job *job, int kind)
{
    Pb__Attempt *row = (Pb__Attempt *)draft_edit(&job->hub->drafts, &job->attempt->entry);

    row->has_gate_number = row->has_gate_step = row->has_gate_kind = true;
    row->gate_number++;
    row->gate_step = step_ahead(job, kind);
    row->gate_kind = (Pb__Gate__Kind)kind;
    row->has_gate_incarnation = true;
    row->gate_incarnation = attempt_incarnation(row);
    row->has_gate_phase = true;
    row->gate_phase = PB__GATE__PHASE__PREPARE;
    if (kind == PB__GATE__KIND__SAVE) {
        row->has_save_gate_step = true;
        row->save_gate_step = row->gate_step;
    }
    node_desired_dirty_job(job);
}

/* May another question be asked? A dropped one is superseded by a newer number; an armed one must
 * be known to every rank's agent first, since only the newest question travels. */
static bool gate_idle(const struct job *job)
{
    const Pb__Attempt *row = attempt_view(job->attempt);

    if (row->gate_phase == PB__GATE__PHASE__PREPARE)
        return false;
    if (row->gate_phase != PB__GATE__PHASE__ARM)
        return true;
    for (size_t i = 0; i < job->live_count; i++)
        if (!is_over(job, i) && (job->live[i].gate_number != row->gate_number ||
                                 job->live[i].gate_phase != PB__GATE__PHASE__ARM))
            return false;
    return true;
}

/* The save question has one place on the page: every rank must be past the step of the latest one
 * before the next. Whether that one was armed does not matter: past it, it can no longer mislead.
 */
static bool save_passed(const struct job *job)
{
    const Pb__Attempt *row = attempt_view(job->attempt);
    bool dropped =
        row->gate_kind == PB__GATE__KIND__SAVE && row->gate_phase == PB__GATE__PHASE__DROP;

    if (!row->save_gate_step || dropped || save_is_whole(job, row->save_gate_step))
        return true;
    for (size_t i = 0; i < job->live_count; i++)
        if (!is_over(job, i) && job->live[i].step <= row->save_gate_step)
            return false;
    return true;
}

void gate_save_due(struct job *job)
{
    gate_schedule(job);
    if (all_joined(job) && gate_idle(job) && save_passed(job) &&
        attempt_unended(job) == job->live_count) /* one that has ended has no part to give */
        gate_ask(job, PB__GATE__KIND__SAVE);
    job_arm(job);
}

bool gate_stop(struct job *job)
{
    if (!all_joined(job))
        return false;
    if (gate_idle(job)) /* else gate_review asks once the question under way is settled */
        gate_ask(job, PB__GATE__KIND__STOP);
    return true;
}

static void gate_decide(struct job *job, Pb__Gate__Phase phase)
{
    Pb__Attempt *row = (Pb__Attempt *)draft_edit(&job->hub->drafts, &job->attempt->entry);

    row->gate_phase = phase;
    node_desired_dirty_job(job);
    if (phase == PB__GATE__PHASE__ARM)
        job->gates_refused = 0;
    else if (job->gates_refused < REFUSED_TIMES)
        job->gates_refused++;
    if (phase == PB__GATE__PHASE__DROP && row->gate_kind == PB__GATE__KIND__SAVE)
        job->save_at_us = loop_now_us(job->hub->loop) + REFUSED_US;
    job_arm(job);
}

static bool has_accepted(const struct job *job, size_t place)
{
    const struct live *live = &job->live[place];

    return live->gate_number == attempt_view(job->attempt)->gate_number &&
           (live->gate_phase == PB__GATE__PHASE__PREPARE ||
            live->gate_phase == PB__GATE__PHASE__ARM);
}

static bool has_refused(const struct job *job, size_t place)
{
    const struct live *live = &job->live[place];

    return live->gate_number == attempt_view(job->attempt)->gate_number &&
           live->gate_phase == PB__GATE__PHASE__DROP;
}

void gate_place_ends(struct job *job, size_t place)
{
    if (attempt_view(job->attempt)->gate_phase == PB__GATE__PHASE__PREPARE &&
        !has_accepted(job, place))
        gate_decide(job, PB__GATE__PHASE__DROP);
}

static void gate_count(struct job *job)
{
    size_t accepted = 0, refused = 0;

    for (size_t i = 0; i < job->live_count; i++) {
        accepted += is_over(job, i) || has_accepted(job, i);
        refused += !is_over(job, i) && has_refused(job, i);
    }
    if (refused)
        gate_decide(job, PB__GATE__PHASE__DROP);
    else if (accepted == job->live_count)
        gate_decide(job, PB__GATE__PHASE__ARM);
}

void gate_restarted(struct job *job)
{
    Pb__Attempt *row = (Pb__Attempt *)draft_edit(&job->hub->drafts, &job->attempt->entry);

    if (row->gate_number)
        row->gate_phase = PB__GATE__PHASE__DROP;
    row->save_gate_step = 0;
    gate_schedule(job);
}

void gate_review(struct job *job)
{
    if (attempt_view(job->attempt)->gate_phase == PB__GATE__PHASE__PREPARE)
        gate_count(job);
    const Pb__Attempt *row = attempt_view(job->attempt);
    bool stop_armed =
        row->gate_kind == PB__GATE__KIND__STOP && row->gate_phase != PB__GATE__PHASE__DROP;
    if (job_view(job)->state == PB__JOB__STATE__SAVING && !stop_armed && gate_idle(job) &&
        all_joined(job))
        gate_ask(job, PB__GATE__KIND__STOP);
}

bool gate_fill(const struct job *job, Pb__Gate *out)
{
    const Pb__Attempt *row = attempt_view(job->attempt);

    if (!row->gate_number)
        return false;
    pb__gate__init(out);
    out->has_number = out->has_kind = out->has_phase = out->has_step = true;
    out->number = row->gate_number;
    out->kind = row->gate_kind;
    out->phase = row->gate_phase;
    out->step = row->gate_step;
    out->has_incarnation = true;
    out->incarnation = row->gate_incarnation ? row->gate_incarnation : 1;
    return true;
}
