/* list.h - an intrusive doubly linked list with a head node. One thread at a time. */
#pragma once
#include "base/mem.h"
#include <stdbool.h>

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *head)
{
    head->next = head->prev = head;
}
static inline bool list_is_empty(const struct list *head)
{
    return head->next == head;
}
static inline void list_add_last(struct list *head, struct list *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}
static inline void list_remove(struct list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}
/* NULL when empty. */
static inline struct list *list_take_first(struct list *head)
{
    struct list *first = head->next;
    if (first == head)
        return NULL;
    list_remove(first);
    return first;
}
#define LIST_ITEM(node, type, member) CONTAINER_OF(node, type, member)
/* Safe against removal of the current item. */
#define LIST_EACH(head, node)                                                                      \
    for (struct list *node = (head)->next, *node##_next = node->next; node != (head);              \
         node = node##_next, node##_next = node->next)
