/* reader_show.c - one job with all that belongs to it. */
#include "daemon/reader_question.h"

#define READER_SHOW_ATTEMPTS    1000
#define READER_SHOW_CHECKPOINTS 500
#define READER_SHOW_EVENTS      50
#define READER_SHOW_CHUNK       256

/* The newest events of the job that memory keeps, oldest first, in a ring of READER_SHOW_EVENTS.
 * Tells whether memory goes back to before the job. */
static bool reader_show_events(struct reader_question *q, const Pb__Job *job,
                               Pb__ShowJobReply *reply)
{
    const Pb__Event *chunk[READER_SHOW_CHUNK], *ring[READER_SHOW_EVENTS];
    int64_t after = 0, oldest = 0;
    size_t count = 0, got;
    bool complete = false, first = true;

    while ((got = core_events(reader_core(q->reader), after, chunk, COUNT_OF(chunk), &oldest)) >
           0) {
        if (first)
            complete = oldest <= 1 || chunk[0]->at_us < job->submitted_us;
        first = false;
        for (size_t i = 0; i < got; i++)
            if (chunk[i]->job == job->id)
                ring[count++ % READER_SHOW_EVENTS] = chunk[i];
        after = chunk[got - 1]->seq;
    }
    size_t kept = count < READER_SHOW_EVENTS ? count : READER_SHOW_EVENTS;
    reply->events = arena_alloc(q->arena, (kept + 1) * sizeof(*reply->events));
    for (size_t i = 0; i < kept; i++)
        reply->events[i] = (Pb__Event *)ring[(count - kept + i) % READER_SHOW_EVENTS];
    reply->n_events = kept;
    return complete || count >= READER_SHOW_EVENTS;
}

static void reader_show_rows(struct reader_question *q, const Pb__Job *job, Pb__ShowJobReply *reply)
{
    const struct core *core = reader_core(q->reader);
    const Pb__Attempt **attempts = arena_alloc(q->arena, READER_SHOW_ATTEMPTS * sizeof(*attempts));
    const Pb__Checkpoint **checkpoints =
        arena_alloc(q->arena, READER_SHOW_CHECKPOINTS * sizeof(*checkpoints));
    size_t count = core_attempts(core, job->id, attempts, READER_SHOW_ATTEMPTS);
    const Pb__Attempt *current = job->attempt ? core_attempt(core, job->id, job->attempt) : NULL;

    reply->attempts = (Pb__Attempt **)(void *)attempts;
    reply->n_attempts = count < READER_SHOW_ATTEMPTS ? count : READER_SHOW_ATTEMPTS;
    count = core_checkpoints(core, job->id, checkpoints, READER_SHOW_CHECKPOINTS);
    reply->checkpoints = (Pb__Checkpoint **)(void *)checkpoints;
    reply->n_checkpoints = count < READER_SHOW_CHECKPOINTS ? count : READER_SHOW_CHECKPOINTS;
    if (current)
        view_workers(q->arena, core, current, reply);
}

/* Memory's rows are newer than the store's, so from the store only events come then. */
static void reader_show_stored(struct reader_question *q, enum status st, const struct error *err,
                               ProtobufCMessage *stored)
{
    const Pb__ShowJobRequest *request = (const Pb__ShowJobRequest *)(void *)q->request;
    const struct core *core = reader_core(q->reader);
    const Pb__Job *row = core_job(core, request->job);
    const Pb__ShowJobReply *from_store = (const Pb__ShowJobReply *)(void *)stored;
    Pb__ShowJobReply reply = PB__SHOW_JOB_REPLY__INIT;

    if (st != STATUS_OK && !row) {
        reader_question_end(q, st, err, NULL);
        return;
    }
    if (row) {
        reader_show_rows(q, row, &reply);
        reader_show_events(q, row, &reply);
        if (st == STATUS_OK) {
            reply.events = from_store->events;
            reply.n_events = from_store->n_events;
        }
    } else {
        reply = *from_store;
        row = from_store->job;
    }
    if (!row) {
        reader_question_fail(q, STATUS_NOT_FOUND, "no job %lld", (long long)request->job);
        return;
    }
    reply.job = view_job(q->arena, reader_core(q->reader), reader_question_who(q), row, false);
    reader_question_end(q, STATUS_OK, NULL, &reply.base);
}

void reader_show_job(struct reader_question *q)
{
    const Pb__ShowJobRequest *request = (const Pb__ShowJobRequest *)(void *)q->request;
    const Pb__Job *row = core_job(reader_core(q->reader), request->job);
    Pb__ShowJobReply reply = PB__SHOW_JOB_REPLY__INIT;

    if (request->job <= 0) {
        reader_question_fail(q, STATUS_INVALID, "job is a number above 0");
        return;
    }
    if (!row || !reader_show_events(q, row, &reply)) {
        reader_question_store(q, q->request, reader_show_stored);
        return;
    }
    reader_show_rows(q, row, &reply);
    reply.job = view_job(q->arena, reader_core(q->reader), reader_question_who(q), row, false);
    reader_question_end(q, STATUS_OK, NULL, &reply.base);
}
