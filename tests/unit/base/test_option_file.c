/* test_option_file.c - YAML files: values, and all problems of a file in one run. */
#include "option_fixture.h"

static enum status read_file(struct fixture *fixture, const char *yaml)
{
    const char *path = unit_path(fixture->dir, "c.yaml");
    unit_write(path, yaml);
    text_reset(&fixture->out);
    return option_file(fixture_rows, &fixture->config, path, &fixture->out);
}

static void assert_problems(struct fixture *fixture, const char *const *lines, size_t count)
{
    struct text expected;
    text_init(&expected, 0);
    for (size_t i = 0; i < count; i++)
        text_addf(&expected, "%s/c.yaml:%s\n", fixture->dir, lines[i]);
    assert_string_equal(text_get(&fixture->out), text_get(&expected));
    text_fini(&expected);
}

static void values_are_read(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(read_file(fixture, "# comment\nlease_ms: 2000\nmetrics: no\nshift: -3\n"
                                        "name: \"two words\"\npeers: [x, 'y z']\n"),
                     STATUS_OK);
    assert_int_equal(fixture->config.lease_ms, 2000);
    assert_false(fixture->config.metrics);
    assert_int_equal(fixture->config.shift, -3);
    assert_string_equal(fixture->config.name, "two words");
    assert_int_equal(fixture->config.peers.count, 2); /* replaces the default */
    assert_string_equal(fixture->config.peers.items[1], "y z");
    assert_string_equal(text_get(&fixture->out), "");
}

static void empty_files_are_fine(void **state)
{
    assert_int_equal(read_file(*state, ""), STATUS_OK);
    assert_int_equal(read_file(*state, "# nothing\n"), STATUS_OK);
    assert_int_equal(read_file(*state, "---\n"), STATUS_OK);
    assert_int_equal(read_file(*state, "{}\n"), STATUS_OK);
}

static void all_problems_come_in_one_run(void **state)
{
    static const char *const expected[] = {
        "1:1: unknown option \"leese_ms\"; did you mean \"lease_ms\"?",
        "2:10: shift: \"12\" is not a whole number from -10 to 10",
        "3:7: name: expected text of at most 4096 bytes",
        "4:8: peers: expected a list of text of at most 8 bytes",
        "5:1: unknown option \"zebra\"",
        "6:1: shift is given twice",
        "8:10: metrics: \"2\" is not true or false",
    };
    struct fixture *fixture = *state;
    assert_int_equal(read_file(fixture, "leese_ms: {a: [1, {b: c}]}\n"
                                        "shift:   12\n"
                                        "name: [a, b]\n"
                                        "peers: one\n"
                                        "zebra: 1\n"
                                        "shift: 3\n"
                                        "colour: true\n"
                                        "metrics: 2\n"),
                     STATUS_INVALID);
    assert_problems(fixture, expected, COUNT_OF(expected));
    assert_true(fixture->config.colour); /* what is right around them was read */
}

static void other_shapes_are_refused(void **state)
{
    static const char *const bad[] = {"- a\n",
                                      "word\n",
                                      "peers: [a, [b]]\n",
                                      "? [a]\n: b\n",
                                      "shift: 1\n---\nshift: 2\n",
                                      "name: &a x\nstate_dir: *a\n",
                                      "name: \"a\\0b\"\n"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(read_file(*state, bad[i]), STATUS_INVALID);
        assert_true(((struct fixture *)*state)->out.len > 0);
    }
}

static void broken_yaml_says_where(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(read_file(fixture, "shift: 1\nname: \"open\n"), STATUS_INVALID);
    assert_non_null(strstr(text_get(&fixture->out), "c.yaml:3:1: "));
    assert_int_equal(read_file(fixture, "a: b: c\n"), STATUS_INVALID);
    assert_int_equal(read_file(fixture, "\xff\xfe"), STATUS_OK); /* an empty UTF-16 file */
    assert_int_equal(read_file(fixture, "name: \xc3\x28\n"), STATUS_INVALID);
}

static void problems_are_bounded(void **state)
{
    struct fixture *fixture = *state;
    struct text yaml;
    text_init(&yaml, 0);
    for (int i = 0; i < 500; i++)
        text_addf(&yaml, "zzzzzzzz%d: 1\n", i);
    assert_int_equal(read_file(fixture, text_get(&yaml)), STATUS_INVALID);
    assert_non_null(strstr(text_get(&fixture->out), "c.yaml: and 400 more\n"));
    text_fini(&yaml);
}

static void missing_and_huge_files_are_told(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(
        option_file(fixture_rows, &fixture->config, "/nonexistent/x.yaml", &fixture->out),
        STATUS_NOT_FOUND);
    assert_non_null(strstr(text_get(&fixture->out), "/nonexistent/x.yaml"));
    char *huge = mem_alloc(((size_t)1 << 20) + 2);
    memset(huge, '#', ((size_t)1 << 20) + 1);
    assert_int_equal(read_file(fixture, huge), STATUS_EXHAUSTED);
    mem_free(huge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(values_are_read),
        FIXTURE_TEST(empty_files_are_fine),
        FIXTURE_TEST(all_problems_come_in_one_run),
        FIXTURE_TEST(other_shapes_are_refused),
        FIXTURE_TEST(broken_yaml_says_where),
        FIXTURE_TEST(problems_are_bounded),
        FIXTURE_TEST(missing_and_huge_files_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
