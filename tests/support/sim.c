/* sim.c - simulated time and chance. See sim.h. */
#include "tests/support/sim.h"
#include "base/mem.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACE_LINES 4000

struct event {
    int64_t at_us;
    uint64_t order;
    struct sim_process *owner;
    loop_fn fn;
    void *arg;
    bool owned; /* arg is freed with the event */
};
struct sim {
    int64_t now_us;
    uint64_t order, state;
    struct event *heap;
    size_t count, cap;
    void (*check)(void *arg);
    void *check_arg;
    char *lines[TRACE_LINES];
    size_t lines_count;
    uint64_t hash;
    bool failed;
};
struct sim_timer {
    struct loop_timer timer; /* first */
    struct sim_process *process;
    struct list node;
    loop_fn fn;
    void *arg;
    uint64_t setting; /* counts settings: an older event finds that it is stale */
    bool destroyed;
    uint32_t pending; /* events that name it */
};
struct firing {
    struct sim_timer *timer;
    uint64_t setting;
};

/* --- chance: splitmix64 (Steele, Lea, Flood 2014) */
uint64_t sim_random(struct sim *sim)
{
    uint64_t z = (sim->state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t sim_below(struct sim *sim, uint64_t n)
{
    return n ? sim_random(sim) % n : 0;
}

bool sim_chance(struct sim *sim, uint32_t per_mille)
{
    return sim_below(sim, 1000) < per_mille;
}

int64_t sim_between(struct sim *sim, int64_t low, int64_t high)
{
    return low + (int64_t)sim_below(sim, (uint64_t)(high - low + 1));
}

/* --- the queue: a binary heap by (time, order) */
static bool before(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void swap(struct event *a, struct event *b)
{
    struct event c = *a;

    *a = *b;
    *b = c;
}

static void add(struct sim *sim, struct sim_process *owner, int64_t delay_us, loop_fn fn, void *arg,
                bool owned)
{
    if (sim->count == sim->cap) {
        sim->cap = sim->cap ? sim->cap * 2 : 1024;
        sim->heap = mem_resize(sim->heap, sim->cap, sizeof(*sim->heap));
    }
    size_t at = sim->count++;
    sim->heap[at] = (struct event){
        sim->now_us + (delay_us > 0 ? delay_us : 0), sim->order++, owner, fn, arg, owned};
    while (at && before(&sim->heap[at], &sim->heap[(at - 1) / 2])) {
        swap(&sim->heap[at], &sim->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
}

void sim_after(struct sim *sim, struct sim_process *owner, int64_t delay_us, loop_fn fn, void *arg)
{
    add(sim, owner, delay_us, fn, arg, false);
}

void sim_after_owned(struct sim *sim, struct sim_process *owner, int64_t delay_us, loop_fn fn,
                     void *arg)
{
    add(sim, owner, delay_us, fn, arg, true);
}

static struct event take_first(struct sim *sim)
{
    struct event first = sim->heap[0];
    size_t at = 0;

    sim->heap[0] = sim->heap[--sim->count];
    for (;;) {
        size_t left = 2 * at + 1, best = at;
        if (left < sim->count && before(&sim->heap[left], &sim->heap[best]))
            best = left;
        if (left + 1 < sim->count && before(&sim->heap[left + 1], &sim->heap[best]))
            best = left + 1;
        if (best == at)
            return first;
        swap(&sim->heap[at], &sim->heap[best]);
        at = best;
    }
}

static void drop(const struct event *event)
{
    if (event->owned)
        mem_free(event->arg);
}

bool sim_run_until(struct sim *sim, int64_t until_us)
{
    while (sim->count && !sim->failed && sim->heap[0].at_us <= until_us) {
        struct event event = take_first(sim);
        sim->now_us = event.at_us;
        if (event.owner && event.owner->dead) {
            drop(&event);
            continue;
        }
        event.fn(event.arg);
        if (sim->check)
            sim->check(sim->check_arg);
    }
    if (!sim->failed && sim->now_us < until_us)
        sim->now_us = until_us;
    return !sim->failed;
}

/* --- processes and their loops */
static struct sim_process *process_of(struct loop *loop)
{
    return (struct sim_process *)loop;
}

static int64_t process_now(struct loop *loop)
{
    return process_of(loop)->sim->now_us;
}

static int64_t process_wall(struct loop *loop)
{
    return INT64_C(1760000000000000) + process_of(loop)->sim->now_us;
}

static void process_random(struct loop *loop, void *out, size_t len)
{
    unsigned char *bytes = out;

    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)sim_random(process_of(loop)->sim);
}

static void process_defer(struct loop *loop, loop_fn fn, void *arg)
{
    sim_after(process_of(loop)->sim, process_of(loop), 0, fn, arg);
}

static const struct loop_ops process_ops;

static struct loop_timer *timer_create_(struct loop *loop, loop_fn fn, void *arg)
{
    struct sim_timer *timer = NEW(struct sim_timer);

    timer->timer.ops = &process_ops;
    timer->process = process_of(loop);
    timer->fn = fn;
    timer->arg = arg;
    list_add_last(&timer->process->timers, &timer->node);
    return &timer->timer;
}

static void timer_unref(struct sim_timer *timer)
{
    if (!timer->destroyed || timer->pending)
        return;
    list_remove(&timer->node);
    mem_free(timer);
}

static void timer_fire(void *arg)
{
    struct firing firing = *(struct firing *)arg;

    mem_free(arg);
    firing.timer->pending--;
    if (!firing.timer->destroyed && firing.timer->setting == firing.setting)
        firing.timer->fn(firing.timer->arg);
    else
        timer_unref(firing.timer);
}

static void timer_set_(struct loop_timer *base, int64_t delay_us)
{
    struct sim_timer *timer = (struct sim_timer *)base;
    struct firing *firing = NEW(struct firing);

    firing->timer = timer;
    firing->setting = ++timer->setting;
    timer->pending++;
    sim_after_owned(timer->process->sim, timer->process, delay_us, timer_fire, firing);
}

static void timer_stop_(struct loop_timer *base)
{
    ((struct sim_timer *)base)->setting++;
}

/* While events name it the timer stays in its process's list: freed with the last of them, or with
 * the process. */
static void timer_destroy_(struct loop_timer *base)
{
    struct sim_timer *timer = (struct sim_timer *)base;

    timer->destroyed = true;
    timer->setting++;
    if (!timer->process->dead)
        timer_unref(timer);
}

static const struct loop_ops process_ops = {
    .now_us = process_now,
    .wall_us = process_wall,
    .random = process_random,
    .defer = process_defer,
    .timer_create = timer_create_,
    .timer_set = timer_set_,
    .timer_stop = timer_stop_,
    .timer_destroy = timer_destroy_,
};

struct sim_process *sim_process_create(struct sim *sim, const char *name)
{
    struct sim_process *process = NEW(struct sim_process);

    process->loop.ops = &process_ops;
    process->sim = sim;
    snprintf(process->name, sizeof(process->name), "%s", name);
    list_init(&process->timers);
    return process;
}

void sim_process_kill(struct sim_process *process)
{
    sim_trace(process->sim, "%s: killed", process->name);
    process->dead = true;
}

/* Events of the dead process leave the queue here, so that nothing names it any more. */
void sim_process_destroy(struct sim_process *process)
{
    struct sim *sim = process->sim;
    struct event *old = sim->heap;
    size_t count = sim->count;

    process->dead = true;
    sim->heap = NULL;
    sim->count = sim->cap = 0;
    uint64_t order = sim->order;
    for (size_t i = 0; i < count; i++) {
        if (old[i].owner == process) {
            drop(&old[i]);
            continue;
        }
        sim->order = old[i].order; /* keeps its place among equals */
        add(sim, old[i].owner, old[i].at_us - sim->now_us, old[i].fn, old[i].arg, old[i].owned);
    }
    sim->order = order;
    mem_free(old);
    for (struct list *item; (item = list_take_first(&process->timers));)
        mem_free(LIST_ITEM(item, struct sim_timer, node));
    mem_free(process);
}

/* --- trace */
static void trace_line(struct sim *sim, const char *line)
{
    char **place = &sim->lines[sim->lines_count++ % TRACE_LINES];

    mem_free(*place);
    *place = mem_strdup(line);
    for (const char *c = line; *c; c++) /* FNV-1a */
        sim->hash = (sim->hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
}

static void trace_va(struct sim *sim, const char *fmt, va_list args)
{
    char line[600];
    int at = snprintf(line, sizeof(line), "%12.3f ms  ", (double)sim->now_us / 1000.0);

    vsnprintf(line + at, sizeof(line) - (size_t)at, fmt, args);
    trace_line(sim, line);
}

void sim_trace(struct sim *sim, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    trace_va(sim, fmt, args);
    va_end(args);
}

void sim_fail(struct sim *sim, const char *fmt, ...)
{
    va_list args;

    if (sim->failed)
        return;
    sim->failed = true;
    sim_trace(sim, "BROKEN:");
    va_start(args, fmt);
    trace_va(sim, fmt, args);
    va_end(args);
}

bool sim_failed(const struct sim *sim)
{
    return sim->failed;
}
uint64_t sim_hash(const struct sim *sim)
{
    return sim->hash;
}
int64_t sim_now_us(const struct sim *sim)
{
    return sim->now_us;
}

void sim_print_trace(const struct sim *sim)
{
    size_t first = sim->lines_count > TRACE_LINES ? sim->lines_count - TRACE_LINES : 0;

    for (size_t i = first; i < sim->lines_count; i++)
        printf("%s\n", sim->lines[i % TRACE_LINES]);
}

void sim_set_check(struct sim *sim, void (*check)(void *arg), void *arg)
{
    sim->check = check;
    sim->check_arg = arg;
}

struct sim *sim_create(uint64_t seed)
{
    struct sim *sim = NEW(struct sim);

    sim->state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    sim->hash = UINT64_C(0xcbf29ce484222325);
    return sim;
}

void sim_destroy(struct sim *sim)
{
    if (!sim)
        return;
    for (size_t i = 0; i < sim->count; i++)
        drop(&sim->heap[i]);
    mem_free(sim->heap);
    for (size_t i = 0; i < TRACE_LINES; i++)
        mem_free(sim->lines[i]);
    mem_free(sim);
}
