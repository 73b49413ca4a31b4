/* test_written.c - what was written, as one line of JSON or of text. */
#include "base/file.h"
#include "ctl/verb.h"
#include "ctl/written.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <unistd.h>

static char *said(const char *dir, const struct written *written)
{
    const char *path = unit_path(dir, "out");
    char *text = NULL;
    size_t len;
    fflush(stdout);
    int keep = dup(STDOUT_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    dup2(file, STDOUT_FILENO);
    close(file);
    int code = written_say(written);
    fflush(stdout);
    dup2(keep, STDOUT_FILENO);
    close(keep);
    assert_int_equal(code, VERB_OK);
    assert_int_equal(file_read(path, 1 << 16, &text, &len, NULL), STATUS_OK);
    return text;
}

static void a_line_or_an_object(void **state)
{
    struct written written = {
        .what = "exported", .target = "a \"b", .bytes = 2048, .tensors = 1, .files = 2};
    SCOPED_TEXT char *line = said(*state, &written);
    assert_string_equal(line, "exported: 1 tensor, 2.0 KiB, 2 files: a \"b\n");
    written.format = OUTPUT_JSON;
    SCOPED_TEXT char *json = said(*state, &written);
    assert_string_equal(json, "{\"exported\": \"a \\\"b\", \"bytes\": \"2048\", \"tensors\": "
                              "\"1\", \"files\": \"2\"}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_or_an_object, unit_dir_setup, unit_dir_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
