/* inventory.h - the seam to devices, as the agent core needs them.
 *
 * Two implementations: inventory_pool.c over device.h, and the simulator's. Loop thread only. */
#pragma once
#include "proto/pb.h"
#include <stdbool.h>

struct inventory;
struct inventory_ops {
    bool (*ready)(struct inventory *inventory);
    size_t (*list)(struct inventory *inventory, const Pb__Device **out, size_t max); /* loans */
    /* done comes later, once; not after destroy. */
    void (*prove_empty)(struct inventory *inventory, const char *kind, const uint32_t *indices,
                        size_t count, void (*done)(void *arg, bool empty, const char *text),
                        void *arg);
    void (*destroy)(struct inventory *inventory);
};
struct inventory {
    const struct inventory_ops *ops;
};
struct device_pool;
struct inventory *inventory_pool_create(struct device_pool *pool); /* borrows the pool */
