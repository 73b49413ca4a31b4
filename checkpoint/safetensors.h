/* safetensors.h - the header of a safetensors file: a strict reader, and a writer.
 *
 * A file is u64 little-endian N, N bytes of JSON, data. Offsets are relative to the data's begin;
 * there are no holes and no bytes behind the last tensor. Stricter than the format's first reader
 * on names and duplicates, equal on offsets (docs/reference/checkpoint-format.md has the table).
 * Any thread; pure but for safetensors_open. Used in librondo: no jansson, no OpenSSL.
 * Names are data: never map one to a path. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_HEADER_MAX 100000000u /* read; what the format's own reader takes */
#define SAFETENSORS_WRITE_MAX  25000000u  /* written: remote parsers stop there */
#define SAFETENSORS_ALIGN      4096u      /* of the data's begin in files that we write */

struct safetensors_entry {
    const char *name; /* NUL-terminated behind name_len when parsed */
    size_t name_len;
    enum dtype dtype;
    uint32_t dims; /* 0: one element */
    const uint64_t *shape;
    uint64_t begin, end; /* bytes, from the data's begin */
};
struct safetensors_pair { /* one of __metadata__ */
    const char *key;
    size_t key_len;
    const char *value;
    size_t value_len;
};
struct safetensors;

/* head: the file's first bytes, at least 8 + N of them. STATUS_INVALID says what is wrong, naming
 * the byte or the tensor. */
enum status safetensors_parse(const void *head, size_t len, uint64_t file_bytes,
                              struct safetensors **out, struct error *err) MUST_CHECK;
/* For files by others: fields of an entry that we do not know are counted instead of refused. */
enum status safetensors_parse_import(const void *head, size_t len, uint64_t file_bytes,
                                     struct safetensors **out, struct error *err) MUST_CHECK;
/* Reads the header by pread; blocking. import: as above. */
enum status safetensors_open(int fd, uint64_t file_bytes, bool import, struct safetensors **out,
                             struct error *err) MUST_CHECK;
void safetensors_destroy(struct safetensors *file); /* NULL is fine */
SCOPED_DESTRUCTOR(struct safetensors *, safetensors_destroy)

/* In the order of their bytes in the file. Loans: as long as the file. */
size_t safetensors_count(const struct safetensors *file);
const struct safetensors_entry *safetensors_at(const struct safetensors *file, size_t index);
const struct safetensors_entry *safetensors_find(const struct safetensors *file, const char *name,
                                                 size_t len);
uint64_t safetensors_data_at(const struct safetensors *file); /* 8 + N */
size_t safetensors_meta_count(const struct safetensors *file);
const struct safetensors_pair *safetensors_meta_at(const struct safetensors *file, size_t index);
const char *safetensors_meta(const struct safetensors *file, const char *key, size_t *len);
size_t safetensors_unknown(const struct safetensors *file); /* fields that were passed over */

/* Puts the entries into the file's order (widest first, then by name), sets begin and end, and
 * writes the 8 + N bytes, padded so that data begins at a multiple of SAFETENSORS_ALIGN. Refuses,
 * before any data is written: names that are empty, no UTF-8, twice there or `__metadata__`; sizes
 * that are no whole bytes; a header beyond SAFETENSORS_WRITE_MAX. out: init with max at least
 * SAFETENSORS_WRITE_MAX + SAFETENSORS_ALIGN. */
enum status safetensors_build(struct safetensors_entry *entries, size_t count,
                              const struct safetensors_pair *meta, size_t meta_count,
                              struct text *out, struct error *err) MUST_CHECK;
/* Bytes of a tensor; checked in the order of its dimensions, as readers do: STATUS_INVALID. */
enum status safetensors_bytes(enum dtype dtype, const uint64_t *shape, uint32_t dims, uint64_t *out,
                              struct error *err) MUST_CHECK;
