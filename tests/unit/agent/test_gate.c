/* test_gate.c - the daemon's gates on the page. */
#include "agent/gate.h"
#include "tests/unit/unit.h"

static Pb__Gate make(uint64_t number, Pb__Gate__Phase phase, int64_t step)
{
    Pb__Gate gate = PB__GATE__INIT;
    gate.number = number;
    gate.kind = PB__GATE__KIND__SAVE;
    gate.phase = phase;
    gate.step = step;
    return gate;
}

static void rank_is_bound_until_its_step_is_answered(void **state)
{
    struct page page = {.save_answered = 9, .stop_answered = -1};
    struct gate_answer answer = {0};
    Pb__Gate gate = make(1, PB__GATE__PHASE__PREPARE, 10);
    (void)state;
    gate_apply(&page, &gate, &answer);
    assert_int_equal(answer.phase, PB__GATE__PHASE__PREPARE);
    assert_int_equal(atomic_load(&page.save.phase), PAGE_PREPARE);
    gate = make(2, PB__GATE__PHASE__PREPARE, 9);
    gate_apply(&page, &gate, &answer);
    assert_int_equal(answer.phase, PB__GATE__PHASE__DROP);
    assert_int_equal(answer.step, 9);
    assert_int_equal(answer.number, 2);
}

static void decisions_are_written_and_older_numbers_change_nothing(void **state)
{
    struct page page = {.save_answered = -1, .stop_answered = -1};
    struct gate_answer answer = {0};
    Pb__Gate gate = make(5, PB__GATE__PHASE__ARM, 20); /* whether or not PREPARE ever came */
    (void)state;
    gate_apply(&page, &gate, &answer);
    assert_int_equal(atomic_load(&page.save.phase), PAGE_ARM);
    assert_int_equal(atomic_load(&page.save.step), 20);
    assert_int_equal(answer.phase, PB__GATE__PHASE__ARM);
    gate = make(4, PB__GATE__PHASE__DROP, 8);
    gate_apply(&page, &gate, &answer);
    assert_int_equal(atomic_load(&page.save.phase), PAGE_ARM);
    assert_int_equal(answer.number, 5);
    gate_apply(&page, NULL, &answer);
    gate_apply(NULL, &gate, &answer);
    assert_int_equal(atomic_load(&page.stop.number), 0);
}

static void a_dropped_question_says_where_the_rank_is(void **state)
{
    struct page page = {.save_answered = 9, .stop_answered = -1};
    struct gate_answer answer = {0};
    Pb__Gate gate = make(1, PB__GATE__PHASE__PREPARE, 500);
    (void)state;
    gate_apply(&page, &gate, &answer);
    assert_int_equal(answer.step, 500);
    gate.phase = PB__GATE__PHASE__DROP; /* another rank refused */
    gate_apply(&page, &gate, &answer);
    assert_int_equal(atomic_load(&page.save.phase), PAGE_DROP);
    assert_int_equal(answer.step, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_is_bound_until_its_step_is_answered),
        cmocka_unit_test(decisions_are_written_and_older_numbers_change_nothing),
        cmocka_unit_test(a_dropped_question_says_where_the_rank_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
