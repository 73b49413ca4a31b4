/* test_tail.c - records of workers: only whole and sound ones go up, without being decoded. */
#include "agent/tail.h"
#include "checkpoint/digest.h"
#include "proto/pb.h"
#include "tests/unit/unit.h"
#include <math.h>

static void add_record(struct text *out, const Pb__WorkerRecord *record)
{
    uint8_t bytes[4096], head[8];
    size_t len = pb__worker_record__pack(record, bytes);
    uint32_t crc = digest_crc32c(0, bytes, len);
    for (int i = 0; i < 4; i++) {
        head[i] = (uint8_t)(len >> (8 * i));
        head[4 + i] = (uint8_t)(crc >> (8 * i));
    }
    text_add_bytes(out, head, sizeof(head));
    text_add_bytes(out, bytes, len);
}

static void add_report(struct text *out, int64_t step, double value, const char *name)
{
    Pb__WorkerRecord record = PB__WORKER_RECORD__INIT;
    Pb__Report report = PB__REPORT__INIT;
    char *names[] = {(char *)(uintptr_t)name, (char *)(uintptr_t) "tokens"};
    int64_t count = -5;
    report.has_step = report.has_samples = report.has_t_us = true;
    report.step = step;
    report.samples = step * 2;
    report.n_names = 2;
    report.names = names;
    report.n_values = report.n_integers = 1;
    report.values = &value;
    report.integers = &count;
    record.report = &report;
    add_record(out, &record);
}

static void records_come_in_order_and_a_torn_one_waits(void **state)
{
    struct text file;
    struct tail_record record;
    size_t at = 0;
    (void)state;
    text_init(&file, 0);
    add_report(&file, 1, 0.5, "loss");
    add_report(&file, 2, NAN, "loss");
    for (size_t cut = 0; cut < file.len; cut++) { /* whatever was written so far */
        size_t whole = 0;
        at = 0;
        while (tail_next((uint8_t *)file.data, cut, &at, &record) == TAIL_RECORD)
            whole++;
        assert_true(whole <= 1);
    }
    at = 0;
    assert_int_equal(tail_next((uint8_t *)file.data, file.len, &at, &record), TAIL_RECORD);
    assert_int_equal(record.step, 1);
    assert_int_equal(record.samples, 2);
    assert_int_equal(record.points, 2);
    assert_int_equal(tail_next((uint8_t *)file.data, file.len, &at, &record), TAIL_RECORD);
    assert_int_equal(record.step, 2);
    assert_int_equal(tail_next((uint8_t *)file.data, file.len, &at, &record), TAIL_END);
    text_fini(&file);
}

static void each_flipped_bit_is_seen(void **state)
{
    struct text file;
    struct tail_record record;
    (void)state;
    text_init(&file, 0);
    add_report(&file, 7, 0.25, "loss");
    for (size_t bit = 32; bit < file.len * 8; bit++) {
        size_t at = 0;
        ((uint8_t *)file.data)[bit / 8] ^= (uint8_t)(1U << bit % 8);
        assert_int_equal(tail_next((uint8_t *)file.data, file.len, &at, &record), TAIL_WRONG_CRC);
        ((uint8_t *)file.data)[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    text_fini(&file);
}

static void impossible_lengths_are_broken(void **state)
{
    uint8_t zero[16] = {0}, huge[16] = {0xff, 0xff, 0xff, 0x7f};
    struct tail_record record;
    size_t at = 0;
    (void)state;
    assert_int_equal(tail_next(zero, sizeof(zero), &at, &record), TAIL_BROKEN);
    assert_int_equal(tail_next(huge, sizeof(huge), &at, &record), TAIL_BROKEN);
}

static void unsound_reports_are_refused(void **state)
{
    struct text file;
    struct tail_record record;
    static const char *const names[] = {"\xff", "", "\xc0\x80"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        size_t at = 0;
        text_init(&file, 0);
        add_report(&file, 1, 0.5, names[i]);
        assert_int_equal(tail_next((uint8_t *)file.data, file.len, &at, &record), TAIL_RECORD);
        assert_true(record.refused);
        assert_null(record.report);
        text_fini(&file);
    }
    static const uint8_t odd[] = {0x2a, 3, 1, 2, 3}; /* doubles in three bytes */
    assert_false(tail_check_report(odd, sizeof(odd), &record));
    static const uint8_t group[] = {0x0b};
    assert_false(tail_check_report(group, sizeof(group), &record));
    static const uint8_t unnamed[] = {0x32, 1, 2}; /* a value without a name */
    assert_false(tail_check_report(unnamed, sizeof(unnamed), &record));
}

static void flags_and_failures_are_found(void **state)
{
    struct text file;
    struct tail_record record;
    Pb__WorkerRecord said = PB__WORKER_RECORD__INIT;
    Pb__WorkerFailure failure = PB__WORKER_FAILURE__INIT;
    size_t at = 0;
    (void)state;
    text_init(&file, 0);
    failure.message = (char *)(uintptr_t) "no";
    said.failure = &failure;
    said.has_finished = said.finished = true;
    said.has_dropped = true;
    said.dropped = UINT64_MAX;
    add_record(&file, &said);
    assert_int_equal(tail_next((uint8_t *)file.data, file.len, &at, &record), TAIL_RECORD);
    assert_true(record.finished);
    assert_false(record.joined);
    assert_true(record.dropped == TAIL_DROPPED_MAX); /* any number may stand there */
    assert_non_null(record.failure);
    assert_null(record.report);
    text_fini(&file);
}

static void batches_are_what_the_daemon_unpacks(void **state)
{
    struct text file, out;
    struct tail_record record;
    struct tail_batch batch;
    struct tail_key key = {7, 3, 1, 2, "trainer"};
    size_t at = 0;
    (void)state;
    text_init(&file, 0);
    text_init(&out, 0);
    for (int64_t step = 0; step < 300; step++)
        add_report(&file, step, 1.0 / (double)(step + 1), "loss");
    tail_batch_begin(&batch, &out, &key);
    while (tail_next((uint8_t *)file.data, file.len, &at, &record) == TAIL_RECORD)
        tail_batch_add(&batch, record.report, record.report_len);
    tail_batch_end(&batch, 9);
    tail_batch_begin(&batch, &out, &key);
    tail_batch_end(&batch, 0);
    Pb__BulkUp *up = pb__bulk_up__unpack(NULL, out.len, (uint8_t *)out.data);
    assert_non_null(up);
    assert_int_equal(up->n_batches, 2);
    assert_int_equal(up->batches[0]->job, 7);
    assert_string_equal(up->batches[0]->role, "trainer");
    assert_int_equal(up->batches[0]->incarnation, 2);
    assert_int_equal(up->batches[0]->dropped, 9);
    assert_int_equal(up->batches[0]->n_reports, 300);
    assert_true(up->batches[0]->reports[99]->values[0] == 1.0 / 100);
    assert_int_equal(up->batches[0]->reports[99]->integers[0], -5);
    assert_int_equal(up->batches[1]->n_reports, 0);
    pb__bulk_up__free_unpacked(up, NULL);
    text_fini(&file);
    text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_in_order_and_a_torn_one_waits),
        cmocka_unit_test(each_flipped_bit_is_seen),
        cmocka_unit_test(impossible_lengths_are_broken),
        cmocka_unit_test(unsound_reports_are_refused),
        cmocka_unit_test(flags_and_failures_are_found),
        cmocka_unit_test(batches_are_what_the_daemon_unpacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
