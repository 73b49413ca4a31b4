/* actual.c - see actual.h. */
#include "agent/actual.h"
#include "agent/exit_class.h"
#include "agent/gang.h"
#include "agent/save.h"
#include "agent/worker.h"
#include "base/list.h"
#include <stdio.h>
#include <string.h>

#define DEVICES_MAX         4096
#define GONE_MAX            4096
#define TRACEBACK_BYTES_MAX ((size_t)2 << 20) /* in one report, over all workers */
#define PROGRESS_US         1000000

struct actual {
    struct agent *agent;
    struct map *changed; /* tags (owned copies) */
    struct loop_timer *timer;
    bool whole, devices, outbox, connected;
    Pb__WorkerKey **gone;
    size_t gone_count;
    struct inventory_copy {
        Pb__NodeInventory message;
        Pb__Device *devices[DEVICES_MAX];
        Pb__Device *quarantined; /* room for all that are */
    } inventory;
};

static void actual_flush(void *arg);

struct actual *actual_create(struct agent *agent)
{
    struct actual *actual = NEW(struct actual);
    actual->agent = agent;
    actual->changed = map_create();
    actual->timer = loop_timer_create(agent->loop, actual_flush, actual);
    return actual;
}

static void clear_changed(struct actual *actual)
{
    size_t at = 0;
    char *tag;
    while ((tag = map_next(actual->changed, &at))) {
        (void)map_remove_text(actual->changed, tag);
        mem_free(tag);
    }
}

static void clear_gone(struct actual *actual)
{
    for (size_t i = 0; i < actual->gone_count; i++)
        pb__worker_key__free_unpacked(actual->gone[i], NULL);
    mem_free(actual->gone);
    actual->gone = NULL;
    actual->gone_count = 0;
}

void actual_destroy(struct actual *actual)
{
    if (!actual)
        return;
    clear_changed(actual);
    clear_gone(actual);
    map_destroy(actual->changed);
    mem_free(actual->inventory.quarantined);
    loop_timer_destroy(actual->timer);
    mem_free(actual);
}

static void wake(struct actual *actual)
{
    if (actual->connected)
        loop_timer_set(actual->timer, 0);
}

void actual_mark(struct actual *actual, const char *tag)
{
    if (!map_get_text(actual->changed, tag))
        (void)map_put_text(actual->changed, tag, mem_strdup(tag));
    wake(actual);
}

void actual_mark_outbox(struct actual *actual)
{
    actual->outbox = true;
    wake(actual);
}

void actual_mark_devices(struct actual *actual)
{
    actual->devices = true;
    wake(actual);
}

void actual_gone(struct actual *actual, const Pb__WorkerKey *key)
{
    if (!actual->connected || actual->gone_count >= GONE_MAX)
        return; /* the whole set after the next connect says it by silence */
    uint8_t bytes[512];
    size_t len = pb__worker_key__get_packed_size(key);
    if (len > sizeof(bytes))
        return;
    (void)pb__worker_key__pack(key, bytes);
    actual->gone = mem_resize(actual->gone, actual->gone_count + 1, sizeof(*actual->gone));
    actual->gone[actual->gone_count++] = pb__worker_key__unpack(NULL, len, bytes);
    wake(actual);
}

void actual_whole(struct actual *actual)
{
    actual->connected = actual->whole = actual->outbox = true;
    clear_gone(actual);
    gangs_connected(actual->agent->gangs);
    wake(actual);
}

void actual_down(struct actual *actual)
{
    actual->connected = false;
    loop_timer_stop(actual->timer);
}

/* --- one worker */

/* A program that never began has no exit status, and of one that a lost shim or a reboot took away
 * nobody saw it: 0 would claim a good end. */
static bool status_is_known(const struct exit_facts *facts)
{
    switch (facts->cause) {
    case EXIT_CAUSE_LAUNCH:
    case EXIT_CAUSE_RESUME:
    case EXIT_CAUSE_SOURCE:
    case EXIT_CAUSE_SHIM:
    case EXIT_CAUSE_REBOOT:
        return facts->code != 0 || facts->signal != 0;
    default:
        return !facts->never_ran;
    }
}

static void describe_end(const struct worker *worker, Pb__ActualWorker *out)
{
    struct exit_facts facts = {
        .cause = worker->cause,
        .code = worker->exit_code,
        .signal = worker->signal,
        .out_of_memory = worker->out_of_memory,
        .never_ran = worker->started_us == 0 && worker->pid == 0,
        .launch_text = worker->cause_text,
        .failure = worker->failure,
        .traceback = worker->traceback,
        .stderr_tail = worker->last_words,
        .damaged = worker->damaged != NULL,
    };
    out->class_ = exit_class_decide(&facts);
    out->has_class_ = out->class_ != PB__REASON__CODE__CODE_UNSPECIFIED;
    out->has_exit_code = out->has_signal = status_is_known(&facts);
    out->exit_code = worker->exit_code;
    out->signal = worker->signal;
    out->has_fail_us = worker->ended_us > 0;
    out->fail_us = worker->ended_us - worker->start_us;
    bool said = worker->cause == EXIT_CAUSE_NONE || worker->cause == EXIT_CAUSE_STOP ||
                worker->cause == EXIT_CAUSE_KILL;
    out->message = said && worker->failure ? worker->failure : worker->cause_text;
    out->traceback = worker->traceback;
    out->damaged = worker->damaged;
}

/* What it waits for before it can start. */
static void describe_fetch(const struct worker *worker, Pb__ActualWorker *out)
{
    const Pb__Launch *launch = worker->desired->launch;
    const char *text =
        launch ? saves_fetch_text(worker->agent->saves, launch->resume, &out->fetched) : NULL;
    out->has_fetched = text != NULL;
    out->message = (char *)(uintptr_t)text;
}

static void describe(const struct worker *worker, Pb__ActualWorker *out)
{
    pb__actual_worker__init(out);
    out->key = worker->desired->key;
    out->has_state = true;
    out->state = worker->state;
    out->has_pid = worker->pid > 0;
    out->pid = worker->pid;
    out->has_step = worker->step >= 0;
    out->step = worker->step;
    out->has_samples = worker->samples >= 0;
    out->samples = worker->samples;
    out->has_joined = out->has_finished = out->has_saving = true;
    out->joined = worker->joined;
    out->finished = worker->finished;
    out->saving = worker->page && atomic_load(&worker->page->saving) != 0;
    out->has_gate_number = out->has_gate_phase = out->has_gate_step = worker->gate.number > 0;
    out->gate_number = worker->gate.number;
    out->gate_phase = worker->gate.phase;
    out->gate_step = worker->gate.step;
    out->has_answered = worker->answered >= 0;
    out->answered = worker->answered;
    if (worker->state == PB__ACTUAL_WORKER__STATE__PREPARING)
        describe_fetch(worker, out);
    if (worker_is_final(worker) || worker->state == PB__ACTUAL_WORKER__STATE__UNKILLABLE)
        describe_end(worker, out);
}

void actual_describe(const struct worker *worker, Pb__ActualWorker *out)
{
    describe(worker, out);
}

static void add_workers(struct actual *actual, Pb__ActualReport *report)
{
    struct agent *agent = actual->agent;
    size_t at = 0, count = map_count(agent->workers), traced = 0;
    const struct worker *worker;
    Pb__ActualWorker *all = mem_array(count + 1, sizeof(*all));
    report->workers = mem_array(count + 1, sizeof(Pb__ActualWorker *));
    while ((worker = map_next(agent->workers, &at))) {
        if (!worker_is_listed(worker) ||
            (!actual->whole && !map_get_text(actual->changed, worker->tag)))
            continue;
        Pb__ActualWorker *out = &all[report->n_workers];
        describe(worker, out);
        traced += out->traceback ? strlen(out->traceback) : 0;
        if (traced > TRACEBACK_BYTES_MAX)
            out->traceback = NULL;
        report->workers[report->n_workers++] = out;
    }
    if (report->n_workers == 0)
        mem_free(all);
}

static void free_workers(Pb__ActualReport *report)
{
    if (report->n_workers)
        mem_free(report->workers[0]);
    mem_free(report->workers);
}

static void actual_flush(void *arg)
{
    struct actual *actual = arg;
    struct agent *agent = actual->agent;
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    if (!link_is_up(agent->link))
        return;
    report.has_whole = true;
    report.whole = actual->whole;
    report.has_revision_seen = true;
    report.revision_seen = agent->revision;
    add_workers(actual, &report);
    gangs_fill(agent->gangs, &report);
    bool more = actual->outbox && saves_fill(agent->saves, &report);
    if (actual->devices) {
        const Pb__NodeInventory *inventory = actual_inventory(actual);
        report.devices = inventory->devices;
        report.n_devices = inventory->n_devices;
    }
    report.gone = actual->gone;
    report.n_gone = actual->gone_count;
    uint64_t seq = link_report(agent->link, &report);
    free_workers(&report);
    saves_sent(agent->saves, &report, seq);
    gangs_sent(agent->gangs, &report, seq);
    if (seq == 0)
        return;
    actual->whole = actual->devices = false;
    actual->outbox = more;
    clear_changed(actual);
    clear_gone(actual);
    if (more)
        wake(actual);
}

/* --- devices */

static void device_name(const char *kind, uint32_t index, char *out, size_t cap)
{
    (void)snprintf(out, cap, "%.64s %u", kind, index);
}

void actual_quarantine(struct actual *actual, const Pb__Launch *launch, int change)
{
    const char *kind = launch && launch->resources && launch->resources->device
                           ? launch->resources->device
                           : "cpu";
    for (size_t i = 0; launch && i < launch->n_devices; i++) {
        char name[96];
        device_name(kind, launch->devices[i], name, sizeof(name));
        intptr_t count = (intptr_t)map_get_text(actual->agent->quarantine, name) + change;
        if (count > 0)
            (void)map_put_text(actual->agent->quarantine, name, (void *)count);
        else
            (void)map_remove_text(actual->agent->quarantine, name);
    }
    actual_mark_devices(actual);
}

static void mark_quarantined(struct actual *actual, struct inventory_copy *copy)
{
    const size_t max = map_count(actual->agent->quarantine);
    size_t count = 0;
    mem_free(copy->quarantined);
    copy->quarantined = mem_array(max + 1, sizeof(*copy->quarantined));
    for (size_t i = 0; i < copy->message.n_devices && count < max; i++) {
        char name[96];
        const Pb__Device *device = copy->devices[i];
        device_name(device->kind, device->index, name, sizeof(name));
        if (!map_get_text(actual->agent->quarantine, name))
            continue;
        Pb__Device *mine = &copy->quarantined[count++];
        *mine = *device;
        mine->has_health = true;
        mine->health = PB__DEVICE__HEALTH__QUARANTINED;
        mine->note = (char *)(uintptr_t) "a worker that cannot be removed may still hold it";
        copy->devices[i] = mine;
    }
}

const Pb__NodeInventory *actual_inventory(struct actual *actual)
{
    struct agent *agent = actual->agent;
    struct inventory_copy *copy = &actual->inventory;
    struct inventory *inventory = agent->options.inventory;
    copy->message = *agent->inventory;
    copy->message.n_devices =
        inventory->ops->list(inventory, (const Pb__Device **)(uintptr_t)copy->devices, DEVICES_MAX);
    copy->message.devices = copy->devices;
    mark_quarantined(actual, copy);
    return &copy->message;
}
