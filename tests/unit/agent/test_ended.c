/* test_ended.c - logs of workers that have left: bounded in size. */
#include "tests/unit/agent/agent_rig.h"

static bool logs_are_kept(struct rig *rig)
{
    return access(unit_path(rig->dir, "state/ended/7.1.trainer.0.1/out"), F_OK) == 0;
}
static bool logs_are_gone(struct rig *rig)
{
    return access(unit_path(rig->dir, "state/ended/7.1.trainer.0.1"), F_OK) != 0;
}

static void end_one(struct rig *rig)
{
    rig_want(rig, "talk", NULL);
    rig_until(rig, rig_is_exited);
    rig_unwant(rig);
    rig_say_desired(rig);
    rig_until(rig, rig_is_empty);
}

static bool secrets_are_gone(struct rig *rig)
{
    static const char *const gone[] = {"launch", "reports", "tmp", "start", "verdict"};
    bool all = true;
    for (size_t i = 0; i < COUNT_OF(gone); i++) {
        SCOPED_TEXT char *path = mem_printf("%s/state/ended/7.1.trainer.0.1/%s", rig->dir, gone[i]);
        all = all && access(path, F_OK) != 0;
    }
    return all;
}

/* What goes does so one by one, off the loop, after the move. */
static void logs_stay_and_secrets_go(void **state)
{
    struct rig *rig = *state;
    end_one(rig);
    rig_until(rig, logs_are_kept);
    rig_until(rig, secrets_are_gone);
}

static void too_much_is_removed(void **state)
{
    struct rig *rig = *state;
    rig->config.logs_keep_mib = 1;
    end_one(rig); /* two MiB */
    rig_until(rig, logs_are_gone);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--worker") == 0) {
        for (int i = 0; i < 1 << 17; i++)
            if (write(1, "0123456789abcdef", 16) != 16)
                return 1;
        return 0;
    }
#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(logs_stay_and_secrets_go),
        T(too_much_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
