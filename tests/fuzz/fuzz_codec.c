/* fuzz_codec.c - any bytes as a message that came over gRPC, whole or in pieces. What is accepted
 * is packed and accepted again as the same bytes, within its bound of memory. */
#include "base/mem.h"
#include "proto/pb.h"
#include "rpc/codec.h"
#include "tests/fuzz/mutate.h"
#include <stdlib.h>
#include <string.h>

#define DOCUMENT_MAX 4096
#define PIECES_MAX   4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const types[] = {
    &pb__agent_up__descriptor,       &pb__agent_down__descriptor, &pb__bulk_up__descriptor,
    &pb__submit_request__descriptor, &pb__job__descriptor,        &pb__worker_ask__descriptor,
};

static grpc_byte_buffer *buffer_of(const uint8_t *bytes, size_t len, size_t pieces)
{
    grpc_slice slices[PIECES_MAX];

    for (size_t i = 0; i < pieces; i++) {
        size_t from = len * i / pieces, to = len * (i + 1) / pieces;
        slices[i] = grpc_slice_from_copied_buffer((const char *)bytes + from, to - from);
    }
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(slices, pieces);
    for (size_t i = 0; i < pieces; i++)
        grpc_slice_unref(slices[i]);
    return buffer;
}

static void *pack(const ProtobufCMessage *message, size_t *len)
{
    *len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = mem_alloc(*len + 1);

    if (protobuf_c_message_pack(message, bytes) != *len)
        abort();
    return bytes;
}

static void come_back(const ProtobufCMessage *message)
{
    size_t len = 0, again_len = 0;
    SCOPED(mem_free) void *bytes = pack(message, &len);
    SCOPED(mem_free) void *again = NULL;
    grpc_byte_buffer *buffer = buffer_of(bytes, len, 1);
    struct rpc_decoded back = {0};

    if (rpc_codec_unpack(message->descriptor, buffer, &back, NULL) == STATUS_OK) {
        again = pack(back.message, &again_len);
        if (again_len != len || memcmp(bytes, again, len) != 0)
            abort();
    }
    rpc_decoded_fini(&back);
    grpc_byte_buffer_destroy(buffer);
}

static void feed(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len,
                 size_t pieces)
{
    grpc_byte_buffer *buffer = buffer_of(bytes, len, pieces);
    struct rpc_decoded decoded = {0};
    struct error err;

    if (rpc_codec_unpack(type, buffer, &decoded, &err) == STATUS_OK)
        come_back(decoded.message);
    rpc_decoded_fini(&decoded);
    grpc_byte_buffer_destroy(buffer);
}

/* A hello and a report with something of each kind of field. */
static size_t make_good(uint8_t *out)
{
    Pb__WorkerKey key = PB__WORKER_KEY__INIT;
    Pb__ActualWorker worker = PB__ACTUAL_WORKER__INIT, *workers[] = {&worker, &worker};
    Pb__ActualReport report = PB__ACTUAL_REPORT__INIT;
    Pb__AgentUp up = PB__AGENT_UP__INIT;

    key.role = (char[]){"w"};
    key.has_job = 1;
    key.job = INT64_MIN;
    worker.key = &key;
    worker.message = (char[]){"\xc3\xa9"};
    report.n_workers = 2;
    report.workers = workers;
    up.has_seq = 1;
    up.seq = UINT64_MAX;
    up.report = &report;
    return pb__agent_up__pack(&up, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t document[DOCUMENT_MAX];

    if (size < 2)
        return 0;
    const size_t pieces = data[1] % PIECES_MAX + 1;
    const size_t kinds = sizeof(types) / sizeof(types[0]);
    if (data[0] < kinds) {
        feed(types[data[0]], data + 2, size - 2, pieces);
        return 0;
    }
    size_t len = make_good(document);
    mutate_apply(data + 2, size - 2, document, &len, sizeof(document));
    feed(&pb__agent_up__descriptor, document, len, pieces);
    return 0;
}
