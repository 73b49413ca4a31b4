/* agent.c - the hub: loads what an earlier agent left, wires the parts to each other. See agent.h.
 *
 * Start: directories, term and spool id -> spool index -> workers taken up -> devices known ->
 * link.
 */
#include "agent/actual.h"
#include "agent/code.h"
#include "agent/desired.h"
#include "agent/ended.h"
#include "agent/error_file.h"
#include "agent/gang.h"
#include "agent/hub.h"
#include "agent/logs.h"
#include "agent/look.h"
#include "agent/save.h"
#include "agent/spare.h"
#include "agent/worker.h"
#include "agent/worker_part.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

#define WATCH_US      100000
#define READY_POLL_US 20000
#define READY_US_MAX  30000000
#define PROGRESS_US   1000000

enum load_step {
    LOAD_STATE,
    LOAD_WORK,
    LOAD_ENDED,
    LOAD_CODE,
    LOAD_SPOOL,
    LOAD_TERM,
    LOAD_ID,
    LOAD_LIST_WORK,
    LOAD_LIST_ENDED,
    LOAD_LIST_CODE,
};

/* --- the spool's news of workers */

static void source_progress(void *arg, const char *tag, int64_t step, int64_t samples)
{
    struct agent *agent = arg;
    struct worker *worker = worker_find(agent, tag);
    if (!worker)
        return;
    int64_t now = loop_now_us(agent->loop);
    worker->step = step;
    worker->samples = samples;
    worker->progress_us = now;
    if (now - worker->told_us < PROGRESS_US && worker->told_us)
        return;
    worker->told_us = now;
    actual_mark(agent->actual, tag);
}

static void source_flags(void *arg, const char *tag, bool joined, bool finished)
{
    struct agent *agent = arg;
    struct worker *worker = worker_find(agent, tag);
    if (!worker)
        return;
    worker->joined |= joined;
    worker->finished |= finished;
    actual_mark(agent->actual, tag);
}

#define DAMAGED_BYTES_MAX ((size_t)200)

static void source_failure(void *arg, const char *tag, const Pb__WorkerFailure *failure)
{
    struct agent *agent = arg;
    struct worker *worker = worker_find(agent, tag);
    if (!worker)
        return;
    mem_free(worker->failure);
    mem_free(worker->traceback);
    worker->failure = worker->traceback = NULL;
    if (failure->damaged && *failure->damaged) {
        mem_free(worker->damaged);
        worker->damaged =
            error_file_clean(failure->damaged, strlen(failure->damaged), DAMAGED_BYTES_MAX);
    }
    if (failure->message)
        worker->failure =
            error_file_clean(failure->message, strlen(failure->message), ERROR_FILE_MESSAGE_MAX);
    if (failure->traceback)
        worker->traceback = error_file_clean(failure->traceback, strlen(failure->traceback),
                                             ERROR_FILE_TRACEBACK_MAX);
}

static void source_drained(void *arg, const char *tag)
{
    struct worker *worker = worker_find(arg, tag);
    if (worker)
        worker_end_release(worker, WORKER_HOLD_DRAIN);
}

static void source_settled(void *arg, const char *tag)
{
    struct worker *worker = worker_find(arg, tag);
    if (worker)
        worker_end_left(worker);
}

static const struct spool_source_events source_events = {
    source_progress, source_flags, source_failure, source_drained, source_settled};

static size_t agent_send_bulk(void *arg, const Pb__BulkUp *message)
{
    struct agent *agent = arg;
    return link_bulk(agent->link, message);
}

/* --- the link's news */

static const Pb__NodeInventory *agent_inventory(void *arg)
{
    struct agent *agent = arg;
    return actual_inventory(agent->actual);
}

static void agent_heartbeat(void *arg, Pb__Heartbeat *out)
{
    struct agent *agent = arg;
    struct spool_counts counts;
    spool_counts(agent->spool, &counts);
    out->has_spool_bytes = out->has_points_dropped = true;
    out->spool_bytes = counts.bytes;
    out->points_dropped = counts.dropped;
    out->has_persists = out->has_persist_bytes_left = true;
    saves_persisting(agent->saves, &out->persists, &out->persist_bytes_left);
}

static void agent_welcome(void *arg, const Pb__Welcome *welcome)
{
    struct agent *agent = arg;
    if (welcome->has_peer_key && agent->options.peer_key)
        agent->options.peer_key(agent->options.arg, welcome->peer_key.data, welcome->peer_key.len);
    actual_whole(agent->actual);
}

static void agent_desired(void *arg, const Pb__Desired *desired)
{
    desired_apply(arg, desired);
}

static void agent_acked(void *arg, uint64_t seq)
{
    struct agent *agent = arg;
    saves_acked(agent->saves, seq);
}

static void agent_down(void *arg)
{
    struct agent *agent = arg;
    actual_down(agent->actual);
    saves_down(agent->saves);
}

static void agent_bulk_up(void *arg, uint64_t mark)
{
    struct agent *agent = arg;
    spool_up(agent->spool, mark);
}

static void agent_bulk(void *arg, const Pb__BulkDown *message)
{
    struct agent *agent = arg;
    if (message->has_ack_seq)
        spool_acked(agent->spool, message->ack_seq);
    if (message->log)
        logs_ask(agent->logs, message->log);
    if (message->vault)
        looks_ask(agent->looks, message->vault);
}

static void agent_bulk_drained(void *arg)
{
    struct agent *agent = arg;
    spool_resume(agent->spool);
}

static void agent_bulk_down(void *arg)
{
    struct agent *agent = arg;
    spool_down(agent->spool);
    logs_down(agent->logs);
    looks_down(agent->looks);
}

static const struct link_events link_events = {
    agent_inventory, agent_heartbeat, agent_welcome, agent_desired,      agent_acked,
    agent_down,      agent_bulk_up,   agent_bulk,    agent_bulk_drained, agent_bulk_down,
};

/* --- inventory: what does not change while the agent runs */

static char *pb_text(const char *text, size_t len)
{
    return mem_printf("%.*s", (int)len, text);
}

static void add_vault(Pb__NodeInventory *out, const char *item)
{
    const char *equals = strchr(item, '='), *colon = strrchr(item, ':');
    if (!equals || equals == item)
        return;
    Pb__Vault *vault = NEW(Pb__Vault);
    pb__vault__init(vault);
    const char *end = colon && colon > equals ? colon : item + strlen(item);
    vault->name = pb_text(item, (size_t)(equals - item));
    vault->path = pb_text(equals + 1, (size_t)(end - equals - 1));
    vault->has_class_ = true;
    vault->class_ =
        *end && strcmp(end + 1, "shared") == 0 ? PB__VAULT__CLASS__SHARED : PB__VAULT__CLASS__NODE;
    out->vaults = mem_resize(out->vaults, out->n_vaults + 1, sizeof(*out->vaults));
    out->vaults[out->n_vaults++] = vault;
}

static void add_label(Pb__NodeInventory *out, const char *item)
{
    const char *equals = strchr(item, '=');
    if (!equals)
        return;
    Pb__StringPair *label = NEW(Pb__StringPair);
    pb__string_pair__init(label);
    label->name = pb_text(item, (size_t)(equals - item));
    label->value = mem_strdup(equals + 1);
    out->labels = mem_resize(out->labels, out->n_labels + 1, sizeof(*out->labels));
    out->labels[out->n_labels++] = label;
}

static void add_limits(Pb__NodeInventory *out, const char *limits)
{
    SCOPED_TEXT char *copy = mem_strdup(limits ? limits : "none");
    char *rest = NULL;
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        out->limits = mem_resize(out->limits, out->n_limits + 1, sizeof(*out->limits));
        out->limits[out->n_limits++] = mem_strdup(word);
    }
}

static Pb__NodeInventory *make_inventory(const struct agent *agent)
{
    const struct agent_options *options = &agent->options;
    const struct agent_config *config = agent->config;
    Pb__NodeInventory *out = NEW(Pb__NodeInventory);
    pb__node_inventory__init(out);
    out->hostname = mem_strdup(options->hostname);
    out->address = mem_strdup(options->address);
    out->has_memory_mib = out->has_port_first = out->has_port_last = true;
    out->memory_mib = config->memory_mib ? config->memory_mib : options->memory_mib;
    out->port_first = config->port_first;
    out->port_last = config->port_last;
    out->has_peer_port = true;
    out->peer_port = options->peer_port;
    out->version = mem_strdup(RONDO_VERSION);
    for (size_t i = 0; i < config->vault.count; i++)
        add_vault(out, config->vault.items[i]);
    for (size_t i = 0; i < config->label.count; i++)
        add_label(out, config->label.items[i]);
    add_limits(out, options->launcher->ops->limits(options->launcher));
    return out;
}

/* --- start */

static void agent_watch(void *arg)
{
    struct agent *agent = arg;
    loop_timer_set(agent->watch_timer, WATCH_US);
    worker_watch_tick(agent);
    gangs_tick(agent->gangs);
}

static void agent_ready(void *arg)
{
    struct agent *agent = arg;
    struct inventory *inventory = agent->options.inventory;
    if (!inventory->ops->ready(inventory) && loop_now_us(agent->loop) < agent->ready_until_us) {
        loop_timer_set(agent->ready_timer, READY_POLL_US);
        return;
    }
    agent->loaded = true;
    log_info("agent.ready", log_str("node", agent->node),
             log_int("workers", (int64_t)map_count(agent->workers)),
             log_str("limits", agent->options.launcher->ops->limits(agent->options.launcher)));
    spares_start(agent->spares);
    link_start(agent->link);
    loop_timer_set(agent->watch_timer, WATCH_US);
}

static void agent_failed(struct agent *agent, const struct error *err)
{
    log_error("agent.start", log_err(err));
    if (agent->options.failed)
        agent->options.failed(agent->options.arg, err);
}

/* An agent that does not know which incarnation lives here must not begin. */
static void agent_gangs_loaded(struct agent *agent, const struct error *err)
{
    if (err) {
        agent_failed(agent, err);
        return;
    }
    agent->ready_until_us = loop_now_us(agent->loop) + READY_US_MAX;
    loop_timer_set(agent->ready_timer, 0);
}

static void agent_adopted(struct agent *agent)
{
    gangs_load(agent->gangs, agent_gangs_loaded);
}

/* Names found at the start, kept while the spool loads. */
struct found {
    struct agent *agent;
    char **names;
    size_t count;
};

static void agent_spool_loaded(void *arg, enum status st, const struct error *err)
{
    struct found *found = arg;
    struct agent *agent = found->agent;
    if (st == STATUS_OK)
        worker_adopt_all(agent, found->names, found->count, agent_adopted);
    else
        agent_failed(agent, err);
    files_names_destroy(found->names, found->count);
    pending_destroy(found);
}

static void make_link(struct agent *agent, uint64_t term)
{
    SCOPED_TEXT char *term_path = mem_printf("%s/term", agent->state_dir);
    struct link_options options = {
        .loop = agent->loop,
        .files = agent->files,
        .uplink = agent->options.uplink,
        .node = agent->node,
        .boot_id = agent->options.boot_id,
        .spool_id = agent->spool_id,
        .instance = agent->instance,
        .term_path = term_path,
        .term = term,
        .events = &link_events,
        .arg = agent,
    };
    agent->link = link_create(&options);
}

static void agent_loaded(void *arg, enum status st, const struct error *err,
                         struct files_batch *batch)
{
    struct agent *agent = arg;
    uint64_t term = 0;
    if (st != STATUS_OK) {
        agent_failed(agent, err);
        return;
    }
    struct files_step *steps = batch->steps;
    if (steps[LOAD_TERM].len && !text_to_u64(steps[LOAD_TERM].bytes, 0, UINT64_MAX, &term)) {
        struct error bad;
        (void)error_set(&bad, STATUS_DATA_LOSS, "%s is damaged", steps[LOAD_TERM].path);
        agent_failed(agent, &bad);
        return;
    }
    if (steps[LOAD_ID].len == 32)
        (void)snprintf(agent->spool_id, 33, "%s", (const char *)steps[LOAD_ID].bytes);
    make_link(agent, term);
    code_cache_adopt(agent->codes, steps[LOAD_LIST_CODE].names, steps[LOAD_LIST_CODE].names_count);
    ended_adopt(agent->ended, steps[LOAD_LIST_ENDED].names, steps[LOAD_LIST_ENDED].names_count);
    struct found *found = PENDING(&agent->pending, struct found);
    found->agent = agent;
    found->names = steps[LOAD_LIST_WORK].names;
    found->count = steps[LOAD_LIST_WORK].names_count;
    steps[LOAD_LIST_WORK].names = NULL;
    steps[LOAD_LIST_WORK].names_count = 0;
    spool_load(agent->spool, agent_spool_loaded, found);
}

static void agent_looked(void *arg, enum status st, const struct error *err,
                         struct files_batch *batch);

static void load(struct agent *agent)
{
    struct files_batch *batch = files_batch_create();
    SCOPED_TEXT char *code = mem_printf("%s/code", agent->state_dir);
    SCOPED_TEXT char *spool = mem_printf("%s/spool", agent->state_dir);
    SCOPED_TEXT char *id = mem_printf("%s/spool/id", agent->state_dir);
    SCOPED_TEXT char *term = mem_printf("%s/term", agent->state_dir);
    (void)files_dir(batch, agent->state_dir, 0711);
    (void)files_dir(batch, agent->work_dir, 0711);
    (void)files_dir(batch, agent->ended_dir, 0700);
    (void)files_dir(batch, code, 0711);
    (void)files_dir(batch, spool, 0700);
    files_read(batch, term, 0, 64)->missing_ok = true;
    files_read(batch, id, 0, 64)->missing_ok = true;
    (void)files_step_add(batch, FILES_LIST, agent->work_dir);
    (void)files_step_add(batch, FILES_LIST, agent->ended_dir);
    (void)files_step_add(batch, FILES_LIST, code);
    files_run(agent->files, batch, agent_looked, agent);
}

static void agent_id_written(void *arg, enum status st, const struct error *err,
                             struct files_batch *batch)
{
    (void)batch;
    if (st == STATUS_OK)
        load(arg); /* once more: now it is there */
    else
        agent_failed(arg, err);
}

/* The id is durable before it is used: sequences belong to it. */
static void agent_looked(void *arg, enum status st, const struct error *err,
                         struct files_batch *batch)
{
    struct agent *agent = arg;
    if (st != STATUS_OK || batch->steps[LOAD_ID].len == 32) {
        agent_loaded(arg, st, err, batch);
        return;
    }
    struct files_batch *write = files_batch_create();
    files_write(write, batch->steps[LOAD_ID].path, agent->spool_id, 32, 0600)->sync = true;
    files_run(agent->files, write, agent_id_written, agent);
}

static char *random_name(struct agent *agent)
{
    unsigned char bytes[16];
    char *name = mem_alloc(33);
    loop_random(agent->loop, bytes, sizeof(bytes));
    text_to_hex(bytes, sizeof(bytes), name);
    return name;
}

static void make_parts(struct agent *agent)
{
    SCOPED_TEXT char *code = mem_printf("%s/code", agent->state_dir);
    SCOPED_TEXT char *spool = mem_printf("%s/spool", agent->state_dir);
    SCOPED_TEXT char *spare = mem_printf("%s/spare", agent->state_dir);
    struct spool_options options = {
        .loop = agent->loop,
        .files = agent->files,
        .dir = spool,
        .bytes_max = agent->config->spool_mib_max << 20,
        .window = 32,
        .send = agent_send_bulk,
        .events = &source_events,
        .arg = agent,
    };
    agent->spool = spool_create(&options);
    agent->actual = actual_create(agent);
    agent->saves = saves_create(agent);
    agent->codes = code_cache_create(agent, code);
    agent->logs = logs_create(agent);
    agent->looks = looks_create(agent);
    agent->ended = ended_create(agent);
    agent->gangs = gangs_create(agent);
    agent->spares = spares_create(agent->loop, agent->files, spare, agent->config->spares);
}

struct agent *agent_create(const struct agent_options *options)
{
    struct agent *agent = NEW(struct agent);
    agent->options = *options;
    agent->loop = options->loop;
    agent->files = options->files;
    agent->config = options->config;
    agent->node = mem_strdup(*options->config->node ? options->config->node : options->hostname);
    agent->state_dir = mem_strdup(options->config->state_dir);
    agent->work_dir = mem_printf("%s/work", agent->state_dir);
    agent->ended_dir = mem_printf("%s/ended", agent->state_dir);
    list_init(&agent->pending);
    agent->workers = map_create();
    agent->users = map_create();
    agent->quarantine = map_create();
    agent->spool_id = random_name(agent);
    agent->instance = random_name(agent);
    agent->watch_timer = loop_timer_create(agent->loop, agent_watch, agent);
    agent->ready_timer = loop_timer_create(agent->loop, agent_ready, agent);
    agent->inventory = make_inventory(agent);
    make_parts(agent);
    load(agent);
    return agent;
}

static void destroy_inventory(Pb__NodeInventory *inventory)
{
    for (size_t i = 0; i < inventory->n_vaults; i++) {
        mem_free(inventory->vaults[i]->name);
        mem_free(inventory->vaults[i]->path);
        mem_free(inventory->vaults[i]);
    }
    for (size_t i = 0; i < inventory->n_labels; i++) {
        mem_free(inventory->labels[i]->name);
        mem_free(inventory->labels[i]->value);
        mem_free(inventory->labels[i]);
    }
    for (size_t i = 0; i < inventory->n_limits; i++)
        mem_free(inventory->limits[i]);
    mem_free(inventory->vaults);
    mem_free(inventory->labels);
    mem_free(inventory->limits);
    mem_free(inventory->hostname);
    mem_free(inventory->address);
    mem_free(inventory->version);
    mem_free(inventory);
}

static void destroy_maps(struct agent *agent)
{
    size_t at = 0;
    void *value;
    while ((value = map_next(agent->workers, &at)))
        worker_destroy(value);
    at = 0;
    while ((value = map_next(agent->users, &at))) {
        struct user *user = value;
        mem_free(user->name);
        mem_free(user->home);
        mem_free(user);
    }
    map_destroy(agent->workers);
    map_destroy(agent->users);
    map_destroy(agent->quarantine);
}

void agent_destroy(struct agent *agent)
{
    if (!agent)
        return;
    loop_timer_destroy(agent->watch_timer);
    loop_timer_destroy(agent->ready_timer);
    destroy_maps(agent);
    link_destroy(agent->link);
    logs_destroy(agent->logs);
    looks_destroy(agent->looks);
    ended_destroy(agent->ended);
    gangs_destroy(agent->gangs);
    spares_destroy(agent->spares);
    code_cache_destroy(agent->codes);
    saves_destroy(agent->saves);
    actual_destroy(agent->actual);
    spool_destroy(agent->spool);
    destroy_inventory(agent->inventory);
    pending_destroy_all(&agent->pending);
    mem_free(agent->node);
    mem_free(agent->state_dir);
    mem_free(agent->work_dir);
    mem_free(agent->ended_dir);
    mem_free(agent->spool_id);
    mem_free(agent->instance);
    mem_free(agent);
}

void agent_devices_changed(struct agent *agent)
{
    actual_mark_devices(agent->actual);
}

void agent_leave(struct agent *agent)
{
    if (agent->loaded && map_count(agent->workers) == 0)
        saves_leave(agent->saves);
}

void agent_counts(const struct agent *agent, struct agent_counts *out)
{
    struct spool_counts counts;
    size_t at = 0;
    const struct worker *worker;
    spool_counts(agent->spool, &counts);
    *out = (struct agent_counts){
        .workers = (uint32_t)map_count(agent->workers),
        .reports = counts.reports,
        .messages = counts.messages,
        .points_dropped = counts.dropped,
        .spool_bytes = counts.bytes,
        .spool_seq = counts.seq,
        .up = agent->link && link_is_up(agent->link),
        .loaded = agent->loaded,
    };
    while ((worker = map_next(agent->workers, &at)))
        out->running += worker->state == PB__ACTUAL_WORKER__STATE__RUNNING;
}
