/* test_link.c - terms, heartbeats and reconnects, without a network. */
#include "agent/link.h"
#include "tests/unit/agent/agent_rig.h"

static bool is_up(struct rig *rig)
{
    return rig_is_up(rig);
}

static bool term_is_kept(struct rig *rig)
{
    char *bytes = NULL;
    size_t len = 0;
    struct error err;
    if (file_read(unit_path(rig->dir, "state/term"), 64, &bytes, &len, &err) != STATUS_OK)
        return false;
    bool good = strtoull(bytes, NULL, 10) == rig->term;
    mem_free(bytes);
    return good;
}

static void newer_term_is_on_disk_before_it_is_obeyed(void **state)
{
    struct rig *rig = *state;
    rig_until(rig, is_up);
    rig->term = 9;
    rig_want(rig, "ok", NULL);
    rig_say_desired(rig);
    rig_until(rig, rig_is_exited);
    assert_true(term_is_kept(rig));
}

static unsigned hellos_wanted;
static bool has_said_hello_again(struct rig *rig)
{
    return rig->hellos >= hellos_wanted && rig_is_up(rig);
}

static void lost_streams_come_back(void **state)
{
    struct rig *rig = *state;
    rig_until(rig, is_up);
    for (int i = 0; i < 3; i++) {
        hellos_wanted = rig->hellos + 1;
        rig->uplink.ops->close(&rig->uplink, UPLINK_CONTROL);
        rig_until(rig, has_said_hello_again);
    }
    struct agent_counts counts;
    agent_counts(rig->agent, &counts);
    assert_true(counts.loaded);
}

static bool bulk_is_back(struct rig *rig)
{
    return rig->open[UPLINK_BULK] && !rig->closing[UPLINK_BULK];
}

static void lost_bulk_stream_comes_back_alone(void **state)
{
    struct rig *rig = *state;
    rig_until(rig, is_up);
    unsigned hellos = rig->hellos;
    rig->uplink.ops->close(&rig->uplink, UPLINK_BULK);
    rig_until(rig, bulk_is_back);
    assert_int_equal(rig->hellos, hellos);
}

static void refusal_is_taken_as_a_no_for_now(void **state)
{
    struct rig *rig = *state;
    Pb__AgentDown down = PB__AGENT_DOWN__INIT;
    rig_until(rig, is_up);
    down.refused = (char *)(uintptr_t) "another agent speaks for this node";
    rig_say(rig, &down);
    hellos_wanted = rig->hellos + 1;
    rig_until(rig, has_said_hello_again);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return 0;
    }
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(newer_term_is_on_disk_before_it_is_obeyed),
        T(lost_streams_come_back),
        T(lost_bulk_stream_comes_back_alone),
        T(refusal_is_taken_as_a_no_for_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
