/* pending.h - arguments of asynchronous calls that are under way: small blocks on their owner's
 * list.
 *
 * A seam that is destroyed calls nobody back, so the owner frees what its calls would have freed.
 * Loop thread; blocks are zeroed. */
#pragma once
#include "base/list.h"
#include <stddef.h>

void *pending_create(struct list *owner, size_t size);
void pending_destroy(void *block); /* NULL is fine */
void pending_destroy_all(struct list *owner);
#define PENDING(owner, type) ((type *)pending_create((owner), sizeof(type)))
