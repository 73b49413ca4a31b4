/* test_exit_class.c - why a worker ended. */
#include "agent/exit_class.h"
#include "tests/unit/unit.h"

#define CLASS(x) PB__REASON__CODE__##x

static void each_kind_of_end_has_its_class(void **state)
{
    static const struct row {
        struct exit_facts facts;
        Pb__Reason__Code class;
    } rows[] = {
        {{.code = 0}, CLASS(CODE_UNSPECIFIED)},
        {{.code = 3}, CLASS(USER_ERROR)},
        {{.signal = 11}, CLASS(WORKER_SIGNALLED)},
        {{.signal = 9, .out_of_memory = true}, CLASS(OUT_OF_MEMORY)},
        {{.code = 1, .failure = "RuntimeError: CUDA out of memory."}, CLASS(OUT_OF_MEMORY)},
        {{.code = 1, .stderr_tail = "errno: 98 - Address already in use"}, CLASS(PORT_CLASH)},
        {{.code = 1, .traceback = "OSError: EADDRINUSE"}, CLASS(PORT_CLASH)},
        {{.code = 1, .failure = "[gloo/transport] Connection closed by peer"},
         CLASS(COLLECTIVE_TIMEOUT)},
        {{.code = 1, .failure = "Connection closed by peer"}, CLASS(USER_ERROR)},
        {{.signal = 9, .cause = EXIT_CAUSE_HANG}, CLASS(HANG)},
        {{.signal = 9, .cause = EXIT_CAUSE_KILL}, CLASS(ASKED)},
        {{.signal = 15, .cause = EXIT_CAUSE_STOP}, CLASS(ASKED)},
        {{.code = 0, .cause = EXIT_CAUSE_STOP}, CLASS(CODE_UNSPECIFIED)},
        {{.cause = EXIT_CAUSE_STOP, .never_ran = true}, CLASS(ASKED)},
        {{.cause = EXIT_CAUSE_LAUNCH, .never_ran = true}, CLASS(LAUNCH_FAILED)},
        {{.cause = EXIT_CAUSE_LAUNCH, .launch_text = "write x/launch: No space left on device"},
         CLASS(NODE_EXHAUSTED)},
        {{.cause = EXIT_CAUSE_LAUNCH, .launch_text = "run x: No such file or directory"},
         CLASS(LAUNCH_FAILED)},
        {{.cause = EXIT_CAUSE_RESUME, .never_ran = true}, CLASS(CHECKPOINT_ERROR)},
        {{.cause = EXIT_CAUSE_SHIM}, CLASS(SHIM_LOST)},
        {{.cause = EXIT_CAUSE_REBOOT}, CLASS(NODE_LOST)},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(exit_class_decide(&rows[i].facts), rows[i].class);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_kind_of_end_has_its_class)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
