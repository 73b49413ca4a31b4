/* test_args.c - options in any place, letters, values. */
#include "ctl/args.h"
#include "tests/unit/unit.h"

static const struct option rows[] = {{"follow", OPT_BOOL, 0, NULL, 0, 0, ""},
                                     {"rank", OPT_U32, 0, "0", 0, 0, ""},
                                     {"dry_run", OPT_BOOL, 0, NULL, 0, 0, ""},
                                     {"set", OPT_LIST, 0, NULL, 0, 0, ""},
                                     {NULL, OPT_BOOL, 0, NULL, 0, 0, NULL}};

/* Words split at spaces before and after. */
static void expect(const char *line, const char *wanted)
{
    char *copy = mem_strdup(line), *argv[32], **out = NULL, *save;
    int argc = 0, count = 0;
    struct text joined, problems;
    text_init(&joined, 0);
    text_init(&problems, 0);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    if (args_arrange(rows, argc, argv, &out, &count, &problems))
        for (int i = 0; i < count; i++)
            text_addf(&joined, "%s%s", i ? " " : "", out[i]);
    else
        text_add(&joined, text_get(&problems));
    assert_string_equal(text_get(&joined), wanted);
    mem_free(out);
    mem_free(copy);
    text_fini(&joined);
    text_fini(&problems);
}

static void options_come_before_operands(void **state)
{
    (void)state;
    expect("logs 7 -f --rank 3 x", "logs --follow --rank 3 -- 7 x");
    expect("logs -r 2 7", "logs --rank 2 -- 7");
    expect("submit a --set k=v b -s k2=v2 --dry-run",
           "submit --set k=v --set k2=v2 --dry-run -- a b");
    expect("submit --set=k=v a", "submit --set=k=v -- a");
    expect("logs", "logs --");
}

static void what_is_unknown_stays_for_the_parser_to_name(void **state)
{
    (void)state;
    expect("logs --folow 7", "logs --folow -- 7");
    expect("logs -h", "logs -h --");
    expect("logs -x", "-x: unknown option\n");
    expect("logs -p", "-p: unknown option\n"); /* a letter that this verb has not */
    expect("logs -r", "-r: wants a value behind it\n");
    expect("logs 7 --rank", "logs --rank -- 7");
}

static void dashes_end_the_options(void **state)
{
    (void)state;
    expect("show -f -- -f --rank", "show --follow -- -f --rank");
    expect("submit -", "submit -- -");
}

static void letters_belong_to_names(void **state)
{
    (void)state;
    assert_int_equal(args_letter("follow"), 'f');
    assert_int_equal(args_letter("dry_run"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_come_before_operands),
        cmocka_unit_test(what_is_unknown_stays_for_the_parser_to_name),
        cmocka_unit_test(dashes_end_the_options),
        cmocka_unit_test(letters_belong_to_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
