/* save_fetch.c - checkpoints of which parts are on other nodes: fetched once for all workers of
 * this node, tried again while it may help, told to the daemon. See save.h.
 *
 * WAITING -(time)-> RUNNING -> DONE, or FAILED, or WAITING again. What the daemon lists is fetched;
 * what it does not list any more ends. */
#include "agent/actual.h"
#include "agent/save_inner.h"
#include "agent/vault_fetch.h"
#include "base/log.h"
#include "proto/text/message.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TICK_US      500000
#define RETRY_US_MIN 500000
#define RETRY_US_MAX 8000000
#define TRIES_MAX    6 /* in a row, without a byte; about 15 s */
#define FETCHES_MAX  64

struct fetch_waiter {
    char tag[SPOOL_TAG_MAX];
    void (*done)(void *arg, enum status st, const struct error *err);
    void *arg;
};
struct save_fetch {
    struct list node;
    int64_t checkpoint;
    Pb__DesiredFetch *wanted; /* as it was last said */
    bool listed;
    enum { FETCH_WAITING, FETCH_RUNNING, FETCH_DONE, FETCH_FAILED } state;
    struct vault_job *job; /* RUNNING */
    int64_t due_us;        /* WAITING */
    unsigned tries;
    uint64_t bytes; /* of all runs */
    uint64_t told;
    struct error err; /* FAILED; WAITING: of the last try */
    char text[200];   /* where it stands, for people */
    struct fetch_waiter *waiters;
    size_t waiters_count;
    Pb__ShardCopy **copies; /* DONE */
    size_t copies_count;
    char note[VAULT_FETCH_NOTE];
    Pb__ActualCopy *messages;
    uint64_t sent_seq;
    bool acked;
};
struct fetch_op {
    struct saves *saves;
    int64_t checkpoint;
};

static void fetch_destroy(struct save_fetch *fetch)
{
    pb__desired_fetch__free_unpacked(fetch->wanted, NULL);
    for (size_t i = 0; i < fetch->copies_count; i++)
        pb__shard_copy__free_unpacked(fetch->copies[i], NULL);
    mem_free(fetch->copies);
    mem_free(fetch->messages);
    mem_free(fetch->waiters);
    mem_free(fetch);
}

void save_fetch_destroy_all(struct saves *saves)
{
    LIST_EACH(&saves->fetches, node)
    fetch_destroy(LIST_ITEM(node, struct save_fetch, node));
    loop_timer_destroy(saves->fetch_timer);
}

static struct save_fetch *find(struct saves *saves, int64_t checkpoint)
{
    LIST_EACH(&saves->fetches, node)
    {
        struct save_fetch *fetch = LIST_ITEM(node, struct save_fetch, node);
        if (fetch->checkpoint == checkpoint)
            return fetch;
    }
    return NULL;
}

static void save_fetch_tick(void *arg);

static void arm(struct saves *saves, int64_t us)
{
    if (!saves->fetch_timer)
        saves->fetch_timer = loop_timer_create(saves->agent->loop, save_fetch_tick, saves);
    loop_timer_set(saves->fetch_timer, us);
}

static void answer(struct save_fetch *fetch, enum status st, const struct error *err)
{
    struct fetch_waiter *waiters = fetch->waiters;
    size_t count = fetch->waiters_count;

    fetch->waiters = NULL;
    fetch->waiters_count = 0;
    for (size_t i = 0; i < count; i++)
        waiters[i].done(waiters[i].arg, st, err);
    mem_free(waiters);
}

/* --- a run */
static void take_result(struct saves *saves, struct save_fetch *self, struct vault_fetch *got)
{
    self->state = FETCH_DONE;
    self->copies = got->copies;
    self->copies_count = got->copies_count;
    got->copies = NULL;
    got->copies_count = 0;
    if (got->came) {
        (void)snprintf(self->note, sizeof(self->note), "%s", got->note);
        log_info("fetch.done", log_int("checkpoint", self->checkpoint),
                 log_int("bytes", (int64_t)self->bytes), log_str("text", got->note));
    }
    actual_mark_outbox(saves->agent->actual);
    answer(self, STATUS_OK, NULL);
}

static bool may_help(enum status st)
{
    return st != STATUS_DATA_LOSS && st != STATUS_EXHAUSTED && st != STATUS_INVALID;
}

static void take_failure(struct saves *saves, struct save_fetch *self, const struct error *err,
                         bool came_on)
{
    self->err = *err;
    self->tries = came_on ? 1 : self->tries + 1;
    log_warn("fetch.failed", log_int("checkpoint", self->checkpoint), log_int("tries", self->tries),
             log_err(err));
    if (self->tries < TRIES_MAX && may_help(err->code)) {
        int64_t wait_us = RETRY_US_MIN << (self->tries - 1);
        self->state = FETCH_WAITING;
        self->due_us =
            loop_now_us(saves->agent->loop) + (wait_us < RETRY_US_MAX ? wait_us : RETRY_US_MAX);
        return;
    }
    self->state = FETCH_FAILED;
    answer(self, err->code, &self->err);
}

static void save_fetch_done(void *arg, enum status st, const struct error *err,
                            struct vault_job *job)
{
    struct fetch_op *op = arg;
    struct saves *saves = op->saves;
    struct save_fetch *self = find(saves, op->checkpoint);
    uint64_t came = atomic_load(&job->done_bytes);

    pending_destroy(op);
    if (!self || self->job != job)
        return;
    self->job = NULL;
    self->bytes += came;
    if (st == STATUS_OK)
        take_result(saves, self, job->fetch);
    else
        take_failure(saves, self, err, came > 0);
    arm(saves, 0);
}

static void run(struct saves *saves, struct save_fetch *self)
{
    const struct agent_config *config = saves->agent->config;
    struct peer_link_files files = {.cert = config->cert, .key = config->key, .ca = config->ca};
    char vault[1024];
    struct error err;

    if (!self->wanted->path || !saves_vault(saves, self->wanted->vault, vault, sizeof(vault))) {
        (void)error_set(&err, STATUS_INVALID, "this node has no vault of the name '%.100s'",
                        self->wanted->vault ? self->wanted->vault : "");
        take_failure(saves, self, &err, false);
        return;
    }
    struct vault_job *job = vault_job_create(VAULT_JOB_FETCH, vault, self->wanted->path, NULL, 0);
    struct fetch_op *op = PENDING(&saves->agent->pending, struct fetch_op);

    job->fetch = vault_fetch_create(self->wanted, &files);
    *op = (struct fetch_op){saves, self->checkpoint};
    self->job = job;
    self->state = FETCH_RUNNING;
    vault_pool_run(saves->agent->options.vaults, job, save_fetch_done, op);
}

/* --- time passes */
static void tell(struct saves *saves, struct save_fetch *self)
{
    uint64_t bytes = self->bytes + (self->job ? atomic_load(&self->job->done_bytes) : 0);
    char text[sizeof(self->text)];

    (void)snprintf(text, sizeof(text), "fetches checkpoint %" PRId64 ": %" PRIu64 " MiB%s%.100s",
                   self->checkpoint, bytes >> 20, self->err.code ? ", tries again after: " : "",
                   self->err.code ? self->err.text : "");
    if (strcmp(text, self->text) == 0 && bytes == self->told)
        return;
    self->told = bytes;
    (void)snprintf(self->text, sizeof(self->text), "%s", text);
    for (size_t i = 0; i < self->waiters_count; i++)
        actual_mark(saves->agent->actual, self->waiters[i].tag);
}

/* Nobody waits for it, or never will again. */
static bool is_unwanted(const struct save_fetch *self)
{
    return !self->listed && self->waiters_count == 0 && self->state != FETCH_RUNNING &&
           (self->state != FETCH_DONE || self->acked);
}

static void save_fetch_tick(void *arg)
{
    struct saves *saves = arg;
    int64_t now = loop_now_us(saves->agent->loop);
    bool more = false;

    LIST_EACH(&saves->fetches, node)
    {
        struct save_fetch *self = LIST_ITEM(node, struct save_fetch, node);
        if (self->state == FETCH_WAITING && self->due_us <= now)
            run(saves, self);
        if (is_unwanted(self)) {
            list_remove(node);
            fetch_destroy(self);
            continue;
        }
        if (self->state == FETCH_RUNNING || self->state == FETCH_WAITING)
            tell(saves, self);
        more |= self->state == FETCH_RUNNING || self->state == FETCH_WAITING;
    }
    if (more)
        arm(saves, TICK_US);
}

const char *saves_fetch_text(struct saves *saves, const Pb__ResumePoint *resume, uint64_t *bytes)
{
    struct save_fetch *self = resume && resume->fetch ? find(saves, resume->checkpoint) : NULL;

    if (!self || self->waiters_count == 0 || !*self->text)
        return NULL;
    *bytes = self->told;
    return self->text;
}

/* --- who waits, what is listed */
static struct save_fetch *create(struct saves *saves, const Pb__DesiredFetch *wanted)
{
    struct save_fetch *self = NEW(struct save_fetch);

    self->checkpoint = wanted->checkpoint;
    self->wanted = (Pb__DesiredFetch *)message_copy(&wanted->base);
    self->state = FETCH_WAITING;
    list_add_last(&saves->fetches, &self->node);
    return self;
}

/* Before the daemon has said where the parts are, it is looked whether they are here. */
void saves_fetch(struct saves *saves, const struct worker *worker,
                 void (*done)(void *arg, enum status st, const struct error *err), void *arg)
{
    const Pb__ResumePoint *resume = worker->desired->launch->resume;
    struct save_fetch *self = find(saves, resume->checkpoint);

    if (self && self->state == FETCH_DONE) {
        done(arg, STATUS_OK, NULL);
        return;
    }
    if (!self) {
        Pb__DesiredFetch wanted = PB__DESIRED_FETCH__INIT;
        wanted.has_checkpoint = true;
        wanted.checkpoint = resume->checkpoint;
        wanted.vault = resume->vault;
        wanted.path = resume->path;
        wanted.manifest_digest = resume->manifest_digest;
        self = create(saves, &wanted);
    }
    if (self->state == FETCH_FAILED) { /* for another worker: now for this one */
        self->state = FETCH_WAITING;
        self->tries = 0;
    }
    self->waiters = mem_resize(self->waiters, self->waiters_count + 1, sizeof(*self->waiters));
    self->waiters[self->waiters_count] = (struct fetch_waiter){.done = done, .arg = arg};
    memcpy(self->waiters[self->waiters_count++].tag, worker->tag, SPOOL_TAG_MAX);
    arm(saves, 0);
}

static void list_one(struct saves *saves, const Pb__DesiredFetch *said)
{
    struct save_fetch *self = find(saves, said->checkpoint);

    if (!self)
        self = create(saves, said);
    if (!self->listed && self->state == FETCH_WAITING)
        self->due_us = 0; /* now it is known where */
    self->listed = true;
    pb__desired_fetch__free_unpacked(self->wanted, NULL);
    self->wanted = (Pb__DesiredFetch *)message_copy(&said->base);
}

/* The workers were given up, or all is here. */
static void unlist(struct save_fetch *self)
{
    struct error err;

    if (self->job)
        atomic_store(&self->job->stop, true);
    if (self->state == FETCH_DONE || self->state == FETCH_RUNNING)
        return;
    (void)error_set(&err, STATUS_CANCELLED, "nobody waits for it any more");
    answer(self, STATUS_CANCELLED, &err);
    self->state = FETCH_FAILED;
}

void save_fetch_desired(struct saves *saves, const Pb__Desired *desired)
{
    size_t count = desired->n_fetches < FETCHES_MAX ? desired->n_fetches : FETCHES_MAX;

    LIST_EACH(&saves->fetches, node)
    {
        struct save_fetch *self = LIST_ITEM(node, struct save_fetch, node);
        bool still = false;
        for (size_t i = 0; i < count && !still; i++)
            still = desired->fetches[i]->checkpoint == self->checkpoint;
        if (self->listed && !still)
            unlist(self);
        self->listed = still;
    }
    for (size_t i = 0; i < count; i++)
        list_one(saves, desired->fetches[i]);
    if (!list_is_empty(&saves->fetches))
        arm(saves, 0);
}

/* --- reports */
static void fill_one(struct saves *saves, struct save_fetch *self, Pb__ActualReport *report)
{
    mem_free(self->messages);
    self->messages = mem_array(self->copies_count + 1, sizeof(*self->messages));
    report->copies = mem_resize(report->copies, report->n_copies + self->copies_count + 1,
                                sizeof(*report->copies));
    for (size_t i = 0; i < self->copies_count; i++) {
        Pb__ActualCopy *out = &self->messages[i];
        pb__actual_copy__init(out);
        out->has_checkpoint = true;
        out->checkpoint = self->checkpoint;
        out->copy = self->copies[i];
        mem_free(out->copy->node);
        out->copy->node = mem_strdup(saves->agent->node);
        if (i + 1 == self->copies_count && *self->note)
            out->note = self->note;
        report->copies[report->n_copies++] = out;
    }
    self->sent_seq = SAVE_SEQ_FILLING;
}

void save_fetch_fill(struct saves *saves, Pb__ActualReport *report)
{
    LIST_EACH(&saves->fetches, node)
    {
        struct save_fetch *self = LIST_ITEM(node, struct save_fetch, node);
        if (self->state == FETCH_DONE && !self->sent_seq)
            fill_one(saves, self, report);
    }
}

void save_fetch_sent(struct saves *saves, Pb__ActualReport *report, uint64_t seq)
{
    LIST_EACH(&saves->fetches, node)
    {
        struct save_fetch *self = LIST_ITEM(node, struct save_fetch, node);
        if (self->sent_seq == SAVE_SEQ_FILLING)
            self->sent_seq = seq;
    }
    mem_free(report->copies);
}

void save_fetch_acked(struct saves *saves, uint64_t seq)
{
    LIST_EACH(&saves->fetches, node)
    {
        struct save_fetch *self = LIST_ITEM(node, struct save_fetch, node);
        if (!self->sent_seq || self->sent_seq > seq)
            continue;
        self->acked = true;
        arm(saves, 0);
    }
}

void save_fetch_down(struct saves *saves)
{
    LIST_EACH(&saves->fetches, node)
    {
        struct save_fetch *self = LIST_ITEM(node, struct save_fetch, node);
        if (!self->acked)
            self->sent_seq = 0;
    }
}
