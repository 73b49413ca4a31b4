/* fake_store_query.c - history from the fake store's rows. Replies are built from borrowed rows and
 * copied at the end. */
#include "tests/support/fake_store_query.h"
#include "base/mem.h"
#include "proto/text/text_format.h"
#include <stdlib.h>
#include <string.h>

static void *fake_list(const struct store *store, enum change_kind kind)
{
    return mem_array(fake_store_count(store, kind) + 1, sizeof(void *));
}

static enum status fake_list_events(const struct store *store, const ProtobufCMessage *message,
                                    ProtobufCMessage **out)
{
    const Pb__ListEventsRequest *request = (const Pb__ListEventsRequest *)(const void *)message;
    Pb__ListEventsReply reply = PB__LIST_EVENTS_REPLY__INIT;
    size_t at = 0;
    int64_t first = INT64_MAX;

    reply.events = fake_list(store, CHANGE_EVENT);
    for (const ProtobufCMessage *row; (row = fake_store_next(store, CHANGE_EVENT, &at));) {
        Pb__Event *event = (Pb__Event *)(uintptr_t)row;
        first = event->seq < first ? event->seq : first;
        if (event->seq > request->after_seq && (!request->job || event->job == request->job) &&
            reply.n_events < request->limit)
            reply.events[reply.n_events++] = event;
    }
    reply.has_pruned_through = true; /* those before the first were deleted */
    reply.pruned_through = first == INT64_MAX ? 0 : first - 1;
    *out = message_copy(&reply.base);
    mem_free(reply.events);
    return STATUS_OK;
}

static enum status fake_list_jobs(const struct store *store, const ProtobufCMessage *message,
                                  ProtobufCMessage **out)
{
    const Pb__ListJobsRequest *request = (const Pb__ListJobsRequest *)(const void *)message;
    Pb__ListJobsReply reply = PB__LIST_JOBS_REPLY__INIT;
    int64_t below = request->before > 0 ? request->before : INT64_MAX;

    reply.jobs = fake_list(store, CHANGE_JOB);
    while (reply.n_jobs < request->limit) {
        Pb__Job *best = NULL;
        size_t at = 0;
        for (const ProtobufCMessage *row; (row = fake_store_next(store, CHANGE_JOB, &at));) {
            Pb__Job *job = (Pb__Job *)(uintptr_t)row;
            if (job->id < below && (!best || job->id > best->id))
                best = job;
        }
        if (!best)
            break;
        below = best->id;
        reply.jobs[reply.n_jobs++] = best;
    }
    if (reply.n_jobs == request->limit) {
        reply.has_next_before = true;
        reply.next_before = below;
    }
    *out = message_copy(&reply.base);
    mem_free(reply.jobs);
    return STATUS_OK;
}

static enum status fake_show_job(const struct store *store, const ProtobufCMessage *message,
                                 ProtobufCMessage **out)
{
    int64_t id = ((const Pb__ShowJobRequest *)(const void *)message)->job;
    Pb__ShowJobReply reply = PB__SHOW_JOB_REPLY__INIT;
    size_t at = 0;

    for (const ProtobufCMessage *row; (row = fake_store_next(store, CHANGE_JOB, &at));)
        if (((const Pb__Job *)(const void *)row)->id == id)
            reply.job = (Pb__Job *)(uintptr_t)row;
    if (!reply.job)
        return STATUS_NOT_FOUND;
    reply.attempts = fake_list(store, CHANGE_ATTEMPT);
    reply.events = fake_list(store, CHANGE_EVENT);
    at = 0;
    for (const ProtobufCMessage *row; (row = fake_store_next(store, CHANGE_ATTEMPT, &at));)
        if (((const Pb__Attempt *)(const void *)row)->job == id)
            reply.attempts[reply.n_attempts++] = (Pb__Attempt *)(uintptr_t)row;
    at = 0;
    for (const ProtobufCMessage *row; (row = fake_store_next(store, CHANGE_EVENT, &at));)
        if (((const Pb__Event *)(const void *)row)->job == id)
            reply.events[reply.n_events++] = (Pb__Event *)(uintptr_t)row;
    *out = message_copy(&reply.base);
    mem_free(reply.attempts);
    mem_free(reply.events);
    return STATUS_OK;
}

static int fake_checkpoint_order(const void *a, const void *b)
{
    const Pb__CheckpointRow *left = *(Pb__CheckpointRow *const *)a;
    const Pb__CheckpointRow *right = *(Pb__CheckpointRow *const *)b;

    return (left->row->id > right->row->id) - (left->row->id < right->row->id);
}

static enum status fake_checkpoints(const struct store *store, const ProtobufCMessage *message,
                                    ProtobufCMessage **out)
{
    const Pb__CheckpointQuery *query = (const Pb__CheckpointQuery *)(const void *)message;
    Pb__CheckpointRows reply = PB__CHECKPOINT_ROWS__INIT;
    size_t at = 0, count;

    reply.rows = fake_list(store, CHANGE_CHECKPOINT);
    for (const ProtobufCMessage *row; (row = fake_store_next(store, CHANGE_CHECKPOINT, &at));) {
        Pb__Checkpoint *checkpoint = (Pb__Checkpoint *)(uintptr_t)row;
        if (checkpoint->id <= query->after || (query->job && checkpoint->job != query->job))
            continue;
        Pb__CheckpointRow *one = NEW(Pb__CheckpointRow);
        pb__checkpoint_row__init(one);
        one->row = checkpoint;
        one->state = (char *)(uintptr_t)enum_name(&pb__checkpoint__state__descriptor,
                                                  (int)checkpoint->state);
        one->path = checkpoint->path;
        one->manifest_digest = checkpoint->manifest_digest;
        one->has_copies = true;
        one->copies = (uint32_t)checkpoint->n_copies;
        reply.rows[reply.n_rows++] = one;
    }
    count = reply.n_rows;
    if (count)
        qsort(reply.rows, count, sizeof(void *), fake_checkpoint_order);
    reply.n_rows = count < query->limit ? count : query->limit;
    *out = message_copy(&reply.base);
    for (size_t i = 0; i < count; i++)
        mem_free(reply.rows[i]);
    mem_free(reply.rows);
    return STATUS_OK;
}

static enum status fake_code_ask(const struct store *store, const ProtobufCMessage *message,
                                 ProtobufCMessage **out)
{
    const char *digest = ((const Pb__CodeAsk *)(const void *)message)->digest;
    const ProtobufCMessage *row = fake_store_find(store, CHANGE_CODE, digest);

    if (!row)
        return STATUS_NOT_FOUND;
    *out = message_copy(row);
    return STATUS_OK;
}

static enum status fake_have_code(const struct store *store, const ProtobufCMessage *message,
                                  ProtobufCMessage **out)
{
    const char *digest = ((const Pb__HaveCodeRequest *)(const void *)message)->digest;
    Pb__HaveCodeReply reply = PB__HAVE_CODE_REPLY__INIT;

    reply.has_have = true;
    reply.have = fake_store_find(store, CHANGE_CODE, digest) != NULL;
    *out = message_copy(&reply.base);
    return STATUS_OK;
}

static enum status fake_code_use(const struct store *store, const ProtobufCMessage *message,
                                 ProtobufCMessage **out)
{
    Pb__HaveCodeRequest have = PB__HAVE_CODE_REQUEST__INIT;

    have.digest = ((const Pb__CodeUse *)(const void *)message)->digest;
    return fake_have_code(store, &have.base, out);
}

static enum status fake_metrics(const struct store *store, const ProtobufCMessage *message,
                                ProtobufCMessage **out)
{
    Pb__MetricsReply reply = PB__METRICS_REPLY__INIT;

    (void)store; /* the database's own tests read points */
    (void)message;
    *out = message_copy(&reply.base);
    return STATUS_OK;
}

enum status fake_store_query(const struct store *store, const ProtobufCMessage *request,
                             ProtobufCMessage **reply)
{
    static const struct {
        const ProtobufCMessageDescriptor *type;
        enum status (*answer)(const struct store *store, const ProtobufCMessage *message,
                              ProtobufCMessage **out);
    } kinds[] = {
        {&pb__list_events_request__descriptor, fake_list_events},
        {&pb__list_jobs_request__descriptor, fake_list_jobs},
        {&pb__show_job_request__descriptor, fake_show_job},
        {&pb__checkpoint_query__descriptor, fake_checkpoints},
        {&pb__code_ask__descriptor, fake_code_ask},
        {&pb__have_code_request__descriptor, fake_have_code},
        {&pb__code_use__descriptor, fake_code_use},
        {&pb__metrics_request__descriptor, fake_metrics},
    };

    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (kinds[i].type == request->descriptor)
            return kinds[i].answer(store, request, reply);
    return STATUS_UNIMPLEMENTED;
}
