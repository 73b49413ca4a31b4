/* test_log.c - one line an event: format, escaping, bounds, levels, sink. */
#include "base/log.h"
#include "base/text.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <unistd.h>

static struct text seen;

static void sink(void *arg, const char *line)
{
    (void)arg;
    text_add(&seen, line);
    text_add(&seen, "\n");
}

static int sink_setup(void **state)
{
    (void)state;
    log_setup("test", LOG_INFO, -1);
    text_init(&seen, 0);
    log_set_sink(sink, NULL);
    return 0;
}

static int sink_teardown(void **state)
{
    (void)state;
    log_set_sink(NULL, NULL);
    text_fini(&seen);
    return 0;
}

static void lines_are_event_then_pairs(void **state)
{
    struct error err;
    (void)state;
    error_set(&err, STATUS_DENIED, "open x: no");
    log_info("job.state", log_str("job", "7"), log_int("attempt", -2), log_err(&err));
    log_debug("not.seen", log_int("n", 1));
    log_error("agent.gone", log_str("node", NULL));
    assert_string_equal(text_get(&seen), "info job.state job=7 attempt=-2 err=\"open x: no\"\n"
                                         "error agent.gone node=\"\"\n");
}

static void values_cannot_forge_a_line(void **state)
{
    (void)state;
    log_warn("x.y", log_str("a", "one two"), log_str("b", "q\"b\\s"),
             log_str("c", "l\ni\tn\x1b[0m"), log_str("d", "k=v"), log_str("e", "\xff\xe2"),
             log_str("f", "\xc3\xa9"));
    assert_string_equal(
        text_get(&seen),
        "warn x.y a=\"one two\" b=\"q\\\"b\\\\s\" c=\"l\\ni\\tn\\x1b[0m\" d=\"k=v\" "
        "e=\"\\xff\\xe2\" f=\xc3\xa9\n");
}

static void long_values_and_lines_are_cut(void **state)
{
    char words[3000];
    (void)state;
    memset(words, 'w', sizeof(words) - 1);
    words[sizeof(words) - 1] = '\0';
    log_info("one", log_str("v", words));
    assert_int_equal(seen.len, strlen("info one v=\"...\"\n") + 1024);
    text_reset(&seen);
    log_info("many", log_str("a", words), log_str("b", words), log_str("c", words),
             log_str("d", words), log_str("e", words));
    assert_in_range(seen.len, 4000, 4096);
}

static void a_descriptor_gets_time_and_newline(void **state)
{
    const char *path = unit_path(*state, "log");
    char *bytes;
    size_t len;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    log_setup("rondod", LOG_INFO, fd);
    log_info("job.state", log_int("job", 7));
    log_setup("rondod", LOG_ERROR, -1);
    close(fd);
    assert_int_equal(file_read(path, 4096, &bytes, &len, NULL), STATUS_OK);
    assert_int_equal(strspn(bytes, "0123456789-T:."), 26); /* 2026-01-31T12:00:00.123456 */
    assert_memory_equal(bytes + 26, "Z info log.open program=rondod pid=", 35);
    assert_string_equal(strchr(bytes, '\n') + 1 + 28, "info job.state job=7\n");
    mem_free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_are_event_then_pairs, sink_setup, sink_teardown),
        cmocka_unit_test_setup_teardown(values_cannot_forge_a_line, sink_setup, sink_teardown),
        cmocka_unit_test_setup_teardown(long_values_and_lines_are_cut, sink_setup, sink_teardown),
        cmocka_unit_test_setup_teardown(a_descriptor_gets_time_and_newline, unit_dir_setup,
                                        unit_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
