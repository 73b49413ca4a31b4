/* store_rig.h - a store in a schema of its own, driven step by step from a test. Header only. */
#pragma once
#include "daemon/store_pg.h"
#include "proto/pb.h"
#include "proto/text/text_format.h"
#include "tests/unit/daemon/database.h"

#define LOADED_MAX 256

struct rig {
    struct store *store;
    char conninfo[256];
    bool led, committed, found, replied;
    enum status lead_st, st;
    struct error err;
    uint64_t term, number[STORE_LANE_COUNT];
    char cluster[64];
    enum change_kind kinds[LOADED_MAX];
    ProtobufCMessage *rows[LOADED_MAX];
    size_t rows_count;
    ProtobufCMessage *reply;
    bool usable, fenced;
    int state_changes;
    struct change changes[64]; /* of the batch being built */
    size_t changes_count;
};

static struct cluster *rig_cluster;
static struct test_start rig_started;

static void rig_row(void *arg, enum change_kind kind, ProtobufCMessage *row_take)
{
    struct rig *rig = arg;

    assert_true(rig->rows_count < LOADED_MAX);
    rig->kinds[rig->rows_count] = kind;
    rig->rows[rig->rows_count++] = row_take;
}

static void rig_lead_done(void *arg, enum status st, const struct error *err, uint64_t term,
                          const char *cluster)
{
    struct rig *rig = arg;

    rig->led = true;
    rig->lead_st = st;
    rig->err = err ? *err : (struct error){0};
    rig->term = term;
    snprintf(rig->cluster, sizeof(rig->cluster), "%s", cluster ? cluster : "");
}

static void rig_state(void *arg, bool usable, bool fenced, const char *text)
{
    struct rig *rig = arg;

    (void)text;
    rig->usable = usable;
    rig->fenced = fenced;
    rig->state_changes++;
}

static inline void rig_make_schema(struct rig *rig, const char *name)
{
    SCOPED_TEXT char *sql = mem_printf("create schema %s", name);

    *rig = (struct rig){0};
    mem_free(test_sql(rig_started.conninfo, sql));
    SCOPED_TEXT char *conninfo =
        mem_printf("%s options='-c search_path=%s'", rig_started.conninfo, name);
    assert_true(strlen(conninfo) < sizeof(rig->conninfo));
    memcpy(rig->conninfo, conninfo, strlen(conninfo) + 1);
}

static inline void rig_create(struct rig *rig, const char *holder, uint64_t lease_ms)
{
    struct store_pg_options options = {.loop = test_loop,
                                       .conninfo = rig->conninfo,
                                       .holder = holder,
                                       .lease_ms = lease_ms,
                                       .grace_ms = 300};
    struct error err = {0};

    assert_int_equal(store_pg_create(&options, &rig->store, &err), STATUS_OK);
    rig->store->on_state = rig_state;
    rig->store->on_state_arg = rig;
}

static inline void rig_lead_start(struct rig *rig)
{
    rig->led = false;
    rig->number[0] = rig->number[1] = 0;
    rig->store->ops->lead(rig->store, 100, rig_row, rig_lead_done, rig);
}

static inline void rig_lead(struct rig *rig)
{
    rig_lead_start(rig);
    assert_false(rig->led);
    test_wait(&rig->led);
    if (rig->lead_st != STATUS_OK)
        print_error("lead: %s\n", rig->err.text);
    assert_int_equal(rig->lead_st, STATUS_OK);
}

static inline void rig_forget(struct rig *rig)
{
    for (size_t i = 0; i < rig->rows_count; i++)
        protobuf_c_message_free_unpacked(rig->rows[i], NULL);
    rig->rows_count = 0;
}

static inline void rig_close(struct rig *rig)
{
    rig_forget(rig);
    if (rig->reply)
        protobuf_c_message_free_unpacked(rig->reply, NULL);
    rig->reply = NULL;
    if (rig->store)
        rig->store->ops->destroy(rig->store);
    rig->store = NULL;
}

/* The daemon restarts: memory is gone, a new store leads the next term and loads. */
static inline void rig_restart(struct rig *rig)
{
    rig_close(rig);
    rig_create(rig, "one", 0);
    rig_lead(rig);
}

static inline void rig_add(struct rig *rig, enum change_kind kind, const void *message)
{
    struct change *change = &rig->changes[rig->changes_count++];

    *change = (struct change){.kind = kind, .row = message};
    if (rig->changes_count > 1)
        change[-1].next = change;
}

static void rig_committed(void *arg, enum status st, const struct error *err)
{
    struct rig *rig = arg;

    rig->committed = true;
    rig->st = st;
    rig->err = err ? *err : (struct error){0};
}

static inline void rig_commit_start(struct rig *rig, struct batch *batch, enum store_lane lane)
{
    *batch =
        (struct batch){.lane = lane,
                       .term = rig->term,
                       .number = ++rig->number[lane],
                       .first = rig->changes_count ? rig->changes : NULL,
                       .last = rig->changes_count ? &rig->changes[rig->changes_count - 1] : NULL,
                       .count = rig->changes_count};
    rig->committed = false;
    rig->store->ops->commit(rig->store, batch, rig_committed, rig);
    rig->changes_count = 0;
}

static inline enum status rig_commit(struct rig *rig, enum store_lane lane)
{
    struct batch batch;

    rig_commit_start(rig, &batch, lane);
    assert_false(rig->committed);
    test_wait(&rig->committed);
    return rig->st;
}

static void rig_found(void *arg, enum status st, const struct error *err)
{
    struct rig *rig = arg;

    rig->found = true;
    rig->st = st;
    rig->err = err ? *err : (struct error){0};
}

static inline enum status rig_batch_done(struct rig *rig, enum store_lane lane, uint64_t number)
{
    rig->found = false;
    rig->store->ops->batch_done(rig->store, lane, rig->term, number, rig_found, rig);
    assert_false(rig->found);
    test_wait(&rig->found);
    return rig->st;
}

static void rig_reply(void *arg, enum status st, const struct error *err,
                      ProtobufCMessage *reply_take)
{
    struct rig *rig = arg;

    rig->replied = true;
    rig->st = st;
    rig->err = err ? *err : (struct error){0};
    rig->reply = reply_take;
}

/* A loan until the next question. */
static inline const void *rig_ask(struct rig *rig, const void *request)
{
    if (rig->reply)
        protobuf_c_message_free_unpacked(rig->reply, NULL);
    rig->reply = NULL;
    rig->replied = false;
    rig->store->ops->query(rig->store, request, rig_reply, rig);
    assert_false(rig->replied);
    test_wait(&rig->replied);
    return rig->reply;
}

static inline void *rig_loaded(struct rig *rig, enum change_kind kind, size_t index)
{
    for (size_t i = 0; i < rig->rows_count; i++)
        if (rig->kinds[i] == kind && index-- == 0)
            return rig->rows[i];
    return NULL;
}

static inline int rig_setup(void **state)
{
    (void)state;
    test_dir_make();
    rig_cluster = test_cluster_start(&rig_started);
    return 0;
}

static inline int rig_teardown(void **state)
{
    (void)state;
    test_cluster_end(rig_cluster);
    test_dir_remove();
    return 0;
}

/* Equal as messages are: byte for byte when packed. */
static inline void assert_same(const void *a, const void *b)
{
    size_t a_len = protobuf_c_message_get_packed_size(a);
    size_t b_len = protobuf_c_message_get_packed_size(b);
    SCOPED(mem_free) void *a_bytes = mem_alloc(a_len + 1);
    SCOPED(mem_free) void *b_bytes = mem_alloc(b_len + 1);

    protobuf_c_message_pack(a, a_bytes);
    protobuf_c_message_pack(b, b_bytes);
    assert_int_equal(a_len, b_len);
    assert_memory_equal(a_bytes, b_bytes, a_len);
}
