/* loop.h - the seam to time and chance: clock, timers, deferred calls, random numbers.
 *
 * Two implementations: loop_uv.c over libuv, and the simulator's. Daemon core and agent core see
 * only this. Loop thread only, but for loop_now_us. Monotonic time starts anywhere; wall time is
 * for people and rows, never compared across hosts. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct loop;
struct loop_timer;
typedef void (*loop_fn)(void *arg);

struct loop_ops {
    int64_t (*now_us)(struct loop *loop);  /* monotonic */
    int64_t (*wall_us)(struct loop *loop); /* since 1970 */
    void (*random)(struct loop *loop, void *out, size_t len);
    void (*defer)(struct loop *loop, loop_fn fn, void *arg); /* on this loop, later, in order */
    struct loop_timer *(*timer_create)(struct loop *loop, loop_fn fn, void *arg);
    void (*timer_set)(struct loop_timer *timer,
                      int64_t delay_us); /* one shot; replaces an earlier setting; 0: next turn */
    void (*timer_stop)(struct loop_timer *timer);
    void (*timer_destroy)(struct loop_timer *timer); /* its function never runs again */
};
struct loop {
    const struct loop_ops *ops;
};
struct loop_timer {
    const struct loop_ops *ops;
};

static inline int64_t loop_now_us(struct loop *loop)
{
    return loop->ops->now_us(loop);
}
static inline int64_t loop_wall_us(struct loop *loop)
{
    return loop->ops->wall_us(loop);
}
static inline void loop_random(struct loop *loop, void *out, size_t len)
{
    loop->ops->random(loop, out, len);
}
static inline void loop_defer(struct loop *loop, loop_fn fn, void *arg)
{
    loop->ops->defer(loop, fn, arg);
}
static inline struct loop_timer *loop_timer_create(struct loop *loop, loop_fn fn, void *arg)
{
    return loop->ops->timer_create(loop, fn, arg);
}
static inline void loop_timer_set(struct loop_timer *timer, int64_t delay_us)
{
    timer->ops->timer_set(timer, delay_us);
}
static inline void loop_timer_stop(struct loop_timer *timer)
{
    timer->ops->timer_stop(timer);
}
static inline void loop_timer_destroy(struct loop_timer *timer) /* NULL is fine */
{
    if (timer)
        timer->ops->timer_destroy(timer);
}

/* libuv: the program's own loop. loop_uv_handle gives the uv_loop_t for what only real programs do
 * (sockets, children). */
struct uv_loop_s;
struct loop *loop_uv_create(void); /* from here on the process ignores SIGPIPE */
struct uv_loop_s *loop_uv_handle(struct loop *loop);
void loop_uv_run(struct loop *loop);     /* until loop_uv_stop or nothing is left */
void loop_uv_stop(struct loop *loop);    /* loop thread */
void loop_uv_destroy(struct loop *loop); /* closes leftovers, drops deferred calls; NULL is fine */
