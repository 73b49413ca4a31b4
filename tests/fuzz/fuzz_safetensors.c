/* fuzz_safetensors.c - any bytes, and changed good ones, as a safetensors file. What is accepted
 * covers its data, is found by name, and comes back from the header that we write for it; DCP's
 * keys are taken or refused as before. */
#include "base/mem.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_dcp.h"
#include "tests/fuzz/mutate.h"
#include <stdlib.h>
#include <string.h>

#define DOCUMENT_MAX 4096
#define PREFIX       8
#define GOOD_DATA    62

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char good[] =
    "{\"__metadata__\":{\"format\":\"pt\",\"DCP_VERSION\":\"1.0\",\"DCP_SHARDING_INFO\":"
    "\"{\\\"a\\\":{\\\"saved_offsets\\\":[4,0]},\\\"b\\\\u00e9\\\":{\\\"saved_offsets\\\":[]},"
    "\\\"c\\\":{\\\"saved_offsets\\\":[0,7,0]},\\\"d\\\":{\\\"saved_offsets\\\":[2]}}\"},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,6],\"data_offsets\":[8,56]},"
    "\"b\\u00e9\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
    "\"c\":{\"dtype\":\"U8\",\"shape\":[3,0,5],\"data_offsets\":[56,56]},"
    "\"d\":{\"shape\":[12],\"dtype\":\"F4\",\"data_offsets\":[56,62]}}   ";

static void must(int condition)
{
    if (!condition)
        abort();
}

static void covers(const struct safetensors *file, uint64_t file_bytes)
{
    uint64_t at = 0, bytes;

    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_entry *entry = safetensors_at(file, i);
        must(entry->begin == at && entry->end >= at);
        must(safetensors_bytes(entry->dtype, entry->shape, entry->dims, &bytes, NULL) == STATUS_OK);
        must(entry->end - at == bytes);
        must(safetensors_find(file, entry->name, entry->name_len) == entry);
        at = entry->end;
    }
    must(safetensors_data_at(file) + at == file_bytes);
}

static struct safetensors *build_again(const struct safetensors *file, uint64_t data)
{
    size_t count = safetensors_count(file), pairs = safetensors_meta_count(file);
    SCOPED(mem_free) void *memory = mem_array(count + 1, sizeof(struct safetensors_entry));
    struct safetensors_entry *entries = memory;
    struct safetensors *again = NULL;
    struct text head;

    text_init(&head, SAFETENSORS_WRITE_MAX + SAFETENSORS_ALIGN);
    for (size_t i = 0; i < count; i++)
        entries[i] = *safetensors_at(file, i);
    must(safetensors_build(entries, count, pairs ? safetensors_meta_at(file, 0) : NULL, pairs,
                           &head, NULL) == STATUS_OK);
    must(head.len % SAFETENSORS_ALIGN == 0);
    must(safetensors_parse(text_get(&head), head.len, head.len + data, &again, NULL) == STATUS_OK);
    text_fini(&head);
    return again;
}

static void is_equal(const struct safetensors *file, const struct safetensors *again)
{
    must(safetensors_count(file) == safetensors_count(again));
    must(safetensors_meta_count(file) == safetensors_meta_count(again));
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_entry *entry = safetensors_at(file, i);
        const struct safetensors_entry *other =
            safetensors_find(again, entry->name, entry->name_len);
        must(other && other->dtype == entry->dtype && other->dims == entry->dims);
        for (uint32_t d = 0; d < entry->dims; d++)
            must(other->shape[d] == entry->shape[d]);
    }
}

/* Both have the offsets of each tensor, or neither has any. */
static void offsets_are_equal(const struct safetensors *file, const struct safetensors *again)
{
    struct safetensors_dcp *dcp = NULL, *other = NULL;
    enum status st = safetensors_dcp_read(file, &dcp, NULL);

    must(safetensors_dcp_read(again, &other, NULL) == st);
    for (size_t i = 0; st == STATUS_OK && i < safetensors_count(file); i++) {
        const struct safetensors_entry *entry = safetensors_at(file, i);
        size_t k = 0;
        while (safetensors_at(again, k)->name_len != entry->name_len ||
               memcmp(safetensors_at(again, k)->name, entry->name, entry->name_len) != 0)
            k++;
        for (uint32_t d = 0; d < entry->dims; d++)
            must(safetensors_dcp_offsets(dcp, i)[d] == safetensors_dcp_offsets(other, k)[d]);
    }
    safetensors_dcp_destroy(dcp);
    safetensors_dcp_destroy(other);
}

static bool feed(const void *head, size_t len, uint64_t file_bytes)
{
    struct safetensors *file = NULL, *import = NULL, *again;
    enum status st = safetensors_parse(head, len, file_bytes, &file, NULL);
    enum status lenient = safetensors_parse_import(head, len, file_bytes, &import, NULL);

    must(lenient == STATUS_OK || st != STATUS_OK);
    must(!import || safetensors_unknown(import) > 0 || st == STATUS_OK);
    if (import) {
        covers(import, file_bytes);
        again = build_again(import, file_bytes - safetensors_data_at(import));
        is_equal(import, again);
        offsets_are_equal(import, again);
        safetensors_destroy(again);
    }
    safetensors_destroy(file);
    safetensors_destroy(import);
    return st == STATUS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t document[PREFIX + DOCUMENT_MAX];
    size_t len = sizeof(good) - 1;

    if (size == 0)
        return 0;
    if (data[0] == 0) { /* a whole file */
        feed(data + 1, size - 1, size - 1);
        return 0;
    }
    memcpy(document + PREFIX, good, len);
    mutate_apply(data + 1, size - 1, document + PREFIX, &len, DOCUMENT_MAX);
    for (int i = 0; i < PREFIX; i++)
        document[i] = (uint8_t)((uint64_t)len >> (8 * i));
    bool taken = feed(document, PREFIX + len, PREFIX + len + GOOD_DATA);
    must(taken || size > 1); /* unchanged it is good */
    return 0;
}
