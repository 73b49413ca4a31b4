/* mailbox.h - how other threads hand work to the loop thread: lock, append, wake.
 *
 * mailbox_post: any thread. All else: loop thread. Order of one poster is kept. The item is
 * embedded in the poster's object. */
#pragma once
#include "base/list.h"
#include "base/loop.h"

struct mail {
    struct list node;
    void (*deliver)(
        struct mail *mail); /* on the loop thread; may free the object that holds mail */
};
struct mailbox;

struct mailbox *mailbox_create(struct loop *loop); /* needs loop_uv */
void mailbox_post(struct mailbox *box, struct mail *mail);
void mailbox_drain(struct mailbox *box);   /* deliver what waits now */
void mailbox_destroy(struct mailbox *box); /* delivers what waits, then closes; NULL is fine */
