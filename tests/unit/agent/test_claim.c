/* test_claim.c - a device is given to the next worker when the one before is gone. */
#include "base/log.h"
#include "tests/unit/agent/agent_rig.h"

static bool waits_and_other_runs(struct rig *rig)
{
    const Pb__ActualWorker *second = rig_worker(rig, 1);
    return rig_is_running(rig) && second && second->state == PB__ACTUAL_WORKER__STATE__PENDING;
}

static bool second_runs(struct rig *rig)
{
    const Pb__ActualWorker *second = rig_worker(rig, 1);
    return second && second->state == PB__ACTUAL_WORKER__STATE__RUNNING;
}

static void a_device_that_is_held_is_waited_for(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "wait", NULL);
    Pb__DesiredWorker *second = rig_want(rig, "wait", NULL);
    second->launch->devices[0] = 0;
    rig_until(rig, waits_and_other_runs);
    rig->wanted[0]->want = PB__DESIRED_WORKER__WANT__KILL;
    rig_say_desired(rig);
    rig_until(rig, second_runs);
    assert_true(rig_is_exited(rig));
}

static size_t count_text(const char *text, const char *what)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        count++;
    return count;
}

static void who_holds_it_is_said_once(void **state)
{
    struct rig *rig = *state;
    char text[65536];
    int log = open(unit_path(rig->dir, "log"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(log >= 0);
    rig_want(rig, "wait", NULL);
    Pb__DesiredWorker *second = rig_want(rig, "wait", NULL);
    second->launch->devices[0] = 0;
    log_setup("test", LOG_WARN, log);
    rig_until(rig, waits_and_other_runs);
    rig->wanted[0]->want = PB__DESIRED_WORKER__WANT__KILL;
    rig_say_desired(rig);
    rig_until(rig, second_runs);
    log_setup("test", LOG_ERROR, -1);
    ssize_t len = pread(log, text, sizeof(text) - 1, 0);
    assert_true(len > 0);
    text[len] = '\0';
    close(log);
    assert_int_equal(count_text(text, "worker.waits"), 1);
    assert_non_null(strstr(text, "holder=7.1.trainer.0.1"));
}

static void cpus_beside_a_device_are_devices_too(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "wait", NULL);
    Pb__DesiredWorker *second = rig_want(rig, "wait", "  cpus: [3, 0]\n");
    mem_free(second->launch->resources->device);
    second->launch->resources->device = mem_strdup("other");
    rig_until(rig, waits_and_other_runs);
    rig->wanted[0]->want = PB__DESIRED_WORKER__WANT__KILL;
    rig_say_desired(rig);
    rig_until(rig, second_runs);
}

static void other_devices_are_not_waited_for(void **state)
{
    struct rig *rig = *state;
    rig_want(rig, "wait", NULL);
    rig_want(rig, "wait", NULL);
    rig_until(rig, second_runs);
    rig_until(rig, rig_is_running);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        (void)alarm(UNIT_WORKER_S);
        return pause();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_device_that_is_held_is_waited_for, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(who_holds_it_is_said_once, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(cpus_beside_a_device_are_devices_too, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(other_devices_are_not_waited_for, rig_setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
