/* fake.h - a daemon of few words for tests of rondoctl: the Control service over a unix socket, on
 * a thread with a loop of its own, and verbs run against it with their output caught.
 *
 * What it stores and says is in struct fake, under its lock. `away` makes the next so many unary
 * calls do their work and then answer UNAVAILABLE, as a daemon does that dies before its reply. */
#pragma once
#include "base/mailbox.h"
#include "ctl/verb.h"
#include "proto/pb.h"
#include "proto/text/text_format.h"
#include "rpc/server.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { FAKE_JOBS_MAX = 2000 };
#define FAKE_TEXT(text) ((char *)(uintptr_t)(text))

struct fake {
    char *dir, *target;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t up;
    bool is_up;
    struct loop *loop;
    struct mailbox *box;
    struct mail stop;

    /* Set and read by tests without the lock. */
    _Atomic int away;               /* unary calls that are lost on their way back */
    _Atomic unsigned calls, chunks; /* of any kind; of SubmitMany */
    _Atomic int64_t jobs;           /* ids are 1..jobs */
    _Atomic unsigned lists_to_end;  /* ListJobs so often, then every job has SUCCEEDED; 0: never */
    _Atomic unsigned watches, logs; /* streams opened */
    _Atomic int64_t watch_after, logs_offset; /* of the last one */
    _Atomic size_t code_bytes;
    _Atomic unsigned code_puts;
    _Atomic bool have_code;
    _Atomic bool pinned, damaged;    /* checkpoint 5 */
    _Atomic int64_t verified;        /* how often it was asked for */
    _Atomic unsigned holds, lease_s; /* HoldCheckpoint: how often; of the last one */
    _Atomic bool impossible;         /* no change of a job is */
    _Atomic int puts_away;           /* uploads that are refused at their ends */
    _Atomic enum status refuse;      /* unary calls fail with it, without doing anything */

    char *ids[FAKE_JOBS_MAX], *names[FAKE_JOBS_MAX];
    _Atomic Pb__Job__State states[FAKE_JOBS_MAX]; /* set by tests without the lock */
    char code_digest[65];

    char paths[4][512]; /* of files that tests make */
    unsigned paths_next;

    char *out, *err; /* what the last verb printed */
};

static inline int64_t fake_add(struct fake *fake, const char *id, const char *name)
{
    for (int64_t i = 0; i < fake->jobs; i++)
        if (id && fake->ids[i] && strcmp(fake->ids[i], id) == 0)
            return i + 1;
    assert_true(fake->jobs < FAKE_JOBS_MAX);
    fake->ids[fake->jobs] = mem_strdup(id);
    fake->names[fake->jobs] = mem_strdup(name);
    fake->states[fake->jobs] = PB__JOB__STATE__RUNNING;
    return ++fake->jobs;
}

/* Room for one job's row and what it points to. */
struct fake_row {
    Pb__Job job;
    Pb__JobSpec spec;
    Pb__Restart restart;
    Pb__Reason reason;
};

static inline Pb__Job *fake_job(struct fake *fake, int64_t id, struct fake_row *row)
{
    pb__job__init(&row->job);
    pb__job_spec__init(&row->spec);
    pb__restart__init(&row->restart);
    pb__reason__init(&row->reason);
    row->job.spec = &row->spec;
    row->spec.restart = &row->restart;
    row->spec.name = fake->names[id - 1];
    row->job.reason = &row->reason;
    row->reason.has_code = 1;
    row->reason.code = PB__REASON__CODE__WORKERS_UP;
    row->reason.text = FAKE_TEXT("every worker runs");
    row->job.has_id = row->job.has_state = row->job.has_step = row->job.has_attempt = 1;
    row->job.id = id;
    row->job.state = fake->states[id - 1];
    row->job.step = 120;
    row->job.attempt = row->job.state == PB__JOB__STATE__QUEUED ? 0 : 1;
    return &row->job;
}

static inline void fake_submit_many(struct fake *fake, struct rpc_call *call,
                                    const Pb__SubmitManyRequest *request, bool lost)
{
    Pb__SubmitManyReply reply = PB__SUBMIT_MANY_REPLY__INIT;
    Pb__SubmitResult *results = mem_array(request->n_requests + 1, sizeof *results);
    Pb__SubmitResult **list = mem_array(request->n_requests + 1, sizeof *list);
    fake->chunks++;
    for (size_t i = 0; i < request->n_requests; i++) {
        const Pb__SubmitRequest *one = request->requests[i];
        pb__submit_result__init(&results[i]);
        list[i] = &results[i];
        results[i].has_job = results[i].has_status = 1;
        if (strcmp(one->spec->name, "unwanted") == 0) {
            results[i].status = STATUS_DENIED;
            results[i].error = FAKE_TEXT("project 'default' is not one that you may use");
        } else {
            results[i].job = fake_add(fake, one->request_id, one->spec->name);
        }
    }
    reply.results = list;
    reply.n_results = request->n_requests;
    if (lost)
        rpc_call_fail(call, STATUS_UNAVAILABLE, "the database is away");
    else
        rpc_call_reply(call, &reply.base);
    mem_free(results);
    mem_free(list);
}

static inline bool fake_wants(const Pb__JobFilter *filter, const Pb__Job *job)
{
    bool named = !filter || filter->n_ids == 0;
    for (size_t i = 0; filter && i < filter->n_ids; i++)
        named = named || filter->ids[i] == job->id;
    return named && (!filter || !filter->name || strcmp(filter->name, job->spec->name) == 0);
}

static inline void fake_list(struct fake *fake, struct rpc_call *call,
                             const Pb__ListJobsRequest *request)
{
    Pb__ListJobsReply reply = PB__LIST_JOBS_REPLY__INIT;
    struct fake_row *rows = mem_array((size_t)fake->jobs + 1, sizeof *rows);
    Pb__Job **list = mem_array((size_t)fake->jobs + 1, sizeof *list);
    if (fake->lists_to_end > 0 && --fake->lists_to_end == 0)
        for (int64_t i = 0; i < fake->jobs; i++)
            fake->states[i] = PB__JOB__STATE__SUCCEEDED;
    for (int64_t id = fake->jobs; id > 0; id--) {
        Pb__Job *job = fake_job(fake, id, &rows[id]);
        if (fake_wants(request->filter, job))
            list[reply.n_jobs++] = job;
    }
    reply.jobs = list;
    rpc_call_reply(call, &reply.base);
    mem_free(rows);
    mem_free(list);
}

static inline void fake_change(struct fake *fake, struct rpc_call *call, int64_t id,
                               Pb__Job__State state)
{
    struct fake_row row;
    Pb__JobReply reply = PB__JOB_REPLY__INIT;
    if (id < 1 || id > fake->jobs) {
        rpc_call_fail(call, STATUS_NOT_FOUND, "job 77 does not exist");
        return;
    }
    if (fake->impossible) {
        rpc_call_fail(call, STATUS_PRECONDITION, "that is not possible");
        return;
    }
    fake->states[id - 1] = state;
    reply.job = fake_job(fake, id, &row);
    rpc_call_reply(call, &reply.base);
}

static inline void fake_show(struct fake *fake, struct rpc_call *call, int64_t id)
{
    struct fake_row row;
    Pb__ShowJobReply reply = PB__SHOW_JOB_REPLY__INIT;
    Pb__ShowWorker worker = PB__SHOW_WORKER__INIT, never = PB__SHOW_WORKER__INIT;
    Pb__ShowWorker *workers[] = {&worker, &never};
    Pb__FirstFailure failure = PB__FIRST_FAILURE__INIT;
    reply.job = fake_job(fake, id, &row);
    reply.job->first_failure = &failure;
    failure.role = FAKE_TEXT("trainer");
    failure.node = FAKE_TEXT("n\x1b[31m1");
    failure.has_exit_code = failure.has_rank = failure.has_attempt = 1;
    failure.exit_code = 3;
    failure.rank = 1;
    failure.attempt = 2;
    failure.traceback = FAKE_TEXT("Traceback:\n  ValueError: x");
    worker.role = failure.role;
    worker.node = failure.node;
    worker.state = FAKE_TEXT("EXITED");
    worker.has_signal = worker.has_pid = 1;
    worker.signal = 9;
    worker.pid = 4242;
    worker.has_step = 1;
    worker.step = 41;
    never.role = FAKE_TEXT("helper");
    never.state = worker.state;
    reply.workers = workers;
    reply.n_workers = 2;
    rpc_call_reply(call, &reply.base);
}

static inline void fake_metrics(struct rpc_call *call, const Pb__MetricsRequest *request)
{
    Pb__MetricsReply reply = PB__METRICS_REPLY__INIT;
    Pb__Series loss = PB__SERIES__INIT, tokens = PB__SERIES__INIT, *list[] = {&loss, &tokens};
    int64_t steps[] = {1, 2, 3};
    double values[] = {3.5, 2.25, 0.1};
    int64_t integers[] = {9007199254740992, 9007199254740993, 30}; /* one and the same double */
    loss.name = FAKE_TEXT("loss");
    tokens.name = FAKE_TEXT("tokens");
    loss.steps = tokens.steps = steps;
    loss.n_steps = tokens.n_steps = 3;
    loss.values = values;
    loss.n_values = 3;
    tokens.integers = integers;
    tokens.n_integers = 3;
    reply.series = list;
    for (size_t i = 0; i < 2; i++) {
        bool wanted = request->n_names == 0;
        for (size_t n = 0; n < request->n_names; n++)
            wanted = wanted || strcmp(request->names[n], list[i]->name) == 0;
        if (wanted && request->job < 90 && request->rank < 7) /* a job from 90 on has none */
            list[reply.n_series++] = list[i];
    }
    rpc_call_reply(call, &reply.base);
}

static inline void fake_nodes(struct rpc_call *call)
{
    Pb__ListNodesReply reply = PB__LIST_NODES_REPLY__INIT;
    Pb__NodeUse use = PB__NODE_USE__INIT, *uses[] = {&use};
    Pb__Node node = PB__NODE__INIT;
    Pb__NodeInventory inventory = PB__NODE_INVENTORY__INIT;
    Pb__Device cpu = PB__DEVICE__INIT, gpu = PB__DEVICE__INIT, *devices[] = {&gpu, &cpu, &cpu};
    node.name = FAKE_TEXT("node-1");
    node.has_seen = node.has_admin = 1;
    node.seen = PB__NODE__SEEN__HEALTHY;
    node.admin = PB__NODE__ADMIN__IN_SERVICE;
    cpu.kind = FAKE_TEXT("cpu");
    gpu.kind = FAKE_TEXT("nvidia");
    inventory.devices = devices;
    inventory.n_devices = 3;
    inventory.has_memory_mib = 1;
    inventory.memory_mib = 65536;
    node.inventory = &inventory;
    use.node = &node;
    reply.nodes = uses;
    reply.n_nodes = 1;
    rpc_call_reply(call, &reply.base);
}

static inline void fake_status(struct rpc_call *call)
{
    Pb__StatusReply reply = PB__STATUS_REPLY__INIT;
    Pb__StatusCheck check = PB__STATUS_CHECK__INIT, *checks[] = {&check};
    check.name = FAKE_TEXT("database");
    check.text = FAKE_TEXT("away for 3 s");
    reply.checks = checks;
    reply.n_checks = 1;
    reply.version = FAKE_TEXT("9.9");
    rpc_call_reply(call, &reply.base);
}

static inline void fake_checkpoints(struct rpc_call *call)
{
    Pb__ListCheckpointsReply reply = PB__LIST_CHECKPOINTS_REPLY__INIT;
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT, *list[] = {&checkpoint};
    checkpoint.has_id = checkpoint.has_step = checkpoint.has_state = checkpoint.has_bytes = 1;
    checkpoint.id = 5;
    checkpoint.step = 300;
    checkpoint.state = PB__CHECKPOINT__STATE__COMMITTED;
    checkpoint.bytes = 3 << 20;
    reply.checkpoints = list;
    reply.n_checkpoints = 1;
    rpc_call_reply(call, &reply.base);
}

/* Checkpoint 5 is of job 1, at step 300; none other is known. */
static inline void fake_checkpoint(struct fake *fake, struct rpc_call *call, int64_t id)
{
    Pb__CheckpointReply reply = PB__CHECKPOINT_REPLY__INIT;
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    if (id != 5) {
        rpc_call_fail(call, STATUS_NOT_FOUND, "no checkpoint of that id");
        return;
    }
    checkpoint.has_id = checkpoint.has_job = checkpoint.has_step = checkpoint.has_state = 1;
    checkpoint.has_pinned = checkpoint.has_format = checkpoint.has_verified_us = 1;
    checkpoint.has_parent = 1;
    checkpoint.id = 5;
    checkpoint.job = 1;
    checkpoint.step = 300;
    checkpoint.parent = 3;
    checkpoint.state = fake->damaged        ? PB__CHECKPOINT__STATE__DAMAGED
                       : fake->verified > 0 ? PB__CHECKPOINT__STATE__VERIFIED
                                            : PB__CHECKPOINT__STATE__COMMITTED;
    checkpoint.verified_us = fake->verified;
    checkpoint.pinned = fake->pinned;
    checkpoint.format = PB__CHECKPOINT__FORMAT__SHARDED;
    checkpoint.vault = FAKE_TEXT("main");
    checkpoint.path = FAKE_TEXT("job-1/step-300.1");
    checkpoint.manifest_digest = FAKE_TEXT("aa");
    if (fake->damaged)
        checkpoint.reason = FAKE_TEXT("trainer-0/x, block 3");
    reply.checkpoint = &checkpoint;
    rpc_call_reply(call, &reply.base);
}

static inline void fake_retention(struct rpc_call *call)
{
    Pb__PlanRetentionReply reply = PB__PLAN_RETENTION_REPLY__INIT;
    Pb__RetentionVerdict verdict = PB__RETENTION_VERDICT__INIT, *list[] = {&verdict};
    Pb__Checkpoint checkpoint = PB__CHECKPOINT__INIT;
    checkpoint.has_id = checkpoint.has_step = checkpoint.has_bytes = checkpoint.has_state = 1;
    checkpoint.id = 4;
    checkpoint.step = 200;
    checkpoint.bytes = 3 << 20;
    checkpoint.state = PB__CHECKPOINT__STATE__VERIFIED;
    checkpoint.path = FAKE_TEXT("job-1/step-200.1");
    verdict.checkpoint = &checkpoint;
    verdict.why = FAKE_TEXT("beyond what is to be kept");
    reply.verdicts = list;
    reply.n_verdicts = 1;
    rpc_call_reply(call, &reply.base);
}

/* False: it is no request about checkpoints. */
static inline bool fake_checkpoint_answer(struct fake *fake, struct rpc_call *call,
                                          const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    if (type == &pb__show_checkpoint_request__descriptor) {
        fake_checkpoint(fake, call, ((const Pb__ShowCheckpointRequest *)message)->checkpoint);
    } else if (type == &pb__pin_checkpoint_request__descriptor) {
        fake->pinned = !((const Pb__PinCheckpointRequest *)message)->unpin;
        fake_checkpoint(fake, call, ((const Pb__PinCheckpointRequest *)message)->checkpoint);
    } else if (type == &pb__verify_checkpoint_request__descriptor) {
        fake->verified++;
        fake_checkpoint(fake, call, ((const Pb__VerifyCheckpointRequest *)message)->checkpoint);
    } else if (type == &pb__hold_checkpoint_request__descriptor) {
        const Pb__HoldCheckpointRequest *hold = (const Pb__HoldCheckpointRequest *)message;
        fake->holds++;
        fake->lease_s = hold->lease_s;
        fake_checkpoint(fake, call, hold->checkpoint);
    } else if (type == &pb__plan_retention_request__descriptor) {
        fake_retention(call);
    } else {
        return false;
    }
    return true;
}

static inline void fake_events(struct rpc_call *call, const Pb__ListEventsRequest *request)
{
    Pb__ListEventsReply reply = PB__LIST_EVENTS_REPLY__INIT;
    Pb__Event event = PB__EVENT__INIT, *list[] = {&event};
    event.has_seq = event.has_job = event.has_at_us = 1;
    event.seq = event.job = event.at_us = 1;
    event.from = FAKE_TEXT("QUEUED");
    event.to = FAKE_TEXT("STARTING");
    event.reason = FAKE_TEXT("PLACED");
    event.text = FAKE_TEXT("nodes reserved");
    reply.events = list;
    reply.n_events = request->node ? 0 : 1; /* none is a node's */
    rpc_call_reply(call, &reply.base);
}

/* Everything that answers once; the request's type says which method it is. */
static inline void fake_answer(struct fake *fake, struct rpc_call *call,
                               const ProtobufCMessage *message, bool lost)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    if (type == &pb__submit_many_request__descriptor) {
        fake_submit_many(fake, call, (const Pb__SubmitManyRequest *)message, lost);
    } else if (lost) {
        rpc_call_fail(call, STATUS_UNAVAILABLE, "the database is away");
    } else if (fake_checkpoint_answer(fake, call, message)) {
        return;
    } else if (type == &pb__list_jobs_request__descriptor) {
        fake_list(fake, call, (const Pb__ListJobsRequest *)message);
    } else if (type == &pb__cancel_request__descriptor) {
        fake_change(fake, call, ((const Pb__CancelRequest *)message)->job,
                    PB__JOB__STATE__CANCELLED);
    } else if (type == &pb__hold_request__descriptor) {
        fake_change(fake, call, ((const Pb__HoldRequest *)message)->job, PB__JOB__STATE__HELD);
    } else if (type == &pb__show_job_request__descriptor) {
        fake_show(fake, call, ((const Pb__ShowJobRequest *)message)->job);
    } else if (type == &pb__metrics_request__descriptor) {
        fake_metrics(call, (const Pb__MetricsRequest *)message);
    } else if (type == &pb__list_nodes_request__descriptor) {
        fake_nodes(call);
    } else if (type == &pb__status_request__descriptor) {
        fake_status(call);
    } else if (type == &pb__list_checkpoints_request__descriptor) {
        fake_checkpoints(call);
    } else if (type == &pb__list_events_request__descriptor) {
        fake_events(call, (const Pb__ListEventsRequest *)message);
    } else if (type == &pb__have_code_request__descriptor) {
        Pb__HaveCodeReply reply = PB__HAVE_CODE_REPLY__INIT;
        reply.has_have = 1;
        reply.have = fake->have_code;
        rpc_call_reply(call, &reply.base);
    } else if (type == &pb__set_node_request__descriptor) {
        Pb__SetNodeReply reply = PB__SET_NODE_REPLY__INIT;
        rpc_call_reply(call, &reply.base);
    } else {
        const Pb__SubmitRequest *request = (const Pb__SubmitRequest *)message;
        Pb__SubmitReply reply = PB__SUBMIT_REPLY__INIT;
        if (strcmp(request->spec->name, "large") == 0)
            reply.note = FAKE_TEXT("fits nowhere: no node is that large");
        rpc_call_reply(call, &reply.base);
    }
}

static inline void fake_unary(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct fake *fake = arg;
    pthread_mutex_lock(&fake->lock);
    bool lost = fake->away > 0 && fake->away-- > 0;
    fake->calls++;
    if (fake->refuse != STATUS_OK)
        rpc_call_fail(call, fake->refuse, "no");
    else
        fake_answer(fake, call, message, lost);
    pthread_mutex_unlock(&fake->lock);
}

static inline void fake_send_event(struct fake *fake, struct rpc_call *call, int64_t seq,
                                   const char *to)
{
    struct fake_row row;
    Pb__WatchReply reply = PB__WATCH_REPLY__INIT;
    Pb__Event event = PB__EVENT__INIT;
    event.has_seq = event.has_job = event.has_at_us = 1;
    event.seq = seq;
    event.job = event.at_us = 1;
    event.to = (char *)(uintptr_t)to;
    event.text = FAKE_TEXT("news");
    reply.event = &event;
    reply.job = fake->jobs > 0 ? fake_job(fake, 1, &row) : NULL;
    rpc_call_send(call, &reply.base);
}

/* The first watch breaks after one event; the second brings the end. */
static inline void fake_watch(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct fake *fake = arg;
    pthread_mutex_lock(&fake->lock);
    fake->watch_after = ((const Pb__WatchRequest *)message)->after_seq;
    if (fake->watches++ == 0) {
        fake_send_event(fake, call, 7, "RUNNING");
        rpc_call_end(call, STATUS_UNAVAILABLE, "going down");
    } else {
        if (fake->jobs > 0)
            fake->states[0] = PB__JOB__STATE__FAILED;
        fake_send_event(fake, call, 7, "RUNNING"); /* twice: it is not shown twice */
        fake_send_event(fake, call, 8, "FAILED");
        rpc_call_end(call, STATUS_NOT_FOUND, "no more");
    }
    pthread_mutex_unlock(&fake->lock);
}

/* Two differences, one of which can be repaired. */
static inline void fake_fsck(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    const Pb__FsckRequest *request = (const Pb__FsckRequest *)message;
    Pb__Difference difference = PB__DIFFERENCE__INIT;
    Pb__FsckSummary summary = PB__FSCK_SUMMARY__INIT;
    Pb__FsckReply one = PB__FSCK_REPLY__INIT, two = PB__FSCK_REPLY__INIT,
                  last = PB__FSCK_REPLY__INIT;
    (void)arg;
    difference.has_kind = difference.has_outcome = difference.has_checkpoint = 1;
    difference.kind = PB__DIFFERENCE__KIND__MISSING;
    difference.outcome =
        request->repair ? PB__DIFFERENCE__OUTCOME__REPAIRED : PB__DIFFERENCE__OUTCOME__FOUND;
    difference.checkpoint = 7;
    difference.vault = (char *)(uintptr_t) "main";
    difference.path = (char *)(uintptr_t) "job-1/step-3.1";
    difference.text = (char *)(uintptr_t) "its directory is not there";
    difference.note = (char *)(uintptr_t) "mark it DAMAGED";
    one.difference = &difference;
    summary.has_differences = summary.has_repaired = summary.has_left = 1;
    summary.differences = 2;
    summary.repaired = request->repair ? 1 : 0;
    summary.left = request->repair ? 1 : 2;
    last.summary = &summary;
    rpc_call_send(call, &one.base);
    difference.has_checkpoint = 0;
    difference.kind = PB__DIFFERENCE__KIND__NOT_LOOKED_AT;
    difference.outcome =
        request->repair ? PB__DIFFERENCE__OUTCOME__LEFT : PB__DIFFERENCE__OUTCOME__FOUND;
    difference.path = NULL;
    difference.node = (char *)(uintptr_t) "n2";
    difference.text = (char *)(uintptr_t) "1 expected, not looked at: n2: no agent";
    difference.note = (char *)(uintptr_t) "nothing: see to it";
    two.difference = &difference;
    rpc_call_send(call, &two.base);
    rpc_call_send(call, &last.base);
    rpc_call_end(call, STATUS_OK, "");
}

/* The first reader gets half and a break, the second the rest from where it asks. */
static inline void fake_logs(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    static const char log[] = "line 1\nline\x00 2\nline 3\n";
    struct fake *fake = arg;
    const Pb__LogsRequest *request = (const Pb__LogsRequest *)message;
    Pb__LogsReply reply = PB__LOGS_REPLY__INIT;
    pthread_mutex_lock(&fake->lock);
    bool first = fake->logs++ == 0;
    fake->logs_offset = request->offset;
    size_t from = (size_t)request->offset, to = first ? 9 : sizeof log - 1;
    reply.has_offset = reply.has_data = reply.has_closed = 1;
    reply.offset = request->offset;
    reply.data = (ProtobufCBinaryData){to - from, (uint8_t *)(uintptr_t)log + from};
    reply.closed = !first;
    rpc_call_send(call, &reply.base);
    rpc_call_end(call, first ? STATUS_UNAVAILABLE : STATUS_OK, first ? "node is away" : "");
    if (!first && fake->jobs > 0)
        fake->states[0] = PB__JOB__STATE__SUCCEEDED;
    pthread_mutex_unlock(&fake->lock);
}

static inline void fake_code_piece(void *arg, struct rpc_call *call,
                                   const ProtobufCMessage *message)
{
    struct fake *fake = arg;
    const Pb__PutCodeRequest *request = (const Pb__PutCodeRequest *)message;
    Pb__PutCodeReply reply = PB__PUT_CODE_REPLY__INIT;
    pthread_mutex_lock(&fake->lock);
    if (request) {
        snprintf(fake->code_digest, sizeof fake->code_digest, "%s", request->digest);
        fake->code_bytes += request->data.len;
    } else if (fake->puts_away > 0 && fake->puts_away-- > 0) {
        fake->code_bytes = 0;
        rpc_call_fail(call, STATUS_UNAVAILABLE, "other uploads are running");
    } else {
        rpc_call_reply(call, &reply.base);
    }
    pthread_mutex_unlock(&fake->lock);
}

static inline void fake_put_code(void *arg, struct rpc_call *call, const ProtobufCMessage *message)
{
    struct fake *fake = arg;
    (void)message;
    fake->code_puts++;
    rpc_call_on_message(call, fake_code_piece, fake);
}

static inline void fake_stop(struct mail *mail)
{
    struct fake *fake = CONTAINER_OF(mail, struct fake, stop);
    loop_uv_stop(fake->loop);
}

static inline void *fake_thread(void *arg)
{
    static const struct rpc_method methods[] = {
        {"Submit", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"SubmitMany", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"Cancel", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"Hold", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"ListJobs", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"ShowJob", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"Watch", RPC_SERVER_STREAM, IDENTITY_ANY_USER, fake_watch},
        {"ListEvents", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"Logs", RPC_SERVER_STREAM, IDENTITY_ANY_USER, fake_logs},
        {"Metrics", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"ListCheckpoints", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"ShowCheckpoint", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"PinCheckpoint", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"VerifyCheckpoint", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"HoldCheckpoint", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"PlanRetention", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"Fsck", RPC_SERVER_STREAM, IDENTITY_ANY_USER, fake_fsck},
        {"ListNodes", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"SetNode", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"HaveCode", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {"PutCode", RPC_CLIENT_STREAM, IDENTITY_ANY_USER, fake_put_code},
        {"Status", RPC_UNARY, IDENTITY_ANY_USER, fake_unary},
        {NULL, RPC_UNARY, IDENTITY_NONE, NULL}};
    struct fake *fake = arg;
    struct rpc_service service = {&pb__control__descriptor, methods, fake};
    struct rpc_server_options options = {.unix_path = fake->target + 5};
    struct rpc_server *server = NULL;
    struct error err = {0};
    fake->loop = loop_uv_create();
    fake->box = mailbox_create(fake->loop);
    enum status st = rpc_server_create(fake->loop, &options, &service, 1, &server, &err);
    pthread_mutex_lock(&fake->lock);
    fake->is_up = true;
    pthread_cond_signal(&fake->up);
    pthread_mutex_unlock(&fake->lock);
    if (st != STATUS_OK)
        fprintf(stderr, "fake daemon: %s\n", err.text);
    loop_uv_run(fake->loop);
    rpc_server_destroy(server, 1000);
    mailbox_destroy(fake->box);
    loop_uv_destroy(fake->loop);
    return NULL;
}

static inline int fake_setup(void **state)
{
    struct fake *fake = NEW(struct fake);
    fake->dir = unit_dir_create();
    fake->target = mem_printf("unix:%s/sock", fake->dir);
    fake->stop.deliver = fake_stop;
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->up, NULL);
    pthread_create(&fake->thread, NULL, fake_thread, fake);
    pthread_mutex_lock(&fake->lock);
    while (!fake->is_up)
        pthread_cond_wait(&fake->up, &fake->lock);
    pthread_mutex_unlock(&fake->lock);
    *state = fake;
    return 0;
}

static inline int fake_teardown(void **state)
{
    struct fake *fake = *state;
    mailbox_post(fake->box, &fake->stop);
    pthread_join(fake->thread, NULL);
    for (int64_t i = 0; i < fake->jobs; i++) {
        mem_free(fake->ids[i]);
        mem_free(fake->names[i]);
    }
    unit_dir_destroy(fake->dir);
    mem_free(fake->target);
    mem_free(fake->out);
    mem_free(fake->err);
    mem_free(fake);
    return 0;
}

/* Sends a descriptor into a file; returns a copy of what it was. */
static inline int fake_redirect(int fd, const char *path)
{
    int keep = dup(fd), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(keep >= 0 && file >= 0);
    dup2(file, fd);
    close(file);
    return keep;
}

static inline void fake_restore(int fd, int keep, const char *path, char **text)
{
    struct error err;
    size_t len;
    dup2(keep, fd);
    close(keep);
    mem_free(*text);
    *text = NULL;
    if (file_read(path, 1 << 20, text, &len, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

/* Runs `verb word...` against the fake; out and err hold what it printed. Words end with NULL. */
static inline int fake_run(struct fake *fake, const char *const *words)
{
    char *argv[32];
    int argc = 0;
    for (; words[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc];
    argv[argc++] = FAKE_TEXT("--server");
    argv[argc++] = fake->target;
    argv[argc] = NULL;
    const char *out = unit_path(fake->dir, "out"), *err = unit_path(fake->dir, "err");
    fflush(stdout);
    fflush(stderr);
    int keep_out = fake_redirect(STDOUT_FILENO, out), keep_err = fake_redirect(STDERR_FILENO, err);
    int code = verb_run(verb_find(words[0]), argc, argv);
    fflush(stdout);
    fflush(stderr);
    fake_restore(STDOUT_FILENO, keep_out, out, &fake->out);
    fake_restore(STDERR_FILENO, keep_err, err, &fake->err);
    return code;
}
#define FAKE_RUN(fake, ...) fake_run(fake, (const char *const[]){__VA_ARGS__, NULL})
