/* store_pg_history.c - what memory does not hold: lists, old jobs, code. */
#include "base/mem.h"
#include "daemon/store_pg_question.h"
#include "proto/text/text_format.h"
#include <string.h>

#define ASKED_MAX 256
#define ROWS_MAX  5000
#define SESSION_SQL                                                                                \
    "set client_min_messages = warning; set statement_timeout = '30s'; "                           \
    "set default_transaction_read_only = on; set jit = off; set timezone = 'UTC'"

void store_pg_question_append(void *items_of_field, size_t *count, void *item_take)
{
    void ***items = items_of_field;

    if ((*count & (*count - 1)) == 0) /* 0, 1, 2, 4, 8...: full */
        *items = mem_resize(*items, *count ? *count * 2 : 1, sizeof(void *));
    (*items)[(*count)++] = item_take;
}

static int64_t limit_of(bool has, uint32_t limit)
{
    if (!has || limit == 0)
        return 500;
    return limit > ROWS_MAX ? ROWS_MAX : limit;
}

static const char *filled(const char *text)
{
    return text && text[0] ? text : NULL;
}

static void damaged(struct store_pg_question *question, const char *what)
{
    error_set(&question->err, STATUS_DATA_LOSS, "a stored %s can't be read", what);
}

/* --- events */

static void events_send(struct store_pg_question *question, struct store_pg_link *link)
{
    const Pb__ListEventsRequest *request = (const Pb__ListEventsRequest *)question->request;
    struct store_pg_value_list list = {0}, none = {0};

    store_pg_value_i64(&list, request->has_job && request->job, request->job);
    store_pg_value_i64(&list, request->has_after_seq, request->after_seq);
    store_pg_value_text(&list, filled(request->node));
    store_pg_value_i64(&list, true, limit_of(request->has_limit, request->limit));
    store_pg_value_send(&list, link, STORE_LIST_EVENT);
    store_pg_value_send(&none, link, STORE_EVENT_THROUGH);
}

static void events_result(struct store_pg_question *question, size_t call, const PGresult *result)
{
    Pb__ListEventsReply *reply = (Pb__ListEventsReply *)question->reply;

    if (call == 1) {
        reply->has_pruned_through = PQntuples(result) == 1;
        reply->pruned_through =
            reply->has_pruned_through ? store_pg_value_get_i64(result, 0, 0) : 0;
        return;
    }
    for (int row = 0; row < PQntuples(result); row++)
        store_pg_question_append(&reply->events, &reply->n_events, store_pg_row_event(result, row));
}

/* --- jobs */

static void ids_of(const Pb__JobFilter *filter, struct store_pg_array *out)
{
    for (size_t i = 0; filter && i < filter->n_ids && i < ROWS_MAX; i++) {
        store_pg_array_i64(out, true, filter->ids[i]);
        store_pg_array_row_end(out);
    }
}

static void states_of(const Pb__JobFilter *filter, struct store_pg_array *out)
{
    for (size_t i = 0; filter && i < filter->n_states && i < 64; i++) {
        store_pg_array_text(out, enum_name(&pb__job__state__descriptor, (int)filter->states[i]));
        store_pg_array_row_end(out);
    }
}

static void jobs_send(struct store_pg_question *question, struct store_pg_link *link)
{
    const Pb__ListJobsRequest *request = (const Pb__ListJobsRequest *)question->request;
    const Pb__JobFilter *filter = request->filter;
    struct store_pg_value_list list = {0};
    struct store_pg_array ids, states;

    store_pg_array_init(&ids);
    store_pg_array_init(&states);
    ids_of(filter, &ids);
    states_of(filter, &states);
    store_pg_value_array(&list, &ids);
    store_pg_value_text(&list, filter ? filled(filter->project) : NULL);
    store_pg_value_array(&list, &states);
    store_pg_value_text(&list, filter ? filled(filter->name) : NULL);
    store_pg_value_bool(&list, filter && filter->active);
    store_pg_value_i64(&list, request->has_before && request->before > 0, request->before);
    store_pg_value_i64(&list, true, limit_of(request->has_limit, request->limit));
    store_pg_value_send(&list, link, STORE_LIST_JOB);
    store_pg_array_fini(&ids);
    store_pg_array_fini(&states);
}

static void role_make_brief(Pb__Role *role)
{
    for (size_t i = 0; i < role->n_env; i++)
        protobuf_c_message_free_unpacked(&role->env[i]->base, NULL);
    for (size_t i = 0; i < role->n_command; i++)
        mem_free(role->command[i]);
    mem_free(role->env);
    mem_free(role->command);
    role->n_env = role->n_command = 0;
    role->env = NULL;
    role->command = NULL;
}

static void jobs_result(struct store_pg_question *question, size_t call, const PGresult *result)
{
    const Pb__ListJobsRequest *request = (const Pb__ListJobsRequest *)question->request;
    Pb__ListJobsReply *reply = (Pb__ListJobsReply *)question->reply;

    (void)call;
    for (int row = 0; row < PQntuples(result); row++) {
        Pb__Job *job = store_pg_row_job(result, row);
        if (!job) {
            damaged(question, "job");
            return;
        }
        for (size_t i = 0; request->brief && i < job->spec->n_roles; i++)
            role_make_brief(job->spec->roles[i]);
        store_pg_question_append(&reply->jobs, &reply->n_jobs, job);
    }
}

static bool jobs_settle(struct store_pg_question *question)
{
    const Pb__ListJobsRequest *request = (const Pb__ListJobsRequest *)question->request;
    Pb__ListJobsReply *reply = (Pb__ListJobsReply *)question->reply;

    reply->has_age_ms = 1;
    if ((int64_t)reply->n_jobs < limit_of(request->has_limit, request->limit))
        return false;
    reply->has_next_before = 1;
    reply->next_before = reply->jobs[reply->n_jobs - 1]->id;
    return false;
}

/* --- one job with all that belongs to it */

static void show_send(struct store_pg_question *question, struct store_pg_link *link)
{
    const Pb__ShowJobRequest *request = (const Pb__ShowJobRequest *)question->request;
    struct store_pg_value_list job = {0}, checkpoints = {0}, events = {0};

    store_pg_value_i64(&job, true, request->job);
    store_pg_value_send(&job, link, STORE_SHOW_JOB);
    store_pg_value_send(&job, link, STORE_SHOW_ATTEMPT);
    store_pg_value_i64(&checkpoints, true, request->job);
    store_pg_value_i64(&checkpoints, true, 500);
    store_pg_value_send(&checkpoints, link, STORE_LIST_CHECKPOINT);
    store_pg_value_i64(&events, true, request->job);
    store_pg_value_i64(&events, false, 0);
    store_pg_value_text(&events, NULL);
    store_pg_value_i64(&events, true, 50);
    store_pg_value_send(&events, link, STORE_LIST_EVENT);
}

static void show_row(struct store_pg_question *question, size_t call, const PGresult *result,
                     int row)
{
    Pb__ShowJobReply *reply = (Pb__ShowJobReply *)question->reply;
    ProtobufCMessage *message = NULL;

    switch (call) {
    case 0:
        reply->job = store_pg_row_job(result, row);
        if (!reply->job)
            damaged(question, "job");
        return;
    case 1:
        message = store_pg_row_packed(result, row, &pb__attempt__descriptor);
        if (message)
            store_pg_question_append(&reply->attempts, &reply->n_attempts, message);
        break;
    case 2:
        message = store_pg_row_packed(result, row, &pb__checkpoint__descriptor);
        if (message)
            store_pg_question_append(&reply->checkpoints, &reply->n_checkpoints, message);
        break;
    default:
        message = &store_pg_row_event(result, row)->base;
        store_pg_question_append(&reply->events, &reply->n_events, message);
        break;
    }
    if (!message)
        damaged(question, "attempt or checkpoint");
}

static void show_result(struct store_pg_question *question, size_t call, const PGresult *result)
{
    for (int row = 0; row < PQntuples(result); row++)
        show_row(question, call, result, row);
}

static void show_worker(Pb__ShowJobReply *reply, const Pb__WorkerPlace *place)
{
    Pb__ShowWorker *worker = NEW(Pb__ShowWorker);

    pb__show_worker__init(worker);
    worker->role = mem_strdup(place->role);
    worker->node = mem_strdup(place->node);
    worker->message = mem_strdup(place->message);
    worker->state = mem_strdup(place->ended ? "EXITED" : "UNKNOWN");
    worker->has_rank = place->has_rank;
    worker->rank = place->rank;
    worker->has_exit_code = place->has_exit_code;
    worker->exit_code = place->exit_code;
    worker->has_signal = place->has_signal;
    worker->signal = place->signal;
    worker->has_incarnation = place->has_incarnation;
    worker->incarnation = place->incarnation;
    worker->has_step = place->has_step;
    worker->step = place->step;
    worker->has_samples = place->has_samples;
    worker->samples = place->samples;
    store_pg_question_append(&reply->workers, &reply->n_workers, worker);
}

static bool show_settle(struct store_pg_question *question)
{
    const Pb__ShowJobRequest *request = (const Pb__ShowJobRequest *)question->request;
    Pb__ShowJobReply *reply = (Pb__ShowJobReply *)question->reply;

    if (!reply->job) {
        error_set(&question->err, STATUS_NOT_FOUND, "no job %lld", (long long)request->job);
        return false;
    }
    const Pb__Attempt *last = reply->n_attempts ? reply->attempts[reply->n_attempts - 1] : NULL;
    for (size_t i = 0; last && i < last->n_places; i++)
        show_worker(reply, last->places[i]);
    return false;
}

/* --- checkpoints */

static void checkpoints_send(struct store_pg_question *question, struct store_pg_link *link)
{
    const Pb__ListCheckpointsRequest *request =
        (const Pb__ListCheckpointsRequest *)question->request;
    struct store_pg_value_list list = {0};

    store_pg_value_i64(&list, true, request->job);
    store_pg_value_i64(&list, true, limit_of(request->has_limit, request->limit));
    store_pg_value_send(&list, link, STORE_LIST_CHECKPOINT);
}

static void checkpoints_result(struct store_pg_question *question, size_t call,
                               const PGresult *result)
{
    Pb__ListCheckpointsReply *reply = (Pb__ListCheckpointsReply *)question->reply;

    (void)call;
    for (int row = 0; row < PQntuples(result); row++) {
        ProtobufCMessage *m = store_pg_row_packed(result, row, &pb__checkpoint__descriptor);
        if (!m) {
            damaged(question, "checkpoint");
            return;
        }
        store_pg_question_append(&reply->checkpoints, &reply->n_checkpoints, m);
    }
}

static void all_checkpoints_send(struct store_pg_question *question, struct store_pg_link *link)
{
    const Pb__CheckpointQuery *request = (const Pb__CheckpointQuery *)question->request;
    struct store_pg_value_list list = {0};

    store_pg_value_i64(&list, true, request->after);
    store_pg_value_i64(&list, request->job > 0, request->job);
    store_pg_value_text(&list, filled(request->project));
    store_pg_value_i64(&list, true, limit_of(request->has_limit, request->limit));
    store_pg_value_send(&list, link, STORE_ALL_CHECKPOINT);
}

static char *column(const PGresult *result, int row, int at)
{
    return PQgetisnull(result, row, at) ? NULL : mem_strdup(PQgetvalue(result, row, at));
}

static void all_checkpoints_result(struct store_pg_question *question, size_t call,
                                   const PGresult *result)
{
    Pb__CheckpointRows *reply = (Pb__CheckpointRows *)question->reply;

    (void)call;
    for (int row = 0; row < PQntuples(result); row++) {
        ProtobufCMessage *m = store_pg_row_packed(result, row, &pb__checkpoint__descriptor);
        if (!m) {
            damaged(question, "checkpoint");
            return;
        }
        Pb__CheckpointRow *out = NEW(Pb__CheckpointRow);
        pb__checkpoint_row__init(out);
        out->row = (Pb__Checkpoint *)m;
        out->state = column(result, row, 1);
        out->path = column(result, row, 2);
        out->manifest_digest = column(result, row, 3);
        out->has_copies = true;
        out->copies = (uint32_t)store_pg_value_get_i64(result, row, 4);
        store_pg_question_append(&reply->rows, &reply->n_rows, out);
    }
}

/* --- code */

static const char *digest_of(const ProtobufCMessage *request)
{
    if (request->descriptor == &pb__code_query__descriptor)
        return ((const Pb__CodeQuery *)request)->digest;
    if (request->descriptor == &pb__code_ask__descriptor)
        return ((const Pb__CodeAsk *)request)->digest;
    if (request->descriptor == &pb__code_use__descriptor)
        return ((const Pb__CodeUse *)request)->digest;
    return ((const Pb__HaveCodeRequest *)request)->digest;
}

static void code_send(struct store_pg_question *question, struct store_pg_link *link)
{
    struct store_pg_value_list list = {0};
    enum store_statement statement =
        question->kind->request == &pb__have_code_request__descriptor ? STORE_HAVE_CODE
        : question->kind->request == &pb__code_use__descriptor        ? STORE_USE_CODE
                                                                      : STORE_FIND_CODE;

    store_pg_value_text(&list, digest_of(question->request));
    store_pg_value_send(&list, link, statement);
}

static void code_result(struct store_pg_question *question, size_t call, const PGresult *result)
{
    (void)call;
    if (PQntuples(result) != 1)
        return;
    if (question->kind->reply == &pb__have_code_reply__descriptor) {
        Pb__HaveCodeReply *reply = (Pb__HaveCodeReply *)question->reply;
        reply->has_have = 1;
        reply->have = store_pg_value_get_bool(result, 0, 0);
        return;
    }
    protobuf_c_message_free_unpacked(question->reply, NULL);
    question->reply = &store_pg_row_code(result, 0)->base;
    question->stage = 1;
}

static bool code_settle(struct store_pg_question *question)
{
    if (question->stage == 0)
        error_set(&question->err, STATUS_NOT_FOUND, "no code %s", digest_of(question->request));
    return false;
}

/* --- all kinds, and their way through */

static const struct store_pg_question_kind kinds[] = {
    {&pb__list_events_request__descriptor, &pb__list_events_reply__descriptor, events_send,
     events_result, NULL, NULL, false},
    {&pb__list_jobs_request__descriptor, &pb__list_jobs_reply__descriptor, jobs_send, jobs_result,
     jobs_settle, NULL, false},
    {&pb__show_job_request__descriptor, &pb__show_job_reply__descriptor, show_send, show_result,
     show_settle, NULL, false},
    {&pb__list_checkpoints_request__descriptor, &pb__list_checkpoints_reply__descriptor,
     checkpoints_send, checkpoints_result, NULL, NULL, false},
    {&pb__checkpoint_query__descriptor, &pb__checkpoint_rows__descriptor, all_checkpoints_send,
     all_checkpoints_result, NULL, NULL, false},
    {&pb__code_query__descriptor, &pb__code_row__descriptor, code_send, code_result, code_settle,
     NULL, false},
    {&pb__code_ask__descriptor, &pb__code_row__descriptor, code_send, code_result, code_settle,
     NULL, false},
    {&pb__have_code_request__descriptor, &pb__have_code_reply__descriptor, code_send, code_result,
     NULL, NULL, false},
    {&pb__code_use__descriptor, &pb__have_code_reply__descriptor, code_send, code_result, NULL,
     NULL, false},
};

static const struct store_pg_question_kind *kind_of(const ProtobufCMessageDescriptor *type)
{
    if (type == store_pg_metric_kind.request)
        return &store_pg_metric_kind;
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (kinds[i].request == type)
            return &kinds[i];
    return NULL;
}

static void question_finish(struct store_pg_question *question, bool dropped)
{
    struct store_pg *pg = question->pg;
    bool ok = question->err.code == STATUS_OK;

    if (question->kind && question->kind->fini)
        question->kind->fini(question);
    pg->asked--;
    if (dropped || !ok)
        protobuf_c_message_free_unpacked(question->reply, NULL);
    if (!dropped)
        question->done(question->arg, question->err.code, ok ? NULL : &question->err,
                       ok ? question->reply : NULL);
    protobuf_c_message_free_unpacked(question->request, NULL);
    mem_free(question);
}

static void question_later(struct store_pg_later *later, bool dropped)
{
    question_finish(CONTAINER_OF(later, struct store_pg_question, later), dropped);
}

static void question_refuse(struct store_pg_question *question, enum status st, const char *text)
{
    error_set(&question->err, st, "%s", text);
    question->later.run = question_later;
    store_pg_later_add(question->pg, &question->later);
}

static void question_result(struct store_pg_op *op, size_t call, const PGresult *result)
{
    struct store_pg_question *question = CONTAINER_OF(op, struct store_pg_question, op);

    if (question->err.code == STATUS_OK)
        question->kind->result(question, call, result);
}

static void question_send(struct store_pg_question *question);

static void question_done(struct store_pg_op *op, enum status st, const struct error *err)
{
    struct store_pg_question *question = CONTAINER_OF(op, struct store_pg_question, op);

    if (st != STATUS_OK && question->err.code == STATUS_OK)
        error_set(&question->err, st == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : st, "%s", err->text);
    if (question->err.code == STATUS_OK && question->kind->settle &&
        question->kind->settle(question)) {
        question_send(question);
        return;
    }
    question_finish(question, question->pg->destroying);
}

static void question_send(struct store_pg_question *question)
{
    struct store_pg_link *link = question->pg->history;

    question->op = (struct store_pg_op){
        .result = question_result, .done = question_done, .by_row = question->kind->by_row};
    store_pg_link_begin(link, &question->op);
    question->kind->send(question, link);
    store_pg_link_end(link);
}

void store_pg_history_query(struct store *store, const ProtobufCMessage *request, store_reply done,
                            void *arg)
{
    struct store_pg *pg = CONTAINER_OF(store, struct store_pg, base);
    struct store_pg_question *question = NEW(struct store_pg_question);

    question->pg = pg;
    question->done = done;
    question->arg = arg;
    question->kind = kind_of(request->descriptor);
    pg->asked++;
    if (!question->kind) {
        question_refuse(question, STATUS_UNIMPLEMENTED, request->descriptor->name);
        return;
    }
    if (pg->asked > ASKED_MAX) {
        question_refuse(question, STATUS_EXHAUSTED, "too many questions to the database at once");
        return;
    }
    if (!store_pg_link_is_ready(pg->history)) {
        question_refuse(question, STATUS_UNAVAILABLE, "the database is away");
        return;
    }
    question->request = message_copy(request);
    question->reply = mem_alloc(question->kind->reply->sizeof_message);
    protobuf_c_message_init(question->kind->reply, question->reply);
    question_send(question);
}

/* --- the connection */

static void history_set(void *arg, const PGresult *result, const struct error *err)
{
    struct store_pg *pg = arg;

    (void)result;
    if (err)
        store_pg_link_drop(pg->history, false, err->text);
    else
        store_pg_link_prepare(pg->history);
}

static void history_on_open(void *arg)
{
    struct store_pg *pg = arg;
    store_pg_link_ask(pg->history, SESSION_SQL, NULL, 0, history_set, pg);
}

static void history_on_ready(void *arg)
{
    store_pg_lane_tell(arg, NULL); /* lead may have waited for this */
}

static void history_on_lost(void *arg, const struct error *err)
{
    (void)arg;
    (void)err; /* questions are answered UNAVAILABLE; the lanes tell the owner */
}

enum status store_pg_history_init(struct store_pg *pg, struct error *err)
{
    struct store_pg_link_options options = {
        .loop = pg->loop,
        .name = "rondod history",
        .conninfo = pg->conninfo,
        .answer_ms_max = 40000,
        .on_open = history_on_open,
        .on_ready = history_on_ready,
        .on_lost = history_on_lost,
        .arg = pg,
    };
    return store_pg_link_create(&options, &pg->history, err);
}
