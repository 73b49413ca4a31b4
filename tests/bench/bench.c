/* bench.c - see bench.h. */
#include "tests/bench/bench.h"
#include "base/mem.h"
#include "tests/bench/process.h"

#define LOOK_US 50000

struct bench_watch {
    struct bench *bench;
    struct loop_timer *timer;
    int64_t end_us;
    bool over;
};

static void look(void *arg)
{
    struct bench_watch *watch = arg;
    int64_t left = watch->end_us - process_now_us();

    if (process_interrupted() || left <= 0) {
        watch->over = true;
        bench_wake(watch->bench);
    } else {
        loop_timer_set(watch->timer, left < LOOK_US ? left : LOOK_US);
    }
}

/* True: *done came first. */
static bool run_loop(struct bench *bench, const bool *done, int64_t limit_ms)
{
    struct bench_watch watch = {.bench = bench, .end_us = process_now_us() + limit_ms * 1000};

    watch.timer = loop_timer_create(bench->loop, look, &watch);
    loop_timer_set(watch.timer, limit_ms * 1000 < LOOK_US ? limit_ms * 1000 : LOOK_US);
    while (!*done && !watch.over)
        loop_uv_run(bench->loop);
    loop_timer_destroy(watch.timer);
    return *done;
}

enum status bench_wait(struct bench *bench, const bool *done, int64_t limit_ms, const char *what,
                       struct error *err)
{
    if (run_loop(bench, done, limit_ms))
        return STATUS_OK;
    if (process_interrupted())
        return error_set(err, STATUS_CANCELLED, "interrupted");
    return error_set(err, STATUS_DEADLINE, "%s: not in %lld s", what, (long long)limit_ms / 1000);
}

void bench_wake(struct bench *bench)
{
    loop_uv_stop(bench->loop);
}

void bench_rest(struct bench *bench, int64_t ms)
{
    bool never = false;

    run_loop(bench, &never, ms);
}
