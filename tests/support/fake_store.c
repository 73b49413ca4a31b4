/* fake_store.c - see fake_store.h. */
#include "tests/support/fake_store.h"
#include "base/map.h"
#include "base/mem.h"
#include "proto/text/text_format.h"
#include "tests/support/fake_store_query.h"
#include <stdio.h>
#include <string.h>

struct fake_failure {
    uint64_t in; /* commits until it strikes; 0: none */
    enum status st;
    bool applied;
};
struct fake_store {
    struct store base;
    struct loop *loop;
    struct map *rows[CHANGE_KIND_COUNT]; /* key -> row, in the order of first writing */
    struct map *batches;                 /* "lane term number" -> itself */
    struct fake_failure failures[STORE_LANE_COUNT];
    uint64_t term, commits, reports;
    bool away, fenced;
};

/* An answer on its way. */
struct fake_answer {
    struct fake_store *store;
    enum status st;
    bool fence;
    store_done done;
    store_reply reply;
    ProtobufCMessage *message; /* reply: owned */
    void *arg;
};

static struct fake_store *fake_of(const struct store *store)
{
    return (struct fake_store *)(uintptr_t)store;
}

/* --- rows */

static void fake_key(struct fake_store *fake, enum change_kind kind, const ProtobufCMessage *row,
                     char *out, size_t cap)
{
    switch (kind) {
    case CHANGE_JOB:
        snprintf(out, cap, "%lld", (long long)((const Pb__Job *)(const void *)row)->id);
        break;
    case CHANGE_ATTEMPT:
        snprintf(out, cap, "%lld/%u", (long long)((const Pb__Attempt *)(const void *)row)->job,
                 ((const Pb__Attempt *)(const void *)row)->number);
        break;
    case CHANGE_CHECKPOINT:
        snprintf(out, cap, "%lld", (long long)((const Pb__Checkpoint *)(const void *)row)->id);
        break;
    case CHANGE_EVENT:
        snprintf(out, cap, "%lld", (long long)((const Pb__Event *)(const void *)row)->seq);
        break;
    case CHANGE_REPORTS:
        snprintf(out, cap, "%llu", (unsigned long long)++fake->reports);
        break;
    default: { /* the first field is the name */
        const char *const *name =
            (const char *const *)(const void *)((const char *)row +
                                                row->descriptor->fields[0].offset);
        snprintf(out, cap, "%s", *name ? *name : "");
    }
    }
}

static void fake_write(struct fake_store *fake, enum change_kind kind, const ProtobufCMessage *row)
{
    char key[300];

    fake_key(fake, kind, row, key, sizeof(key));
    ProtobufCMessage *before = map_get_text(fake->rows[kind], key);
    map_put_text(fake->rows[kind], key, message_copy(row));
    if (before)
        protobuf_c_message_free_unpacked(before, NULL);
}

const ProtobufCMessage *fake_store_next(const struct store *store, enum change_kind kind,
                                        size_t *at)
{
    return map_next(fake_of(store)->rows[kind], at);
}

void fake_store_put(struct store *store, enum change_kind kind, const ProtobufCMessage *row)
{
    fake_write(fake_of(store), kind, row);
}

size_t fake_store_count(const struct store *store, enum change_kind kind)
{
    return map_count(fake_of(store)->rows[kind]);
}

const ProtobufCMessage *fake_store_find(const struct store *store, enum change_kind kind,
                                        const char *key)
{
    return map_get_text(fake_of(store)->rows[kind], key);
}

uint64_t fake_store_commits(const struct store *store)
{
    return fake_of(store)->commits;
}

/* --- answers */

static void fake_tell(struct fake_store *fake, bool usable, bool fenced, const char *text)
{
    if (fake->base.on_state)
        fake->base.on_state(fake->base.on_state_arg, usable, fenced, text);
}

static void fake_answer_run(void *arg)
{
    struct fake_answer *answer = arg;
    struct error err;

    error_set(&err, answer->st, "the store says %s", status_name(answer->st));
    if (answer->done)
        answer->done(answer->arg, answer->st, answer->st == STATUS_OK ? NULL : &err);
    else
        answer->reply(answer->arg, answer->st, answer->st == STATUS_OK ? NULL : &err,
                      answer->message);
    if (answer->fence)
        fake_tell(answer->store, false, true, "a newer term leads");
    mem_free(answer);
}

static void fake_answer(struct fake_store *fake, enum status st, store_done done, void *arg)
{
    struct fake_answer *answer = NEW(struct fake_answer);

    answer->store = fake;
    answer->st = st;
    answer->done = done;
    answer->arg = arg;
    answer->fence = st == STATUS_ABORTED;
    loop_defer(fake->loop, fake_answer_run, answer);
}

/* --- leading */

struct fake_lead {
    struct fake_store *store;
    store_row row;
    void (*done)(void *arg, enum status st, const struct error *err, uint64_t term,
                 const char *cluster);
    void *arg;
};

static void fake_lead_run(void *arg)
{
    static const enum change_kind order[] = {
        CHANGE_PROJECT,    CHANGE_NODE, CHANGE_JOB,     CHANGE_ATTEMPT,
        CHANGE_CHECKPOINT, CHANGE_MARK, CHANGE_REQUEST, CHANGE_EVENT,
    };
    struct fake_lead *lead = arg;
    struct fake_store *fake = lead->store;
    struct error err;

    if (fake->away) {
        error_set(&err, STATUS_UNAVAILABLE, "the store is away");
        lead->done(lead->arg, STATUS_UNAVAILABLE, &err, 0, NULL);
        mem_free(lead);
        return;
    }
    fake->term++;
    for (size_t i = 0; i < COUNT_OF(order); i++) {
        size_t at = 0;
        for (const ProtobufCMessage *row; (row = map_next(fake->rows[order[i]], &at));)
            lead->row(lead->arg, order[i], message_copy(row));
    }
    lead->done(lead->arg, STATUS_OK, NULL, fake->term, "fake-cluster");
    mem_free(lead);
}

static void fake_lead(struct store *store, uint32_t ended_max, store_row row,
                      void (*done)(void *arg, enum status st, const struct error *err,
                                   uint64_t term, const char *cluster),
                      void *arg)
{
    struct fake_lead *lead = NEW(struct fake_lead);

    (void)ended_max; /* all of it fits */
    *lead = (struct fake_lead){fake_of(store), row, done, arg};
    loop_defer(fake_of(store)->loop, fake_lead_run, lead);
}

/* --- commits */

static void fake_batch_key(char *out, size_t cap, enum store_lane lane, uint64_t term,
                           uint64_t number)
{
    snprintf(out, cap, "%d %llu %llu", (int)lane, (unsigned long long)term,
             (unsigned long long)number);
}

static void fake_apply(struct fake_store *fake, const struct batch *batch)
{
    char key[64];

    for (const struct change *change = batch->first; change; change = change->next)
        fake_write(fake, change->kind, change->row);
    fake_batch_key(key, sizeof(key), batch->lane, batch->term, batch->number);
    map_put_text(fake->batches, key, fake);
    fake->commits++;
}

static void fake_commit(struct store *store, const struct batch *batch, store_done done, void *arg)
{
    struct fake_store *fake = fake_of(store);
    struct fake_failure *failure = &fake->failures[batch->lane];
    enum status st = fake->fenced ? STATUS_ABORTED : fake->away ? STATUS_UNAVAILABLE : STATUS_OK;
    bool applied = st == STATUS_OK;

    if (st == STATUS_OK && failure->in > 0 && --failure->in == 0) {
        st = failure->st;
        applied = failure->applied;
    }
    if (applied)
        fake_apply(fake, batch);
    fake_answer(fake, st, done, arg);
    if (st == STATUS_UNKNOWN)
        fake_store_set_usable(store, false);
}

static void fake_batch_done(struct store *store, enum store_lane lane, uint64_t term,
                            uint64_t number, store_done done, void *arg)
{
    struct fake_store *fake = fake_of(store);
    char key[64];

    fake_batch_key(key, sizeof(key), lane, term, number);
    fake_answer(fake,
                fake->away                         ? STATUS_UNAVAILABLE
                : map_get_text(fake->batches, key) ? STATUS_OK
                                                   : STATUS_NOT_FOUND,
                done, arg);
}

static void fake_query(struct store *store, const ProtobufCMessage *request, store_reply done,
                       void *arg)
{
    struct fake_store *fake = fake_of(store);
    struct fake_answer *answer = NEW(struct fake_answer);

    answer->store = fake;
    answer->reply = done;
    answer->arg = arg;
    answer->st =
        fake->away ? STATUS_UNAVAILABLE : fake_store_query(store, request, &answer->message);
    loop_defer(fake->loop, fake_answer_run, answer);
}

/* --- faults */

void fake_store_fail(struct store *store, enum store_lane lane, uint64_t nth, enum status st,
                     bool applied)
{
    fake_of(store)->failures[lane] = (struct fake_failure){nth, st, applied};
}

static void fake_tell_usable(void *arg)
{
    struct fake_store *fake = arg;

    fake_tell(fake, !fake->away, false, fake->away ? "connection lost" : "connected");
}

void fake_store_set_usable(struct store *store, bool usable)
{
    struct fake_store *fake = fake_of(store);

    fake->away = !usable;
    loop_defer(fake->loop, fake_tell_usable, fake);
}

void fake_store_fence(struct store *store)
{
    fake_of(store)->fenced = true;
}

/* --- life */

static void fake_destroy(struct store *store)
{
    struct fake_store *fake = fake_of(store);

    for (size_t kind = 0; kind < CHANGE_KIND_COUNT; kind++) {
        size_t at = 0;
        for (ProtobufCMessage *row; (row = map_next(fake->rows[kind], &at));)
            protobuf_c_message_free_unpacked(row, NULL);
        map_destroy(fake->rows[kind]);
    }
    map_destroy(fake->batches);
    mem_free(fake);
}

static const struct store_ops fake_ops = {
    .lead = fake_lead,
    .commit = fake_commit,
    .batch_done = fake_batch_done,
    .query = fake_query,
    .destroy = fake_destroy,
};

struct store *fake_store_create(struct loop *loop)
{
    struct fake_store *fake = NEW(struct fake_store);

    fake->base.ops = &fake_ops;
    fake->loop = loop;
    fake->batches = map_create();
    for (size_t kind = 0; kind < CHANGE_KIND_COUNT; kind++)
        fake->rows[kind] = map_create();
    return &fake->base;
}
