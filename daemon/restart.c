/* restart.c - relaunches: what they cost, and those made by an agent. See restart.h. */
#include "daemon/restart.h"
#include "base/backoff.h"
#include "base/log.h"
#include "daemon/attempt.h"
#include "daemon/gate.h"
#include "daemon/job.h"
#include "daemon/node.h"
#include "daemon/save.h"
#include "daemon/session.h"
#include "daemon/watch.h"

#define RESTARTS_MAX 16u /* of one attempt: a budget may be large, what an agent keeps is not */

bool restart_is_charged(Pb__Reason__Code code)
{
    switch ((int)code) {
    case PB__REASON__CODE__PORT_CLASH:
    case PB__REASON__CODE__NODE_LOST:
    case PB__REASON__CODE__PREEMPTED:
    case PB__REASON__CODE__START_TIMEOUT:
    case PB__REASON__CODE__CHECKPOINT_ERROR:
    case PB__REASON__CODE__DEVICE_FAULT:
    case PB__REASON__CODE__SHIM_LOST:
    case PB__REASON__CODE__NODE_EXHAUSTED:
    case PB__REASON__CODE__SOURCE_LOST:
    case PB__REASON__CODE__ASKED:
        return false;
    default:
        return true;
    }
}

uint64_t restart_backoff_ms(const Pb__Restart *restart, uint32_t failures)
{
    return backoff_ms(restart->backoff_ms, restart->backoff_ms_max, failures);
}

/* --- the allowance */
static bool lives_on_one_node(const Pb__Attempt *row)
{
    for (size_t i = 1; i < row->n_places; i++)
        if (strcmp(row->places[i]->node, row->places[0]->node) != 0)
            return false;
    return row->n_places > 0;
}

void restart_grant(const struct job *job, Pb__Attempt *row)
{
    const Pb__Job *job_row = job_view(job);
    uint32_t budget = job_row->spec->restart->budget, used = job_row->restarts_used;
    uint32_t left = budget > used ? budget - used : 0;

    if (!left || !lives_on_one_node(row) ||
        job_row->spec->on_unreachable == PB__JOB_SPEC__ON_UNREACHABLE__STOP)
        return;
    row->has_incarnation_max = true;
    row->incarnation_max = 1 + (left < RESTARTS_MAX ? left : RESTARTS_MAX);
}

bool restart_is_allowed(const Pb__Attempt *row)
{
    return row->incarnation_max > attempt_incarnation(row);
}

Pb__Allowance *restart_allowance(const struct job *job, struct arena *arena)
{
    const Pb__Attempt *row = attempt_view(job->attempt);
    const Pb__Restart *restart = job_view(job)->spec->restart;
    uint32_t used = job_view(job)->restarts_used, here = attempt_incarnation(row) - 1;

    if (!restart_is_allowed(row))
        return NULL;
    Pb__Allowance *allowance = arena_alloc(arena, sizeof(*allowance));
    pb__allowance__init(allowance);
    allowance->has_incarnation_max = allowance->has_backoff_ms = true;
    allowance->has_backoff_ms_max = allowance->has_failures = true;
    allowance->incarnation_max = row->incarnation_max;
    allowance->backoff_ms = restart->backoff_ms;
    allowance->backoff_ms_max = restart->backoff_ms_max;
    allowance->failures = used > here ? used - here : 0;
    return allowance;
}

/* --- what an agent has done */
static void describe(const Pb__RestartInPlace *restart, const char *node, char *out, size_t cap)
{
    char how[64] = "";

    if (restart->signal)
        snprintf(how, sizeof(how), "signal %d", restart->signal);
    else if (restart->has_exit_code)
        snprintf(how, sizeof(how), "exit code %d", restart->exit_code);
    snprintf(out, cap,
             "%.63s rank %u on %.100s: %s%s%.200s; its agent, without a leader, went on as "
             "incarnation %u from checkpoint %lld",
             restart->role ? restart->role : "", restart->rank, node, how,
             *how && restart->message ? ", " : "", restart->message ? restart->message : "",
             restart->incarnation + 1, (long long)restart->resume_checkpoint);
}

static void keep_first_failure(Pb__Job *row, const Pb__RestartInPlace *restart, const char *node)
{
    if (row->first_failure)
        pb__first_failure__free_unpacked(row->first_failure, NULL);
    Pb__FirstFailure *first = row->first_failure = NEW(Pb__FirstFailure);
    pb__first_failure__init(first);
    first->role = mem_strdup(restart->role);
    first->node = mem_strdup(node);
    first->has_rank = first->has_attempt = true;
    first->has_exit_code = restart->has_exit_code;
    first->has_signal = restart->has_signal;
    first->rank = restart->rank;
    first->exit_code = restart->exit_code;
    first->signal = restart->signal;
    first->attempt = row->attempt;
    first->message = mem_strdup(restart->message);
    first->traceback = mem_strdup(restart->traceback);
}

/* One that became known: kept in the attempt, told as an event. */
static void restart_known(struct job *job, Pb__Attempt *attempt, const Pb__RestartInPlace *restart)
{
    Pb__Job *row = (Pb__Job *)draft_edit(&job->hub->drafts, &job->entry);
    const char *node = attempt->places[0]->node;
    Pb__Event *event = watch_event(job->hub, "job.restarted");
    char text[600];

    describe(restart, node, text, sizeof(text));
    attempt->restarts =
        mem_resize(attempt->restarts, attempt->n_restarts + 1, sizeof(*attempt->restarts));
    Pb__RestartInPlace *kept = (Pb__RestartInPlace *)message_copy(&restart->base);
    draft_text(&kept->traceback, NULL); /* the job's row has it */
    attempt->restarts[attempt->n_restarts++] = kept;
    keep_first_failure(row, restart, node);
    event->has_job = event->has_attempt = true;
    event->job = row->id;
    event->attempt = attempt->number;
    event->node = mem_strdup(node);
    event->reason = mem_strdup(HUB_NAME(reason__code, restart->class_));
    event->text = mem_strdup(text);
    log_info("job.restarted", log_int("job", row->id), log_int("attempt", attempt->number),
             log_str("node", node), log_str("text", text));
    if (row->state == PB__JOB__STATE__STOPPING || !row->reason)
        return; /* why it stops is the news */
    row->reason->has_code = true;
    row->reason->code = restart->class_;
    draft_text(&row->reason->text, text);
}

/* Was the end of the incarnation before worked in already, and paid for? */
static bool is_paid(const struct job *job, const Pb__Attempt *attempt)
{
    for (size_t i = 0; i < attempt->n_places; i++)
        if (attempt->places[i]->ended && attempt->places[i]->has_class_ &&
            restart_is_charged(attempt->places[i]->class_))
            return job_view(job)->state == PB__JOB__STATE__STOPPING;
    return false;
}

static void charge(struct job *job, uint32_t count)
{
    Pb__Job *row = (Pb__Job *)draft_edit(&job->hub->drafts, &job->entry);
    uint32_t budget = row->spec->restart->budget;

    row->has_restarts_used = true;
    row->restarts_used = count < budget - row->restarts_used ? row->restarts_used + count : budget;
    row->version++;
}

/* The places are those of the new incarnation: none of its workers has ended. */
static void places_begin(Pb__Attempt *attempt)
{
    for (size_t i = 0; i < attempt->n_places; i++) {
        Pb__WorkerPlace *place = attempt->places[i];
        place->has_ended = place->has_exit_code = place->has_signal = place->has_class_ = false;
        place->ended = false;
        place->exit_code = place->signal = 0;
        place->class_ = PB__REASON__CODE__CODE_UNSPECIFIED;
        draft_text(&place->message, NULL);
        place->has_answered = place->has_step = place->has_samples = false;
        place->answered = place->step = place->samples = 0;
        place->has_incarnation = true;
        place->incarnation = attempt->incarnation;
    }
}

static void gang_went_on(struct job *job, const Pb__ActualGang *said)
{
    Pb__Attempt *attempt = (Pb__Attempt *)draft_edit(&job->hub->drafts, &job->attempt->entry);
    uint32_t before = attempt_incarnation(attempt), paid = is_paid(job, attempt);

    attempt->has_incarnation = true;
    attempt->incarnation = said->incarnation;
    charge(job, attempt->incarnation - before - paid);
    uint32_t next = before; /* in order and each once: no more are kept than were granted */
    for (size_t i = 0; i < said->n_restarts; i++) {
        if (said->restarts[i]->incarnation < next ||
            said->restarts[i]->incarnation >= attempt->incarnation)
            continue;
        next = said->restarts[i]->incarnation + 1;
        restart_known(job, attempt, said->restarts[i]);
    }
    places_begin(attempt);
    attempt_live_reset(job);
    gate_restarted(job);
    save_restarted(job);
    node_desired_dirty_job(job);
}

/* Once for each incarnation, whatever is said again. */
static void gang_run(struct node *node, const Pb__ActualGang *said)
{
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;

    key.job = said->job;
    key.attempt = said->attempt;
    key.role = (char *)(uintptr_t) "";
    node->desired_dirty = true; /* its agent waits for a word that takes account of it */
    struct job *job = job_fenced(node->hub, &key);
    const Pb__Attempt *row = job ? attempt_view(job->attempt) : NULL;
    if (!row || said->incarnation <= attempt_incarnation(row) ||
        strcmp(row->places[0]->node, node_view(node)->name) != 0)
        return;
    if (said->incarnation <= row->incarnation_max) {
        gang_went_on(job, said);
        return;
    }
    log_error("job.restarted-unasked", log_int("job", said->job),
              log_int("incarnation", said->incarnation));
    job_break(job, PB__REASON__CODE__SHIM_LOST, "its agent restarted it beyond its allowance");
}

void restart_run(struct node *node)
{
    LIST_EACH(&node->gangs, item)
    gang_run(node, (Pb__ActualGang *)LIST_ITEM(item, struct session_note, node)->message);
}
