/* rig.c - a daemon core over simulated time and database. See rig.h. */
#include "tests/support/rig.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/digest.h"
#include "proto/text/job_check.h"
#include "proto/text/text_format.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void message_free(void *message)
{
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
}

/* --- the daemon */
static void fenced(void *arg)
{
    ((struct rig *)arg)->fenced = true;
}

static void started(void *arg, enum status st, const struct error *err)
{
    (void)err;
    ((struct rig *)arg)->started = st == STATUS_OK;
}

void rig_run(struct rig *rig, int64_t ms)
{
    sim_run_until(rig->sim, sim_now_us(rig->sim) + ms * 1000);
}

void rig_start(struct rig *rig)
{
    rig->process = sim_process_create(rig->sim, "rondod");
    rig->store = sim_store_create(rig->db, rig->process);
    struct core_options options = {
        .loop = &rig->process->loop,
        .store = rig->store,
        .lease_ms = 5000,
        .heartbeat_ms = 1000,
        .ended_max = 1000,
        .queued_max = 100000,
        .on_fenced = fenced,
        .on_fenced_arg = rig,
    };
    rig->core = core_create(&options);
    rig->started = false;
    core_start(rig->core, started, rig);
    for (int i = 0; i < 100 && !rig->started; i++)
        rig_run(rig, 10);
}

void rig_crash(struct rig *rig)
{
    sim_process_kill(rig->process);
    for (size_t i = 0; i < rig->nodes_count; i++)
        rig->nodes[i]->connected = false;
    core_destroy(rig->core);
    sim_store_drop(rig->store);
    sim_process_destroy(rig->process);
    rig->core = NULL;
}

void rig_init(struct rig *rig, uint64_t seed)
{
    *rig = (struct rig){0};
    rig->sim = sim_create(seed);
    rig->db = sim_db_create(rig->sim);
    rig_start(rig);
}

void rig_fini(struct rig *rig)
{
    if (rig->core)
        rig_crash(rig);
    for (size_t i = 0; i < rig->nodes_count; i++) {
        message_free(rig->nodes[i]->desired);
        message_free(rig->nodes[i]->launch);
        mem_free(rig->nodes[i]);
    }
    mem_free(rig->nodes);
    sim_db_destroy(rig->db);
    sim_destroy(rig->sim);
}

int rig_setup(void **state)
{
    static struct rig rig;

    log_setup("test", LOG_ERROR, -1);
    rig_init(&rig, 1);
    *state = &rig;
    return 0;
}

int rig_teardown(void **state)
{
    rig_fini(*state);
    return 0;
}

/* --- scripted agents */
static void node_control(struct agent_link *link, const Pb__AgentDown *message)
{
    struct rig_node *node = (struct rig_node *)link;

    if (message->has_ack_seq)
        node->acked = message->ack_seq;
    if (message->refused)
        snprintf(node->refused, sizeof(node->refused), "%s", message->refused);
    if (message->welcome && message->welcome->peer_key.len == sizeof(node->peer_key))
        memcpy(node->peer_key, message->welcome->peer_key.data, sizeof(node->peer_key));
    if (!message->desired)
        return;
    message_free(node->desired);
    node->desired = (Pb__Desired *)message_copy(&message->desired->base);
    for (size_t i = 0; i < message->desired->n_workers; i++)
        if (message->desired->workers[i]->launch) {
            message_free(node->launch);
            node->launch = (Pb__Launch *)message_copy(&message->desired->workers[i]->launch->base);
        }
}

static void node_bulk(struct agent_link *link, const Pb__BulkDown *message)
{
    ((struct rig_node *)link)->bulk_acked = message->ack_seq;
}

static void node_closed(void *arg)
{
    struct rig_node *node = arg;

    node->connected = false;
    if (node->rig->core)
        core_agent_gone(node->rig->core, &node->link);
}

static void node_close(struct agent_link *link, const char *why)
{
    struct rig_node *node = (struct rig_node *)link;

    (void)why;
    node->closed = true;
    sim_after(node->rig->sim, node->rig->process, 0, node_closed, node);
}

static const struct agent_link_ops node_ops = {node_control, node_bulk, node_close};

void rig_node_hello(struct rig_node *node)
{
    Pb__Hello hello = PB__HELLO__INIT;
    Pb__NodeInventory inventory = PB__NODE_INVENTORY__INIT;
    Pb__Vault vault = PB__VAULT__INIT, *vaults[] = {&vault};
    Pb__Device devices[64], *list[64];

    for (uint32_t i = 0; i < node->slots; i++) {
        pb__device__init(&devices[i]);
        devices[i].kind = (char *)"cpu";
        devices[i].has_index = devices[i].has_health = true;
        devices[i].index = i;
        devices[i].health = PB__DEVICE__HEALTH__HEALTHY;
        list[i] = &devices[i];
    }
    vault.name = (char *)"default";
    vault.path = (char *)"/vault";
    vault.has_class_ = true;
    vault.class_ = node->rig->node_vaults ? PB__VAULT__CLASS__NODE : PB__VAULT__CLASS__SHARED;
    inventory.n_devices = node->slots;
    inventory.devices = list;
    inventory.n_vaults = 1;
    inventory.has_peer_port = node->rig->peer_port != 0;
    inventory.peer_port = node->rig->peer_port;
    inventory.vaults = vaults;
    inventory.address = (char *)"127.0.0.1";
    inventory.has_memory_mib = true;
    inventory.memory_mib = 1024;
    hello.has_protocol = true;
    hello.protocol = 1;
    hello.node = node->name;
    hello.boot_id = (char *)"boot";
    hello.spool_id = node->name;
    hello.instance = node->name;
    hello.inventory = &inventory;
    node->connected = true;
    node->closed = false;
    node->seq = 0;
    node->link.node = NULL;
    core_agent_hello(node->rig->core, &node->link, node->name, &hello);
    rig_run(node->rig, 1);
}

static void node_hello(struct rig_node *node)
{
    rig_node_hello(node);
    Pb__AgentUp up = PB__AGENT_UP__INIT;
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    up.has_seq = true;
    up.seq = ++node->seq;
    up.report = &report;
    report.has_whole = report.whole = true;
    core_agent_up(node->rig->core, &node->link, &up);
    rig_run(node->rig, 50);
}

void rig_live(struct rig *rig, int64_t ms)
{
    Pb__AgentUp beat = PB__AGENT_UP__INIT;

    for (int64_t left = ms; left > 0; left -= 1000) {
        rig_run(rig, left < 1000 ? left : 1000);
        for (size_t i = 0; i < rig->nodes_count; i++)
            if (rig->nodes[i]->connected)
                core_agent_up(rig->core, &rig->nodes[i]->link, &beat);
    }
}

struct rig_node *rig_node_join(struct rig *rig, const char *name, uint32_t cpu_slots)
{
    struct rig_node *node = NEW(struct rig_node);

    node->link.ops = &node_ops;
    node->rig = rig;
    node->slots = cpu_slots;
    snprintf(node->name, sizeof(node->name), "%s", name);
    rig->nodes = mem_resize(rig->nodes, rig->nodes_count + 1, sizeof(*rig->nodes));
    rig->nodes[rig->nodes_count++] = node;
    node_hello(node);
    return node;
}

void rig_node_leave(struct rig_node *node)
{
    node->connected = false;
    core_agent_gone(node->rig->core, &node->link);
    rig_run(node->rig, 20);
}

void rig_node_rejoin(struct rig_node *node)
{
    node_hello(node);
}

static void node_report(struct rig_node *node, Pb__ActualReport *report)
{
    Pb__AgentUp up = PB__AGENT_UP__INIT;

    up.has_seq = true;
    up.seq = ++node->seq;
    up.report = report;
    core_agent_up(node->rig->core, &node->link, &up);
    rig_run(node->rig, 20);
}

static void key_fill(Pb__WorkerKey *key, int64_t job, uint32_t rank, uint32_t attempt)
{
    pb__worker_key__init(key);
    key->has_job = key->has_rank = key->has_attempt = key->has_incarnation = true;
    key->job = job;
    key->role = (char *)"main";
    key->rank = rank;
    key->attempt = attempt;
    key->incarnation = 1;
}

void rig_say_worker(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt,
                    Pb__ActualWorker *worker)
{
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    Pb__ActualWorker *workers[] = {worker};
    Pb__WorkerKey key;

    key_fill(&key, job, rank, attempt);
    worker->key = &key;
    worker->has_state = true;
    report.n_workers = 1;
    report.workers = workers;
    node_report(node, &report);
}

void rig_say(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt,
             Pb__ActualWorker__State state, int exit_code)
{
    Pb__ActualWorker worker = PB__ACTUAL_WORKER__INIT;

    worker.state = state;
    worker.has_exit_code = state == PB__ACTUAL_WORKER__STATE__EXITED;
    worker.exit_code = exit_code;
    rig_say_worker(node, job, rank, attempt, &worker);
}

void rig_say_class(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt,
                   Pb__Reason__Code class)
{
    Pb__ActualWorker worker = PB__ACTUAL_WORKER__INIT;

    worker.state = PB__ACTUAL_WORKER__STATE__EXITED;
    worker.has_class_ = true;
    worker.class_ = class;
    rig_say_worker(node, job, rank, attempt, &worker);
}

static void say_part(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt,
                     int64_t step, Pb__CheckpointPart *part)
{
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    Pb__ActualStaged staged = PB__ACTUAL_STAGED__INIT, *list[] = {&staged};
    Pb__WorkerKey key;
    char path[80];

    key_fill(&key, job, rank, attempt);
    snprintf(path, sizeof(path), "job-%" PRId64 "/step-%" PRId64 ".%u", job, step, attempt);
    staged.key = &key;
    staged.has_step = true;
    staged.step = step;
    staged.part = part;
    staged.vault = (char *)"default";
    staged.path = path;
    part->role = (char *)"main";
    part->has_rank = true;
    part->rank = rank;
    part->node = node->name;
    report.n_staged = 1;
    report.staged = list;
    node_report(node, &report);
}

void rig_say_staged(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt,
                    int64_t step, int64_t samples)
{
    Pb__CheckpointPart part = PB__CHECKPOINT_PART__INIT;

    part.has_samples = true;
    part.samples = samples;
    say_part(node, job, rank, attempt, step, &part);
}

void rig_say_part(struct rig_node *node, int64_t job, uint32_t rank, uint32_t attempt, int64_t step,
                  const char *layout_digest, const char *layout)
{
    Pb__CheckpointPart part = PB__CHECKPOINT_PART__INIT;

    part.layout_digest = (char *)(uintptr_t)layout_digest;
    part.layout = (char *)(uintptr_t)layout;
    say_part(node, job, rank, attempt, step, &part);
}

void rig_say_verified(struct rig_node *node, uint32_t first, uint32_t ranks, const char *error)
{
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    Pb__ActualVerified verified = PB__ACTUAL_VERIFIED__INIT, *list[] = {&verified};
    Pb__PartDigest parts[16], *places[16];
    char digest[65];

    if (!node->desired || !node->desired->n_verifies)
        return;
    verified.has_checkpoint = true;
    verified.checkpoint = node->desired->verifies[0]->checkpoint;
    verified.error = (char *)(uintptr_t)error;
    memset(digest, 'a', 64);
    digest[64] = '\0';
    for (uint32_t i = 0; i < ranks && i < 16; i++) {
        pb__part_digest__init(&parts[i]);
        parts[i].role = (char *)"main";
        parts[i].has_rank = true;
        parts[i].rank = first + i;
        parts[i].tree_digest = digest;
        places[verified.n_parts++] = &parts[i];
    }
    verified.parts = places;
    report.n_verified = 1;
    report.verified = list;
    node_report(node, &report);
}

void rig_say_copy(struct rig_node *node, int64_t checkpoint, uint32_t rank)
{
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    Pb__ActualCopy said = PB__ACTUAL_COPY__INIT, *list[] = {&said};
    Pb__ShardCopy copy = PB__SHARD_COPY__INIT;

    copy.role = (char *)"main";
    copy.has_rank = copy.has_durability = true;
    copy.rank = rank;
    copy.durability = PB__SHARD_COPY__DURABILITY__NODE;
    said.has_checkpoint = true;
    said.checkpoint = checkpoint;
    said.copy = &copy;
    said.note = (char *)"from somewhere";
    report.n_copies = 1;
    report.copies = list;
    node_report(node, &report);
}

void rig_say_deleted(struct rig_node *node)
{
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    Pb__ActualDeleted deleted = PB__ACTUAL_DELETED__INIT, *list[] = {&deleted};

    if (!node->desired || !node->desired->n_deletes)
        return;
    deleted.has_checkpoint = true;
    deleted.checkpoint = node->desired->deletes[0]->checkpoint;
    report.n_deleted = 1;
    report.deleted = list;
    node_report(node, &report);
}

void rig_say_sealed(struct rig_node *node)
{
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    Pb__ActualSealed sealed = PB__ACTUAL_SEALED__INIT, *list[] = {&sealed};
    char digest[65];

    if (!node->desired || !node->desired->n_seals)
        return;
    const Pb__DesiredSeal *seal = node->desired->seals[0];
    digest_sha256(seal->manifest.data, seal->manifest.len, digest);
    sealed.has_checkpoint = true;
    sealed.checkpoint = seal->checkpoint;
    sealed.manifest_digest = digest;
    report.n_sealed = 1;
    report.sealed = list;
    node_report(node, &report);
}

/* --- calls */
static void answered(void *arg, enum status st, const struct error *err,
                     const ProtobufCMessage *reply)
{
    struct rig_answer *answer = arg;

    answer->done = true;
    answer->st = st;
    if (err)
        answer->err = *err;
    answer->reply = message_copy(reply);
}

void rig_call(struct rig *rig, const ProtobufCMessage *request, struct rig_answer *answer)
{
    *answer = (struct rig_answer){0};
    core_call(rig->core, "user/test", request, answered, answer);
    for (int i = 0; i < 3000 && !answer->done; i++)
        rig_run(rig, 10);
}

void rig_at_once_again(Pb__JobSpec *spec)
{
    spec->restart->has_backoff_ms = true;
    spec->restart->backoff_ms = 0;
}

int64_t rig_submit(struct rig *rig, uint32_t workers, void (*fn)(Pb__JobSpec *spec))
{
    Pb__SubmitRequest request = PB__SUBMIT_REQUEST__INIT;
    Pb__JobSpec spec = PB__JOB_SPEC__INIT;
    Pb__Role role = PB__ROLE__INIT, *roles[] = {&role};
    char *command[] = {(char *)"true"};
    struct rig_answer answer;
    char id[40];

    snprintf(id, sizeof(id), "request-%08" PRIu64, ++rig->calls);
    spec.name = (char *)"job";
    spec.n_roles = 1;
    spec.roles = roles;
    role.name = (char *)"main";
    role.n_command = 1;
    role.command = command;
    role.has_workers = true;
    role.workers = workers;
    request.request_id = id;
    Pb__JobSpec *filled = (Pb__JobSpec *)message_copy(&spec.base);
    job_check_fill(filled);
    if (fn)
        fn(filled);
    request.spec = filled;
    rig_call(rig, &request.base, &answer);
    message_free(filled);
    int64_t job = answer.reply ? ((Pb__SubmitReply *)answer.reply)->job : -(int64_t)answer.st;
    message_free(answer.reply);
    rig_run(rig, 20);
    return job;
}

enum status rig_cancel(struct rig *rig, int64_t job)
{
    Pb__CancelRequest request = PB__CANCEL_REQUEST__INIT;
    struct rig_answer answer;
    char id[40];

    snprintf(id, sizeof(id), "request-%08" PRIu64, ++rig->calls);
    request.request_id = id;
    request.has_job = true;
    request.job = job;
    rig_call(rig, &request.base, &answer);
    message_free(answer.reply);
    rig_run(rig, 20);
    return answer.st;
}

Pb__Job__State rig_state(struct rig *rig, int64_t job)
{
    const Pb__Job *row = core_job(rig->core, job);

    return row ? row->state : PB__JOB__STATE__STATE_UNSPECIFIED;
}

bool rig_wants(const struct rig_node *node, int64_t job, uint32_t rank,
               Pb__DesiredWorker__Want want)
{
    for (size_t i = 0; node->desired && i < node->desired->n_workers; i++) {
        const Pb__DesiredWorker *worker = node->desired->workers[i];
        if (worker->key->job == job && worker->key->rank == rank)
            return worker->want == want;
    }
    return false;
}
