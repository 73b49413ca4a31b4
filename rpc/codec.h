/* codec.h - messages to gRPC byte buffers and back.
 *
 * Any thread. A decoded message lives in blocks of its own, freed together; their sum is capped at
 * a multiple of the wire size and at 64 MiB, so that a small packet cannot fill the memory. */
#pragma once
#include "base/error.h"
#include <grpc/grpc.h>
#include <protobuf-c/protobuf-c.h>

struct rpc_codec_block;
struct rpc_decoded {
    const ProtobufCMessage *message; /* NULL: none */
    size_t wire_bytes;
    struct rpc_codec_block *blocks;
};

/* Caller destroys the buffer. */
grpc_byte_buffer *rpc_codec_pack(const ProtobufCMessage *message, size_t *size);
/* STATUS_INVALID: garbage, bad text; STATUS_EXHAUSTED: past the cap. */
enum status rpc_codec_unpack(const ProtobufCMessageDescriptor *type, grpc_byte_buffer *bytes,
                             struct rpc_decoded *out, struct error *err) MUST_CHECK;
void rpc_decoded_fini(struct rpc_decoded *decoded); /* may be zeroed or done already */
