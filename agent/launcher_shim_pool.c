/* launcher_shim_pool.c - threads, one queue, results by mailbox. */
#include "agent/launcher_shim_pool.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#define POOL_THREADS_MAX   16
#define POOL_LEAVE_SECONDS 5

struct launcher_shim_pool {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct list waiting; /* of struct launcher_shim_job; under the lock */
    bool closing;        /* under the lock */
    struct mailbox *inbox;
    pthread_t threads[POOL_THREADS_MAX];
    unsigned count;
};

static void pool_deliver(struct mail *mail)
{
    struct launcher_shim_job *job = CONTAINER_OF(mail, struct launcher_shim_job, mail);
    job->done(job);
}

static void *pool_thread(void *arg)
{
    struct launcher_shim_pool *pool = arg;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct list *node = list_take_first(&pool->waiting);
        if (!node && pool->closing)
            break;
        if (!node) {
            pthread_cond_wait(&pool->more, &pool->lock);
            continue;
        }
        pthread_mutex_unlock(&pool->lock);
        struct launcher_shim_job *job = LIST_ITEM(node, struct launcher_shim_job, node);
        job->run(job);
        job->mail.deliver = pool_deliver;
        mailbox_post(pool->inbox, &job->mail);
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

struct launcher_shim_pool *launcher_shim_pool_create(struct loop *loop, unsigned threads)
{
    struct launcher_shim_pool *pool = NEW(struct launcher_shim_pool);
    sigset_t all, old;
    pthread_attr_t attr;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->more, NULL);
    list_init(&pool->waiting);
    pool->inbox = mailbox_create(loop);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, (size_t)256 << 10);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the loop thread's */
    while (pool->count < threads && pool->count < POOL_THREADS_MAX) {
        if (pthread_create(&pool->threads[pool->count], &attr, pool_thread, pool) != 0)
            abort(); /* out of threads before anything has begun */
        pool->count++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return pool;
}

void launcher_shim_pool_submit(struct launcher_shim_pool *pool, struct launcher_shim_job *job)
{
    pthread_mutex_lock(&pool->lock);
    list_add_last(&pool->waiting, &job->node);
    pthread_cond_signal(&pool->more);
    pthread_mutex_unlock(&pool->lock);
}

void launcher_shim_pool_destroy(struct launcher_shim_pool *pool)
{
    if (!pool)
        return;
    struct timespec until;
    bool hangs = false;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->more);
    pthread_mutex_unlock(&pool->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += POOL_LEAVE_SECONDS;
    for (unsigned i = 0; i < pool->count; i++)
        hangs |= pthread_timedjoin_np(pool->threads[i], NULL, &until) != 0;
    if (hangs) {
        mailbox_drain(pool->inbox);
        return;
    }
    mailbox_destroy(pool->inbox);
    pthread_cond_destroy(&pool->more);
    pthread_mutex_destroy(&pool->lock);
    mem_free(pool);
}
