/* gang_next.c - the next incarnation of a gang, as it will be written and started. See gang.h. */
#include "agent/gang_inner.h"
#include "proto/text/text_format.h"
#include <inttypes.h>

static void set_text(char **place, const char *text)
{
    mem_free(*place);
    *place = text ? mem_strdup(text) : NULL;
}

static Pb__DesiredWorker *next_worker(const struct worker *worker, const Pb__ResumePoint *newest)
{
    Pb__DesiredWorker *next = (Pb__DesiredWorker *)message_copy(&worker->desired->base);
    Pb__Launch *launch = next->launch;
    next->key->has_incarnation = true;
    next->key->incarnation++;
    next->has_want = true;
    next->want = PB__DESIRED_WORKER__WANT__RUN;
    next->has_grace_ms = false;
    set_text(&next->why, NULL);
    if (next->gate)
        pb__gate__free_unpacked(next->gate, NULL);
    next->gate = NULL;
    launch->has_restarts = true;
    launch->restarts++;
    mem_free(launch->run_id);
    launch->run_id = mem_printf("rondo-%" PRId64 ".%u.%u", next->key->job, next->key->attempt,
                                next->key->incarnation);
    if (!newest)
        return next;
    if (launch->resume)
        pb__resume_point__free_unpacked(launch->resume, NULL);
    launch->resume = (Pb__ResumePoint *)message_copy(&newest->base);
    return next;
}

static const Pb__ResumePoint *newest_known(const struct agent *agent, const Pb__WorkerKey *key)
{
    size_t at = 0;
    const struct worker *worker;
    while ((worker = map_next(agent->workers, &at)))
        if (gang_has(key, worker) && worker->desired->launch->global_rank == 0)
            return worker->desired->newest;
    return NULL;
}

static Pb__RestartInPlace *describe_restart(const struct gang_look *look,
                                            const Pb__ResumePoint *resume)
{
    const Pb__WorkerKey *key = look->first->desired->key;
    Pb__RestartInPlace *out = NEW(Pb__RestartInPlace);
    pb__restart_in_place__init(out);
    out->has_incarnation = out->has_rank = out->has_class_ = out->has_resume_checkpoint = true;
    out->incarnation = key->incarnation;
    out->role = mem_strdup(key->role);
    out->rank = key->rank;
    out->has_exit_code = look->failure.has_exit_code;
    out->exit_code = look->failure.exit_code;
    out->has_signal = look->failure.has_signal;
    out->signal = look->failure.signal;
    out->class_ = look->failure.class_;
    out->message = look->failure.message ? mem_strdup(look->failure.message) : NULL;
    out->traceback = look->failure.traceback ? mem_strdup(look->failure.traceback) : NULL;
    out->resume_checkpoint = resume ? resume->checkpoint : 0;
    return out;
}

static void add_restarts(Pb__GangFile *out, const Pb__GangFile *before,
                         const struct gang_look *look)
{
    size_t count = before ? before->n_restarts : 0;
    out->restarts = mem_array(count + 1, sizeof(*out->restarts));
    for (size_t i = 0; i < count; i++) {
        out->restarts[i] = (Pb__RestartInPlace *)message_copy(&before->restarts[i]->base);
        set_text(&out->restarts[i]->traceback, NULL);
    }
    out->restarts[count] = describe_restart(look, out->workers[0]->launch->resume);
    out->n_restarts = count + 1;
}

Pb__GangFile *gang_next_file(const struct agent *agent, const Pb__GangFile *before,
                             const struct gang_look *look)
{
    const Pb__WorkerKey *key = look->first->desired->key;
    const Pb__ResumePoint *newest = newest_known(agent, key);
    Pb__GangFile *out = NEW(Pb__GangFile);
    size_t at = 0;
    const struct worker *worker;
    pb__gang_file__init(out);
    out->has_incarnation = true;
    out->incarnation = key->incarnation + 1;
    out->workers = mem_array(look->count, sizeof(*out->workers));
    while ((worker = map_next(agent->workers, &at)))
        if (gang_has(key, worker))
            out->workers[out->n_workers++] = next_worker(worker, newest);
    add_restarts(out, before, look);
    return out;
}
