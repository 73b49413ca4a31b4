/* test_text.c - the parts of reading and printing by themselves: scalars, units, base64, quotes,
 * fields, bounds of YAML. */
#include "proto/pb.h"
#include "proto/text/text_base64.h"
#include "proto/text/text_field.h"
#include "proto/text/text_quote.h"
#include "proto/text/text_read.h"
#include "proto/text/text_scalar.h"
#include "proto/text/text_unit.h"
#include "proto/text/text_yaml.h"
#include "tests/unit/unit.h"
#include <math.h>

static bool amount(enum text_unit unit, const char *text, uint64_t *out)
{
    return text_unit_parse(unit, text, strlen(text), out);
}

static void units_are_exact(void **state)
{
    static const struct {
        enum text_unit unit;
        const char *text;
        uint64_t value;
    } good[] = {{TEXT_UNIT_MS, "1h30m", 5400000},
                {TEXT_UNIT_MS, "1.5s", 1500},
                {TEXT_UNIT_MS, "1d2h3m4s5ms", 93784005},
                {TEXT_UNIT_S, "2m", 120},
                {TEXT_UNIT_S, "2000ms", 2},
                {TEXT_UNIT_MIB, "4GiB", 4096},
                {TEXT_UNIT_MIB, "0.5 GiB", 512},
                {TEXT_UNIT_MIB, "2048Ki", 2}};
    static const struct {
        enum text_unit unit;
        const char *text;
    } bad[] = {{TEXT_UNIT_MS, ""},
               {TEXT_UNIT_MS, "5"},
               {TEXT_UNIT_MS, "5x"},
               {TEXT_UNIT_MS, "30m1h"},
               {TEXT_UNIT_MS, "1h1h"},
               {TEXT_UNIT_MS, "0.0001s"},
               {TEXT_UNIT_MS, "-5s"},
               {TEXT_UNIT_MS, "1.s"},
               {TEXT_UNIT_MS, ".5s"},
               {TEXT_UNIT_S, "1500ms"},
               {TEXT_UNIT_MIB, "4GB"},
               {TEXT_UNIT_MIB, "1KiB"},
               {TEXT_UNIT_MS, "99999999999999999999s"},
               {TEXT_UNIT_MS, "999999999999999999d"},
               {TEXT_UNIT_NONE, "5s"}};
    uint64_t value;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_true(amount(good[i].unit, good[i].text, &value));
        assert_int_equal(value, good[i].value);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (amount(bad[i].unit, bad[i].text, &value))
            fail_msg("%s", bad[i].text);
}

static void the_name_of_a_field_says_its_unit(void **state)
{
    (void)state;
    assert_int_equal(text_unit_of("grace_ms"), TEXT_UNIT_MS);
    assert_int_equal(text_unit_of("grace_ms_max"), TEXT_UNIT_MS);
    assert_int_equal(text_unit_of("every_s"), TEXT_UNIT_S);
    assert_int_equal(text_unit_of("memory_mib"), TEXT_UNIT_MIB);
    assert_int_equal(text_unit_of("devices"), TEXT_UNIT_NONE);
    assert_int_equal(text_unit_of("_ms"), TEXT_UNIT_NONE);
}

static void base64_is_strict(void **state)
{
    static const char *const bad[] = {
        "A", "AA", "AAA", "AA=A", "====", "A===", "AB==", "AAB=", "AA A", "AA-_"};
    uint8_t bytes[256], *back;
    struct text out;
    size_t len;
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    text_init(&out, 0);
    for (size_t size = 0; size < sizeof bytes; size++) {
        text_reset(&out);
        text_base64_print(bytes, size, &out);
        assert_true(text_base64_parse(text_get(&out), out.len, &back, &len));
        assert_int_equal(len, size);
        if (size > 0)
            assert_memory_equal(back, bytes, size);
        mem_free(back);
    }
    text_fini(&out);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (text_base64_parse(bad[i], strlen(bad[i]), &back, &len))
            fail_msg("%s", bad[i]);
}

static void quotes_hold_in_json_and_yaml(void **state)
{
    struct text out;
    (void)state;
    text_init(&out, 0);
    text_quote("a\"\\\n\t\r\x01\x7f\xc2\x85\xe2\x80\xa8\xef\xbf\xbf \xc3\xa9\xff", 21, &out);
    assert_string_equal(text_get(&out), "\"a\\\"\\\\\\n\\t\\r\\u0001\\u007f\\u0085\\u2028\\uffff "
                                        "\xc3\xa9\xef\xbf\xbd\\u0000\"");
    text_fini(&out);
    assert_true(text_quote_is_plain("train.py"));
    assert_true(text_quote_is_plain("/bin/sh"));
    assert_false(text_quote_is_plain("yes"));
    assert_false(text_quote_is_plain("NULL"));
    assert_false(text_quote_is_plain("5"));
    assert_false(text_quote_is_plain("a: b"));
    assert_false(text_quote_is_plain(""));
}

static void doubles_print_with_the_fewest_digits(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.1, "0.1"},
                 {1.0 / 3, "0.3333333333333333"},
                 {5e-324, "5e-324"},
                 {9007199254740993.0, "9007199254740992"},
                 {1e300, "1e+300"},
                 {NAN, "NaN"},
                 {-INFINITY, "-Infinity"},
                 {-0.0, "-0.0"},
                 {2.2250738585072014e-308, "2.2250738585072014e-308"}};
    char out[TEXT_SCALAR_DOUBLE];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        text_scalar_print_double(cases[i].value, out);
        assert_string_equal(out, cases[i].text);
    }
    text_scalar_print_float(0.1f, out);
    assert_string_equal(out, "0.1");
}

static const ProtobufCFieldDescriptor *field(const ProtobufCMessageDescriptor *type,
                                             const char *name)
{
    return protobuf_c_message_descriptor_get_field_by_name(type, name);
}

static bool scalar(const ProtobufCMessageDescriptor *type, const char *name, const char *text,
                   bool plain, void *out)
{
    char why[TEXT_SCALAR_WHY] = "";
    struct text_scalar in = {text, strlen(text), plain};
    bool good = text_scalar_parse(field(type, name), in, out, why);
    assert_true(good == !*why);
    return good;
}

static void integers_stop_at_their_ends(void **state)
{
    const ProtobufCMessageDescriptor *spec = &pb__job_spec__descriptor;
    int32_t small;
    int64_t wide;
    uint64_t natural;
    (void)state;
    assert_true(scalar(spec, "priority", "-2147483648", true, &small));
    assert_int_equal(small, INT32_MIN);
    assert_false(scalar(spec, "priority", "2147483648", true, &small));
    assert_false(scalar(spec, "priority", "-2147483649", true, &small));
    assert_false(scalar(spec, "priority", "01", true, &small));
    assert_false(scalar(spec, "priority", "+1", true, &small));
    assert_false(scalar(spec, "priority", "-", true, &small));
    assert_false(scalar(spec, "priority", "1", false, &small));
    assert_true(scalar(&pb__job__descriptor, "step", "-9223372036854775808", false, &wide));
    assert_int_equal(wide, INT64_MIN);
    assert_false(scalar(&pb__job__descriptor, "step", "9223372036854775808", true, &wide));
    assert_true(scalar(spec, "grace_ms", "18446744073709551615", true, &natural));
    assert_false(scalar(spec, "grace_ms", "18446744073709551616", true, &natural));
    assert_false(scalar(spec, "grace_ms", "-0.5s", true, &natural));
}

static void lists_grow_one_by_one_and_clear(void **state)
{
    (void)state;
    Pb__Role role = PB__ROLE__INIT;
    const ProtobufCFieldDescriptor *command = field(&pb__role__descriptor, "command");
    for (int i = 0; i < 5; i++) {
        char *word = mem_printf("w%d", i);
        memcpy(text_field_append(&role.base, command), &word, sizeof word);
        text_field_commit(&role.base, command);
    }
    assert_int_equal(text_field_count(&role.base, command), 5);
    assert_string_equal(role.command[4], "w4");
    assert_true(text_field_is_set(&role.base, command));
    text_field_clear(&role.base, command);
    assert_false(text_field_is_set(&role.base, command));
    assert_false(text_field_is_set(&role.base, field(&pb__role__descriptor, "workers")));
    text_field_mark(&role.base, field(&pb__role__descriptor, "workers"));
    assert_true(role.has_workers);
    assert_true(text_field_is_pair(field(&pb__role__descriptor, "env")));
    assert_false(text_field_is_pair(command));
}

static void a_byte_that_is_not_text_has_a_place(void **state)
{
    struct text out;
    struct problem_list list = {"f", true, &out, 0};
    yaml_document_t doc;
    (void)state;
    text_init(&out, 0);
    assert_false(text_yaml_compose("a: b\n\xc3\xa9 \xc3", 9, &doc, &list));
    assert_string_equal(text_get(&out), "f:2:3: byte 0xc3 is not UTF-8 text\n");
    text_reset(&out);
    assert_false(text_yaml_compose("a: \0", 4, &doc, &list));
    assert_string_equal(text_get(&out), "f:1:4: byte 0x00 is not UTF-8 text\n");
    assert_null(text_read_find(&list, NULL, &pb__role__descriptor, "comand"));
    assert_non_null(strstr(text_get(&out), "did you mean 'command'?"));
    text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_are_exact),
        cmocka_unit_test(the_name_of_a_field_says_its_unit),
        cmocka_unit_test(base64_is_strict),
        cmocka_unit_test(quotes_hold_in_json_and_yaml),
        cmocka_unit_test(doubles_print_with_the_fewest_digits),
        cmocka_unit_test(integers_stop_at_their_ends),
        cmocka_unit_test(lists_grow_one_by_one_and_clear),
        cmocka_unit_test(a_byte_that_is_not_text_has_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
