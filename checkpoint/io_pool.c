/* io_pool.c - see io_pool.h. One lock, two conditions: work for the threads, news for who waits. */
#include "checkpoint/io_pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define HUGE_PAGE       ((size_t)2 << 20)
#define BACKGROUND_NICE 10 /* a tenth of the weight of who trains beside it */

struct io_pool {
    pthread_mutex_t lock;
    pthread_cond_t work, news;
    uint32_t threads_count, buffers_count; /* started; for as many there are buffers */
    size_t buffer_bytes, mapped_bytes;
    unsigned char *buffers;
    bool ends, background;
    /* of the run */
    io_pool_fn fn;
    void *arg;
    size_t count, next, turn, failed_item; /* failed_item: SIZE_MAX when none has */
    uint32_t busy;
    struct error failure;
    struct io_thread {
        struct io_pool *pool;
        pthread_t id;
        void *buffer;
    } threads[];
};

size_t io_pool_buffer_bytes(const struct io_pool *pool)
{
    return pool->buffer_bytes;
}

static bool has_next(const struct io_pool *pool)
{
    return pool->next < pool->count && pool->failed_item == SIZE_MAX;
}

/* Locked. Takes the next item and works on it without the lock. */
static void work_on_next(struct io_pool *pool, void *buffer)
{
    struct error err = {0};
    size_t item = pool->next++;
    enum status st;

    pool->busy++;
    pthread_mutex_unlock(&pool->lock);
    st = pool->fn(pool->arg, item, buffer, &err);
    pthread_mutex_lock(&pool->lock);
    pool->busy--;
    if (st == STATUS_CANCELLED && pool->failed_item != SIZE_MAX)
        st = STATUS_OK; /* it gave up its turn: not the failure to tell */
    if (st != STATUS_OK && item < pool->failed_item) {
        if (err.code != st)
            (void)error_set(&err, st, "%s", status_name(st));
        pool->failed_item = item;
        pool->failure = err;
    }
    if (st != STATUS_OK || (pool->busy == 0 && !has_next(pool)))
        pthread_cond_broadcast(&pool->news);
}

static void *thread_main(void *arg)
{
    struct io_thread *thread = arg;
    struct io_pool *pool = thread->pool;

    /* On Linux that is of this thread alone. */
    if (pool->background && getpriority(PRIO_PROCESS, (id_t)gettid()) < BACKGROUND_NICE)
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(), BACKGROUND_NICE);
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->ends && !has_next(pool))
            pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->ends)
            break;
        work_on_next(pool, thread->buffer);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Signals are for the program's own threads. */
static void start_threads(struct io_pool *pool)
{
    sigset_t all, before;

    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return;
    while (pool->threads_count < pool->buffers_count) {
        struct io_thread *thread = &pool->threads[pool->threads_count];
        thread->pool = pool;
        thread->buffer = pool->buffers + pool->threads_count * pool->buffer_bytes;
        if (pthread_create(&thread->id, NULL, thread_main, thread) != 0)
            break;
        pool->threads_count++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

enum status io_pool_create(const struct io_pool_options *options, struct io_pool **out,
                           struct error *err)
{
    uint32_t threads = options && options->threads ? options->threads : IO_POOL_THREADS;
    size_t bytes = options && options->buffer_bytes ? options->buffer_bytes : IO_POOL_BUFFER;
    SCOPED(io_pool_destroy) struct io_pool *pool = NULL;

    assert(bytes % IO_POOL_ALIGN == 0 && bytes <= SIZE_MAX / threads);
    pool = mem_alloc(sizeof(*pool) + threads * sizeof(pool->threads[0]));
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->news, NULL);
    pool->buffer_bytes = bytes;
    pool->background = options && options->background;
    pool->failed_item = SIZE_MAX;
    pool->mapped_bytes = threads * bytes;
    pool->buffers =
        mmap(NULL, pool->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pool->buffers == MAP_FAILED) {
        pool->buffers = NULL;
        return error_set(err, STATUS_EXHAUSTED, "buffers of %zu bytes: %s", pool->mapped_bytes,
                         strerror(errno));
    }
    if (bytes >= HUGE_PAGE)
        (void)madvise(pool->buffers, pool->mapped_bytes, MADV_HUGEPAGE); /* fewer first touches */
    pool->buffers_count = threads;
    start_threads(pool);
    *out = TAKE(pool);
    return STATUS_OK;
}

void io_pool_destroy(struct io_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->ends = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->threads_count; i++)
        (void)pthread_join(pool->threads[i].id, NULL);
    if (pool->buffers)
        (void)munmap(pool->buffers, pool->mapped_bytes);
    pthread_cond_destroy(&pool->news);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    mem_free(pool);
}

enum status io_pool_run(struct io_pool *pool, size_t count, io_pool_fn fn, void *arg,
                        struct error *err)
{
    pthread_mutex_lock(&pool->lock);
    assert(pool->busy == 0);
    pool->fn = fn;
    pool->arg = arg;
    pool->count = count;
    pool->next = pool->turn = 0;
    pool->failed_item = SIZE_MAX;
    pthread_cond_broadcast(&pool->work);
    while (pool->threads_count == 0 && has_next(pool))
        work_on_next(pool, pool->buffers);
    while (pool->busy > 0 || has_next(pool))
        pthread_cond_wait(&pool->news, &pool->lock);
    pool->count = pool->next = 0;
    struct error failure = pool->failure;
    bool failed = pool->failed_item != SIZE_MAX;
    pthread_mutex_unlock(&pool->lock);
    return failed ? error_set(err, failure.code, "%s", failure.text) : STATUS_OK;
}

bool io_pool_turn(struct io_pool *pool, size_t item)
{
    pthread_mutex_lock(&pool->lock);
    while (pool->turn != item && pool->failed_item == SIZE_MAX)
        pthread_cond_wait(&pool->news, &pool->lock);
    bool mine = pool->turn == item && pool->failed_item == SIZE_MAX;
    pthread_mutex_unlock(&pool->lock);
    return mine;
}

void io_pool_turn_over(struct io_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->turn++;
    pthread_cond_broadcast(&pool->news);
    pthread_mutex_unlock(&pool->lock);
}
