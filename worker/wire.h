/* wire.h - protocol buffers by hand: the few fields of worker.proto that a worker writes and reads.
 *
 * librondo lives in other people's processes, so it brings no protobuf runtime along. Any thread;
 * no allocation. A write that does not fit marks the buffer full and adds nothing. The numbers are
 * those of proto/rondo/v1/worker.proto; the unit test holds them equal to the generated code. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_HEAD_BYTES 8 /* of a record: length, CRC32C */

struct wire {
    unsigned char *data;
    size_t len, cap;
    bool full;
};
void wire_init(struct wire *wire, void *memory, size_t cap);
void wire_add_number(struct wire *wire, uint32_t field, uint64_t value); /* int32, int64, bool */
void wire_add_bytes(struct wire *wire, uint32_t field, const void *bytes, size_t len);
/* A length-delimited field whose bytes follow by wire_raw calls. */
void wire_add_head(struct wire *wire, uint32_t field, size_t len);
void wire_raw_varint(struct wire *wire, uint64_t value);
void wire_raw_bytes(struct wire *wire, const void *bytes, size_t len);
size_t wire_varint_len(uint64_t value);
uint64_t wire_zigzag(int64_t value);
void wire_put_u32(unsigned char out[4], uint32_t value); /* little-endian */
uint32_t wire_get_u32(const unsigned char in[4]);

struct wire_field {
    uint32_t number;
    bool is_bytes;
    uint64_t value; /* varint, fixed32 or fixed64 */
    const unsigned char *bytes;
    size_t len;
};
/* Next field of a message; *at moves on. 1: a field, 0: the end, -1: malformed. */
int wire_next(const unsigned char *data, size_t len, size_t *at, struct wire_field *out);
