/* reader.c - the questions of reader.h by their descriptors, and those with short answers. */
#include "base/mem.h"
#include "daemon/reader_question.h"
#include "proto/text/text_format.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define READER_ARENA_BYTES  ((size_t)64 << 20)
#define READER_REPLY_BYTES  ((size_t)7 << 20) /* clients take messages of 8 MiB */
#define READER_IN_STORE_MAX 256
#define READER_EVENTS_MAX   5000
#define READER_EVENTS_CHUNK 256
#define READER_CHECKPOINTS  5000

struct reader {
    struct reader_options options;
    int64_t started_us;
    struct list asked;        /* since the last turn */
    struct list questions;    /* those after them */
    struct loop_timer *timer; /* reader_run */
    uint32_t in_store;
    bool closed;
};

static void reader_run(void *arg);

struct reader *reader_create(const struct reader_options *options)
{
    struct reader *reader = NEW(struct reader);

    reader->options = *options;
    reader->started_us = loop_now_us(options->loop);
    list_init(&reader->asked);
    list_init(&reader->questions);
    reader->timer = loop_timer_create(options->loop, reader_run, reader);
    return reader;
}

static void reader_cancel(struct list *questions)
{
    LIST_EACH(questions, item)
    reader_question_fail(LIST_ITEM(item, struct reader_question, node), STATUS_CANCELLED,
                         "the daemon is stopping");
}

void reader_destroy(struct reader *reader)
{
    if (!reader)
        return;
    loop_timer_destroy(reader->timer);
    reader_cancel(&reader->asked);
    reader_cancel(&reader->questions);
    mem_free(reader);
}

void reader_shut(struct reader *reader)
{
    reader->closed = true;
}

void reader_limits(const struct reader *reader, struct view_limits *out)
{
    out->now_us = loop_now_us(reader->options.loop);
    out->started_us = reader->started_us;
    out->pass_ms_max = (int64_t)reader->options.pass_ms_max;
}

const struct core *reader_core(const struct reader *reader)
{
    return reader->options.core;
}

const struct identity *reader_question_who(const struct reader_question *q)
{
    return q->known ? &q->who : NULL;
}

/* --- a question's life */

void reader_question_end(struct reader_question *q, enum status st, const struct error *err,
                         const ProtobufCMessage *reply)
{
    struct error large;

    if (st == STATUS_OK && protobuf_c_message_get_packed_size(reply) > READER_REPLY_BYTES) {
        st = error_set(&large, STATUS_EXHAUSTED,
                       "the answer is larger than one message: ask for "
                       "less (limit, points_max, after_step)");
        err = &large;
        reply = NULL;
    }
    q->done(q->arg, st, err, st == STATUS_OK ? reply : NULL);
    list_remove(&q->node);
    protobuf_c_message_free_unpacked(q->request, NULL);
    if (q->kept)
        protobuf_c_message_free_unpacked(q->kept, NULL);
    arena_destroy(q->arena);
    mem_free(q);
}

void reader_question_fail(struct reader_question *q, enum status st, const char *fmt, ...)
{
    struct error err;
    va_list args;

    err.code = st;
    va_start(args, fmt);
    vsnprintf(err.text, sizeof(err.text), fmt, args);
    va_end(args);
    reader_question_end(q, st, &err, NULL);
}

static void reader_question_stored(void *arg, enum status st, const struct error *err,
                                   ProtobufCMessage *reply_take)
{
    struct reader_question *q = arg;

    q->reader->in_store--;
    q->kept = reply_take;
    if (q->reader->closed)
        reader_question_fail(q, STATUS_UNAVAILABLE, "the daemon is stopping");
    else
        q->stored(q, st, err, reply_take);
}

void reader_question_store(struct reader_question *q, const ProtobufCMessage *request,
                           void (*stored)(struct reader_question *q, enum status st,
                                          const struct error *err, ProtobufCMessage *reply))
{
    struct store *store = q->reader->options.store;
    struct error err;

    if (q->reader->in_store >= READER_IN_STORE_MAX) {
        error_set(&err, STATUS_UNAVAILABLE, "too many questions wait for the database: try again");
        stored(q, STATUS_UNAVAILABLE, &err, NULL);
        return;
    }
    q->reader->in_store++;
    q->stored = stored;
    store->ops->query(store, request, reader_question_stored, q);
}

/* The store's answer is the answer. */
static void reader_pass_on(struct reader_question *q, enum status st, const struct error *err,
                           ProtobufCMessage *reply)
{
    reader_question_end(q, st, err, reply);
}

/* --- events */

static bool reader_event_matches(const Pb__ListEventsRequest *request, const Pb__Event *event)
{
    if (request->job > 0 && event->job != request->job)
        return false;
    return !request->node || !*request->node ||
           (event->node && strcmp(event->node, request->node) == 0);
}

/* The last `limit` of the events that matched, oldest first when unrolled. */
struct reader_events {
    Pb__Event **ring;
    size_t count, limit; /* count: of all that were put */
};

static void reader_events_reply(const struct reader_events *kept, struct arena *arena,
                                Pb__ListEventsReply *reply)
{
    reply->n_events = kept->count < kept->limit ? kept->count : kept->limit;
    reply->events = arena_alloc(arena, (reply->n_events + 1) * sizeof(*reply->events));
    for (size_t i = 0; i < reply->n_events; i++)
        reply->events[i] = kept->ring[(kept->count - reply->n_events + i) % kept->limit];
}

/* Without a place to begin behind, the newest are wanted. */
static void reader_list_events(struct reader_question *q)
{
    const Pb__ListEventsRequest *request = (const Pb__ListEventsRequest *)(void *)q->request;
    Pb__ListEventsReply reply = PB__LIST_EVENTS_REPLY__INIT;
    const Pb__Event *chunk[READER_EVENTS_CHUNK];
    int64_t after = request->after_seq > 0 ? request->after_seq : 0, oldest = 0;
    uint32_t limit = request->limit;

    if (limit == 0 || limit > READER_EVENTS_MAX) {
        reader_question_fail(q, STATUS_INVALID, "limit is 1 to %d", READER_EVENTS_MAX);
        return;
    }
    size_t got = core_events(q->reader->options.core, after, chunk, COUNT_OF(chunk), &oldest);
    if (oldest > after + 1) {
        reader_question_store(q, q->request, reader_pass_on);
        return;
    }
    struct reader_events kept = {.ring = arena_alloc(q->arena, limit * sizeof(*kept.ring)),
                                 .limit = limit};
    while (got > 0 && (kept.count < limit || !request->has_after_seq)) {
        for (size_t i = 0; i < got && (kept.count < limit || !request->has_after_seq); i++)
            if (reader_event_matches(request, chunk[i]))
                kept.ring[kept.count++ % limit] = (Pb__Event *)chunk[i];
        after = chunk[got - 1]->seq;
        got = core_events(q->reader->options.core, after, chunk, COUNT_OF(chunk), &oldest);
    }
    reader_events_reply(&kept, q->arena, &reply);
    reader_question_end(q, STATUS_OK, NULL, &reply.base);
}

/* --- checkpoints */

static void reader_list_checkpoints_stored(struct reader_question *q, enum status st,
                                           const struct error *err, ProtobufCMessage *stored)
{
    const Pb__ListCheckpointsRequest *request =
        (const Pb__ListCheckpointsRequest *)(void *)q->request;
    const Pb__ShowJobReply *show = (const Pb__ShowJobReply *)(void *)stored;
    Pb__ListCheckpointsReply reply = PB__LIST_CHECKPOINTS_REPLY__INIT;

    if (st != STATUS_OK) {
        reader_question_end(q, st, err, NULL);
        return;
    }
    reply.checkpoints = show->checkpoints;
    reply.n_checkpoints =
        show->n_checkpoints < request->limit ? show->n_checkpoints : request->limit;
    reader_question_end(q, STATUS_OK, NULL, &reply.base);
}

static void reader_list_checkpoints(struct reader_question *q)
{
    const struct core *core = q->reader->options.core;
    const Pb__ListCheckpointsRequest *request =
        (const Pb__ListCheckpointsRequest *)(void *)q->request;
    Pb__ListCheckpointsReply reply = PB__LIST_CHECKPOINTS_REPLY__INIT;

    if (request->job <= 0 || request->limit == 0 || request->limit > READER_CHECKPOINTS) {
        reader_question_fail(q, STATUS_INVALID, "job is needed, and limit is 1 to %d",
                             READER_CHECKPOINTS);
        return;
    }
    if (!core_job(core, request->job)) {
        Pb__ShowJobRequest show = PB__SHOW_JOB_REQUEST__INIT;
        show.has_job = true;
        show.job = request->job;
        reader_question_store(q, &show.base, reader_list_checkpoints_stored);
        return;
    }
    const Pb__Checkpoint **rows = arena_alloc(q->arena, request->limit * sizeof(*rows));
    size_t count = core_checkpoints(core, request->job, rows, request->limit);
    reply.checkpoints = (Pb__Checkpoint **)(void *)rows;
    reply.n_checkpoints = count < request->limit ? count : request->limit;
    reader_question_end(q, STATUS_OK, NULL, &reply.base);
}

/* --- the rest */

static void reader_metrics(struct reader_question *q)
{
    const Pb__MetricsRequest *request = (const Pb__MetricsRequest *)(void *)q->request;

    if (request->job <= 0 || request->n_names > 1000) {
        reader_question_fail(q, STATUS_INVALID, "job is needed, and at most 1,000 names");
        return;
    }
    reader_question_store(q, q->request, reader_pass_on);
}

static void reader_have_code(struct reader_question *q)
{
    const Pb__HaveCodeRequest *request = (const Pb__HaveCodeRequest *)(void *)q->request;

    if (!request->digest || strlen(request->digest) != 64) {
        reader_question_fail(q, STATUS_INVALID, "digest: SHA-256 in hex is needed");
        return;
    }
    reader_question_store(q, q->request, reader_pass_on);
}

static void reader_code_use(struct reader_question *q)
{
    reader_question_store(q, q->request, reader_pass_on);
}

static void reader_list_nodes(struct reader_question *q)
{
    Pb__ListNodesReply reply = PB__LIST_NODES_REPLY__INIT;

    view_nodes(q->arena, q->reader->options.core, &reply);
    reader_question_end(q, STATUS_OK, NULL, &reply.base);
}

static void reader_status(struct reader_question *q)
{
    Pb__StatusReply reply = PB__STATUS_REPLY__INIT;
    struct view_limits limits;

    reader_limits(q->reader, &limits);
    view_status(q->arena, q->reader->options.core, &limits, &reply);
    reader_question_end(q, STATUS_OK, NULL, &reply.base);
}

static const struct reader_kind {
    const ProtobufCMessageDescriptor *type;
    void (*answer)(struct reader_question *q);
} reader_kinds[] = {
    {&pb__list_jobs_request__descriptor, reader_jobs_list},
    {&pb__show_job_request__descriptor, reader_show_job},
    {&pb__list_events_request__descriptor, reader_list_events},
    {&pb__list_checkpoints_request__descriptor, reader_list_checkpoints},
    {&pb__show_checkpoint_request__descriptor, reader_checkpoint_show},
    {&pb__plan_retention_request__descriptor, reader_checkpoint_retention},
    {&pb__list_nodes_request__descriptor, reader_list_nodes},
    {&pb__metrics_request__descriptor, reader_metrics},
    {&pb__have_code_request__descriptor, reader_have_code},
    {&pb__code_use__descriptor, reader_code_use},
    {&pb__status_request__descriptor, reader_status},
};

static void reader_answer(struct reader_question *q)
{
    if (q->reader->closed) {
        reader_question_fail(q, STATUS_UNAVAILABLE, "the daemon is stopping");
        return;
    }
    for (size_t i = 0; i < COUNT_OF(reader_kinds); i++)
        if (reader_kinds[i].type == q->request->descriptor) {
            reader_kinds[i].answer(q);
            return;
        }
    reader_question_fail(q, STATUS_UNIMPLEMENTED, "no such question: %s",
                         q->request->descriptor->name);
}

/* What is asked while this answers comes in the next turn. */
static void reader_run(void *arg)
{
    struct reader *reader = arg;
    struct list asked;

    list_init(&asked);
    for (struct list *item; (item = list_take_first(&reader->asked));)
        list_add_last(&asked, item);
    for (struct list *item; (item = list_take_first(&asked));) {
        list_add_last(&reader->questions, item);
        reader_answer(LIST_ITEM(item, struct reader_question, node));
    }
}

void reader_ask(struct reader *reader, const struct identity *who, const ProtobufCMessage *request,
                reader_done done, void *arg)
{
    struct reader_question *q = NEW(struct reader_question);

    q->reader = reader;
    q->known = who != NULL;
    if (who)
        q->who = *who;
    q->request = message_copy(request);
    q->arena = arena_create(READER_ARENA_BYTES);
    q->done = done;
    q->arg = arg;
    list_add_last(&reader->asked, &q->node);
    loop_timer_set(reader->timer, 0);
}
