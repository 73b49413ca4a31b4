/* test_worker.c - the rows of a worker's life: every state with every event. */
#include "agent/worker.h"
#include "tests/unit/unit.h"

#define S(x) PB__ACTUAL_WORKER__STATE__##x

static void no_pair_has_two_rows(void **state)
{
    size_t count;
    const struct worker_rule *rows = worker_fsm_rows(&count);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(worker_fsm_find(rows[i].from, rows[i].event), &rows[i]);
        assert_true(strlen(rows[i].text) > 0);
    }
}

static void final_states_stay(void **state)
{
    (void)state;
    for (int event = 0; event < WORKER_EV_COUNT; event++) {
        assert_null(worker_fsm_find(S(EXITED), (enum worker_event)event));
        assert_null(worker_fsm_find(S(LOST), (enum worker_event)event));
        assert_true(strlen(worker_fsm_event_name((enum worker_event)event)) > 1);
    }
}

/* From each state that is not final, kill leads on, and nothing but proof leads to EXITED. */
static void every_state_can_be_left_by_kill(void **state)
{
    static const Pb__ActualWorker__State states[] = {S(PENDING), S(PREPARING), S(RUNNING),
                                                     S(STOPPING), S(UNKILLABLE)};
    size_t count;
    const struct worker_rule *rows = worker_fsm_rows(&count);
    (void)state;
    for (size_t i = 0; i < COUNT_OF(states); i++)
        assert_non_null(worker_fsm_find(states[i], WORKER_EV_KILL));
    for (size_t i = 0; i < count; i++)
        if (rows[i].to == S(EXITED))
            assert_true(rows[i].event == WORKER_EV_CLEARED || rows[i].from == S(PENDING));
}

static void tags_name_workers_and_refuse_bad_roles(void **state)
{
    char tag[SPOOL_TAG_MAX];
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;
    static const char *const bad[] = {"", "a/b", "..", ".x", "a b", "a\nb", "\xff"};
    (void)state;
    key.job = 12;
    key.attempt = 3;
    key.rank = 4;
    key.role = (char *)(uintptr_t) "roll.out";
    assert_true(worker_tag(&key, tag));
    assert_string_equal(tag, "12.3.roll.out.4.1");
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        key.role = (char *)(uintptr_t)bad[i];
        assert_false(worker_tag(&key, tag));
    }
    key.role = NULL;
    assert_false(worker_tag(&key, tag));
    assert_false(worker_tag(NULL, tag));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_pair_has_two_rows),
        cmocka_unit_test(final_states_stay),
        cmocka_unit_test(every_state_can_be_left_by_kill),
        cmocka_unit_test(tags_name_workers_and_refuse_bad_roles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
