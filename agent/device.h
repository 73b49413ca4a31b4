/* device.h - what devices this machine has, how they are made visible to a worker, and proof that
 * one is empty.
 *
 * Loop thread; nothing blocks: vendors' libraries run in a bounded child (`rondo-agent
 * --probe-devices nvidia`), killed at its deadline. CPU slots come from hwloc with their NUMA node.
 * A kind is a row of device_kinds. */
#pragma once
#include "base/error.h"
#include "base/loop.h"
#include "base/text.h"
#include "proto/pb.h"
#include <stdbool.h>

struct device_pool;
struct device_options {
    struct loop *loop;
    const char *self_path;      /* this program, for probe children */
    const char *nvidia_library; /* NULL: libnvidia-ml.so.1; "none": no probe */
    uint32_t cpu_slots;         /* 0: one per hardware thread allowed to us */
    uint32_t probe_ms_max;      /* deadline of a probe child */
    uint32_t probe_every_ms;    /* health checks */
    void (*changed)(void *arg); /* inventory or health changed */
    void *arg;
};
struct device_pool *device_pool_create(const struct device_options *options);
void device_pool_destroy(struct device_pool *pool);
/* The first inventory is complete (probes answered or timed out). */
bool device_pool_ready(const struct device_pool *pool);
/* Loans until the next change. A kind whose probe failed is absent or FAULTY/UNKNOWN with a note.
 */
size_t device_pool_list(const struct device_pool *pool, const Pb__Device **out, size_t max);
/* "CUDA_VISIBLE_DEVICES=0,2" for these indices; false when the kind needs none. */
bool device_visible_env(const char *kind, const uint32_t *indices, size_t count, struct text *out);
/* Is nothing left on these devices? Asks the vendor's library in a child; done(arg, empty, text).
 * CPU: at once true (later turn). */
void device_pool_prove_empty(struct device_pool *pool, const char *kind, const uint32_t *indices,
                             size_t count, void (*done)(void *arg, bool empty, const char *text),
                             void *arg);
/* The kernel's CPU that a cpu slot stands for: its own number where that is a CPU we may use, else
 * one of those, by turns (more slots than CPUs). */
uint32_t device_cpu_of_slot(uint32_t slot);
/* The child's side: prints one JSON line and exits. Called by main for --probe-devices KIND
 * [LIBRARY]; for cpu the second word is the number of slots. */
int device_probe_main(const char *kind, const char *library);
