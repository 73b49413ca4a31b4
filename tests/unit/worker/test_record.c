/* test_record.c - what librondo packs by hand is what the generated code reads, and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/digest.h"
#include "proto/pb.h"
#include "worker/ask.h"
#include "worker/record.h"
#include "worker/wire.h"

static struct record record;

static Pb__WorkerRecord *unpacked(void)
{
    return pb__worker_record__unpack(NULL, record.len - WIRE_HEAD_BYTES,
                                     record.bytes + WIRE_HEAD_BYTES);
}

static void report_reads_back_exactly(void **state)
{
    const struct record_value values[] = {
        {.name = "loss", .name_len = 4, .number = 0.1},
        {.name = "n", .name_len = 1, .is_integer = true, .integer = INT64_MIN},
        {.name = "bad", .name_len = 3, .number = NAN},
        {.name = "m", .name_len = 1, .is_integer = true, .integer = INT64_MAX},
    };
    const char *why = NULL;
    Pb__WorkerRecord *got;
    (void)state;
    assert_true(record_report(&record, INT64_C(1) << 53, INT64_MAX, 77, values, 4, &why));
    got = unpacked();
    assert_non_null(got);
    assert_true(got->report->step == INT64_C(1) << 53);
    assert_true(got->report->samples == INT64_MAX && got->report->t_us == 77);
    assert_int_equal(got->report->n_names, 4);
    assert_string_equal(got->report->names[0], "loss");
    assert_string_equal(got->report->names[1], "bad"); /* doubles first */
    assert_string_equal(got->report->names[2], "n");
    assert_int_equal(got->report->n_values, 2);
    assert_true(got->report->values[0] == 0.1 && isnan(got->report->values[1]));
    assert_int_equal(got->report->n_integers, 2);
    assert_true(got->report->integers[0] == INT64_MIN && got->report->integers[1] == INT64_MAX);
    pb__worker_record__free_unpacked(got, NULL);
}

static void unknown_samples_are_absent(void **state)
{
    const char *why = NULL;
    Pb__WorkerRecord *got;
    (void)state;
    assert_true(record_report(&record, 0, -1, 0, NULL, 0, &why));
    got = unpacked();
    assert_true(got->report->has_step && !got->report->has_samples);
    assert_int_equal(got->report->n_names, 0);
    pb__worker_record__free_unpacked(got, NULL);
}

static void limits_are_refused_with_a_reason(void **state)
{
    static struct record_value many[RECORD_VALUES_MAX + 1];
    const char *why = NULL;
    (void)state;
    for (size_t i = 0; i <= RECORD_VALUES_MAX; i++)
        many[i] = (struct record_value){.name = "x", .name_len = 1};
    assert_true(record_report(&record, 1, 1, 1, many, RECORD_VALUES_MAX, &why));
    assert_false(record_report(&record, 1, 1, 1, many, RECORD_VALUES_MAX + 1, &why));
    assert_non_null(why);
    assert_false(record_report(&record, -1, 1, 1, many, 1, &why));
    many[0] = (struct record_value){.name = "a\nb", .name_len = 3};
    assert_false(record_report(&record, 1, 1, 1, many, 1, &why));
    many[0] = (struct record_value){.name = "\xc3(", .name_len = 2};
    assert_false(record_report(&record, 1, 1, 1, many, 1, &why)); /* not UTF-8 */
    many[0] = (struct record_value){.name = "", .name_len = 0};
    assert_false(record_report(&record, 1, 1, 1, many, 1, &why));
}

static void flags_and_failures_read_back(void **state)
{
    static char huge[40000];
    Pb__WorkerRecord *got;
    (void)state;
    record_joined(&record);
    got = unpacked();
    assert_true(got->joined && !got->report);
    pb__worker_record__free_unpacked(got, NULL);
    record_finished(&record);
    got = unpacked();
    assert_true(got->finished);
    pb__worker_record__free_unpacked(got, NULL);
    memset(huge, 'x', sizeof huge - 1);
    record_failure(&record, huge, huge);
    got = unpacked();
    assert_int_equal(strlen(got->failure->message), RECORD_MESSAGE_MAX);
    assert_int_equal(strlen(got->failure->traceback), RECORD_TRACEBACK_MAX);
    pb__worker_record__free_unpacked(got, NULL);
    record_failure(&record, NULL, NULL);
    got = unpacked();
    assert_null(got->failure->traceback);
    pb__worker_record__free_unpacked(got, NULL);
}

static void kinds_are_those_of_the_proto(void **state)
{
    (void)state;
    assert_int_equal(ASK_SAVE_DIR, PB__WORKER_ASK__KIND__SAVE_DIR);
    assert_int_equal(ASK_COMMIT, PB__WORKER_ASK__KIND__COMMIT);
    assert_int_equal(ASK_ABORT_SAVE, PB__WORKER_ASK__KIND__ABORT_SAVE);
    assert_int_equal(ASK_STAGE, PB__WORKER_ASK__KIND__STAGE);
    assert_int_equal(ASK_STAGED, PB__WORKER_ASK__KIND__STAGED);
}

static void fields_of_generated_messages_are_found(void **state)
{
    Pb__WorkerAnswer answer = PB__WORKER_ANSWER__INIT;
    unsigned char bytes[256];
    struct wire_field field;
    size_t at = 0, len;
    (void)state;
    answer.has_number = answer.has_status = 1;
    answer.number = UINT64_MAX;
    answer.status = 14;
    answer.dir = (char[]){"/v/x"};
    len = pb__worker_answer__pack(&answer, bytes);
    assert_int_equal(wire_next(bytes, len, &at, &field), 1);
    assert_true(field.number == 1 && field.value == UINT64_MAX);
    assert_int_equal(wire_next(bytes, len, &at, &field), 1);
    assert_true(field.number == 2 && field.value == 14);
    assert_int_equal(wire_next(bytes, len, &at, &field), 1);
    assert_true(field.number == 4 && field.len == 4 && memcmp(field.bytes, "/v/x", 4) == 0);
    assert_int_equal(wire_next(bytes, len, &at, &field), 0);
}

static void random_bytes_never_read_outside(void **state)
{
    uint32_t chance = 1;
    (void)state;
    for (int round = 0; round < 200000; round++) {
        size_t len = (chance >> 8) % 24, at = 0;
        unsigned char *bytes = malloc(len ? len : 1); /* the sanitizer watches its ends */
        struct wire_field field;
        for (size_t i = 0; i < len; i++) {
            chance = chance * 1664525 + 1013904223;
            bytes[i] = (unsigned char)(chance >> 24);
        }
        chance = chance * 1664525 + 1013904223;
        while (wire_next(bytes, len, &at, &field) > 0)
            assert_true(at <= len && (!field.is_bytes || field.bytes + field.len <= bytes + len));
        free(bytes);
    }
}

static void full_buffers_stay_within_their_memory(void **state)
{
    unsigned char bytes[16];
    struct wire wire;
    (void)state;
    wire_init(&wire, bytes, sizeof bytes);
    wire_add_bytes(&wire, 1, "0123456789", 10);
    assert_false(wire.full);
    wire_add_bytes(&wire, 2, "0123456789", 10);
    assert_true(wire.full && wire.len <= sizeof bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(report_reads_back_exactly),
        cmocka_unit_test(unknown_samples_are_absent),
        cmocka_unit_test(limits_are_refused_with_a_reason),
        cmocka_unit_test(flags_and_failures_read_back),
        cmocka_unit_test(kinds_are_those_of_the_proto),
        cmocka_unit_test(fields_of_generated_messages_are_found),
        cmocka_unit_test(random_bytes_never_read_outside),
        cmocka_unit_test(full_buffers_stay_within_their_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
