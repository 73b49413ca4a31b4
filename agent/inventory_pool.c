/* inventory_pool.c - the agent core's view of device.h. */
#include "agent/device.h"
#include "agent/inventory.h"
#include "base/mem.h"

struct inventory_pool {
    struct inventory base;
    struct device_pool *pool;
};

static bool inventory_pool_ready(struct inventory *inventory)
{
    return device_pool_ready(CONTAINER_OF(inventory, struct inventory_pool, base)->pool);
}

static size_t inventory_pool_list(struct inventory *inventory, const Pb__Device **out, size_t max)
{
    return device_pool_list(CONTAINER_OF(inventory, struct inventory_pool, base)->pool, out, max);
}

static void inventory_pool_prove_empty(struct inventory *inventory, const char *kind,
                                       const uint32_t *indices, size_t count,
                                       void (*done)(void *arg, bool empty, const char *text),
                                       void *arg)
{
    device_pool_prove_empty(CONTAINER_OF(inventory, struct inventory_pool, base)->pool, kind,
                            indices, count, done, arg);
}

static void inventory_pool_destroy(struct inventory *inventory)
{
    mem_free(CONTAINER_OF(inventory, struct inventory_pool, base));
}

static const struct inventory_ops inventory_pool_ops = {
    inventory_pool_ready, inventory_pool_list, inventory_pool_prove_empty, inventory_pool_destroy};

struct inventory *inventory_pool_create(struct device_pool *pool)
{
    struct inventory_pool *self = NEW(struct inventory_pool);
    self->base.ops = &inventory_pool_ops;
    self->pool = pool;
    return &self->base;
}
