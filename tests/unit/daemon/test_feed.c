/* test_feed.c - a reader's place in the events: no gap and no twin, over ring and store, slow or
 * fast. */
#include "daemon/feed.h"
#include "tests/support/daemon_rig.h"
#include "tests/unit/unit.h"

#define EVENTS_OLD 20000 /* more than the ring holds: the first ones are in the store only */

struct reader_state {
    struct feed *feed;
    int64_t last, first;
    size_t count, chunk; /* says "enough" after every chunk events; 0: never */
    bool caught_up, full, failed;
    enum status st;
    char text[320];
};

static bool on_event(void *arg, const Pb__Event *event)
{
    struct reader_state *reader = arg;

    if (reader->last)
        assert_true(event->seq > reader->last);
    else
        reader->first = event->seq;
    reader->last = event->seq;
    reader->count++;
    reader->full = reader->chunk > 0 && reader->count % reader->chunk == 0;
    return !reader->full;
}

static void on_caught_up(void *arg)
{
    ((struct reader_state *)arg)->caught_up = true;
}

static void on_failed(void *arg, enum status st, const char *text)
{
    struct reader_state *reader = arg;

    snprintf(reader->text, sizeof(reader->text), "%s", text);
    reader->failed = true;
    reader->st = st;
}

static void open_feed(struct daemon_rig *rig, struct reader_state *reader, int64_t after,
                      int64_t job)
{
    reader->feed = feed_open(&(struct feed_options){.loop = rig->loop,
                                                    .core = rig->core,
                                                    .reader = rig->reader,
                                                    .after = after,
                                                    .job = job,
                                                    .event = on_event,
                                                    .caught_up = on_caught_up,
                                                    .failed = on_failed,
                                                    .arg = reader});
    assert_int_equal(reader->count, 0); /* nothing before it returns */
}

static void restart_with_events(struct daemon_rig *rig, int64_t first)
{
    daemon_rig_stop(rig);
    for (int64_t i = first; i <= EVENTS_OLD; i++) {
        Pb__Event event = PB__EVENT__INIT;
        event.has_seq = event.has_job = true;
        event.seq = i;
        event.job = i % 10;
        event.kind = "job.state";
        fake_store_put(rig->store, CHANGE_EVENT, &event.base);
    }
    daemon_rig_start(rig);
}

static void restart_with_history(struct daemon_rig *rig)
{
    restart_with_events(rig, 1);
}

static void all_history_comes_once_in_order(void **state)
{
    struct daemon_rig *rig = *state;
    struct reader_state reader = {0};

    restart_with_history(rig);
    open_feed(rig, &reader, -1, 0);
    DAEMON_RIG_UNTIL(rig, reader.caught_up);
    assert_int_equal(reader.count, EVENTS_OLD);
    assert_int_equal(reader.first, 1);
    feed_close(reader.feed);
}

static void a_slow_reader_misses_nothing(void **state)
{
    struct daemon_rig *rig = *state;
    struct reader_state reader = {.chunk = 97};
    struct rpc_client *admin;

    restart_with_history(rig);
    admin = daemon_rig_admin(rig);
    open_feed(rig, &reader, 100, 0);
    for (int i = 0; i < 3; i++) { /* new events while it is behind */
        char id[32];
        snprintf(id, sizeof(id), "request-%d", i);
        daemon_rig_submit(admin, id, daemon_rig_spec("a", "default"));
    }
    while (!reader.caught_up) {
        DAEMON_RIG_UNTIL(rig, reader.full || reader.caught_up);
        reader.full = false;
        feed_resume(reader.feed);
    }
    assert_true(reader.last >= EVENTS_OLD + 3);
    assert_int_equal(reader.count, reader.last - 100);
    feed_close(reader.feed);
}

static void one_job_only(void **state)
{
    struct daemon_rig *rig = *state;
    struct reader_state reader = {0};

    restart_with_history(rig);
    open_feed(rig, &reader, -1, 7);
    DAEMON_RIG_UNTIL(rig, reader.caught_up);
    assert_int_equal(reader.count, EVENTS_OLD / 10);
    feed_close(reader.feed);
}

static void from_now_gives_only_what_comes(void **state)
{
    struct daemon_rig *rig = *state;
    struct reader_state reader = {0};
    struct rpc_client *admin = daemon_rig_admin(rig);

    daemon_rig_submit(admin, "request-1", daemon_rig_spec("a", "default"));
    open_feed(rig, &reader, 0, 0);
    DAEMON_RIG_UNTIL(rig, reader.caught_up);
    assert_int_equal(reader.count, 0);
    int64_t job = daemon_rig_submit(admin, "request-2", daemon_rig_spec("a", "default"));
    DAEMON_RIG_UNTIL(rig, reader.count > 0);
    assert_int_equal(job, 2);
    feed_close(reader.feed);
}

static void without_the_store_old_events_fail_and_new_ones_come(void **state)
{
    struct daemon_rig *rig = *state;
    struct reader_state old = {0}, fresh = {0};

    restart_with_history(rig);
    fake_store_set_usable(rig->store, false);
    open_feed(rig, &old, -1, 0);
    open_feed(rig, &fresh, EVENTS_OLD - 10, 0);
    DAEMON_RIG_UNTIL(rig, old.failed && fresh.caught_up);
    assert_int_equal(old.st, STATUS_UNAVAILABLE);
    assert_int_equal(fresh.count, 10);
    feed_close(old.feed);
    feed_close(fresh.feed);
}

static void a_token_of_another_cluster_is_refused(void **state)
{
    struct daemon_rig *rig = *state;
    struct reader_state reader = {0};

    open_feed(rig, &reader, 1000000, 0);
    DAEMON_RIG_UNTIL(rig, reader.failed);
    assert_int_equal(reader.st, STATUS_OUT_OF_RANGE);
    feed_close(reader.feed);
}

static void a_token_behind_deleted_events_is_told_what_is_kept(void **state)
{
    struct daemon_rig *rig = *state;
    struct reader_state old = {0}, all = {0}, next = {0};

    restart_with_events(rig, 501);
    open_feed(rig, &old, 100, 0);
    open_feed(rig, &all, -1, 0);
    open_feed(rig, &next, 500, 0);
    DAEMON_RIG_UNTIL(rig, old.failed && all.caught_up && next.caught_up);
    assert_int_equal(old.st, STATUS_OUT_OF_RANGE);
    assert_non_null(strstr(old.text, "events up to 500 are no longer kept"));
    assert_int_equal(old.count, 0);
    assert_int_equal(all.count, EVENTS_OLD - 500);
    assert_int_equal(next.count, EVENTS_OLD - 500);
    feed_close(old.feed);
    feed_close(all.feed);
    feed_close(next.feed);
}

static void closing_while_the_store_is_asked_is_quiet(void **state)
{
    struct daemon_rig *rig = *state;
    struct reader_state reader = {0}, never_started = {0};

    restart_with_history(rig);
    open_feed(rig, &reader, -1, 0);
    uv_run(loop_uv_handle(rig->loop), UV_RUN_NOWAIT); /* it has asked, the answer is on its way */
    feed_close(reader.feed);
    open_feed(rig, &never_started, -1, 0);
    feed_close(never_started.feed);
    size_t count = reader.count;
    for (int i = 0; i < 20; i++)
        uv_run(loop_uv_handle(rig->loop), UV_RUN_NOWAIT);
    assert_int_equal(reader.count, count);
    assert_int_equal(never_started.count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, daemon_rig_setup, daemon_rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_history_comes_once_in_order),
        TEST(a_slow_reader_misses_nothing),
        TEST(one_job_only),
        TEST(from_now_gives_only_what_comes),
        TEST(without_the_store_old_events_fail_and_new_ones_come),
        TEST(a_token_of_another_cluster_is_refused),
        TEST(a_token_behind_deleted_events_is_told_what_is_kept),
        TEST(closing_while_the_store_is_asked_is_quiet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
