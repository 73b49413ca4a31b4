/* safetensors_build.c - writes the header of a safetensors file. See safetensors.h. */
#include "checkpoint/json_scan.h"
#include "checkpoint/json_text.h"
#include "checkpoint/safetensors.h"
#include <stdlib.h>
#include <string.h>

#define SHOWN  100
#define PREFIX 8

static int order_in_file(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;

    if (x->dtype != y->dtype)
        return x->dtype > y->dtype ? -1 : 1;
    return text_order(x->name, x->name_len, y->name, y->name_len);
}

static int order_by_name(const void *a, const void *b)
{
    const struct safetensors_entry *x = *(const struct safetensors_entry *const *)a;
    const struct safetensors_entry *y = *(const struct safetensors_entry *const *)b;

    return text_order(x->name, x->name_len, y->name, y->name_len);
}

static enum status check_names(const struct safetensors_entry *entries, size_t count,
                               struct error *err)
{
    SCOPED(mem_free) void *memory = mem_array(count ? count : 1, sizeof(void *));
    const struct safetensors_entry **by_name = memory;

    for (size_t i = 0; i < count; i++) {
        const struct safetensors_entry *entry = by_name[i] = &entries[i];
        int len = (int)(entry->name_len < SHOWN ? entry->name_len : SHOWN);
        if (!entry->name_len)
            return error_set(err, STATUS_INVALID, "a tensor without a name");
        if (!text_is_utf8(entry->name, entry->name_len)) /* NUL neither */
            return error_set(err, STATUS_INVALID, "a tensor's name is not UTF-8, or holds NUL");
        if (json_scan_is(entry->name, entry->name_len, "__metadata__"))
            return error_set(err, STATUS_INVALID,
                             "no tensor can be called \"%.*s\": readers take it for something else",
                             len, entry->name);
    }
    if (count > 1)
        qsort(by_name, count, sizeof(*by_name), order_by_name);
    for (size_t i = 1; i < count; i++) {
        if (!order_by_name(&by_name[i - 1], &by_name[i]))
            return error_set(err, STATUS_INVALID, "tensor \"%.*s\" is there twice",
                             (int)(by_name[i]->name_len < SHOWN ? by_name[i]->name_len : SHOWN),
                             by_name[i]->name);
    }
    return STATUS_OK;
}

static enum status place(struct safetensors_entry *entries, size_t count, struct error *err)
{
    uint64_t at = 0, bytes;

    if (count > 1)
        qsort(entries, count, sizeof(*entries), order_in_file);
    for (size_t i = 0; i < count; i++) {
        struct safetensors_entry *entry = &entries[i];
        int len = (int)(entry->name_len < SHOWN ? entry->name_len : SHOWN);
        if (safetensors_bytes(entry->dtype, entry->shape, entry->dims, &bytes, err) != STATUS_OK) {
            (void)error_wrap(err, "tensor \"%.*s\"", len, entry->name);
            return STATUS_INVALID;
        }
        entry->begin = at;
        if (__builtin_add_overflow(at, bytes, &at))
            return error_set(err, STATUS_INVALID, "more than 2^64 bytes of tensors");
        entry->end = at;
    }
    return STATUS_OK;
}

static void put_meta(const struct safetensors_pair *meta, size_t count, struct text *out)
{
    text_add(out, "\"__metadata__\":{");
    for (size_t i = 0; i < count; i++) {
        text_add(out, i ? "," : "");
        json_text_string(out, meta[i].key, meta[i].key_len);
        text_add(out, ":");
        json_text_string(out, meta[i].value, meta[i].value_len);
    }
    text_add(out, "}");
}

static void put_entry(const struct safetensors_entry *entry, struct text *out)
{
    json_text_string(out, entry->name, entry->name_len);
    text_addf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype_name(entry->dtype));
    for (uint32_t i = 0; i < entry->dims; i++)
        text_addf(out, "%s%llu", i ? "," : "", (unsigned long long)entry->shape[i]);
    text_addf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)entry->begin,
              (unsigned long long)entry->end);
}

enum status safetensors_build(struct safetensors_entry *entries, size_t count,
                              const struct safetensors_pair *meta, size_t meta_count,
                              struct text *out, struct error *err)
{
    static const char spaces[65] =
        "                                                                ";
    size_t from = out->len;
    enum status st = check_names(entries, count, err);

    if (st == STATUS_OK)
        st = place(entries, count, err);
    if (st != STATUS_OK)
        return st;
    text_add_bytes(out, "\0\0\0\0\0\0\0\0", PREFIX);
    text_add(out, "{");
    if (meta_count)
        put_meta(meta, meta_count, out);
    for (size_t i = 0; i < count && out->len - from <= SAFETENSORS_WRITE_MAX; i++) {
        text_add(out, i || meta_count ? "," : "");
        put_entry(&entries[i], out);
    }
    text_add(out, "}");
    while ((out->len - from) % SAFETENSORS_ALIGN && !out->full) {
        size_t lack = SAFETENSORS_ALIGN - (out->len - from) % SAFETENSORS_ALIGN;
        text_add_bytes(out, spaces, lack < 64 ? lack : 64);
    }
    if (out->full || out->len - from - PREFIX > SAFETENSORS_WRITE_MAX)
        return error_set(err, STATUS_EXHAUSTED,
                         "%zu tensors need a header of more than %u bytes: split them over files",
                         count, SAFETENSORS_WRITE_MAX);
    uint64_t n = out->len - from - PREFIX;
    for (size_t i = 0; i < PREFIX; i++)
        out->data[from + i] = (char)(n >> (8 * i) & 0xFF);
    return STATUS_OK;
}
