/* fuzz_tail.c - any bytes as a worker's reports file, and as records in it with a right length and
 * checksum. Whatever goes up to the daemon must be decoded by its reader. */
#include "agent/tail.h"
#include "checkpoint/digest.h"
#include "proto/pb.h"
#include "rpc/wire.h"
#include "tests/fuzz/mutate.h"
#include <stdlib.h>
#include <string.h>

#define DOCUMENT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_report(const struct tail_record *record)
{
    Pb__Report *report = pb__report__unpack(NULL, record->report_len, record->report);

    if (!report || report->n_values + report->n_integers != record->points ||
        report->n_names != record->points || report->has_step != record->has_step ||
        (report->has_step && report->step != record->step))
        abort();
    pb__report__free_unpacked(report, NULL);
}

static void check_batch(const struct text *batch, size_t reports)
{
    if (rpc_wire_check(&pb__bulk_up__descriptor, text_get(batch), batch->len, NULL) != STATUS_OK)
        abort();
    Pb__BulkUp *up =
        pb__bulk_up__unpack(NULL, batch->len, (const uint8_t *)(const void *)text_get(batch));
    if (!up || up->n_batches != 1 || up->batches[0]->n_reports != reports ||
        strcmp(up->batches[0]->role, "w") != 0)
        abort();
    pb__bulk_up__free_unpacked(up, NULL);
}

static void feed(const uint8_t *bytes, size_t len)
{
    static const struct tail_key key = {INT64_MAX, 3, 1, 2, "w"};
    struct tail_record record;
    struct tail_batch batch;
    struct text out;
    size_t at = 0, before = 0, reports = 0;

    text_init(&out, 0);
    tail_batch_begin(&batch, &out, &key);
    while (tail_next(bytes, len, &at, &record) == TAIL_RECORD) {
        if (at <= before || at > len)
            abort();
        before = at;
        if (!record.report)
            continue;
        check_report(&record);
        tail_batch_add(&batch, record.report, record.report_len);
        reports++;
    }
    tail_batch_end(&batch, len);
    check_batch(&out, reports);
    text_fini(&out);
}

static size_t add_record(uint8_t *out, const void *bytes, size_t len)
{
    const uint32_t head[] = {(uint32_t)len, digest_crc32c(0, bytes, len)};

    memcpy(out, head, sizeof(head));
    memcpy(out + sizeof(head), bytes, len);
    return sizeof(head) + len;
}

static size_t make_good(uint8_t *out)
{
    double values[] = {1.5, -0.0};
    int64_t integers[] = {INT64_MIN};
    char *names[] = {(char[]){"loss"}, (char[]){"\xc3\xa9"}, (char[]){"n"}};
    Pb__Report report = PB__REPORT__INIT;
    Pb__WorkerFailure failure = PB__WORKER_FAILURE__INIT;
    Pb__WorkerRecord record = PB__WORKER_RECORD__INIT;

    report.has_step = 1;
    report.step = 7;
    report.n_names = 3;
    report.names = names;
    report.n_values = 2;
    report.values = values;
    report.n_integers = 1;
    report.integers = integers;
    failure.message = (char[]){"it fell"};
    record.report = &report;
    record.failure = &failure;
    record.has_joined = record.joined = 1;
    return pb__worker_record__pack(&record, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t payload[DOCUMENT_MAX], file[2 * DOCUMENT_MAX + 16];

    if (size == 0)
        return 0;
    if (data[0] == 0) {
        feed(data + 1, size - 1);
        return 0;
    }
    size_t good = make_good(payload), len = add_record(file, payload, good);
    if (data[0] == 1) {
        good = size - 1 < sizeof(payload) ? size - 1 : sizeof(payload);
        memcpy(payload, data + 1, good);
    } else {
        mutate_apply(data + 1, size - 1, payload, &good, sizeof(payload));
    }
    len += add_record(file + len, payload, good);
    feed(file, len);
    return 0;
}
