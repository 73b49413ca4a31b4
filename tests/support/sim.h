/* sim.h - simulated time and chance: one queue of events, one seed, many processes.
 *
 * One thread. Everything that happens is an event at a simulated time; ties are broken by order of
 * scheduling. A process is a sim_process with a loop of its own: killing it drops all its events,
 * as kill -9 does. The same seed gives the same run. */
#pragma once
#include "base/list.h"
#include "base/loop.h"
#include <stdbool.h>
#include <stdint.h>

struct sim;
struct sim_process {
    struct loop loop; /* first: a struct loop * of it is a struct sim_process * */
    struct sim *sim;
    char name[32];
    bool dead;
    struct list timers; /* of this process, freed with it */
};

struct sim *sim_create(uint64_t seed);
void sim_destroy(struct sim *sim);
int64_t sim_now_us(const struct sim *sim);
/* Runs events until `until_us` (simulated) or until none is left; false: an invariant was broken
 * (see sim_fail). */
bool sim_run_until(struct sim *sim, int64_t until_us);
/* Called after every event: invariants. */
void sim_set_check(struct sim *sim, void (*check)(void *arg), void *arg);

uint64_t sim_random(struct sim *sim);
uint64_t sim_below(struct sim *sim, uint64_t n); /* 0 .. n-1 */
bool sim_chance(struct sim *sim, uint32_t per_mille);
int64_t sim_between(struct sim *sim, int64_t low, int64_t high);

/* owner NULL: belongs to the world, never dropped. */
void sim_after(struct sim *sim, struct sim_process *owner, int64_t delay_us, loop_fn fn, void *arg);

/* The same; arg is heap memory that fn frees: freed here when the event is dropped. */
void sim_after_owned(struct sim *sim, struct sim_process *owner, int64_t delay_us, loop_fn fn,
                     void *arg);

struct sim_process *sim_process_create(struct sim *sim, const char *name);
/* kill -9: none of its events runs again. Its memory is the caller's to free, then
 * sim_process_destroy. */
void sim_process_kill(struct sim_process *process);
void sim_process_destroy(struct sim_process *process);

/* The trace: a line each, kept in memory (newest 4,000), printed for a broken seed. */
void sim_trace(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_print_trace(const struct sim *sim);
uint64_t sim_hash(const struct sim *sim); /* of all trace lines: two runs of a seed must agree */
void sim_fail(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool sim_failed(const struct sim *sim);
