/* device.c - the machine's devices, kept up to date by probe children, one at a time per kind.
 *
 * A probe answers with the whole kind: inventory, health and who holds each device. Proofs of
 * emptiness wait for a probe that starts after they were asked; all that wait share it. A child
 * that cannot be killed is not joined by a second. */
#include "agent/device.h"
#include "agent/device_probe.h"
#include "agent/stray.h"
#include "base/child.h"
#include "base/list.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

#define DEVICE_PROBE_MS_DEFAULT 10000
#define DEVICE_EVERY_MS_DEFAULT 60000

struct device_kind { /* a row: what there is to know of a kind */
    const char *name;
    const char *visible; /* environment variable that lists what a worker sees; NULL: none */
    bool watched;        /* can fail, can be held: probed again and again */
};
static const struct device_kind device_kinds[] = {
    {"cpu", NULL, false},
    {"nvidia", "CUDA_VISIBLE_DEVICES", true},
};
#define KINDS COUNT_OF(device_kinds)

struct device_part { /* a kind's state */
    const struct device_kind *kind;
    struct device_pool *pool;
    Pb__Device **devices;
    size_t count;
    bool answered;
    char argument[512];
    struct device_round *round; /* the probe on its way */
    pid_t hung;                 /* a child that did not die at its deadline */
    int64_t hung_start;
    char problem[200]; /* last one, so that it is logged once */
};
/* One probe. Outlives the pool: its child may need a while to end. */
struct device_round {
    struct device_part *part; /* NULL: the pool is gone */
    struct child *child;
    pid_t pid;
    int64_t start;
};
struct device_proof {
    struct list node;
    struct device_part *part;
    struct device_round *round; /* that answers it; NULL: the next one */
    uint32_t *indices;
    size_t count;
    void (*done)(void *arg, bool empty, const char *text);
    void *arg;
    struct loop_timer *now; /* for kinds that are always empty */
};
struct device_pool {
    struct device_options options;
    char *self_path;
    struct device_part parts[KINDS];
    struct list proofs;
    struct loop_timer *timer;
};

static void device_part_probe(struct device_part *part);

static const struct device_kind *device_kind_find(const char *name)
{
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(device_kinds[i].name, name) == 0)
            return &device_kinds[i];
    return NULL;
}

/* --- inventory */

static Pb__Device *device_make(const struct device_kind *kind,
                               const struct device_probe_device *from)
{
    Pb__Device *device = NEW(Pb__Device);
    pb__device__init(device);
    device->kind = mem_strdup(kind->name);
    device->has_index = device->has_memory_mib = device->has_numa = device->has_health = true;
    device->index = from->index;
    device->uuid = mem_strdup(from->uuid);
    device->model = mem_strdup(from->model);
    device->memory_mib = from->memory_mib;
    device->numa = from->numa;
    device->health = from->faulty ? PB__DEVICE__HEALTH__FAULTY : PB__DEVICE__HEALTH__HEALTHY;
    device->note = mem_strdup(from->note);
    return device;
}

static void device_free(Pb__Device *device)
{
    mem_free(device->kind);
    mem_free(device->uuid);
    mem_free(device->model);
    mem_free(device->note);
    mem_free(device);
}

static void device_part_clear(struct device_part *part)
{
    for (size_t i = 0; i < part->count; i++)
        device_free(part->devices[i]);
    mem_free(part->devices);
    part->devices = NULL;
    part->count = 0;
}

static bool device_is_same(const Pb__Device *a, const Pb__Device *b)
{
    return a->index == b->index && a->memory_mib == b->memory_mib && a->numa == b->numa &&
           a->health == b->health && strcmp(a->uuid, b->uuid) == 0 &&
           strcmp(a->model, b->model) == 0 && strcmp(a->note, b->note) == 0;
}

static Pb__Device *device_part_find(const struct device_part *part, uint32_t index)
{
    for (size_t i = 0; i < part->count; i++)
        if (part->devices[i]->index == index)
            return part->devices[i];
    return NULL;
}

/* Takes what the probe saw. A device that was there and is not any more stays, faulty: jobs hold it
 * by its index. True when something changed. */
static bool device_part_take(struct device_part *part, const struct device_probe *probe)
{
    size_t count = 0;
    Pb__Device **devices = mem_array(probe->count + part->count, sizeof(Pb__Device *));
    bool changed = false;
    for (size_t i = 0; i < probe->count; i++) {
        devices[count] = device_make(part->kind, &probe->devices[i]);
        const Pb__Device *old = device_part_find(part, devices[count]->index);
        changed |= !old || !device_is_same(old, devices[count]);
        count++;
    }
    for (size_t i = 0; i < part->count; i++) {
        Pb__Device *old = part->devices[i];
        bool seen = false;
        for (size_t k = 0; k < probe->count && !seen; k++)
            seen = probe->devices[k].index == old->index;
        if (seen)
            continue;
        struct device_probe_device lost = {.index = old->index,
                                           .memory_mib = old->memory_mib,
                                           .numa = old->numa,
                                           .faulty = true,
                                           .note = "the device has disappeared"};
        snprintf(lost.uuid, sizeof(lost.uuid), "%.95s", old->uuid);
        snprintf(lost.model, sizeof(lost.model), "%.95s", old->model);
        devices[count] = device_make(part->kind, &lost);
        changed |= !device_is_same(old, devices[count]);
        count++;
    }
    device_part_clear(part);
    part->devices = devices;
    part->count = count;
    return changed;
}

/* Nothing is known any more; nothing known stays out of the inventory. */
static bool device_part_doubt(struct device_part *part, const char *why)
{
    bool changed = false;
    for (size_t i = 0; i < part->count; i++) {
        Pb__Device *device = part->devices[i];
        changed |= device->health != PB__DEVICE__HEALTH__UNKNOWN || strcmp(device->note, why) != 0;
        device->health = PB__DEVICE__HEALTH__UNKNOWN;
        mem_free(device->note);
        device->note = mem_strdup(why);
    }
    return changed;
}

/* Slots without what hwloc would tell: better than none. */
static void device_part_plain_cpus(struct device_part *part, const char *why)
{
    struct device_probe probe = {0};
    uint32_t slots = part->pool->options.cpu_slots ? part->pool->options.cpu_slots : 65536;
    for (uint32_t i = 0; i < slots; i++) {
        if (part->pool->options.cpu_slots == 0 && device_cpu_of_slot(i) != i)
            continue;
        struct device_probe_device *device = device_probe_add(&probe);
        if (!device)
            break;
        device->index = i;
        snprintf(device->uuid, sizeof(device->uuid), "cpu-%u", i);
        snprintf(device->note, sizeof(device->note), "no topology: %.100s", why);
    }
    device_part_take(part, &probe);
    device_probe_fini(&probe);
}

/* --- proofs */

static void device_proof_end(struct device_proof *proof, bool empty, const char *text)
{
    void (*done)(void *arg, bool empty, const char *text) = proof->done;
    void *arg = proof->arg;
    list_remove(&proof->node);
    loop_timer_destroy(proof->now);
    mem_free(proof->indices);
    mem_free(proof);
    if (done)
        done(arg, empty, text);
}

static bool device_proof_check(const struct device_proof *proof, const struct device_probe *probe,
                               struct text *text)
{
    for (size_t i = 0; i < proof->count; i++) {
        const struct device_probe_device *device = NULL;
        for (size_t k = 0; k < probe->count; k++)
            if (probe->devices[k].index == proof->indices[i])
                device = &probe->devices[k];
        const char *comma = text->len ? "; " : "";
        const char *kind = proof->part->kind->name;
        if (!device)
            text_addf(text, "%s%s %u is not there", comma, kind, proof->indices[i]);
        else if (device->faulty)
            text_addf(text, "%s%s %u: %s", comma, kind, proof->indices[i], device->note);
        else if (device->processes_count > 0)
            text_addf(text, "%s%s %u is held by", comma, kind, proof->indices[i]);
        for (size_t k = 0; device && !device->faulty && k < device->processes_count; k++)
            text_addf(text, " %u", device->processes[k]);
    }
    return text->len == 0;
}

/* probe NULL: it did not answer, and why. A proof that is asked for meanwhile waits for the next.
 */
static void device_part_answer(struct device_part *part, const struct device_round *round,
                               const struct device_probe *probe, const char *why)
{
    struct list ready;
    struct list *node;
    list_init(&ready);
    LIST_EACH(&part->pool->proofs, item)
    {
        struct device_proof *proof = LIST_ITEM(item, struct device_proof, node);
        if (proof->part == part && proof->round == round) {
            list_remove(item);
            list_add_last(&ready, item);
        }
    }
    while ((node = list_take_first(&ready))) {
        struct device_proof *proof = LIST_ITEM(node, struct device_proof, node);
        struct text text;
        text_init(&text, 4096);
        bool empty = probe && device_proof_check(proof, probe, &text);
        device_proof_end(proof, empty, probe ? text_get(&text) : why);
        text_fini(&text);
    }
}

/* --- probes */

static void device_part_problem(struct device_part *part, const char *why)
{
    if (strcmp(part->problem, why) == 0)
        return;
    snprintf(part->problem, sizeof(part->problem), "%s", why);
    if (*why)
        log_warn("device.probe", log_str("kind", part->kind->name), log_str("err", why));
}

static bool device_round_succeeded(struct device_part *part, const struct device_round *round,
                                   const struct device_probe *probe)
{
    device_part_problem(part, "");
    bool changed = device_part_take(part, probe);
    device_part_answer(part, round, probe, "");
    return changed;
}

static bool device_round_failed(struct device_part *part, const struct device_round *round,
                                const char *why)
{
    bool changed = false;
    device_part_problem(part, why);
    if (part->kind->watched)
        changed = device_part_doubt(part, why);
    else if (part->count == 0)
        device_part_plain_cpus(part, why);
    device_part_answer(part, round, NULL, why);
    return changed;
}

static void device_round_why(const struct child_result *result, char *out, size_t cap)
{
    if (result->st == STATUS_DEADLINE)
        snprintf(out, cap, "the probe did not answer and was killed");
    else if (result->st != STATUS_OK)
        snprintf(out, cap, "%.190s", result->err ? result->err->text : status_name(result->st));
    else if (result->signal)
        snprintf(out, cap, "the probe crashed: signal %d (%s)", result->signal,
                 strsignal(result->signal));
    else
        snprintf(out, cap, "the probe failed with code %d", result->exit_code);
}

static bool device_round_finish(struct device_part *part, const struct device_round *round,
                                const struct child_result *result)
{
    struct device_probe probe = {0};
    char why[200] = "";
    struct error err;
    if (result->st == STATUS_DEADLINE) {
        part->hung = round->pid;
        part->hung_start = round->start;
    }
    if (result->st != STATUS_OK || result->exit_code != 0 || result->cut)
        device_round_why(result, why, sizeof(why));
    else if (device_probe_parse(result->output, result->output_len, &probe, &err) != STATUS_OK)
        snprintf(why, sizeof(why), "%.190s", err.text);
    else if (probe.error[0])
        snprintf(why, sizeof(why), "%s", probe.error);
    bool changed = why[0] ? device_round_failed(part, round, why)
                          : device_round_succeeded(part, round, &probe);
    device_probe_fini(&probe);
    return changed;
}

static void device_pool_rearm(struct device_pool *pool)
{
    loop_timer_set(pool->timer, (int64_t)pool->options.probe_every_ms * 1000);
}

static void device_round_done(void *arg, const struct child_result *result)
{
    struct device_round *round = arg;
    struct device_part *part = round->part;
    if (part) {
        struct device_pool *pool = part->pool;
        part->round = NULL;
        bool first = !part->answered;
        part->answered = true;
        round->part = NULL;
        bool changed = device_round_finish(part, round, result);
        LIST_EACH(&pool->proofs, item)
        if (!part->round && LIST_ITEM(item, struct device_proof, node)->part == part)
            device_part_probe(part); /* asked for while that probe ran */
        if ((changed || first) && pool->options.changed)
            pool->options.changed(pool->options.arg);
    }
    mem_free(round);
}

static bool device_part_hangs(struct device_part *part)
{
    if (part->hung > 0 && !stray_is_alive(part->hung, part->hung_start))
        part->hung = 0;
    return part->hung > 0;
}

static void device_part_probe(struct device_part *part)
{
    const struct device_pool *pool = part->pool;
    const char *const argv[] = {pool->self_path, "--probe-devices", part->kind->name,
                                part->argument[0] ? part->argument : NULL, NULL};
    const struct child_options options = {
        .argv = argv,
        .output_max = DEVICE_PROBE_LINE_MAX,
        .timeout_us = (int64_t)pool->options.probe_ms_max * 1000,
    };
    struct stray now = {0};
    if (part->round)
        return;
    struct device_round *round = part->round = NEW(struct device_round);
    round->part = part;
    LIST_EACH(&part->pool->proofs, item)
    {
        struct device_proof *proof = LIST_ITEM(item, struct device_proof, node);
        if (proof->part == part && !proof->now)
            proof->round = round;
    }
    round->child = child_start(pool->options.loop, &options, device_round_done, round);
    round->pid = child_pid(round->child);
    if (round->pid > 0 && stray_read(round->pid, &now))
        round->start = now.start;
}

static void device_pool_tick(void *arg)
{
    struct device_pool *pool = arg;
    for (size_t i = 0; i < KINDS; i++)
        if (device_kinds[i].watched && strcmp(pool->parts[i].argument, "none") != 0 &&
            !device_part_hangs(&pool->parts[i]))
            device_part_probe(&pool->parts[i]);
    device_pool_rearm(pool);
}

/* --- the pool */

struct device_pool *device_pool_create(const struct device_options *options)
{
    struct device_pool *pool = NEW(struct device_pool);
    pool->options = *options;
    pool->self_path = mem_strdup(options->self_path ? options->self_path : "/proc/self/exe");
    if (pool->options.probe_ms_max == 0)
        pool->options.probe_ms_max = DEVICE_PROBE_MS_DEFAULT;
    if (pool->options.probe_every_ms == 0)
        pool->options.probe_every_ms = DEVICE_EVERY_MS_DEFAULT;
    list_init(&pool->proofs);
    pool->timer = loop_timer_create(options->loop, device_pool_tick, pool);
    for (size_t i = 0; i < KINDS; i++) {
        struct device_part *part = &pool->parts[i];
        part->kind = &device_kinds[i];
        part->pool = pool;
        if (part->kind->watched)
            snprintf(part->argument, sizeof(part->argument), "%s",
                     options->nvidia_library ? options->nvidia_library : "");
        else
            snprintf(part->argument, sizeof(part->argument), "%u", options->cpu_slots);
        if (strcmp(part->argument, "none") == 0)
            part->answered = true;
        else
            device_part_probe(part);
    }
    device_pool_rearm(pool);
    return pool;
}

void device_pool_destroy(struct device_pool *pool)
{
    if (!pool)
        return;
    for (size_t i = 0; i < KINDS; i++) {
        struct device_part *part = &pool->parts[i];
        if (part->round) {
            part->round->part = NULL;
            child_cancel(part->round->child);
        }
        device_part_clear(part);
    }
    while (!list_is_empty(&pool->proofs)) {
        struct device_proof *proof = LIST_ITEM(pool->proofs.next, struct device_proof, node);
        proof->done = NULL;
        device_proof_end(proof, false, "");
    }
    loop_timer_destroy(pool->timer);
    mem_free(pool->self_path);
    mem_free(pool);
}

bool device_pool_ready(const struct device_pool *pool)
{
    for (size_t i = 0; i < KINDS; i++)
        if (!pool->parts[i].answered)
            return false;
    return true;
}

size_t device_pool_list(const struct device_pool *pool, const Pb__Device **out, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < KINDS; i++)
        for (size_t k = 0; k < pool->parts[i].count && count < max; k++)
            out[count++] = pool->parts[i].devices[k];
    return count;
}

bool device_visible_env(const char *kind, const uint32_t *indices, size_t count, struct text *out)
{
    const struct device_kind *row = device_kind_find(kind);
    if (!row || !row->visible)
        return false;
    text_addf(out, "%s=", row->visible);
    for (size_t i = 0; i < count; i++)
        text_addf(out, "%s%u", i ? "," : "", indices[i]);
    return true;
}

static void device_proof_now(void *arg)
{
    struct device_proof *proof = arg;
    const struct device_part *part = proof->part;
    const bool known = part && !part->kind->watched;
    const char *why = part && part->hung > 0 ? "an earlier probe still hangs"
                                             : "there is no way to ask who holds such a device";
    device_proof_end(proof, known, known ? "" : why);
}

void device_pool_prove_empty(struct device_pool *pool, const char *kind, const uint32_t *indices,
                             size_t count, void (*done)(void *arg, bool empty, const char *text),
                             void *arg)
{
    struct device_proof *proof = NEW(struct device_proof);
    const struct device_kind *row = device_kind_find(kind);
    proof->part = row ? &pool->parts[row - device_kinds] : NULL;
    proof->indices = mem_dup(indices, count * sizeof(*indices));
    proof->count = count;
    proof->done = done;
    proof->arg = arg;
    list_add_last(&pool->proofs, &proof->node);
    if (!proof->part || !row->watched || strcmp(proof->part->argument, "none") == 0 ||
        device_part_hangs(proof->part)) {
        proof->now = loop_timer_create(pool->options.loop, device_proof_now, proof);
        loop_timer_set(proof->now, 0);
    } else {
        device_part_probe(proof->part); /* or the one after that which runs */
    }
}
