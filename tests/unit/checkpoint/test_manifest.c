/* test_manifest.c - manifest.json as readers need it: both forms, and nothing else. */
#include "checkpoint/manifest.h"
#include "tests/unit/unit.h"

#define HEX           "0123456789abcdef0123456789abcdef"
#define FILE_OF(name) "{\"path\": \"" name "\", \"bytes\": 5, \"crc32c\": 7, \"xxh3\": \"" HEX "\"}"
#define HEAD                                                                                       \
    "\"id\": 5, \"job\": 7, \"attempt\": 1, \"step\": 120, \"samples\": 64, \"parent\": 0,"        \
    " \"world\": 1, \"created_us\": 1, "
#define PART "\"role\": \"trainer\", \"rank\": 0, \"node\": \"n\", \"samples\": 64, "

static const char plain[] = "{\"format\": \"rondo-checkpoint-1\", " HEAD "\"parts\": [{" PART
                            "\"files\": [" FILE_OF("trainer-0/x") "]}]}\n";
static const char sharded[] =
    "{\"format\": \"rondo-checkpoint-2\", \"layout\": \"trainer-0/layout.json\", "
    "\"layout_digest\": \"" HEX "\", " HEAD "\"parts\": [{" PART "\"layout_digest\": \"" HEX
    "\", \"files\": [" FILE_OF("trainer-0/layout.json") "]}]}";

static void both_forms_are_read(void **state)
{
    SCOPED(manifest_destroy) struct manifest *one = NULL;
    SCOPED(manifest_destroy) struct manifest *two = NULL;
    struct error err;

    (void)state;
    if (manifest_parse(plain, strlen(plain), &one, &err) != STATUS_OK ||
        manifest_parse(sharded, strlen(sharded), &two, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_false(one->sharded);
    assert_null(manifest_part_of(one, 0));
    assert_true(two->sharded);
    assert_int_equal(two->step, 120);
    assert_int_equal(manifest_find(two, "trainer-0/layout.json")->crc32c, 7);
    assert_null(manifest_find(two, "trainer-0/other"));
    assert_string_equal(manifest_part_of(two, 0)->role, "trainer");
    assert_null(manifest_part_of(two, 1));
}

static void the_code_is_said_where_there_is_one(void **state)
{
    static const char with[] =
        "{\"format\": \"rondo-checkpoint-1\", " HEAD "\"code\": \"c0de\", \"parts\": []}";
    SCOPED(manifest_destroy) struct manifest *one = NULL;
    SCOPED(manifest_destroy) struct manifest *other = NULL;

    (void)state;
    assert_int_equal(manifest_parse(with, strlen(with), &one, NULL), STATUS_OK);
    assert_string_equal(one->code, "c0de");
    assert_int_equal(manifest_parse(plain, strlen(plain), &other, NULL), STATUS_OK);
    assert_null(other->code);
}

static void refuse(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    SCOPED_TEXT char *changed = NULL;
    struct manifest *out = NULL;
    struct error err = {0};

    assert_non_null(at);
    changed = mem_printf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    if (manifest_parse(changed, strlen(changed), &out, &err) != STATUS_DATA_LOSS)
        fail_msg("accepted: %s", changed);
    assert_null(out);
    assert_true(err.text[0]);
}

/* M59: what is missing never passes for what is right. */
static void m59_what_is_not_exactly_so_is_refused(void **state)
{
    static const char *const changes[][2] = {
        {"\"crc32c\": 7, ", ""},
        {", \"xxh3\": \"" HEX "\"", ""},
        {HEX "\"}", "0123\"}"},
        {"\"bytes\": 5", "\"bytes\": -5"},
        {"\"bytes\": 5", "\"bytes\": 5.0"},
        {"\"step\": 120", "\"step\": 120, \"step\": 121"},
        {"\"step\": 120", "\"step\": 9223372036854775808"},
        {"\"attempt\": 1", "\"attempt\": 4294967296"},
        {"\"job\": 7", "\"job\": 7, \"other\": 1"},
        {"checkpoint-", "checkpoint-9"},
        {"\"job\": 7", "\"job\": 7, \"code\": 7"},
        {"\"job\": 7", "\"job\": 7, \"code\": \"a\", \"code\": \"a\""},
        {"}]}]}", "}]}]} x"},
        {"}]}]}", "}]}]"},
        {"\"node\": \"n\"", "\"node\": \"\\u0000\""},
    };
    static const char *const paths[] = {"../x", "/x", "a//b", "a/..", "", "a/"};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        refuse(plain, changes[i][0], changes[i][1]);
        refuse(sharded, changes[i][0], changes[i][1]);
    }
    for (size_t i = 0; i < COUNT_OF(paths); i++)
        refuse(plain, "trainer-0/x", paths[i]);
    refuse(sharded, "trainer-0/layout.json\", \"bytes", "trainer-0/else\", \"bytes");
    refuse(sharded, "\"layout_digest\": \"" HEX "\", \"files\"", "\"files\"");
    refuse(sharded, "\"layout_digest\": \"" HEX "\", \"files\"",
           "\"layout_digest\": \"00\", \"files\"");
    refuse(plain, "\"files\"", "\"layout_digest\": \"" HEX "\", \"files\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms_are_read),
        cmocka_unit_test(the_code_is_said_where_there_is_one),
        cmocka_unit_test(m59_what_is_not_exactly_so_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
