/* desired.c - see desired.h. */
#include "agent/desired.h"
#include "agent/actual.h"
#include "agent/save.h"
#include "agent/worker.h"
#include "base/log.h"
#include "proto/text/text_format.h"
#include <string.h>

#define WORKERS_MAX 8192u

/* The newest word; what was sent once per connection and is left out now is kept. */
static void take_word(struct worker *worker, const Pb__DesiredWorker *said)
{
    Pb__DesiredWorker *fresh = (Pb__DesiredWorker *)message_copy(&said->base);
    Pb__DesiredWorker *old = worker->desired;
    if (!fresh->launch && old) {
        fresh->launch = old->launch;
        old->launch = NULL;
    }
    fresh->key->has_incarnation = true;
    if (fresh->key->incarnation == 0)
        fresh->key->incarnation = 1;
    worker->desired = fresh;
    if (old)
        pb__desired_worker__free_unpacked(old, NULL);
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

static void apply_unmentioned(struct agent *agent)
{
    size_t at = 0;
    struct worker *worker;
    while ((worker = map_next(agent->workers, &at))) {
        if (worker->mentioned)
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
    if (!worker_tag(said->key, tag)) {
        log_error("desired.key", log_int("job", said->key ? said->key->job : 0));
        return;
    }
    struct worker *worker = worker_find(agent, tag);
    if (worker && worker->leaving)
        return; /* it has ended; when it is away the daemon's wish is met anew */
    if (!worker) {
        if (map_count(agent->workers) >= WORKERS_MAX)
            return;
        worker = worker_create(agent, tag, said, 0);
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
    apply_unmentioned(agent);
    for (size_t i = 0; i < desired->n_workers; i++) { /* rank 0 of each gang is known by now */
        char tag[SPOOL_TAG_MAX];
        struct worker *worker =
            worker_tag(desired->workers[i]->key, tag) ? worker_find(agent, tag) : NULL;
        if (worker)
            worker_apply_want(worker);
    }
    saves_desired(agent->saves, desired);
}
