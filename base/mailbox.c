/* mailbox.c - a locked list and a uv_async_t that is sent only when the list was empty. */
#include "base/mailbox.h"
#include <assert.h>
#include <stdlib.h>
#include <uv.h>

struct mailbox {
    uv_mutex_t lock;
    struct list waiting; /* of struct mail; under the lock */
    uv_async_t wake;
};

static void mailbox_woken(uv_async_t *wake)
{
    mailbox_drain(CONTAINER_OF(wake, struct mailbox, wake));
}

struct mailbox *mailbox_create(struct loop *loop)
{
    struct mailbox *box = NEW(struct mailbox);
    list_init(&box->waiting);
    if (uv_mutex_init(&box->lock) != 0 ||
        uv_async_init(loop_uv_handle(loop), &box->wake, mailbox_woken) != 0)
        abort(); /* out of descriptors before anything has begun */
    return box;
}

void mailbox_post(struct mailbox *box, struct mail *mail)
{
    uv_mutex_lock(&box->lock);
    bool was_empty = list_is_empty(&box->waiting);
    list_add_last(&box->waiting, &mail->node);
    if (was_empty) /* under the lock: once it is released the box may be destroyed */
        uv_async_send(&box->wake);
    uv_mutex_unlock(&box->lock);
}

void mailbox_drain(struct mailbox *box)
{
    struct list batch;
    struct list *node;

    list_init(&batch);
    uv_mutex_lock(&box->lock);
    while ((node = list_take_first(&box->waiting)))
        list_add_last(&batch, node);
    uv_mutex_unlock(&box->lock);
    while ((node = list_take_first(&batch))) { /* box may be gone after any delivery */
        struct mail *mail = LIST_ITEM(node, struct mail, node);
        mail->deliver(mail);
    }
}

static void mailbox_closed(uv_handle_t *handle)
{
    struct mailbox *box = CONTAINER_OF(handle, struct mailbox, wake);
    uv_mutex_destroy(&box->lock);
    mem_free(box);
}

void mailbox_destroy(struct mailbox *box)
{
    if (!box)
        return;
    mailbox_drain(box);
    uv_close((uv_handle_t *)&box->wake, mailbox_closed);
}
