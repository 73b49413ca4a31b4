/* test_wire.c - what is accepted as the bytes of a message. */
#include "proto/pb.h"
#include "rpc/wire.h"
#include "tests/unit/unit.h"

#define SUBMIT &pb__submit_request__descriptor

static enum status check(const ProtobufCMessageDescriptor *type, const char *bytes, size_t len)
{
    return rpc_wire_check(type, bytes, len, NULL);
}

static void well_formed_bytes_pass(void **state)
{
    (void)state;
    assert_int_equal(check(SUBMIT, "", 0), STATUS_OK);
    assert_int_equal(rpc_wire_check(SUBMIT, NULL, 0, NULL), STATUS_OK);
    assert_int_equal(check(SUBMIT,
                           "\x0a\x02"
                           "ok",
                           4),
                     STATUS_OK);
    assert_int_equal(check(SUBMIT, "\x0a\x02\xc3\xa9", 4), STATUS_OK);
    assert_int_equal(check(SUBMIT, "\x18\x01\x12\x00", 4), STATUS_OK);
}

static void malformed_bytes_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
        {"\x0a", 1}, /* no length */
        {"\x0a\x05"
         "ab",
         4},                                                      /* longer than what is there */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},     /* length 2^64 - 1 */
        {"\x18", 1},                                              /* no value */
        {"\x18\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12}, /* eleven bytes of value */
        {"\x19\x01\x02", 3},                                      /* fixed64 cut short */
        {"\x1d\x01\x02", 3},                                      /* fixed32 cut short */
        {"\x1b\x1c", 2},                                          /* a group */
        {"\x1e\x01", 2},
        {"\x1f\x01", 2},                 /* wire types 6 and 7 */
        {"\x02\x00", 2},                 /* field 0 */
        {"\x82\x80\x80\x80\x10\x00", 6}, /* field 2^29 */
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(check(SUBMIT, cases[i].bytes, cases[i].len), STATUS_INVALID);
}

static void text_is_utf8_without_nul(void **state)
{
    (void)state;
    assert_int_equal(check(SUBMIT,
                           "\x0a\x03"
                           "a\0b",
                           5),
                     STATUS_INVALID);
    assert_int_equal(check(SUBMIT, "\x0a\x02\xc0\x80", 4), STATUS_INVALID);
    assert_int_equal(check(SUBMIT, "\x0a\x03\xed\xa0\x80", 5), STATUS_INVALID);
    /* Bytes may hold anything. */
    assert_int_equal(check(&pb__put_code_request__descriptor, "\x12\x02\x00\xff", 4), STATUS_OK);
}

static void bad_text_names_its_field(void **state)
{
    Pb__Report report = PB__REPORT__INIT;
    Pb__Report *reports[] = {&report};
    Pb__ReportBatch batch = PB__REPORT_BATCH__INIT;
    char *names[] = {(char[]){"a\xc3("}};
    struct error err = {0};
    uint8_t bytes[64];

    (void)state;
    report.n_names = 1;
    report.names = names;
    batch.n_reports = 1;
    batch.reports = reports;
    size_t len = protobuf_c_message_pack(&batch.base, bytes);
    assert_int_equal(rpc_wire_check(&pb__report_batch__descriptor, bytes, len, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, "Report.names"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed_bytes_pass),
        cmocka_unit_test(malformed_bytes_are_refused),
        cmocka_unit_test(text_is_utf8_without_nul),
        cmocka_unit_test(bad_text_names_its_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
