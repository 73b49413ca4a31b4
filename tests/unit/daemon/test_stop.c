/* test_stop.c - a daemon that is taken apart with work at hand: what was to run in the next turn of
 * the loop does not run, and everyone who asked is answered, once. */
#include "base/loop.h"
#include "daemon/core.h"
#include "daemon/reader.h"
#include "proto/pb.h"
#include "tests/support/fake_store.h"
#include "tests/unit/unit.h"
#include <uv.h>

struct rig {
    struct loop *loop;
    struct loop_timer *tick;
    struct store *store;
    struct core *core;
    bool started;
    uint32_t answers;
    enum status st;
};

static void ticked(void *arg)
{
    struct rig *rig = arg;

    loop_timer_set(rig->tick, 10000);
}

static void started(void *arg, enum status st, const struct error *err)
{
    struct rig *rig = arg;

    (void)err;
    assert_int_equal(st, STATUS_OK);
    rig->started = true;
}

static void turns(struct rig *rig, int count)
{
    for (int i = 0; i < count; i++)
        uv_run(loop_uv_handle(rig->loop), UV_RUN_NOWAIT);
}

static int rig_setup(void **state)
{
    struct rig *rig = NEW(struct rig);

    rig->loop = loop_uv_create();
    rig->tick = loop_timer_create(rig->loop, ticked, rig);
    loop_timer_set(rig->tick, 10000);
    rig->store = fake_store_create(rig->loop);
    rig->core = core_create(&(struct core_options){.loop = rig->loop,
                                                   .store = rig->store,
                                                   .lease_ms = 60000,
                                                   .heartbeat_ms = 1000,
                                                   .ended_max = 100,
                                                   .queued_max = 5000});
    core_start(rig->core, started, rig);
    *state = rig;
    return 0;
}

static int rig_teardown(void **state)
{
    struct rig *rig = *state;

    rig->store->ops->destroy(rig->store);
    loop_timer_destroy(rig->tick);
    loop_uv_destroy(rig->loop);
    mem_free(rig);
    return 0;
}

static void until_started(struct rig *rig)
{
    while (!rig->started)
        uv_run(loop_uv_handle(rig->loop), UV_RUN_ONCE);
}

static void answered(void *arg, enum status st, const struct error *err,
                     const ProtobufCMessage *reply)
{
    struct rig *rig = arg;

    (void)err;
    (void)reply;
    rig->answers++;
    rig->st = st;
}

static void call(struct rig *rig)
{
    Pb__CancelRequest request = PB__CANCEL_REQUEST__INIT;

    core_call(rig->core, "user/root", &request.base, answered, rig);
}

/* The turn that the call has woken is still to come. */
static void a_turn_that_was_to_come_does_not(void **state)
{
    struct rig *rig = *state;

    until_started(rig);
    call(rig);
    core_destroy(rig->core);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->st, STATUS_UNAVAILABLE);
    turns(rig, 3);
    assert_int_equal(rig->answers, 1);
}

/* Nothing is loaded yet: the refusal is told in the next turn, or at the end. */
static void a_refusal_that_was_to_come_is_told_at_the_end(void **state)
{
    struct rig *rig = *state;

    call(rig);
    assert_int_equal(rig->answers, 0);
    turns(rig, 10);
    until_started(rig);
    fake_store_set_usable(rig->store, false);
    turns(rig, 3);
    rig->answers = 0;
    call(rig);
    assert_int_equal(rig->answers, 0);
    core_destroy(rig->core);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->st, STATUS_UNAVAILABLE);
    turns(rig, 3);
    assert_int_equal(rig->answers, 1);
}

static void a_question_that_was_to_come_is_told_at_the_end(void **state)
{
    struct rig *rig = *state;
    Pb__StatusRequest request = PB__STATUS_REQUEST__INIT;

    until_started(rig);
    struct reader *reader = reader_create(&(struct reader_options){
        .loop = rig->loop, .core = rig->core, .store = rig->store, .pass_ms_max = 60000});
    reader_ask(reader, NULL, &request.base, answered, rig);
    assert_int_equal(rig->answers, 0);
    reader_destroy(reader);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->st, STATUS_CANCELLED);
    turns(rig, 3);
    assert_int_equal(rig->answers, 1);
    core_destroy(rig->core);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_turn_that_was_to_come_does_not),
        TEST(a_refusal_that_was_to_come_is_told_at_the_end),
        TEST(a_question_that_was_to_come_is_told_at_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
