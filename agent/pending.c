/* pending.c - see pending.h. */
#include "agent/pending.h"
#include "base/mem.h"
#include <stdalign.h>

struct pending {
    alignas(16) struct list node;
    unsigned char block[];
};

void *pending_create(struct list *owner, size_t size)
{
    struct pending *pending = mem_alloc(sizeof(*pending) + size);
    list_add_last(owner, &pending->node);
    return pending->block;
}

void pending_destroy(void *block)
{
    if (!block)
        return;
    struct pending *pending = CONTAINER_OF(block, struct pending, block);
    list_remove(&pending->node);
    mem_free(pending);
}

void pending_destroy_all(struct list *owner)
{
    LIST_EACH(owner, node)
    pending_destroy(LIST_ITEM(node, struct pending, node)->block);
}
