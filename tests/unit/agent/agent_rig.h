/* agent_rig.h - the agent core over real files, sockets, vaults and shims, and a daemon made of
 * rows: what it wants, what it was told.
 *
 * The daemon packs and unpacks each message, as a wire does. Workers are this very program:
 * `<test> --worker MODE`. rig_until waits for a condition, with a limit that only a broken build
 * meets. */
#pragma once
#include "agent/agent.h"
#include "base/map.h"
#include "base/text.h"
#include "checkpoint/digest.h"
#include "proto/text/text_format.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define RIG_LIMIT_US ((int64_t)90 * 1000000)
#define RIG_MAX      64

struct rig {
    struct loop *loop;
    struct loop_timer *limit, *poll, *talk;
    bool late, (*condition)(struct rig *rig);
    char *dir, self[512];
    struct agent_config config;
    struct agent_options options;
    struct agent *agent;
    /* the daemon */
    struct uplink uplink;
    const struct uplink_events *events;
    void *events_arg;
    bool open[2], closing[2], deaf; /* deaf: does not acknowledge */
    bool away;                      /* refuses streams */
    bool greeted;                   /* the bulk stream that is open has its mark */
    uint64_t term, revision, control_seq, bulk_seq, bulk_acked;
    unsigned hellos;
    Pb__Desired desired;
    Pb__DesiredWorker *wanted[RIG_MAX];
    Pb__AgentDown down[1];
    struct list_of_messages {
        ProtobufCMessage *items[256];
        size_t count;
    } inbox_control, inbox_bulk;
    struct map *actual; /* tag -> Pb__ActualWorker */
    Pb__ActualStaged *staged;
    size_t staged_count;
    Pb__ActualVerified *verified;
    char sealed[65];
    int64_t deleted;
    size_t gone;
    Pb__ActualGang *gang; /* last one that was told of */
    Pb__Device__Health device_health;
    struct text points; /* "step samples\n" for each report, in order of arrival */
    size_t reports, batches;
    uint64_t dropped;
    Pb__LogChunk *chunk;
    Pb__VaultChunk *vault;
    const void *code;
    size_t code_len, fetches;
    const struct uplink_fetch_events *fetch;
    void *fetch_arg;
    /* devices */
    struct inventory inventory;
    bool held; /* a device is not empty */
    Pb__Device device;
    void (*proof)(void *arg, bool empty, const char *text);
    void *proof_arg[RIG_MAX];
    void (*proofs[RIG_MAX])(void *arg, bool empty, const char *text);
    size_t proofs_count;
};

static inline void rig_tag(const Pb__WorkerKey *key, char *out, size_t cap)
{
    snprintf(out, cap, "%" PRId64 ".%u.%s.%u.%u", key->job, key->attempt, key->role, key->rank,
             key->incarnation);
}

/* --- what the agent says */

static inline void rig_take_report(struct rig *rig, const Pb__ActualReport *report)
{
    if (report->whole) {
        size_t at = 0;
        Pb__ActualWorker *old;
        while ((old = map_next(rig->actual, &at))) {
            char tag[256];
            rig_tag(old->key, tag, sizeof(tag));
            map_remove_text(rig->actual, tag);
            pb__actual_worker__free_unpacked(old, NULL);
        }
    }
    for (size_t i = 0; i < report->n_workers; i++) {
        char tag[256];
        rig_tag(report->workers[i]->key, tag, sizeof(tag));
        Pb__ActualWorker *old =
            map_put_text(rig->actual, tag, message_copy(&report->workers[i]->base));
        if (old)
            pb__actual_worker__free_unpacked(old, NULL);
    }
    for (size_t i = 0; i < report->n_staged; i++) {
        if (rig->staged)
            pb__actual_staged__free_unpacked(rig->staged, NULL);
        rig->staged = (Pb__ActualStaged *)message_copy(&report->staged[i]->base);
        rig->staged_count++;
    }
    for (size_t i = 0; i < report->n_sealed; i++)
        snprintf(rig->sealed, sizeof(rig->sealed), "%s",
                 report->sealed[i]->manifest_digest ? report->sealed[i]->manifest_digest
                                                    : "failed");
    for (size_t i = 0; i < report->n_verified; i++) {
        if (rig->verified)
            pb__actual_verified__free_unpacked(rig->verified, NULL);
        rig->verified = (Pb__ActualVerified *)message_copy(&report->verified[i]->base);
    }
    rig->gone += report->n_gone;
    for (size_t i = 0; i < report->n_gangs; i++) {
        if (rig->gang)
            pb__actual_gang__free_unpacked(rig->gang, NULL);
        rig->gang = (Pb__ActualGang *)message_copy(&report->gangs[i]->base);
    }
    if (report->n_devices)
        rig->device_health = report->devices[0]->health;
    for (size_t i = 0; i < report->n_deleted; i++)
        rig->deleted = report->deleted[i]->checkpoint;
}

static inline void rig_take_bulk(struct rig *rig, const Pb__BulkUp *up)
{
    if (up->log) {
        if (rig->chunk)
            pb__log_chunk__free_unpacked(rig->chunk, NULL);
        rig->chunk = (Pb__LogChunk *)message_copy(&up->log->base);
    }
    if (up->vault) {
        if (rig->vault)
            pb__vault_chunk__free_unpacked(rig->vault, NULL);
        rig->vault = (Pb__VaultChunk *)message_copy(&up->vault->base);
    }
    if (!up->has_seq || up->seq <= rig->bulk_seq)
        return; /* stored already */
    assert_int_equal(up->seq, rig->bulk_seq + 1);
    rig->bulk_seq = up->seq;
    for (size_t i = 0; i < up->n_batches; i++) {
        rig->batches++;
        rig->dropped += up->batches[i]->dropped;
        for (size_t j = 0; j < up->batches[i]->n_reports; j++) {
            const Pb__Report *report = up->batches[i]->reports[j];
            text_addf(&rig->points, "%" PRId64 " %" PRId64 "\n", report->step, report->samples);
            rig->reports++;
        }
    }
}

/* --- what the daemon says; in later turns */

static inline void rig_talk_soon(struct rig *rig)
{
    loop_timer_set(rig->talk, 0);
}

static inline void rig_say(struct rig *rig, Pb__AgentDown *down)
{
    down->has_term = true;
    down->term = rig->term;
    rig->events->control(rig->events_arg, down);
}

static inline void rig_say_desired(struct rig *rig)
{
    Pb__AgentDown down = PB__AGENT_DOWN__INIT;
    rig->desired.has_revision = true;
    rig->desired.revision = ++rig->revision;
    rig->desired.has_heard_seq = true;
    rig->desired.heard_seq = rig->control_seq;
    rig->desired.workers = rig->wanted;
    down.desired = &rig->desired;
    if (rig->open[UPLINK_CONTROL])
        rig_say(rig, &down);
}

static inline void rig_answer_control(struct rig *rig, const Pb__AgentUp *up)
{
    Pb__AgentDown down = PB__AGENT_DOWN__INIT;
    if (up->hello) {
        Pb__Welcome welcome = PB__WELCOME__INIT;
        rig->hellos++;
        welcome.has_lease_ms = welcome.has_heartbeat_ms = welcome.has_control_seq = true;
        welcome.lease_ms = 2000;
        welcome.heartbeat_ms = 200;
        welcome.control_seq = rig->control_seq;
        down.welcome = &welcome;
        rig_say(rig, &down);
        rig_say_desired(rig);
    }
    if (!up->report)
        return;
    assert_true(up->seq > rig->control_seq);
    rig->control_seq = up->seq;
    rig_take_report(rig, up->report);
    if (rig->deaf)
        return;
    down.has_ack_seq = true;
    down.ack_seq = up->seq;
    rig_say(rig, &down);
    if (up->report->n_gangs)
        rig_say_desired(rig);
}

static inline void rig_answer_bulk(struct rig *rig, const Pb__BulkUp *up)
{
    Pb__BulkDown down = PB__BULK_DOWN__INIT;
    rig_take_bulk(rig, up);
    rig->greeted |= up->hello != NULL;
    if ((rig->deaf && !up->hello) || (!up->hello && !up->has_seq))
        return;
    down.has_ack_seq = true;
    down.ack_seq = rig->bulk_seq;
    rig->events->bulk(rig->events_arg, &down);
}

static inline void rig_talk(void *arg)
{
    struct rig *rig = arg;
    for (int stream = 0; stream < 2; stream++) {
        if (!rig->closing[stream])
            continue;
        rig->open[stream] = rig->closing[stream] = false;
        rig->events->closed(rig->events_arg, (enum uplink_stream)stream, STATUS_UNAVAILABLE, "cut");
    }
    struct list_of_messages control = rig->inbox_control, bulk = rig->inbox_bulk;
    rig->inbox_control.count = rig->inbox_bulk.count = 0;
    for (size_t i = 0; i < control.count; i++) {
        if (rig->open[UPLINK_CONTROL])
            rig_answer_control(rig, (const Pb__AgentUp *)control.items[i]);
        protobuf_c_message_free_unpacked(control.items[i], NULL);
    }
    for (size_t i = 0; i < bulk.count; i++) {
        if (rig->open[UPLINK_BULK])
            rig_answer_bulk(rig, (const Pb__BulkUp *)bulk.items[i]);
        protobuf_c_message_free_unpacked(bulk.items[i], NULL);
    }
    while (rig->proofs_count > 0) {
        size_t last = --rig->proofs_count;
        rig->proofs[last](rig->proof_arg[last], !rig->held, rig->held ? "held by 1" : "");
    }
    if (rig->fetch) {
        const struct uplink_fetch_events *fetch = rig->fetch;
        rig->fetch = NULL;
        if (rig->code) {
            fetch->chunk(rig->fetch_arg, rig->code_len, rig->code, rig->code_len / 2);
            fetch->chunk(rig->fetch_arg, rig->code_len, (const char *)rig->code + rig->code_len / 2,
                         rig->code_len - rig->code_len / 2);
        }
        fetch->done(rig->fetch_arg, rig->code ? STATUS_OK : STATUS_NOT_FOUND, "no such code");
    }
}

/* --- seams */

static inline struct rig *rig_of(struct uplink *uplink)
{
    return CONTAINER_OF(uplink, struct rig, uplink);
}
static inline void rig_listen(struct uplink *uplink, const struct uplink_events *events, void *arg)
{
    rig_of(uplink)->events = events;
    rig_of(uplink)->events_arg = arg;
}
static inline void rig_open(struct uplink *uplink, enum uplink_stream stream)
{
    struct rig *rig = rig_of(uplink);
    rig->open[stream] = true;
    if (stream == UPLINK_BULK)
        rig->greeted = false;
    rig->closing[stream] = rig->away;
    rig_talk_soon(rig);
}
static inline size_t rig_put(struct rig *rig, struct list_of_messages *list,
                             const ProtobufCMessage *message)
{
    assert_true(list->count < 256);
    list->items[list->count++] = message_copy(message);
    rig_talk_soon(rig);
    return 0;
}
static inline size_t rig_control(struct uplink *uplink, const Pb__AgentUp *message)
{
    return rig_put(rig_of(uplink), &rig_of(uplink)->inbox_control, &message->base);
}
static inline size_t rig_bulk(struct uplink *uplink, const Pb__BulkUp *message)
{
    return rig_put(rig_of(uplink), &rig_of(uplink)->inbox_bulk, &message->base);
}
static inline void rig_close(struct uplink *uplink, enum uplink_stream stream)
{
    rig_of(uplink)->closing[stream] = rig_of(uplink)->open[stream];
    rig_talk_soon(rig_of(uplink));
}
static inline void rig_fetch(struct uplink *uplink, const char *digest,
                             const struct uplink_fetch_events *events, void *arg)
{
    struct rig *rig = rig_of(uplink);
    (void)digest;
    rig->fetches++;
    rig->fetch = events;
    rig->fetch_arg = arg;
    rig_talk_soon(rig);
}
static inline void rig_uplink_destroy(struct uplink *uplink)
{
    (void)uplink;
}
static const struct uplink_ops rig_uplink_ops = {rig_listen, rig_open,  rig_control,       rig_bulk,
                                                 rig_close,  rig_fetch, rig_uplink_destroy};

static inline bool rig_ready(struct inventory *inventory)
{
    (void)inventory;
    return true;
}
static inline size_t rig_list(struct inventory *inventory, const Pb__Device **out, size_t max)
{
    struct rig *rig = CONTAINER_OF(inventory, struct rig, inventory);
    assert_true(max > 0);
    pb__device__init(&rig->device);
    rig->device.kind = (char *)(uintptr_t) "cpu";
    rig->device.has_index = rig->device.has_health = true;
    rig->device.health = PB__DEVICE__HEALTH__HEALTHY;
    out[0] = &rig->device;
    return 1;
}
static inline void rig_prove(struct inventory *inventory, const char *kind, const uint32_t *indices,
                             size_t count, void (*done)(void *arg, bool empty, const char *text),
                             void *arg)
{
    struct rig *rig = CONTAINER_OF(inventory, struct rig, inventory);
    (void)kind, (void)indices, (void)count;
    assert_true(rig->proofs_count < RIG_MAX);
    rig->proofs[rig->proofs_count] = done;
    rig->proof_arg[rig->proofs_count++] = arg;
    rig_talk_soon(rig);
}
static inline void rig_inventory_destroy(struct inventory *inventory)
{
    (void)inventory;
}
static const struct inventory_ops rig_inventory_ops = {rig_ready, rig_list, rig_prove,
                                                       rig_inventory_destroy};

/* --- life */

static inline void rig_limit(void *arg)
{
    struct rig *rig = arg;
    rig->late = true;
    loop_uv_stop(rig->loop);
}

static inline void rig_poll(void *arg)
{
    struct rig *rig = arg;
    if (rig->condition && rig->condition(rig))
        loop_uv_stop(rig->loop);
    else
        loop_timer_set(rig->poll, 2000);
}

#define rig_until(rig, fn) rig_until_at(rig, fn, #fn, __LINE__)
static inline void rig_until_at(struct rig *rig, bool (*condition)(struct rig *rig),
                                const char *what, int line)
{
    rig->condition = condition;
    rig->late = false;
    loop_timer_set(rig->limit, RIG_LIMIT_US);
    loop_timer_set(rig->poll, 0);
    loop_uv_run(rig->loop);
    loop_timer_stop(rig->limit);
    loop_timer_stop(rig->poll);
    if (rig->late)
        fail_msg("waited in vain for %s (line %d)", what, line);
}

static inline const char *rig_getenv(const char *name)
{
    return getenv(name);
}

static inline void rig_start_agent(struct rig *rig)
{
    struct error err;
    struct agent_options *options = &rig->options;
    const struct launcher_shim_options launcher = {.loop = rig->loop,
                                                   .shim_path = RONDO_BINARY_DIR "/bin/rondo-shim"};
    if (launcher_shim_create(&launcher, &options->launcher, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    options->loop = rig->loop;
    options->files = files_uv_create(rig->loop, 2);
    options->vaults = vault_pool_uv_create(rig->loop, 2);
    options->socks = sock_uv_create(rig->loop, NULL, 0);
    options->inventory = &rig->inventory;
    options->uplink = &rig->uplink;
    options->config = &rig->config;
    options->boot_id = options->boot_id ? options->boot_id : "boot-1";
    options->hostname = "host";
    options->address = "127.0.0.1";
    options->inherited = rig_getenv;
    rig->agent = agent_create(options);
}

/* As a crash: the seams stop talking, workers run on. */
static inline void rig_stop_agent(struct rig *rig)
{
    struct agent_options *options = &rig->options;
    options->files->ops->destroy(options->files);
    options->vaults->ops->destroy(options->vaults);
    options->socks->ops->destroy(options->socks);
    options->launcher->ops->destroy(options->launcher);
    for (int stream = 0; stream < 2; stream++)
        rig->open[stream] = rig->closing[stream] = rig->greeted = false;
    for (size_t i = 0; i < rig->inbox_control.count; i++)
        protobuf_c_message_free_unpacked(rig->inbox_control.items[i], NULL);
    for (size_t i = 0; i < rig->inbox_bulk.count; i++)
        protobuf_c_message_free_unpacked(rig->inbox_bulk.items[i], NULL);
    rig->inbox_control.count = rig->inbox_bulk.count = 0;
    rig->proofs_count = 0;
    rig->fetch = NULL;
    loop_timer_stop(rig->talk);
    agent_destroy(rig->agent);
    rig->agent = NULL;
}

static inline struct rig *rig_create(void)
{
    struct rig *rig = NEW(struct rig);
    rig->loop = loop_uv_create();
    rig->dir = unit_dir_create();
    rig->limit = loop_timer_create(rig->loop, rig_limit, rig);
    rig->poll = loop_timer_create(rig->loop, rig_poll, rig);
    rig->talk = loop_timer_create(rig->loop, rig_talk, rig);
    rig->uplink.ops = &rig_uplink_ops;
    rig->inventory.ops = &rig_inventory_ops;
    rig->actual = map_create();
    rig->term = 1;
    text_init(&rig->points, 0);
    pb__desired__init(&rig->desired);
    option_defaults(config_rows, &rig->config);
    mem_free(rig->config.state_dir);
    rig->config.state_dir = mem_printf("%s/state", rig->dir);
    mem_free(rig->config.slot_dir);
    rig->config.slot_dir = mem_printf("%s/slots", rig->dir);
    rig->config.vault.items = mem_array(1, sizeof(char *));
    rig->config.vault.items[0] = mem_printf("main=%s/vault:node", rig->dir);
    rig->config.vault.count = 1;
    assert_int_equal(mkdir(unit_path(rig->dir, "vault"), 0755), 0);
    ssize_t len = readlink("/proc/self/exe", rig->self, sizeof(rig->self) - 1);
    assert_true(len > 0);
    rig_start_agent(rig);
    return rig;
}

static inline void rig_unwant(struct rig *rig)
{
    for (size_t i = 0; i < rig->desired.n_workers; i++)
        pb__desired_worker__free_unpacked(rig->wanted[i], NULL);
    rig->desired.n_workers = 0;
}

/* No worker has a directory any more: all of them are gone and what they reported is stored. */
static inline bool rig_is_empty(struct rig *rig)
{
    struct file_list list;
    struct error err;
    if (file_list_read(unit_path(rig->dir, "state/work"), 1000, &list, &err) != STATUS_OK)
        return false;
    size_t count = list.count;
    file_list_fini(&list);
    return count == 0;
}

static inline void rig_destroy(struct rig *rig)
{
    if (rig->agent) {
        rig->held = rig->deaf = rig->away = false;
        rig_unwant(rig);
        rig_say_desired(rig);
        rig_until(rig, rig_is_empty);
        rig_stop_agent(rig);
    }
    size_t at = 0;
    Pb__ActualWorker *worker;
    while ((worker = map_next(rig->actual, &at)))
        pb__actual_worker__free_unpacked(worker, NULL);
    map_destroy(rig->actual);
    for (size_t i = 0; i < rig->desired.n_workers; i++)
        pb__desired_worker__free_unpacked(rig->wanted[i], NULL);
    if (rig->staged)
        pb__actual_staged__free_unpacked(rig->staged, NULL);
    if (rig->verified)
        pb__actual_verified__free_unpacked(rig->verified, NULL);
    if (rig->gang)
        pb__actual_gang__free_unpacked(rig->gang, NULL);
    if (rig->vault)
        pb__vault_chunk__free_unpacked(rig->vault, NULL);
    if (rig->chunk)
        pb__log_chunk__free_unpacked(rig->chunk, NULL);
    text_fini(&rig->points);
    option_fini(config_rows, &rig->config);
    loop_timer_destroy(rig->limit);
    loop_timer_destroy(rig->poll);
    loop_timer_destroy(rig->talk);
    loop_uv_destroy(rig->loop);
    unit_dir_destroy(rig->dir);
    mem_free(rig);
}

static inline int rig_setup(void **state)
{
    *state = rig_create();
    return 0;
}

static inline int rig_teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

/* --- wishes. YAML of a DesiredWorker, %s: this program. */

static inline Pb__DesiredWorker *rig_want(struct rig *rig, const char *mode, const char *more)
{
    struct text problems;
    ProtobufCMessage *message = NULL;
    SCOPED_TEXT char *yaml = mem_printf(
        "key: {job: 7, role: trainer, rank: %zu, attempt: 1}\n"
        "want: RUN\n"
        "launch:\n"
        "  command: [%s, --worker, %s]\n"
        "  world: 1\n  local_world: 1\n  master_addr: 127.0.0.1\n  master_port: 29500\n"
        "  run_id: 7.1\n  vault: main\n  resources: {device: cpu}\n"
        "  devices: [%zu]\n%s",
        rig->desired.n_workers, rig->self, mode, rig->desired.n_workers, more ? more : "");
    text_init(&problems, 0);
    if (text_format_parse("wish", yaml, strlen(yaml), &pb__desired_worker__descriptor, &message,
                          &problems) != STATUS_OK)
        fail_msg("%s", text_get(&problems));
    text_fini(&problems);
    rig->wanted[rig->desired.n_workers++] = (Pb__DesiredWorker *)message;
    return (Pb__DesiredWorker *)message;
}

static inline const Pb__ActualWorker *rig_worker(struct rig *rig, unsigned rank)
{
    char tag[64];
    snprintf(tag, sizeof(tag), "7.1.trainer.%u.1", rank);
    return map_get_text(rig->actual, tag);
}

static inline bool rig_is(struct rig *rig, Pb__ActualWorker__State state)
{
    const Pb__ActualWorker *worker = rig_worker(rig, 0);
    return worker && worker->state == state;
}
static inline bool rig_is_running(struct rig *rig)
{
    return rig_is(rig, PB__ACTUAL_WORKER__STATE__RUNNING);
}
static inline bool rig_is_exited(struct rig *rig)
{
    return rig_is(rig, PB__ACTUAL_WORKER__STATE__EXITED);
}
static inline bool rig_is_up(struct rig *rig)
{
    return rig->open[UPLINK_CONTROL] && rig->open[UPLINK_BULK] && rig->greeted;
}

/* --- the worker's side: what librondo does, in a few lines */

static inline void put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static inline void worker_append(int fd, const Pb__WorkerRecord *record)
{
    uint8_t bytes[4096];
    size_t len = pb__worker_record__pack(record, bytes + 8);
    put_u32(bytes, (uint32_t)len);
    put_u32(bytes + 4, digest_crc32c(0, bytes + 8, len));
    if (write(fd, bytes, len + 8) != (ssize_t)len + 8)
        _exit(99);
}

static inline void worker_report(int fd, int64_t step)
{
    Pb__WorkerRecord record = PB__WORKER_RECORD__INIT;
    Pb__Report report = PB__REPORT__INIT;
    char *names[] = {(char *)(uintptr_t) "loss"};
    double value = 1.0 / (double)(step + 1);
    report.has_step = report.has_samples = report.has_t_us = true;
    report.step = step;
    report.samples = step * 8;
    report.n_names = report.n_values = 1;
    report.names = names;
    report.values = &value;
    record.report = &report;
    worker_append(fd, &record);
}

static inline int worker_reports_open(void)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/reports", getenv("RONDO_DIR"));
    return open(path, O_WRONLY | O_APPEND);
}
