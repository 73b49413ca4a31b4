#include "rpc/codec.h"
#include "rpc/wire.h"
#include <grpc/byte_buffer_reader.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define BYTES_MAX       ((size_t)64 << 20)
#define BYTES_FREE      ((size_t)64 << 10) /* granted to the smallest message */
#define BYTES_PER_WIRE  64
#define BLOCK_BYTES_MIN 512
#define BLOCK_BYTES_MAX ((size_t)256 << 10)
#define ALIGNMENT       16

struct rpc_codec_block {
    struct rpc_codec_block *next;
    size_t used, size;
    _Alignas(ALIGNMENT) uint8_t data[];
};

/* The allocator behind one decode. protobuf-c frees only scratch: that waits for the end, too. */
struct pool {
    struct rpc_codec_block *blocks;
    size_t left;    /* of the cap */
    size_t planned; /* size of the next block */
    bool refused;
};

static void *pool_alloc(void *arg, size_t size)
{
    struct pool *pool = arg;
    struct rpc_codec_block *block = pool->blocks;

    if (size > BYTES_MAX)
        return NULL;
    size = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (!block || block->size - block->used < size) {
        size_t want = size > pool->planned ? size : pool->planned;
        if (want > pool->left)
            want = size;
        if (want > pool->left || !(block = malloc(sizeof *block + want))) {
            pool->refused = true;
            return NULL;
        }
        *block = (struct rpc_codec_block){.next = pool->blocks, .size = want};
        pool->blocks = block;
        pool->left -= want;
        if (pool->planned < BLOCK_BYTES_MAX)
            pool->planned *= 2;
    }
    void *place = block->data + block->used;
    block->used += size;
    return place;
}

static void pool_free(void *arg, void *place)
{
    (void)arg;
    (void)place;
}

static void blocks_free(struct rpc_codec_block *block)
{
    while (block) {
        struct rpc_codec_block *next = block->next;
        free(block);
        block = next;
    }
}

void rpc_decoded_fini(struct rpc_decoded *decoded)
{
    blocks_free(decoded->blocks);
    *decoded = (struct rpc_decoded){0};
}

static size_t bytes_cap(size_t wire)
{
    size_t cap = wire < BYTES_MAX / BYTES_PER_WIRE ? wire * BYTES_PER_WIRE + BYTES_FREE : BYTES_MAX;

    return cap < BYTES_MAX ? cap : BYTES_MAX;
}

static enum status unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len,
                          struct rpc_decoded *out, struct error *err)
{
    struct pool pool = {.left = bytes_cap(len), .planned = BLOCK_BYTES_MIN};
    ProtobufCAllocator allocator = {pool_alloc, pool_free, &pool};
    enum status st = rpc_wire_check(type, bytes, len, err);

    if (st != STATUS_OK)
        return st;
    while (pool.planned < len * 2 && pool.planned < BLOCK_BYTES_MAX)
        pool.planned *= 2;
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, len, bytes);
    if (!message) {
        blocks_free(pool.blocks);
        return pool.refused
                   ? error_set(err, STATUS_EXHAUSTED, "%s of %zu bytes needs too much memory",
                               type->short_name, len)
                   : error_set(err, STATUS_INVALID, "%s cannot be decoded", type->short_name);
    }
    *out = (struct rpc_decoded){message, len, pool.blocks};
    return STATUS_OK;
}

enum status rpc_codec_unpack(const ProtobufCMessageDescriptor *type, grpc_byte_buffer *bytes,
                             struct rpc_decoded *out, struct error *err)
{
    grpc_byte_buffer_reader reader;
    grpc_slice *only = NULL, whole;
    enum status st;

    if (!grpc_byte_buffer_reader_init(&reader, bytes))
        return error_set(err, STATUS_INVALID, "%s cannot be decompressed", type->short_name);
    /* One slice is read in place; more are joined first. */
    if (grpc_byte_buffer_length(bytes) == 0) {
        st = unpack(type, (const uint8_t *)"", 0, out, err);
    } else if (grpc_byte_buffer_reader_peek(&reader, &only) &&
               GRPC_SLICE_LENGTH(*only) == grpc_byte_buffer_length(bytes)) {
        st = unpack(type, GRPC_SLICE_START_PTR(*only), GRPC_SLICE_LENGTH(*only), out, err);
    } else {
        grpc_byte_buffer_reader_destroy(&reader);
        if (!grpc_byte_buffer_reader_init(&reader, bytes))
            return error_set(err, STATUS_INVALID, "%s cannot be read", type->short_name);
        whole = grpc_byte_buffer_reader_readall(&reader);
        st = unpack(type, GRPC_SLICE_START_PTR(whole), GRPC_SLICE_LENGTH(whole), out, err);
        grpc_slice_unref(whole);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    return st;
}

grpc_byte_buffer *rpc_codec_pack(const ProtobufCMessage *message, size_t *size)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    grpc_slice slice = grpc_slice_malloc(len);
    grpc_byte_buffer *bytes;

    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    bytes = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    *size = len;
    return bytes;
}
