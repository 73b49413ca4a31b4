/* test_codec.c - messages through byte buffers: round trips, split buffers, bounds, and every cut
 * and flipped byte. */
#include "proto/pb.h"
#include "rpc/codec.h"
#include "tests/unit/unit.h"

static int setup(void **state)
{
    (void)state;
    grpc_init();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    grpc_shutdown_blocking();
    return 0;
}

static grpc_byte_buffer *buffer_of(const void *bytes, size_t len, size_t pieces)
{
    grpc_slice slices[8];

    for (size_t i = 0; i < pieces; i++) {
        size_t from = len * i / pieces, to = len * (i + 1) / pieces;
        slices[i] = grpc_slice_from_copied_buffer((const char *)bytes + from, to - from);
    }
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(slices, pieces);
    for (size_t i = 0; i < pieces; i++)
        grpc_slice_unref(slices[i]);
    return buffer;
}

static enum status decode(const ProtobufCMessageDescriptor *type, const void *bytes, size_t len,
                          struct rpc_decoded *out)
{
    grpc_byte_buffer *buffer = buffer_of(bytes, len, 1);
    enum status st = rpc_codec_unpack(type, buffer, out, NULL);

    grpc_byte_buffer_destroy(buffer);
    return st;
}

/* A batch with text, packed numbers, doubles and nesting. */
static size_t sample(uint8_t *out)
{
    double values[] = {1.5, -2.5, 0.0};
    int64_t integers[] = {INT64_MIN, INT64_MAX};
    char *names[] = {(char[]){"loss"}, (char[]){"\xc3\xa9"}, (char[]){"x"}};
    Pb__Report report = PB__REPORT__INIT;
    Pb__Report *reports[] = {&report, &report};
    Pb__ReportBatch batch = PB__REPORT_BATCH__INIT;

    report.has_step = 1;
    report.step = 1 << 30;
    report.n_names = 3;
    report.names = names;
    report.n_values = 3;
    report.values = values;
    report.n_integers = 2;
    report.integers = integers;
    batch.n_reports = 2;
    batch.reports = reports;
    batch.role = (char[]){"trainer"};
    return protobuf_c_message_pack(&batch.base, out);
}

static void message_survives_whole_and_in_pieces(void **state)
{
    uint8_t bytes[512], again[512];
    size_t len = sample(bytes);

    (void)state;
    for (size_t pieces = 1; pieces <= 8; pieces++) {
        struct rpc_decoded decoded = {0};
        grpc_byte_buffer *buffer = buffer_of(bytes, len, pieces);
        assert_int_equal(rpc_codec_unpack(&pb__report_batch__descriptor, buffer, &decoded, NULL),
                         STATUS_OK);
        assert_int_equal(decoded.wire_bytes, len);
        assert_int_equal(protobuf_c_message_pack(decoded.message, again), len);
        assert_memory_equal(bytes, again, len);
        grpc_byte_buffer_destroy(buffer);
        rpc_decoded_fini(&decoded);
        rpc_decoded_fini(&decoded); /* twice is fine */
    }
}

static void packed_buffer_holds_the_message(void **state)
{
    Pb__SubmitReply reply = PB__SUBMIT_REPLY__INIT;
    struct rpc_decoded decoded = {0};
    size_t size;

    (void)state;
    reply.has_job = 1;
    reply.job = 77;
    grpc_byte_buffer *buffer = rpc_codec_pack(&reply.base, &size);
    assert_int_equal(grpc_byte_buffer_length(buffer), size);
    assert_int_equal(rpc_codec_unpack(&pb__submit_reply__descriptor, buffer, &decoded, NULL),
                     STATUS_OK);
    assert_int_equal(((const Pb__SubmitReply *)decoded.message)->job, 77);
    rpc_decoded_fini(&decoded);
    grpc_byte_buffer_destroy(buffer);
}

/* Whatever comes: an answer, no crash (run with the sanitizers). */
static void every_cut_and_flipped_byte_is_survived(void **state)
{
    uint8_t bytes[512];
    size_t len = sample(bytes);
    struct rpc_decoded decoded;

    (void)state;
    for (size_t cut = 0; cut < len; cut++) {
        decoded = (struct rpc_decoded){0};
        if (decode(&pb__report_batch__descriptor, bytes, cut, &decoded) == STATUS_OK)
            rpc_decoded_fini(&decoded);
    }
    for (size_t at = 0; at < len; at++)
        for (unsigned flip = 1; flip < 256; flip += 3) {
            bytes[at] ^= (uint8_t)flip;
            decoded = (struct rpc_decoded){0};
            if (decode(&pb__report_batch__descriptor, bytes, len, &decoded) == STATUS_OK)
                rpc_decoded_fini(&decoded);
            bytes[at] ^= (uint8_t)flip;
        }
}

static void unknown_fields_are_skipped(void **state)
{
    static const uint8_t bytes[] = {0xf8, 0x7f, 0x01,                   /* varint 2047 */
                                    0xfa, 0x7f, 0x03, 0xff, 0xfe, 0x00, /* bytes */
                                    0x08, 0x07};                        /* job = 7 */
    struct rpc_decoded decoded = {0};

    (void)state;
    assert_int_equal(decode(&pb__submit_reply__descriptor, bytes, sizeof bytes, &decoded),
                     STATUS_OK);
    assert_int_equal(((const Pb__SubmitReply *)decoded.message)->job, 7);
    rpc_decoded_fini(&decoded);
}

static void memory_is_bounded_by_the_wire_size(void **state)
{
    size_t len = 2 << 20;
    uint8_t *bytes = mem_alloc(len);
    struct rpc_decoded decoded = {0};

    (void)state;
    for (size_t i = 0; i < len; i += 2)
        bytes[i] = 0x0a;
    assert_int_equal(decode(&pb__list_jobs_reply__descriptor, bytes, len, &decoded),
                     STATUS_EXHAUSTED);
    assert_null(decoded.message);
    assert_int_equal(decode(&pb__list_jobs_reply__descriptor, bytes, 400, &decoded), STATUS_OK);
    rpc_decoded_fini(&decoded);
    mem_free(bytes);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(message_survives_whole_and_in_pieces),   CASE(packed_buffer_holds_the_message),
        CASE(every_cut_and_flipped_byte_is_survived), CASE(unknown_fields_are_skipped),
        CASE(memory_is_bounded_by_the_wire_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
