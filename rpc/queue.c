/* Invariant: a mail is in exactly one of `arrived` (any thread, under the lock) and `ready` (loop
 * thread). `wake` is the only mail in the mailbox, and it is there whenever `arrived` is not empty.
 * Both lists belong to the queue and not to a stack frame, so that a callback may destroy the
 * owner, which then finds what the interrupted delivery has not yet reached. */
#include "rpc/queue.h"
#include "base/log.h"
#include "base/mem.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct rpc_queue {
    grpc_completion_queue *cq;
    struct mailbox *inbox;
    struct mail wake;
    pthread_t poller;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    struct list arrived; /* of struct mail; under the lock */
    struct list ready;   /* of struct mail; loop thread */
    bool wake_posted;    /* under the lock */
    unsigned depth;      /* uses on the stack of the loop thread */
    bool destroyed;
};

static void queue_hold(struct rpc_queue *queue)
{
    queue->depth++;
}

static void queue_drop(struct rpc_queue *queue)
{
    if (--queue->depth > 0 || !queue->destroyed)
        return;
    pthread_cond_destroy(&queue->woken);
    pthread_mutex_destroy(&queue->lock);
    mem_free(queue);
}

static void queue_deliver(struct rpc_queue *queue)
{
    struct list *node;

    pthread_mutex_lock(&queue->lock);
    while ((node = list_take_first(&queue->arrived)))
        list_add_last(&queue->ready, node);
    pthread_mutex_unlock(&queue->lock);
    queue_hold(queue);
    while ((node = list_take_first(&queue->ready))) {
        struct mail *mail = LIST_ITEM(node, struct mail, node);
        mail->deliver(mail);
    }
    queue_drop(queue);
}

static void queue_woken(struct mail *wake)
{
    struct rpc_queue *queue = CONTAINER_OF(wake, struct rpc_queue, wake);

    pthread_mutex_lock(&queue->lock);
    queue->wake_posted = false;
    pthread_mutex_unlock(&queue->lock);
    queue_deliver(queue);
}

static void op_deliver(struct mail *mail)
{
    struct rpc_op *op = CONTAINER_OF(mail, struct rpc_op, mail);

    op->fn(op);
}

void rpc_queue_post(struct rpc_queue *queue, struct mail *mail)
{
    pthread_mutex_lock(&queue->lock);
    list_add_last(&queue->arrived, &mail->node);
    if (!queue->wake_posted) {
        queue->wake_posted = true;
        mailbox_post(queue->inbox, &queue->wake);
        pthread_cond_signal(&queue->woken);
    }
    pthread_mutex_unlock(&queue->lock);
}

static void *queue_poll(void *arg)
{
    struct rpc_queue *queue = arg;

    for (;;) {
        grpc_event event =
            grpc_completion_queue_next(queue->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        struct rpc_op *op = event.tag;
        (void)atomic_load_explicit(&op->started, memory_order_acquire);
        op->ok = event.success != 0;
        if (!op->polled || op->polled(op))
            rpc_queue_post(queue, &op->mail);
    }
}

struct rpc_queue *rpc_queue_create(struct loop *loop)
{
    struct rpc_queue *queue = NEW(struct rpc_queue);
    pthread_condattr_t monotonic;

    list_init(&queue->arrived);
    list_init(&queue->ready);
    queue->wake.deliver = queue_woken;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->woken, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&queue->lock, NULL);
    queue->inbox = mailbox_create(loop);
    queue->cq = grpc_completion_queue_create_for_next(NULL);
    if (pthread_create(&queue->poller, NULL, queue_poll, queue) != 0)
        abort(); /* no thread at start: as out of memory */
    return queue;
}

grpc_completion_queue *rpc_queue_handle(struct rpc_queue *queue)
{
    return queue->cq;
}

void *rpc_queue_tag(struct rpc_queue *queue, struct rpc_op *op)
{
    op->queue = queue;
    op->mail.deliver = op_deliver;
    atomic_store_explicit(&op->started, true, memory_order_release);
    return op;
}

void rpc_queue_start(struct rpc_queue *queue, grpc_call *call, const grpc_op *batch, size_t count,
                     struct rpc_op *op)
{
    grpc_call_error error =
        grpc_call_start_batch(call, batch, count, rpc_queue_tag(queue, op), NULL);

    if (error != GRPC_CALL_OK) {
        log_error("rpc.batch", log_str("err", grpc_call_error_to_string(error)),
                  log_int("op", (int64_t)batch->op));
        abort(); /* our own misuse of the call: going on would lose its end */
    }
}

static struct timespec time_in(int ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return until;
}

void rpc_queue_pump(struct rpc_queue *queue, int wait_ms)
{
    struct timespec until = time_in(wait_ms);

    pthread_mutex_lock(&queue->lock);
    while (list_is_empty(&queue->arrived) && list_is_empty(&queue->ready) &&
           pthread_cond_timedwait(&queue->woken, &queue->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&queue->lock);
    queue_hold(queue);
    mailbox_drain(queue->inbox);
    queue_deliver(queue); /* what an interrupted delivery left */
    queue_drop(queue);
}

void rpc_queue_destroy(struct rpc_queue *queue)
{
    if (!queue)
        return;
    grpc_completion_queue_shutdown(queue->cq);
    pthread_join(queue->poller, NULL);
    queue_hold(queue);
    mailbox_destroy(queue->inbox);
    queue_deliver(queue);
    grpc_completion_queue_destroy(queue->cq);
    queue->destroyed = true;
    queue_drop(queue);
}
