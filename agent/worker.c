/* worker.c - see worker.h. */
#include "agent/worker.h"
#include "agent/actual.h"
#include "agent/claim.h"
#include "agent/code.h"
#include "agent/worker_part.h"
#include "base/log.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ROLE_BYTES_MAX 128

struct worker_ref *worker_ref_create(const struct worker *worker)
{
    struct worker_ref *ref = PENDING(&worker->agent->pending, struct worker_ref);
    ref->agent = worker->agent;
    memcpy(ref->tag, worker->tag, sizeof(ref->tag));
    return ref;
}

struct worker *worker_ref_take(struct worker_ref *ref)
{
    struct worker *worker = worker_find(ref->agent, ref->tag);
    pending_destroy(ref);
    return worker;
}

/* A role names a part of a path and of a line: no slash, no space, no control character. */
static bool role_is_valid(const char *role)
{
    size_t len = role ? strlen(role) : 0;
    if (len == 0 || len > ROLE_BYTES_MAX || role[0] == '.' || !text_is_utf8(role, len))
        return false;
    for (const char *at = role; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == '/' || *at == 0x7f)
            return false;
    return true;
}

bool worker_tag(const Pb__WorkerKey *key, char tag[SPOOL_TAG_MAX])
{
    if (!key || key->job <= 0 || !role_is_valid(key->role))
        return false;
    (void)snprintf(tag, SPOOL_TAG_MAX, "%" PRId64 ".%u.%s.%u.%u", key->job, key->attempt, key->role,
                   key->rank, key->incarnation ? key->incarnation : 1);
    return true;
}

struct worker *worker_find(const struct agent *agent, const char *tag)
{
    return map_get_text(agent->workers, tag);
}

static int64_t attempt_start(struct agent *agent, const Pb__WorkerKey *key)
{
    size_t at = 0;
    const struct worker *other;
    while ((other = map_next(agent->workers, &at)))
        if (other->desired->key->job == key->job && other->desired->key->attempt == key->attempt)
            return other->start_us;
    return loop_now_us(agent->loop);
}

char *worker_attempt_dir(const struct worker *worker, const char *vault)
{
    const Pb__WorkerKey *key = worker->desired->key;
    char incarnation[16] = "";
    if (key->incarnation > 1)
        (void)snprintf(incarnation, sizeof(incarnation), ".%u", key->incarnation);
    return mem_printf("%s/job-%" PRId64 "/attempt-%u%s", vault, key->job, key->attempt,
                      incarnation);
}

static void worker_timer(void *arg)
{
    struct worker *worker = arg;
    if (worker->state == PB__ACTUAL_WORKER__STATE__STOPPING && !worker->proc &&
        !(worker->holds & WORKER_HOLD_START) && worker->ended_us == 0)
        worker_event(worker, WORKER_EV_GONE); /* it never ran: nothing to wait for */
}

struct worker *worker_create(struct agent *agent, const char *tag, const Pb__DesiredWorker *desired,
                             int64_t start_us)
{
    struct worker *worker = NEW(struct worker);
    worker->agent = agent;
    (void)snprintf(worker->tag, sizeof(worker->tag), "%s", tag);
    worker->dir = mem_printf("%s/%s", agent->work_dir, tag);
    worker->desired = (Pb__DesiredWorker *)message_copy(&desired->base);
    worker->desired->key->has_incarnation = true;
    if (worker->desired->key->incarnation == 0)
        worker->desired->key->incarnation = 1;
    worker->state = PB__ACTUAL_WORKER__STATE__PENDING;
    worker->start_us = start_us ? start_us : attempt_start(agent, worker->desired->key);
    worker->step = worker->samples = worker->answered = -1;
    worker->timer = loop_timer_create(agent->loop, worker_timer, worker);
    (void)map_put_text(agent->workers, tag, worker);
    actual_mark(agent->actual, worker->tag);
    return worker;
}

void worker_destroy(struct worker *worker)
{
    (void)map_remove_text(worker->agent->workers, worker->tag);
    if (worker->desired)
        protobuf_c_message_free_unpacked(&worker->desired->base, NULL);
    loop_timer_destroy(worker->timer);
    loop_timer_destroy(worker->delay_timer);
    loop_timer_destroy(worker->proof_timer);
    mem_free(worker->dir);
    mem_free(worker->cause_text);
    mem_free(worker->code_dir);
    mem_free(worker->code_digest);
    mem_free(worker->resume_dir);
    mem_free(worker->resume_shm);
    mem_free(worker->damaged);
    mem_free(worker->attempt_dir);
    mem_free(worker->failure);
    mem_free(worker->traceback);
    mem_free(worker->last_words);
    mem_free(worker);
}

bool worker_is_final(const struct worker *worker)
{
    return worker->state == PB__ACTUAL_WORKER__STATE__EXITED ||
           worker->state == PB__ACTUAL_WORKER__STATE__LOST;
}

bool worker_is_listed(const struct worker *worker)
{
    return !worker_is_final(worker) || worker->want != WORKER_WANT_NOTHING;
}

void worker_blame(struct worker *worker, enum exit_cause cause, const char *text)
{
    if (worker->cause != EXIT_CAUSE_NONE)
        return;
    worker->cause = cause;
    worker->cause_text = mem_strdup(text ? text : "");
    struct files_batch *batch = files_batch_create();
    SCOPED_TEXT char *path = mem_printf("%s/verdict", worker->dir);
    SCOPED_TEXT char *line = mem_printf("%d %s", (int)cause, worker->cause_text);
    (void)files_write(batch, path, line, strlen(line), 0600);
    files_run(worker->agent->files, batch, NULL, NULL); /* best effort: without it, less is said */
}

uint64_t worker_grace_ms(const struct worker *worker, uint64_t *most_ms)
{
    const Pb__DesiredWorker *desired = worker->desired;
    uint64_t grace =
        desired->launch && desired->launch->has_grace_ms ? desired->launch->grace_ms : 30000;
    if (desired->has_grace_ms)
        grace = desired->grace_ms;
    uint64_t most = desired->launch && desired->launch->has_grace_ms_max
                        ? desired->launch->grace_ms_max
                        : grace;
    *most_ms = most > grace ? most : grace;
    return grace;
}

/* --- actions */

static void act_term(struct worker *worker)
{
    worker->asked_us = loop_now_us(worker->agent->loop);
    if (worker->proc)
        worker->proc->ops->signal(worker->proc, SIGTERM);
}

static void act_kill(struct worker *worker)
{
    if (worker->proc)
        worker->proc->ops->kill(worker->proc);
}

/* What never ran has no process to wait for; the timer says so, in a later turn. */
static void act_abandon(struct worker *worker, enum worker_event event)
{
    if (worker->proc && event != WORKER_EV_FAILED)
        worker->proc->ops->kill(worker->proc);
    else if (!worker->proc)
        loop_timer_set(worker->timer, 0);
}

static void act_quarantine(struct worker *worker)
{
    actual_quarantine(worker->agent->actual, worker->desired->launch, 1);
}

static void act(struct worker *worker, enum worker_action action, enum worker_event event)
{
    switch (action) {
    case WORKER_ACT_PREPARE:
        worker_start_begin(worker);
        break;
    case WORKER_ACT_WATCH:
        worker_watch_begin(worker);
        break;
    case WORKER_ACT_TERM:
        act_term(worker);
        break;
    case WORKER_ACT_KILL:
        act_kill(worker);
        break;
    case WORKER_ACT_ABANDON:
        act_abandon(worker, event);
        break;
    case WORKER_ACT_DRAIN:
        spool_kick(worker->agent->spool, worker->tag);
        break;
    case WORKER_ACT_PROVE:
        worker_end_begin(worker);
        break;
    case WORKER_ACT_QUARANTINE:
        act_quarantine(worker);
        break;
    case WORKER_ACT_NONE:
    case WORKER_ACT_REPORT:
        break;
    }
}

void worker_event(struct worker *worker, enum worker_event event)
{
    const struct worker_rule *rule = worker_fsm_find(worker->state, event);
    if (!rule)
        return;
    if (worker->state == PB__ACTUAL_WORKER__STATE__UNKILLABLE && rule->to != worker->state)
        actual_quarantine(worker->agent->actual, worker->desired->launch, -1);
    if (rule->to != rule->from)
        log_info("worker.state", log_str("worker", worker->tag),
                 log_str("from", enum_name(&pb__actual_worker__state__descriptor, (int)rule->from)),
                 log_str("to", enum_name(&pb__actual_worker__state__descriptor, (int)rule->to)),
                 log_str("why", rule->text), log_str("cause", worker->cause_text));
    worker->state = rule->to;
    act(worker, rule->action, event);
    actual_mark(worker->agent->actual, worker->tag);
    if (rule->to != rule->from)
        worker_apply_want(worker);
}

/* --- what the daemon wants */

/* False: a device is another's still; the next tick asks again. */
static bool may_begin(struct worker *worker)
{
    const struct worker *holder = claim_holder(worker);
    if (holder && !worker->held_up)
        log_warn("worker.waits", log_str("worker", worker->tag), log_str("holder", holder->tag));
    worker->held_up = holder != NULL;
    return !holder;
}

void worker_apply_want(struct worker *worker)
{
    bool untouched = worker->state == PB__ACTUAL_WORKER__STATE__PENDING;
    if (untouched && worker->proc)
        return; /* taken up again: its launcher tells soon what it is */
    switch (worker->want) {
    case WORKER_WANT_RUN:
        if (untouched && may_begin(worker))
            worker_event(worker, WORKER_EV_BEGIN);
        break;
    case WORKER_WANT_STOP:
        if (worker->state == PB__ACTUAL_WORKER__STATE__STOPPING)
            break;
        if (!worker_is_final(worker))
            worker_blame(worker, EXIT_CAUSE_STOP, worker->desired->why);
        worker_event(worker, WORKER_EV_STOP);
        break;
    case WORKER_WANT_KILL:
    case WORKER_WANT_NOTHING:
        if (worker_is_final(worker)) {
            if (worker->want == WORKER_WANT_NOTHING)
                worker_end_leave(worker);
            break;
        }
        worker_blame(worker, EXIT_CAUSE_KILL, worker->desired->why);
        if (worker->ended_us == 0)
            worker_event(worker, WORKER_EV_KILL);
        break;
    }
}

void worker_apply_gate(struct worker *worker)
{
    struct gate_answer before = worker->gate;
    const Pb__Gate *gate = worker->desired->gate;
    if (gate && gate->has_incarnation && gate->incarnation != worker->desired->key->incarnation)
        return; /* asked of workers that are no more */
    gate_apply(worker->page, gate, &worker->gate);
    if (before.number != worker->gate.number || before.phase != worker->gate.phase ||
        before.step != worker->gate.step)
        actual_mark(worker->agent->actual, worker->tag);
}

/* --- what the launcher says */

static void worker_launched(void *arg, struct launcher_proc *proc,
                            const struct launcher_event *event)
{
    struct worker *worker = arg;
    (void)proc;
    switch (event->kind) {
    case LAUNCHER_STARTED:
        worker->pid = event->pid;
        worker_event(worker, WORKER_EV_STARTED);
        break;
    case LAUNCHER_FAILED:
        worker_blame(worker, EXIT_CAUSE_LAUNCH, event->text);
        worker_event(worker, WORKER_EV_FAILED);
        break;
    case LAUNCHER_EXITED:
        worker->exit_code = event->exit_code;
        worker->signal = event->signal;
        worker->out_of_memory = event->out_of_memory;
        worker_event(worker, WORKER_EV_ENDED);
        break;
    case LAUNCHER_SHIM_LOST:
        worker_blame(worker, EXIT_CAUSE_SHIM, event->text);
        worker_event(worker, WORKER_EV_SHIM_LOST);
        break;
    case LAUNCHER_GONE:
        worker_event(worker, WORKER_EV_GONE);
        break;
    case LAUNCHER_UNKILLABLE:
        log_error("worker.unkillable", log_str("worker", worker->tag), log_str("err", event->text));
        mem_free(worker->cause_text); /* that it was asked to end matters less now */
        worker->cause_text = mem_printf("cannot be killed: %s", event->text);
        worker_event(worker, WORKER_EV_STUCK);
        break;
    }
}

launcher_fn worker_launcher_fn(void)
{
    return worker_launched;
}
