/* test_actual.c - what the daemon is told: gone keys, quarantined devices, the whole set. */
#include "tests/unit/agent/agent_rig.h"

static bool key_is_gone(struct rig *rig)
{
    return rig->gone == 1;
}

static void let_go_worker_is_named_once(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "wait", NULL);
    rig_until(rig, rig_is_running);
    rig_unwant(rig);
    rig_say_desired(rig);
    rig_until(rig, key_is_gone);
    assert_true(rig_is_empty(rig));
}

static bool device_is_quarantined(struct rig *rig)
{
    return rig->device_health == PB__DEVICE__HEALTH__QUARANTINED;
}
static bool device_is_healthy(struct rig *rig)
{
    return rig->device_health == PB__DEVICE__HEALTH__HEALTHY;
}

static void held_device_is_quarantined_until_it_is_empty(void **state)
{
    struct rig *rig = *state;
    rig->held = true;
    rig_want(rig, "ok", NULL);
    rig_until(rig, device_is_quarantined);
    rig->held = false;
    rig_until(rig, device_is_healthy);
}

static unsigned hellos_wanted;
static bool whole_came_again(struct rig *rig)
{
    return rig->hellos >= hellos_wanted && rig_is_running(rig);
}

static void whole_set_goes_up_after_each_connect(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "wait", NULL);
    rig_until(rig, rig_is_running);
    Pb__ActualWorker *old = map_remove_text(rig->actual, "7.1.trainer.0.1");
    pb__actual_worker__free_unpacked(old, NULL); /* the daemon forgets it */
    hellos_wanted = rig->hellos + 1;
    rig->uplink.ops->close(&rig->uplink, UPLINK_CONTROL);
    rig_until(rig, whole_came_again);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return strcmp(argv[2], "wait") == 0 ? pause() : 0;
    }
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(let_go_worker_is_named_once),
        T(held_device_is_quarantined_until_it_is_empty),
        T(whole_set_goes_up_after_each_connect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
