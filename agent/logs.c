/* logs.c - see logs.h. */
#include "agent/logs.h"
#include "agent/ended.h"
#include "agent/gang.h"
#include "agent/worker.h"
#include "base/list.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

#define CHUNK_BYTES_MAX ((size_t)256 << 10)
#define FOLLOWERS_MAX   1024u
#define POLL_US         100000
#define CAP_EVERY       20u /* polls between two looks at the sizes */

struct follower {
    struct list node;
    struct logs *logs;
    uint64_t ask;
    Pb__WorkerKey *key;
    bool stderr_wanted, follow, reading, cancelled;
    int64_t offset;
    size_t max;
    bool ended; /* the worker had ended before the read began */
};
struct logs {
    struct agent *agent;
    struct list followers;
    size_t count;
    struct loop_timer *timer;
    unsigned polls;
};

static void logs_poll(void *arg);

struct logs *logs_create(struct agent *agent)
{
    struct logs *logs = NEW(struct logs);
    logs->agent = agent;
    list_init(&logs->followers);
    logs->timer = loop_timer_create(agent->loop, logs_poll, logs);
    loop_timer_set(logs->timer, POLL_US);
    return logs;
}

static void follower_destroy(struct follower *follower)
{
    list_remove(&follower->node);
    follower->logs->count--;
    pb__worker_key__free_unpacked(follower->key, NULL);
    mem_free(follower);
}

void logs_destroy(struct logs *logs)
{
    if (!logs)
        return;
    LIST_EACH(&logs->followers, node)
    follower_destroy(LIST_ITEM(node, struct follower, node));
    loop_timer_destroy(logs->timer);
    mem_free(logs);
}

static void send_chunk(struct logs *logs, Pb__LogChunk *chunk)
{
    Pb__BulkUp up = PB__BULK_UP__INIT;
    up.log = chunk;
    (void)link_bulk(logs->agent->link, &up);
}

static void answer_error(struct logs *logs, uint64_t ask, const char *text)
{
    Pb__LogChunk chunk = PB__LOG_CHUNK__INIT;
    chunk.has_ask = chunk.has_end = chunk.has_closed = true;
    chunk.ask = ask;
    chunk.end = chunk.closed = true;
    chunk.error = (char *)(uintptr_t)text;
    send_chunk(logs, &chunk);
}

/* Directory of the worker's logs; false: nothing is kept. *ended: nothing more will come. */
static bool find_dir(struct logs *logs, const Pb__WorkerKey *key, char *out, size_t cap,
                     bool *ended)
{
    char tag[SPOOL_TAG_MAX];
    struct agent *agent = logs->agent;
    Pb__WorkerKey probe = *key;
    if (key->incarnation == 0)
        probe.incarnation = gangs_incarnation(agent->gangs, key);
    const struct worker *found = worker_tag(&probe, tag) ? worker_find(agent, tag) : NULL;
    if (found) {
        *ended = worker_is_final(found);
        return snprintf(out, cap, "%s", found->dir) < (int)cap;
    }
    *ended = true;
    return ended_find(agent->ended, key, tag) &&
           snprintf(out, cap, "%s/%s", agent->ended_dir, tag) < (int)cap;
}

static void answer(struct follower *follower, const struct files_step *step)
{
    Pb__LogChunk chunk = PB__LOG_CHUNK__INIT;
    uint64_t behind = (uint64_t)step->offset + step->len;
    chunk.has_ask = chunk.has_offset = chunk.has_data = chunk.has_end = chunk.has_closed =
        chunk.has_head = true;
    chunk.ask = follower->ask;
    chunk.offset = step->offset;
    chunk.data.data = step->bytes;
    chunk.data.len = step->len;
    chunk.end = behind >= step->size;
    chunk.closed = chunk.end && follower->ended;
    chunk.head = step->head;
    send_chunk(follower->logs, &chunk);
}

static void read_start(struct follower *follower);

static void logs_read_done(void *arg, enum status st, const struct error *err,
                           struct files_batch *batch)
{
    struct follower *follower = arg;
    struct files_step *step = &batch->steps[0];
    follower->reading = false;
    if (follower->cancelled) {
        follower_destroy(follower);
        return;
    }
    if (st != STATUS_OK) {
        answer_error(follower->logs, follower->ask, err->text);
        follower_destroy(follower);
        return;
    }
    if (step->missing) /* the worker has not started yet */
        step->offset = step->head = 0;
    if (step->offset < step->head && step->len) { /* that part was given back: go on at the head */
        follower->offset = step->head;
        read_start(follower);
        return;
    }
    if (follower->offset < 0)
        follower->offset = step->offset;
    if (step->len == 0 && follower->follow && !follower->ended &&
        follower->offset >= (int64_t)step->size)
        return; /* the poll looks again */
    answer(follower, step);
    follower_destroy(follower);
}

static void read_start(struct follower *follower)
{
    char dir[4096];
    if (!find_dir(follower->logs, follower->key, dir, sizeof(dir), &follower->ended)) {
        answer_error(follower->logs, follower->ask, "no logs of that worker are kept here");
        follower_destroy(follower);
        return;
    }
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, follower->stderr_wanted ? "err" : "out");
    struct files_batch *batch = files_batch_create();
    files_read(batch, path, follower->offset, follower->max)->missing_ok = true;
    follower->reading = true;
    files_run(follower->logs->agent->files, batch, logs_read_done, follower);
}

static void cancel(struct follower *follower)
{
    if (follower->reading)
        follower->cancelled = true;
    else
        follower_destroy(follower);
}

static void cancel_ask(struct logs *logs, uint64_t ask)
{
    LIST_EACH(&logs->followers, node)
    {
        struct follower *follower = LIST_ITEM(node, struct follower, node);
        if (follower->ask == ask)
            cancel(follower);
    }
}

void logs_down(struct logs *logs)
{
    LIST_EACH(&logs->followers, node)
    cancel(LIST_ITEM(node, struct follower, node));
}

void logs_ask(struct logs *logs, const Pb__LogAsk *ask)
{
    if (ask->cancel) {
        cancel_ask(logs, ask->ask);
        return;
    }
    uint8_t bytes[1024];
    size_t len = ask->key ? pb__worker_key__get_packed_size(ask->key) : SIZE_MAX;
    if (len > sizeof(bytes) || logs->count >= FOLLOWERS_MAX) {
        answer_error(logs, ask->ask, "too many logs are being followed here");
        return;
    }
    (void)pb__worker_key__pack(ask->key, bytes);
    struct follower *follower = NEW(struct follower);
    follower->logs = logs;
    follower->ask = ask->ask;
    follower->key = pb__worker_key__unpack(NULL, len, bytes);
    follower->stderr_wanted = ask->stderr_;
    follower->follow = ask->follow;
    follower->offset = ask->offset;
    follower->max =
        ask->bytes_max && ask->bytes_max < CHUNK_BYTES_MAX ? ask->bytes_max : CHUNK_BYTES_MAX;
    list_add_last(&logs->followers, &follower->node);
    logs->count++;
    read_start(follower);
}

/* --- caps */

static void logs_cap_done(void *arg, enum status st, const struct error *err,
                          struct files_batch *batch)
{
    struct logs *logs = arg;
    uint64_t most = logs->agent->config->log_mib_max << 20;
    struct files_batch *cut = NULL;
    (void)st, (void)err;
    for (size_t i = 0; i < batch->ran; i++) {
        const struct files_step *step = &batch->steps[i];
        if (step->size < (uint64_t)step->head || step->size - (uint64_t)step->head <= most)
            continue;
        cut = cut ? cut : files_batch_create();
        struct files_step *punch = files_step_add(cut, FILES_PUNCH, step->path);
        punch->max = (size_t)(step->size - most / 4 * 3); /* a quarter of room */
        punch->missing_ok = true;
    }
    if (cut)
        files_run(logs->agent->files, cut, NULL, NULL);
}

static void look_at_sizes(struct logs *logs)
{
    static const char *const names[] = {"out", "err"};
    struct agent *agent = logs->agent;
    struct files_batch *batch = files_batch_create();
    size_t at = 0;
    const struct worker *worker;
    while ((worker = map_next(agent->workers, &at))) {
        if (worker->state != PB__ACTUAL_WORKER__STATE__RUNNING)
            continue;
        for (size_t i = 0; i < COUNT_OF(names); i++) {
            SCOPED_TEXT char *path = mem_printf("%s/%s", worker->dir, names[i]);
            files_read(batch, path, 0, 0)->missing_ok = true;
        }
    }
    if (batch->count)
        files_run(agent->files, batch, logs_cap_done, logs);
    else
        files_batch_destroy(batch);
}

static void logs_poll(void *arg)
{
    struct logs *logs = arg;
    loop_timer_set(logs->timer, POLL_US);
    LIST_EACH(&logs->followers, node)
    {
        struct follower *follower = LIST_ITEM(node, struct follower, node);
        if (!follower->reading)
            read_start(follower);
    }
    if (logs->agent->config->log_mib_max && ++logs->polls % CAP_EVERY == 0)
        look_at_sizes(logs);
}
