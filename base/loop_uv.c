/* loop_uv.c - the seam of loop.h over libuv.
 *
 * Deferred calls and timers of delay 0 share one list, which an idle handle runs once a turn; while
 * the idle handle is active libuv polls without sleeping, and what is added meanwhile waits for the
 * next turn, so that sockets are never starved. (uv_timer alone would not do: a timer that sets
 * itself to 0 in its own callback runs for ever within one turn of libuv 1.44.) */
#include "base/list.h"
#include "base/loop.h"
#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <uv.h>

/* One call that waits for the next turn. */
struct deferred {
    struct list node;
    loop_fn fn;
    void *arg;
    bool owned; /* by the loop: freed after the call; else it is part of a timer */
};

struct loop_uv {
    struct loop base;
    uv_loop_t uv;
    uv_idle_t idle;
    struct list deferred; /* of struct deferred */
    struct list timers;   /* of struct timer_uv, all that exist */
};

struct timer_uv {
    struct loop_timer base;
    uv_timer_t uv;
    struct loop_uv *loop;
    struct list node;
    struct deferred now; /* for delay 0 */
    loop_fn fn;
    void *arg;
};

static struct loop_uv *loop_uv_of(struct loop *loop)
{
    return CONTAINER_OF(loop, struct loop_uv, base);
}

static struct timer_uv *timer_uv_of(struct loop_timer *timer)
{
    return CONTAINER_OF(timer, struct timer_uv, base);
}

/* --- clock and chance */

static int64_t loop_uv_now_us(struct loop *loop)
{
    (void)loop;
    return (int64_t)(uv_hrtime() / 1000);
}

static int64_t loop_uv_wall_us(struct loop *loop)
{
    struct timespec now;
    (void)loop;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void loop_uv_random(struct loop *loop, void *out, size_t len)
{
    unsigned char *to = out;
    (void)loop;
    while (len > 0) {
        ssize_t got = getrandom(to, len < 256 ? len : 256, 0);
        if (got < 0)
            continue; /* a signal came in between */
        to += got;
        len -= (size_t)got;
    }
}

/* --- deferred calls */

static void loop_uv_turn(uv_idle_t *idle)
{
    struct loop_uv *loop = CONTAINER_OF(idle, struct loop_uv, idle);
    struct list batch;
    struct list *node;

    list_init(&batch);
    while ((node = list_take_first(&loop->deferred)))
        list_add_last(&batch, node);
    while ((node = list_take_first(&batch))) {
        struct deferred *call = LIST_ITEM(node, struct deferred, node);
        loop_fn fn = call->fn;
        void *arg = call->arg;
        if (call->owned)
            mem_free(call);
        fn(arg);
    }
    if (list_is_empty(&loop->deferred))
        uv_idle_stop(idle);
}

static void loop_uv_enqueue(struct loop_uv *loop, struct deferred *call)
{
    list_add_last(&loop->deferred, &call->node);
    uv_idle_start(&loop->idle, loop_uv_turn);
}

static void loop_uv_defer(struct loop *base, loop_fn fn, void *arg)
{
    struct deferred *call = NEW(struct deferred);
    call->fn = fn;
    call->arg = arg;
    call->owned = true;
    loop_uv_enqueue(loop_uv_of(base), call);
}

/* --- timers */

static const struct loop_ops loop_uv_ops;

static void timer_uv_fired(uv_timer_t *uv)
{
    struct timer_uv *timer = CONTAINER_OF(uv, struct timer_uv, uv);
    timer->fn(timer->arg);
}

static struct loop_timer *timer_uv_create(struct loop *base, loop_fn fn, void *arg)
{
    struct timer_uv *timer = NEW(struct timer_uv);
    timer->base.ops = &loop_uv_ops;
    timer->loop = loop_uv_of(base);
    timer->fn = fn;
    timer->arg = arg;
    timer->now.fn = fn;
    timer->now.arg = arg;
    list_init(&timer->now.node);
    uv_timer_init(&timer->loop->uv, &timer->uv);
    list_add_last(&timer->loop->timers, &timer->node);
    return &timer->base;
}

static void timer_uv_stop(struct loop_timer *base)
{
    struct timer_uv *timer = timer_uv_of(base);
    list_remove(&timer->now.node);
    uv_timer_stop(&timer->uv);
}

/* The delay is rounded up to libuv's milliseconds, counted from the true time and not from the
 * start of the turn, so that a timer never fires early. */
static void timer_uv_set(struct loop_timer *base, int64_t delay_us)
{
    struct timer_uv *timer = timer_uv_of(base);
    uint64_t now_us, due_ms, base_ms;

    timer_uv_stop(base);
    if (delay_us <= 0) {
        loop_uv_enqueue(timer->loop, &timer->now);
        return;
    }
    now_us = uv_hrtime() / 1000;
    base_ms = uv_now(&timer->loop->uv);
    due_ms = (now_us + (uint64_t)delay_us + 999) / 1000;
    uv_timer_start(&timer->uv, timer_uv_fired, due_ms > base_ms ? due_ms - base_ms : 1, 0);
}

static void timer_uv_closed(uv_handle_t *uv)
{
    mem_free(CONTAINER_OF(uv, struct timer_uv, uv));
}

static void timer_uv_destroy(struct loop_timer *base)
{
    struct timer_uv *timer = timer_uv_of(base);
    timer_uv_stop(base);
    list_remove(&timer->node);
    uv_close((uv_handle_t *)&timer->uv, timer_uv_closed);
}

/* --- life */

static const struct loop_ops loop_uv_ops = {
    .now_us = loop_uv_now_us,
    .wall_us = loop_uv_wall_us,
    .random = loop_uv_random,
    .defer = loop_uv_defer,
    .timer_create = timer_uv_create,
    .timer_set = timer_uv_set,
    .timer_stop = timer_uv_stop,
    .timer_destroy = timer_uv_destroy,
};

struct loop *loop_uv_create(void)
{
    struct loop_uv *loop = NEW(struct loop_uv);
    loop->base.ops = &loop_uv_ops;
    list_init(&loop->deferred);
    list_init(&loop->timers);
    if (uv_loop_init(&loop->uv) != 0)
        abort(); /* out of descriptors before anything has begun */
    uv_idle_init(&loop->uv, &loop->idle);
    signal(SIGPIPE, SIG_IGN); /* a peer that is gone is an error code, not our end */
    return &loop->base;
}

struct uv_loop_s *loop_uv_handle(struct loop *loop)
{
    assert(loop->ops == &loop_uv_ops);
    return &loop_uv_of(loop)->uv;
}

void loop_uv_run(struct loop *loop)
{
    uv_run(&loop_uv_of(loop)->uv, UV_RUN_DEFAULT);
}

void loop_uv_stop(struct loop *loop)
{
    uv_stop(&loop_uv_of(loop)->uv);
}

static void loop_uv_close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void loop_uv_drop_deferred(struct loop_uv *loop)
{
    struct list *node;
    while ((node = list_take_first(&loop->deferred))) {
        struct deferred *call = LIST_ITEM(node, struct deferred, node);
        if (call->owned)
            mem_free(call);
    }
}

void loop_uv_destroy(struct loop *loop)
{
    if (!loop)
        return;
    struct loop_uv *real = loop_uv_of(loop);
    do { /* closing callbacks may still begin something */
        loop_uv_drop_deferred(real);
        while (!list_is_empty(&real->timers))
            timer_uv_destroy(&LIST_ITEM(real->timers.next, struct timer_uv, node)->base);
        uv_walk(&real->uv, loop_uv_close_handle, NULL);
        uv_run(&real->uv, UV_RUN_DEFAULT);
    } while (uv_loop_close(&real->uv) == UV_EBUSY);
    loop_uv_drop_deferred(real);
    mem_free(real);
}
