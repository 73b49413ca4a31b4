/* desired.c - see desired.h. */
#include "agent/desired.h"
#include "agent/actual.h"
#include "agent/gang.h"
#include "agent/save.h"
#include "agent/worker.h"
#include "base/log.h"
#include "proto/text/text_format.h"
#include <string.h>

#define WORKERS_MAX 8192u

/* The newest word; what was sent once per connection and is left out now is kept. So is the launch
 * of a later incarnation, which is this agent's own. */
static void take_word(struct worker *worker, const Pb__DesiredWorker *said)
{
    Pb__DesiredWorker *fresh = (Pb__DesiredWorker *)message_copy(&said->base);
    Pb__DesiredWorker *old = worker->desired;
    bool own = old->launch && old->key->incarnation > 1;
    if (!fresh->launch || own) {
        Pb__Launch *other = fresh->launch;
        fresh->launch = old->launch;
        old->launch = other;
    }
    fresh->key->has_incarnation = true;
    fresh->key->incarnation = old->key->incarnation;
    worker->desired = fresh;
    gangs_newest(worker, old->newest);
    pb__desired_worker__free_unpacked(old, NULL);
}

/* The daemon names attempts; which incarnation of one lives here is this agent's knowledge. */
static struct worker *find(struct agent *agent, const Pb__DesiredWorker *said, Pb__WorkerKey *key,
                           char tag[SPOOL_TAG_MAX])
{
    *key = said->key ? *said->key : (Pb__WorkerKey)PB__WORKER_KEY__INIT;
    if (key->incarnation == 0)
        key->incarnation = gangs_incarnation(agent->gangs, key);
    key->has_incarnation = true;
    return worker_tag(key, tag) ? worker_find(agent, tag) : NULL;
}

static enum worker_want want_of(const Pb__DesiredWorker *said)
{
    switch (said->want) {
    case PB__DESIRED_WORKER__WANT__STOP:
        return WORKER_WANT_STOP;
    case PB__DESIRED_WORKER__WANT__KILL:
        return WORKER_WANT_KILL;
    default:
        return WORKER_WANT_RUN;
    }
}

static void mark_all(struct agent *agent)
{
    size_t at = 0;
    struct worker *worker;
    while ((worker = map_next(agent->workers, &at)))
        worker->mentioned = false;
}

static void apply_unmentioned(struct agent *agent, uint64_t heard_seq)
{
    size_t at = 0;
    struct worker *worker;
    while ((worker = map_next(agent->workers, &at))) {
        if (worker->mentioned || gangs_untold(agent->gangs, worker, heard_seq))
            continue;
        if (worker->want != WORKER_WANT_NOTHING)
            log_info("worker.unwanted", log_str("worker", worker->tag));
        worker->want = WORKER_WANT_NOTHING;
        worker_apply_want(worker);
    }
}

static void apply_one(struct agent *agent, const Pb__DesiredWorker *said)
{
    char tag[SPOOL_TAG_MAX];
    Pb__WorkerKey key;
    struct worker *worker = find(agent, said, &key, tag);
    if (!worker && !worker_tag(&key, tag)) {
        log_error("desired.key", log_int("job", key.job));
        return;
    }
    if (worker && worker->leaving)
        return; /* it has ended; when it is away the daemon's wish is met anew */
    if (!worker) {
        if (map_count(agent->workers) >= WORKERS_MAX)
            return;
        Pb__DesiredWorker wish = *said;
        wish.key = &key;
        worker = worker_create(agent, tag, &wish, 0);
    } else {
        take_word(worker, said);
    }
    worker->mentioned = true;
    worker->want = want_of(said);
    worker_apply_gate(worker);
}

void desired_apply(struct agent *agent, const Pb__Desired *desired)
{
    if (agent->revision != desired->revision)
        log_debug("desired.revision", log_int("revision", (int64_t)desired->revision));
    agent->revision = desired->revision;
    mark_all(agent);
    for (size_t i = 0; i < desired->n_workers; i++)
        apply_one(agent, desired->workers[i]);
    apply_unmentioned(agent, desired->heard_seq);
    for (size_t i = 0; i < desired->n_workers; i++) { /* rank 0 of each gang is known by now */
        char tag[SPOOL_TAG_MAX];
        Pb__WorkerKey key;
        struct worker *worker = find(agent, desired->workers[i], &key, tag);
        if (worker)
            worker_apply_want(worker);
    }
    saves_desired(agent->saves, desired);
}
