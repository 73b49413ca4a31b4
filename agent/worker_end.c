/* worker_end.c - the end of a worker: its last words, its reports, its saves, its devices; then
 * EXITED. And its leaving: reports acknowledged, directory away. */
#include "agent/actual.h"
#include "agent/code.h"
#include "agent/ended.h"
#include "agent/error_file.h"
#include "agent/gang.h"
#include "agent/save.h"
#include "agent/worker_part.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

#define ERROR_BYTES_MAX  ((size_t)256 << 10)
#define STDERR_BYTES_MAX ((size_t)32 << 10)
#define PROVE_US         500000
#define PROVE_LATER_US   5000000
#define PROOFS_MAX       10u /* then the worker counts as unkillable, its devices as held */

static void prove(struct worker *worker);

static void close_handles(struct worker *worker)
{
    struct agent *agent = worker->agent;
    if (worker->sock)
        worker->sock->ops->close(worker->sock);
    worker->sock = NULL;
    if (worker->page)
        agent->files->ops->unmap(agent->files, worker->page);
    worker->page = NULL;
    if (worker->code_digest)
        code_cache_release(agent->codes, worker->code_digest);
    mem_free(worker->code_digest);
    worker->code_digest = NULL;
    if (worker->proc)
        worker->proc->ops->forget(worker->proc);
    worker->proc = NULL;
}

static void remove_temporary(struct worker *worker)
{
    static const char *const names[] = {"tmp", "sock", "page", "ranks.json"};
    struct files_batch *batch = files_batch_create();
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        SCOPED_TEXT char *path = mem_printf("%s/%s", worker->dir, names[i]);
        (void)files_step_add(batch, FILES_REMOVE, path);
    }
    files_run(worker->agent->files, batch, NULL, NULL);
}

/* The last step that it answered at: nobody may be asked to save or stop at one up to there. */
static void note_gate(struct worker *worker)
{
    const struct page *page = worker->page;
    if (!page)
        return;
    if (atomic_load(&page->finished))
        worker->finished = true;
    if (atomic_load(&page->joined))
        worker->joined = true;
    int64_t save = atomic_load(&page->save_answered), stop = atomic_load(&page->stop_answered);
    worker->answered = save > stop ? save : stop;
}

void worker_end_release(struct worker *worker, enum worker_hold hold)
{
    if (!(worker->holds & (unsigned)hold))
        return;
    worker->holds &= ~(unsigned)hold;
    if (worker->holds)
        return;
    note_gate(worker);
    close_handles(worker);
    remove_temporary(worker);
    worker_event(worker, WORKER_EV_CLEARED);
}

/* --- last words */

static void take_words(char **place, char **words)
{
    if (*place)
        return;
    *place = *words;
    *words = NULL;
}

static void worker_end_read_done(void *arg, enum status st, const struct error *err,
                                 struct files_batch *batch)
{
    struct worker *worker = worker_ref_take(arg);
    struct error_words words = {NULL, NULL}, last = {NULL, NULL};
    (void)st, (void)err;
    if (!worker)
        return;
    bool failed = worker->exit_code != 0 || worker->signal != 0;
    const struct files_step *file = &batch->steps[0], *output = &batch->steps[1];
    if (failed && batch->ran > 0 && file->len)
        (void)error_file_parse(file->bytes, file->len, &words);
    if (failed && batch->ran > 1 && output->len) {
        (void)error_file_stderr(output->bytes, output->len, &last);
        mem_free(worker->last_words);
        worker->last_words = error_file_clean(output->bytes, output->len, STDERR_BYTES_MAX);
    }
    take_words(&worker->failure, &words.message);
    take_words(&worker->traceback, &words.traceback);
    take_words(&worker->failure, &last.message);
    take_words(&worker->traceback, &last.traceback);
    error_words_fini(&words);
    error_words_fini(&last);
    worker_end_release(worker, WORKER_HOLD_FILES);
}

static void read_words(struct worker *worker)
{
    struct files_batch *batch = files_batch_create();
    SCOPED_TEXT char *error = mem_printf("%s/error.json", worker->dir);
    SCOPED_TEXT char *output = mem_printf("%s/err", worker->dir);
    files_read(batch, error, 0, ERROR_BYTES_MAX)->missing_ok = true;
    files_read(batch, output, -(int64_t)STDERR_BYTES_MAX, STDERR_BYTES_MAX)->missing_ok = true;
    files_run(worker->agent->files, batch, worker_end_read_done, worker_ref_create(worker));
}

/* --- devices */

static void worker_prove_timer(void *arg)
{
    prove(arg);
}

static void worker_proved(void *arg, bool empty, const char *text)
{
    struct worker *worker = worker_ref_take(arg);
    if (!worker)
        return;
    if (empty) {
        worker_end_release(worker, WORKER_HOLD_DEVICES);
        return;
    }
    if (++worker->proofs == PROOFS_MAX) {
        log_error("worker.device_held", log_str("worker", worker->tag), log_str("err", text));
        mem_free(worker->cause_text);
        worker->cause_text = mem_printf("a device is still held: %s", text ? text : "");
        worker_event(worker, WORKER_EV_STUCK);
    }
    if (!worker->proof_timer)
        worker->proof_timer = loop_timer_create(worker->agent->loop, worker_prove_timer, worker);
    loop_timer_set(worker->proof_timer, worker->proofs < PROOFS_MAX ? PROVE_US : PROVE_LATER_US);
}

static void prove(struct worker *worker)
{
    struct inventory *inventory = worker->agent->options.inventory;
    const Pb__Launch *launch = worker->desired->launch;
    const char *kind = launch && launch->resources && launch->resources->device
                           ? launch->resources->device
                           : "cpu";
    inventory->ops->prove_empty(inventory, kind, launch ? launch->devices : NULL,
                                launch ? launch->n_devices : 0, worker_proved,
                                worker_ref_create(worker));
}

void worker_end_begin(struct worker *worker)
{
    struct agent *agent = worker->agent;
    if (worker->ended_us)
        return; /* GONE came again, after a stuck spell */
    worker->ended_us = loop_now_us(agent->loop);
    worker->holds = WORKER_HOLD_FILES | WORKER_HOLD_SAVES | WORKER_HOLD_DEVICES;
    if (spool_source_known(agent->spool, worker->tag)) {
        worker->holds |= WORKER_HOLD_DRAIN;
        spool_drain(agent->spool, worker->tag);
    }
    read_words(worker);
    prove(worker);
    saves_finish(agent->saves, worker);
}

/* --- leaving */

static void worker_moved(void *arg, enum status st, const struct error *err,
                         struct files_batch *batch)
{
    struct worker *worker = worker_ref_take(arg);
    if (!worker)
        return;
    if (batch->ran > 0)
        spool_forget(worker->agent->spool, worker->tag);
    if (st != STATUS_OK)
        log_warn("worker.move", log_str("worker", worker->tag), log_err(err));
    else if (!batch->steps[0].missing)
        ended_add(worker->agent->ended, worker->tag);
    actual_gone(worker->agent->actual, worker->desired->key);
    saves_forget(worker->agent->saves, worker->tag);
    gangs_left(worker->agent->gangs, worker);
    worker_destroy(worker);
}

void worker_end_left(struct worker *worker)
{
    static const char *const names[] = {"launch", "verdict", "reports", "start",
                                        "tmp",    "request", "newest"};
    struct agent *agent = worker->agent;
    struct files_batch *batch = files_batch_create();
    SCOPED_TEXT char *to = mem_printf("%s/%s", agent->ended_dir, worker->tag);
    struct files_step *step = files_step_add(batch, FILES_RENAME, worker->dir);
    step->to = mem_strdup(to);
    step->missing_ok = true;
    step->sync = true; /* before the spool forgets it */
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        SCOPED_TEXT char *path = mem_printf("%s/%s", to, names[i]);
        (void)files_step_add(batch, FILES_REMOVE, path);
    }
    files_run(agent->files, batch, worker_moved, worker_ref_create(worker));
}

void worker_end_leave(struct worker *worker)
{
    struct agent *agent = worker->agent;
    if (worker->leaving)
        return;
    worker->leaving = true;
    close_handles(worker);
    if (spool_source_known(agent->spool, worker->tag))
        spool_leave(agent->spool, worker->tag);
    else
        worker_end_left(worker);
}
