/* gang.c - see gang.h.
 *
 * RUNS -(a worker fails, no leader)-> the rest is stopped -(all are EXITED, back-off)-> the next
 * incarnation is written -(durable)-> RUNS. Up to the writing the daemon may come back and decide
 * as for any failure. */
#include "agent/actual.h"
#include "agent/gang_inner.h"
#include "agent/save.h"
#include "base/backoff.h"
#include "base/log.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GANGS_MAX      8192u
#define PEER_GRACE_MS  1000 /* survivors of a failure have nothing left to save */
#define WRITE_RETRY_US 5000000
#define LEASE_SHARE    2 /* of a lease, until a leader counts as away */
#define MESSAGE_SHOWN  200

void gang_name(const Pb__WorkerKey *key, char out[GANG_NAME_CAP])
{
    (void)snprintf(out, GANG_NAME_CAP, "%" PRId64 ".%u", key->job, key->attempt);
}

static struct gang *gang_find(const struct gangs *gangs, const Pb__WorkerKey *key)
{
    char name[GANG_NAME_CAP];
    gang_name(key, name);
    return map_get_text(gangs->all, name);
}

struct gang *gang_obtain(struct gangs *gangs, const char *name)
{
    struct gang *gang = map_get_text(gangs->all, name);
    if (gang || map_count(gangs->all) >= GANGS_MAX)
        return gang;
    gang = NEW(struct gang);
    (void)snprintf(gang->name, sizeof(gang->name), "%s", name);
    (void)map_put_text(gangs->all, name, gang);
    return gang;
}

static void gang_destroy(struct gangs *gangs, struct gang *gang)
{
    (void)map_remove_text(gangs->all, gang->name);
    if (gang->file)
        pb__gang_file__free_unpacked(gang->file, NULL);
    if (gang->next)
        pb__gang_file__free_unpacked(gang->next, NULL);
    mem_free(gang);
}

struct gangs *gangs_create(struct agent *agent)
{
    struct gangs *gangs = NEW(struct gangs);
    gangs->agent = agent;
    gangs->all = map_create();
    gangs->dir = mem_printf("%s/gang", agent->state_dir);
    return gangs;
}

void gangs_destroy(struct gangs *gangs)
{
    if (!gangs)
        return;
    size_t at = 0;
    struct gang *gang;
    while ((gang = map_next(gangs->all, &at)))
        gang_destroy(gangs, gang);
    map_destroy(gangs->all);
    mem_free(gangs->dir);
    mem_free(gangs);
}

uint32_t gangs_incarnation(const struct gangs *gangs, const Pb__WorkerKey *key)
{
    const struct gang *gang = gang_find(gangs, key);
    return gang && gang->file ? gang->file->incarnation : 1;
}

/* --- what the daemon is told */

void gangs_connected(struct gangs *gangs)
{
    size_t at = 0;
    struct gang *gang;
    while ((gang = map_next(gangs->all, &at)))
        gang->told_seq = 0;
}

void gangs_fill(struct gangs *gangs, Pb__ActualReport *report)
{
    size_t at = 0;
    const struct gang *gang;
    if (map_count(gangs->all) == 0)
        return;
    report->gangs = mem_array(map_count(gangs->all), sizeof(*report->gangs));
    while ((gang = map_next(gangs->all, &at))) {
        if (!gang->file || gang->told_seq)
            continue;
        Pb__ActualGang *out = NEW(Pb__ActualGang);
        pb__actual_gang__init(out);
        out->has_job = out->has_attempt = out->has_incarnation = true;
        out->job = gang->file->workers[0]->key->job;
        out->attempt = gang->file->workers[0]->key->attempt;
        out->incarnation = gang->file->incarnation;
        out->restarts = gang->file->restarts;
        out->n_restarts = gang->file->n_restarts;
        report->gangs[report->n_gangs++] = out;
    }
}

void gangs_sent(struct gangs *gangs, Pb__ActualReport *report, uint64_t seq)
{
    for (size_t i = 0; i < report->n_gangs; i++) {
        Pb__WorkerKey key = PB__WORKER_KEY__INIT;
        key.job = report->gangs[i]->job;
        key.attempt = report->gangs[i]->attempt;
        gang_find(gangs, &key)->told_seq = seq;
        mem_free(report->gangs[i]);
    }
    mem_free(report->gangs);
}

bool gangs_untold(const struct gangs *gangs, const struct worker *worker, uint64_t heard_seq)
{
    const struct gang *gang = gang_find(gangs, worker->desired->key);
    return gang && gang->file && (!gang->told_seq || heard_seq < gang->told_seq) &&
           worker->desired->key->incarnation == gang->file->incarnation;
}

/* --- files */

void gang_remove_file(const struct gangs *gangs, const char *name)
{
    struct files_batch *batch = files_batch_create();
    SCOPED_TEXT char *path = mem_printf("%s/%s", gangs->dir, name);
    (void)files_step_add(batch, FILES_REMOVE, path);
    files_run(gangs->agent->files, batch, NULL, NULL);
}

/* NULL: there is to be none. */
static void write_file(const struct gangs *gangs, const char *name, const Pb__GangFile *file,
                       files_done done, void *arg)
{
    struct files_batch *batch = files_batch_create();
    size_t len = file ? pb__gang_file__get_packed_size(file) : 0;
    SCOPED(mem_free) void *bytes = mem_alloc(len + 1);
    SCOPED_TEXT char *path = mem_printf("%s/%s", gangs->dir, name);
    if (file) {
        (void)pb__gang_file__pack(file, bytes);
        files_write(batch, path, bytes, len, 0600)->sync = true;
    } else {
        (void)files_step_add(batch, FILES_REMOVE, path);
    }
    files_run(gangs->agent->files, batch, done, arg);
}

static bool resume_equal(const Pb__ResumePoint *a, const Pb__ResumePoint *b)
{
    return (a ? a->checkpoint : 0) == (b ? b->checkpoint : 0);
}

void gangs_newest(const struct worker *worker, const Pb__ResumePoint *before)
{
    const Pb__Launch *launch = worker->desired->launch;
    const Pb__ResumePoint *newest = worker->desired->newest;
    uint8_t bytes[4096];
    if (!newest || !launch || !launch->allowance || launch->global_rank != 0 ||
        worker->state != PB__ACTUAL_WORKER__STATE__RUNNING || resume_equal(newest, before) ||
        pb__resume_point__get_packed_size(newest) > sizeof(bytes))
        return;
    struct files_batch *batch = files_batch_create();
    SCOPED_TEXT char *path = mem_printf("%s/newest", worker->dir);
    (void)files_write(batch, path, bytes, pb__resume_point__pack(newest, bytes), 0600);
    files_run(worker->agent->files, batch, NULL, NULL); /* lost: an older one is as good */
}

/* Nothing of it is left but `leaving`: forgotten. */
static void settle(struct gangs *gangs, struct gang *gang, const struct worker *leaving)
{
    size_t at = 0;
    const struct worker *worker;
    char name[GANG_NAME_CAP];
    if (gang->busy)
        return;
    while ((worker = map_next(gangs->agent->workers, &at))) {
        gang_name(worker->desired->key, name);
        if (worker != leaving && !strcmp(name, gang->name))
            return;
    }
    gang_remove_file(gangs, gang->name);
    gang_destroy(gangs, gang);
}

/* --- how a gang is */

/* Failures of the program itself. What needs another node, other devices or another checkpoint is
 * the leader's to decide. */
static bool may_follow(Pb__Reason__Code class)
{
    switch ((int)class) {
    case PB__REASON__CODE__USER_ERROR:
    case PB__REASON__CODE__OUT_OF_MEMORY:
    case PB__REASON__CODE__COLLECTIVE_TIMEOUT:
    case PB__REASON__CODE__HANG:
    case PB__REASON__CODE__WORKER_SIGNALLED:
        return true;
    default:
        return false;
    }
}

bool gang_has(const Pb__WorkerKey *key, const struct worker *worker)
{
    const Pb__WorkerKey *its = worker->desired->key;
    return its->job == key->job && its->attempt == key->attempt &&
           its->incarnation == key->incarnation;
}

static void look_at_end(struct gang_look *look, const struct worker *worker)
{
    Pb__ActualWorker said;
    actual_describe(worker, &said);
    if (worker->ended_us > look->last_end_us)
        look->last_end_us = worker->ended_us;
    if (!said.has_class_ || worker->cause == EXIT_CAUSE_PEER)
        return;
    look->barred |= !may_follow(said.class_);
    if (look->first && said.fail_us >= look->failure.fail_us)
        return;
    look->first = worker;
    look->failure = said;
}

static struct gang_look look_at(const struct agent *agent, const Pb__WorkerKey *key)
{
    struct gang_look look = {0};
    size_t at = 0;
    const struct worker *worker;
    while ((worker = map_next(agent->workers, &at))) {
        if (!gang_has(key, worker))
            continue;
        look.count++;
        look.barred |= worker->want != WORKER_WANT_RUN || !worker->desired->launch ||
                       worker->leaving || worker->cause == EXIT_CAUSE_STOP ||
                       worker->cause == EXIT_CAUSE_KILL ||
                       worker->state == PB__ACTUAL_WORKER__STATE__LOST;
        if (worker->state == PB__ACTUAL_WORKER__STATE__EXITED)
            look_at_end(&look, worker);
        else
            look.alive++;
    }
    return look;
}

static const Pb__Allowance *allowance_of(const struct worker *worker)
{
    const Pb__Launch *launch = worker->desired->launch;
    const Pb__Allowance *allowance = launch && launch->whole_gang_here ? launch->allowance : NULL;
    return allowance && worker->desired->key->incarnation < allowance->incarnation_max ? allowance
                                                                                       : NULL;
}

static bool no_leader(const struct agent *agent)
{
    return link_leaderless_us(agent->link) * LEASE_SHARE >=
           (int64_t)link_lease_ms(agent->link) * 1000;
}

/* May the whole of it, as it is now, be started again? */
static bool may_go_on(const struct agent *agent, const struct gang_look *look)
{
    return look->first && !look->barred && allowance_of(look->first) &&
           look->count == look->first->desired->launch->global_world && no_leader(agent);
}

/* --- when */

/* No earlier than the back-off allows; and a leader that comes back soon can commit the saves that
 * wait for it, so it is given as long as that work took. */
static int64_t not_before(const struct agent *agent, const struct gang_look *look)
{
    const Pb__Allowance *allowance = look->first->desired->launch->allowance;
    const Pb__WorkerKey *key = look->first->desired->key;
    int64_t wait = (int64_t)backoff_ms(allowance->backoff_ms, allowance->backoff_ms_max,
                                       allowance->failures + key->incarnation) *
                   1000;
    int64_t since = saves_waiting_since(agent->saves, key);
    if (since && look->last_end_us - since > wait)
        wait = look->last_end_us - since;
    return look->last_end_us + wait;
}

/* --- the change: nothing of the gang is alive */

void gang_supersede(const struct gangs *gangs, const struct gang *gang)
{
    const Pb__WorkerKey *key = gang->file->workers[0]->key;
    size_t at = 0;
    struct worker *worker;
    while ((worker = map_next(gangs->agent->workers, &at))) {
        const Pb__WorkerKey *its = worker->desired->key;
        if (its->job != key->job || its->attempt != key->attempt ||
            its->incarnation >= gang->file->incarnation)
            continue;
        worker->want = WORKER_WANT_NOTHING;
        worker_apply_want(worker);
    }
}

void gang_make_workers(const struct gangs *gangs, const struct gang *gang)
{
    const Pb__GangFile *file = gang->file;
    char tag[SPOOL_TAG_MAX];
    for (size_t i = 0; i < file->n_workers; i++)
        if (worker_tag(file->workers[i]->key, tag) && !worker_find(gangs->agent, tag))
            (void)worker_create(gangs->agent, tag, file->workers[i], 0);
    for (size_t i = 0; i < file->n_workers; i++) { /* rank 0 of each role is known by now */
        struct worker *worker =
            worker_tag(file->workers[i]->key, tag) ? worker_find(gangs->agent, tag) : NULL;
        if (worker)
            worker_apply_want(worker);
    }
}

struct change {
    struct gangs *gangs;
    char name[GANG_NAME_CAP];
};

static struct change *change_create(struct gangs *gangs, struct gang *gang)
{
    struct change *change = PENDING(&gangs->agent->pending, struct change);
    change->gangs = gangs;
    memcpy(change->name, gang->name, sizeof(change->name));
    gang->busy = true;
    return change;
}

/* NULL: it has left meanwhile. */
static struct gang *change_take(struct change *change)
{
    struct gang *gang = map_get_text(change->gangs->all, change->name);
    pending_destroy(change);
    if (gang)
        gang->busy = false;
    return gang;
}

static void go_on(struct gangs *gangs, struct gang *gang)
{
    if (gang->file)
        pb__gang_file__free_unpacked(gang->file, NULL);
    gang->file = gang->next;
    gang->next = NULL;
    gang->told_seq = 0;
    const Pb__RestartInPlace *why = gang->file->restarts[gang->file->n_restarts - 1];
    log_warn("gang.restart", log_str("gang", gang->name),
             log_int("incarnation", gang->file->incarnation),
             log_int("checkpoint", why->resume_checkpoint), log_str("role", why->role),
             log_int("rank", why->rank),
             log_str("class", enum_name(&pb__reason__code__descriptor, (int)why->class_)));
    gang_supersede(gangs, gang);
    gang_make_workers(gangs, gang);
}

static void gang_taken_back(void *arg, enum status st, const struct error *err,
                            struct files_batch *batch)
{
    (void)batch;
    struct change *change = arg;
    struct gangs *gangs = change->gangs;
    struct gang *gang = change_take(change);
    if (st != STATUS_OK)
        log_error("gang.take_back", log_err(err));
    if (gang)
        settle(gangs, gang, NULL);
}

/* The file tells of an incarnation that shall not be: back to what was. */
static void take_back(struct gangs *gangs, struct gang *gang)
{
    log_info("gang.leader", log_str("gang", gang->name));
    write_file(gangs, gang->name, gang->file, gang_taken_back, change_create(gangs, gang));
}

/* A leader may have come back while the disk was busy. */
static void gang_written(void *arg, enum status st, const struct error *err,
                         struct files_batch *batch)
{
    struct change *change = arg;
    struct gangs *gangs = change->gangs;
    struct gang *gang = change_take(change);
    (void)batch;
    if (!gang)
        return;
    Pb__WorkerKey key = *gang->next->workers[0]->key;
    key.incarnation--;
    struct gang_look look = look_at(gangs->agent, &key);
    if (st == STATUS_OK && look.alive == 0 && may_go_on(gangs->agent, &look)) {
        go_on(gangs, gang);
        return;
    }
    pb__gang_file__free_unpacked(gang->next, NULL);
    gang->next = NULL;
    if (st == STATUS_OK) {
        take_back(gangs, gang);
    } else {
        log_error("gang.write", log_str("gang", gang->name), log_err(err));
        gang->retry_us = loop_now_us(gangs->agent->loop) + WRITE_RETRY_US;
        settle(gangs, gang, NULL);
    }
}

static void begin_change(struct gangs *gangs, const struct gang_look *look)
{
    char name[GANG_NAME_CAP];
    gang_name(look->first->desired->key, name);
    struct gang *gang = gang_obtain(gangs, name);
    if (!gang || gang->busy || loop_now_us(gangs->agent->loop) < gang->retry_us)
        return;
    gang->next = gang_next_file(gangs->agent, gang->file, look);
    write_file(gangs, name, gang->next, gang_written, change_create(gangs, gang));
}

/* The others of a gang in which one has failed end too. */
static void stop_rest(const struct agent *agent, const struct worker *failed)
{
    const Pb__WorkerKey *key = failed->desired->key;
    char text[MESSAGE_SHOWN];
    size_t at = 0;
    struct worker *worker;
    (void)snprintf(text, sizeof(text), "%.100s rank %u has failed and no leader answers", key->role,
                   key->rank);
    while ((worker = map_next(agent->workers, &at))) {
        if (!gang_has(key, worker) || worker_is_final(worker) ||
            worker->state == PB__ACTUAL_WORKER__STATE__STOPPING ||
            worker->state == PB__ACTUAL_WORKER__STATE__UNKILLABLE)
            continue;
        worker->desired->has_grace_ms = true;
        worker->desired->grace_ms = PEER_GRACE_MS;
        worker_blame(worker, EXIT_CAUSE_PEER, text);
        worker_event(worker, WORKER_EV_STOP);
    }
}

void gangs_tick(struct gangs *gangs)
{
    struct agent *agent = gangs->agent;
    size_t at = 0;
    const struct worker *worker;
    if (!no_leader(agent))
        return;
    while ((worker = map_next(agent->workers, &at))) {
        if (worker->state != PB__ACTUAL_WORKER__STATE__EXITED || worker->want != WORKER_WANT_RUN ||
            !allowance_of(worker))
            continue;
        struct gang_look look = look_at(agent, worker->desired->key);
        if (worker != look.first || !may_go_on(agent, &look))
            continue;
        if (look.alive)
            stop_rest(agent, worker);
        else if (loop_now_us(agent->loop) >= not_before(agent, &look))
            begin_change(gangs, &look);
    }
}

void gangs_left(struct gangs *gangs, const struct worker *worker)
{
    struct gang *gang = gang_find(gangs, worker->desired->key);
    if (gang)
        settle(gangs, gang, worker);
}
