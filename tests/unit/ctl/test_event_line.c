/* test_event_line.c - events as lines, and nothing in them moves the cursor. */
#include "ctl/event_line.h"
#include "tests/unit/unit.h"

static void an_event_is_one_line(void **state)
{
    struct event_line_options options = {.with_job = true};
    struct text out;
    Pb__Event event = PB__EVENT__INIT;
    (void)state;
    text_init(&out, 0);
    event.job = 7;
    event.kind = (char[]){"node.seen"};
    event.node = (char[]){"n1"};
    event.text = (char[]){"a\nb\x1b[2J"};
    event.actor = (char[]){"user/ada"};
    event_line(&event, &options, &out);
    assert_string_equal(text_get(&out), "- job 7 node n1 node.seen  a?b?[2J (user/ada)\n");
    text_fini(&out);
}

static void what_becomes_of_old_checkpoints_is_no_news(void **state)
{
    Pb__Event event = PB__EVENT__INIT;
    (void)state;
    assert_true(event_line_is_news(&event));
    event.to = (char[]){"COMMITTED"};
    assert_true(event_line_is_news(&event));
    event.to = (char[]){"EXPIRED"};
    assert_false(event_line_is_news(&event));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_one_line),
        cmocka_unit_test(what_becomes_of_old_checkpoints_is_no_news)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
