/* worker_watch.c - running workers, looked at every 100 ms: doorbells, grace, hangs, a silent
 * daemon. Reads shared pages and clocks only. */
#include "agent/actual.h"
#include "agent/save.h"
#include "agent/worker_part.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdio.h>

#define NOW_MS_MAX       1        /* grace of a stop that means: now */
#define SAVING_FRESH_US  15000000 /* a SAVING ask counts that long */
#define AFTER_SAVING_US  5000000  /* time to say so and to end, after a save in the grace period */
#define WATCH_SCAN_TICKS 10u
#define KICK_TICKS       50u /* reports are looked for even if the doorbell is broken */

void worker_watch_begin(struct worker *worker)
{
    worker->started_us = worker->progress_us = loop_now_us(worker->agent->loop);
    spool_kick(worker->agent->spool, worker->tag);
}

static bool is_saving(const struct worker *worker, int64_t now)
{
    return (worker->page && atomic_load(&worker->page->saving)) ||
           (worker->saving_us && now - worker->saving_us < SAVING_FRESH_US);
}

static void look_at_page(struct worker *worker, int64_t now)
{
    struct page *page = worker->page;
    if (!page)
        return;
    uint64_t reports = atomic_load(&page->reports);
    uint32_t saving = atomic_load(&page->saving);
    bool joined = atomic_load(&page->joined) != 0, finished = atomic_load(&page->finished) != 0;
    if (reports != worker->reports_seen) {
        worker->reports_seen = reports;
        worker->progress_us = now;
        spool_kick(worker->agent->spool, worker->tag);
    }
    if (saving != worker->saving_seen || joined > worker->joined || finished > worker->finished) {
        worker->saving_seen = saving;
        worker->joined |= joined;
        worker->finished |= finished;
        actual_mark(worker->agent->actual, worker->tag);
    }
    if (saving)
        worker->progress_us = now;
}

/* The save that was under way when the grace ended counts; one that begins later does not, else a
 * worker that is deaf to TERM and saves every few steps would stay up to the hard cap. */
static void look_at_saving(struct worker *worker, int64_t over, int64_t now)
{
    if (!is_saving(worker, now))
        worker->save_began_us = 0;
    else if (!worker->save_began_us)
        worker->save_began_us = now;
    if (worker->save_began_us && worker->save_began_us <= over)
        worker->saved_us = now;
}

/* A stop without any grace is somebody who does not want to wait; other stops may be of a gang that
 * is to go on from what it has saved. */
static bool is_given_up(const struct worker *worker)
{
    return worker->want == WORKER_WANT_KILL || worker->want == WORKER_WANT_NOTHING ||
           (worker->want == WORKER_WANT_STOP && worker->desired->has_grace_ms &&
            worker->desired->grace_ms <= NOW_MS_MAX);
}

/* TERM was sent: KILL follows, later while the worker saves, at the latest at the hard cap. */
static void look_at_grace(struct worker *worker, int64_t now)
{
    uint64_t most_ms, grace_ms = worker_grace_ms(worker, &most_ms);
    if (worker->ended_us && is_given_up(worker) &&
        now >= worker->ended_us + (int64_t)grace_ms * 1000)
        saves_stop(worker->agent->saves, worker);
    if (!worker->asked_us || worker->ended_us)
        return;
    int64_t over = worker->asked_us + (int64_t)grace_ms * 1000;
    int64_t cap = worker->asked_us + (int64_t)most_ms * 1000;
    look_at_saving(worker, over, now);
    if (worker->saved_us >= worker->asked_us && worker->saved_us + AFTER_SAVING_US > over)
        over = worker->saved_us + AFTER_SAVING_US;
    if (now < (over < cap ? over : cap))
        return;
    worker->asked_us = 0;
    worker_event(worker, WORKER_EV_GRACE_OVER);
}

static void hang(struct worker *worker, const char *what, uint64_t limit_ms)
{
    char text[160];
    (void)snprintf(text, sizeof(text), "no %s within %" PRIu64 " ms", what, limit_ms);
    log_warn("worker.hang", log_str("worker", worker->tag), log_str("why", text));
    worker_blame(worker, EXIT_CAUSE_HANG, text);
    worker_event(worker, WORKER_EV_HUNG);
}

/* Each phase has its own limit; saving is not a step. */
static void look_for_hang(struct worker *worker, int64_t now)
{
    const Pb__Launch *launch = worker->desired->launch;
    const Pb__Phases *phases = launch ? launch->phases : NULL;
    if (!phases || worker->finished || is_saving(worker, now))
        return;
    /* One record is the join's: it begins the warm-up, it does not end it. */
    bool first = worker->step < 0 && worker->reports_seen <= 1;
    uint64_t limit_ms = first ? phases->first_step_ms : phases->step_ms;
    int64_t since = first ? worker->started_us : worker->progress_us;
    if (limit_ms && now - since > (int64_t)limit_ms * 1000)
        hang(worker, first ? "first report" : "report", limit_ms);
}

/* Cut off from the daemon: what the job chose. */
static void look_at_daemon(struct worker *worker)
{
    const struct link *link = worker->agent->link;
    const Pb__Launch *launch = worker->desired->launch;
    if (!launch || !launch->has_on_unreachable ||
        launch->on_unreachable != PB__JOB_SPEC__ON_UNREACHABLE__STOP)
        return;
    if (link_silent_us(link) < (int64_t)link_lease_ms(link) * 1000)
        return;
    log_warn("worker.cut_off", log_str("worker", worker->tag));
    worker_blame(worker, EXIT_CAUSE_STOP, "cut off from the daemon for longer than its lease");
    worker_event(worker, WORKER_EV_STOP);
}

static bool is_alive(const struct worker *worker)
{
    return worker->state == PB__ACTUAL_WORKER__STATE__RUNNING ||
           worker->state == PB__ACTUAL_WORKER__STATE__STOPPING;
}

void worker_watch_tick(struct agent *agent)
{
    int64_t now = loop_now_us(agent->loop);
    size_t at = 0;
    struct worker *worker;
    agent->watch_ticks++;
    while ((worker = map_next(agent->workers, &at))) {
        if (worker->state == PB__ACTUAL_WORKER__STATE__PENDING && worker->want == WORKER_WANT_RUN)
            worker_apply_want(worker);
        if (!is_alive(worker))
            continue;
        look_at_page(worker, now);
        if (agent->watch_ticks % KICK_TICKS == 0)
            spool_kick(agent->spool, worker->tag);
        if (agent->watch_ticks % WATCH_SCAN_TICKS == 0 && !worker->ended_us)
            saves_watch(agent->saves, worker);
        if (worker->state == PB__ACTUAL_WORKER__STATE__STOPPING) {
            look_at_grace(worker, now);
            continue;
        }
        look_for_hang(worker, now);
        if (worker->state == PB__ACTUAL_WORKER__STATE__RUNNING)
            look_at_daemon(worker);
    }
}
