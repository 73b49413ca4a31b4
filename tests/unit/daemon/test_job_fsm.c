/* test_job_fsm.c - every state and every event: what is allowed leads on, all else is refused. */
#include "daemon/job_fsm.h"
#include "proto/text/text_format.h"
#include "tests/unit/unit.h"

enum { STATES = 16 }; /* more than there are: unknown numbers are refused too */

static void ended_jobs_never_change(void **state)
{
    (void)state;
    for (int from = 0; from < STATES; from++)
        for (int event = 0; event < JOB_EV_COUNT; event++)
            if (job_fsm_ended((Pb__Job__State)from) || from == 0 || from > PB__JOB__STATE__HELD)
                assert_null(job_fsm_find((Pb__Job__State)from, (enum job_event)event));
}

static void rules_name_known_states_and_say_something(void **state)
{
    int rules = 0;

    (void)state;
    for (int from = 0; from < STATES; from++)
        for (int event = 0; event < JOB_EV_COUNT; event++) {
            const struct job_rule *rule = job_fsm_find((Pb__Job__State)from, (enum job_event)event);
            if (!rule)
                continue;
            rules++;
            assert_int_equal(rule->from, from);
            assert_int_equal(rule->event, event);
            assert_true(job_fsm_active(rule->to) || job_fsm_ended(rule->to) ||
                        rule->to == PB__JOB__STATE__QUEUED || rule->to == PB__JOB__STATE__HELD);
            assert_true(strlen(rule->shown) > 5);
        }
    assert_true(rules > 15);
}

/* Devices are held from STARTING on and given back only when no worker is left or all ended well.
 */
static void devices_are_given_back_by_few_events(void **state)
{
    (void)state;
    for (int from = 0; from < STATES; from++)
        for (int event = 0; event < JOB_EV_COUNT; event++) {
            const struct job_rule *rule = job_fsm_find((Pb__Job__State)from, (enum job_event)event);
            if (!rule)
                continue;
            if (!job_fsm_active(rule->from) && job_fsm_active(rule->to))
                assert_int_equal(event, JOB_EV_PLACED);
            if (job_fsm_active(rule->from) && !job_fsm_active(rule->to))
                assert_true(event == JOB_EV_ENDED_WELL || event >= JOB_EV_GONE_REQUEUE);
        }
}

static void every_state_reaches_an_end(void **state)
{
    bool ends[STATES] = {false};

    (void)state;
    for (int from = 0; from < STATES; from++)
        ends[from] = job_fsm_ended((Pb__Job__State)from);
    for (int round = 0; round < STATES; round++)
        for (int from = 0; from < STATES; from++)
            for (int event = 0; event < JOB_EV_COUNT; event++) {
                const struct job_rule *rule =
                    job_fsm_find((Pb__Job__State)from, (enum job_event)event);
                ends[from] |= rule && ends[rule->to];
            }
    assert_true(ends[PB__JOB__STATE__QUEUED] && ends[PB__JOB__STATE__HELD]);
    for (int from = 0; from < STATES; from++)
        assert_true(ends[from] || !job_fsm_active((Pb__Job__State)from));
}

static void every_rule_is_printed(void **state)
{
    struct text out;

    (void)state;
    text_init(&out, 0);
    job_fsm_print(&out);
    for (int from = 0; from < STATES; from++)
        for (int event = 0; event < JOB_EV_COUNT; event++) {
            const struct job_rule *rule = job_fsm_find((Pb__Job__State)from, (enum job_event)event);
            if (!rule)
                continue;
            SCOPED_TEXT char *row =
                mem_printf("| %s | %s | %s | %s |\n", enum_name(&pb__job__state__descriptor, from),
                           job_fsm_event_name(rule->event),
                           enum_name(&pb__job__state__descriptor, (int)rule->to), rule->shown);
            assert_non_null(strstr(text_get(&out), row));
        }
    assert_string_equal(job_fsm_event_name(JOB_EV_COUNT), "unknown");
    text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ended_jobs_never_change),
        cmocka_unit_test(rules_name_known_states_and_say_something),
        cmocka_unit_test(devices_are_given_back_by_few_events),
        cmocka_unit_test(every_state_reaches_an_end),
        cmocka_unit_test(every_rule_is_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
