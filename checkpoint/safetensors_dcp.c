/* safetensors_dcp.c - PyTorch DCP's keys in a shard. See safetensors_dcp.h. */
#include "checkpoint/safetensors_dcp.h"
#include "checkpoint/json_scan.h"
#include "checkpoint/json_text.h"
#include <string.h>

#define SHOWN 100

struct safetensors_dcp {
    struct arena *arena;
    uint64_t **offsets; /* of each tensor of the file */
};

void safetensors_dcp_print(const struct safetensors_dcp_entry *entries, size_t count,
                           struct text *out)
{
    text_add(out, "{");
    for (size_t i = 0; i < count; i++) {
        text_add(out, i ? "," : "");
        json_text_string(out, entries[i].name, entries[i].name_len);
        text_add(out, ":{\"saved_offsets\":[");
        for (uint32_t d = 0; d < entries[i].dims; d++)
            text_addf(out, "%s%llu", d ? "," : "", (unsigned long long)entries[i].offsets[d]);
        text_add(out, "]}");
    }
    text_add(out, "}");
}

void safetensors_dcp_destroy(struct safetensors_dcp *dcp)
{
    if (!dcp)
        return;
    arena_destroy(dcp->arena);
    mem_free(dcp);
}

const uint64_t *safetensors_dcp_offsets(const struct safetensors_dcp *dcp, size_t index)
{
    return dcp->offsets[index];
}

static bool read_offsets(struct json_scan *scan, const struct safetensors_entry *entry,
                         uint64_t *offsets)
{
    uint32_t dims = 0;

    if (!json_scan_array(scan))
        return false;
    for (; json_scan_item(scan); dims++) {
        if (dims == entry->dims)
            return json_scan_fail(scan, "more offsets than the tensor has dimensions");
        if (!json_scan_u64(scan, &offsets[dims]))
            return false;
        if (offsets[dims] > UINT64_MAX - entry->shape[dims])
            return json_scan_fail(scan, "an offset past 2^64");
    }
    if (!scan->failed && dims < entry->dims)
        return json_scan_fail(scan, "fewer offsets than the tensor has dimensions");
    return !scan->failed;
}

static bool read_entry(struct safetensors_dcp *dcp, const struct safetensors *file,
                       struct json_scan *scan, const char *name, size_t len)
{
    const struct safetensors_entry *entry = safetensors_find(file, name, len);
    const char *key;
    size_t key_len;

    if (!entry)
        return json_scan_fail(scan, "\"%.*s\" is no tensor of the file",
                              (int)(len < SHOWN ? len : SHOWN), name);
    size_t index = (size_t)(entry - safetensors_at(file, 0));
    if (dcp->offsets[index])
        return json_scan_fail(scan, "\"%.*s\" is there twice", (int)(len < SHOWN ? len : SHOWN),
                              name);
    dcp->offsets[index] = arena_alloc(dcp->arena, (entry->dims + 1) * sizeof(uint64_t));
    if (!json_scan_object(scan) || !json_scan_key(scan, &key, &key_len))
        return json_scan_fail(scan, "saved_offsets are expected here");
    if (!json_scan_is(key, key_len, "saved_offsets"))
        return json_scan_fail(scan, "an unknown key beside saved_offsets");
    if (!read_offsets(scan, entry, dcp->offsets[index]))
        return false;
    if (json_scan_key(scan, &key, &key_len))
        return json_scan_fail(scan, "an unknown key beside saved_offsets");
    return !scan->failed;
}

static enum status read_all(struct safetensors_dcp *dcp, const struct safetensors *file,
                            const char *json, size_t len, struct error *err)
{
    struct json_scan scan;
    const char *name;
    size_t name_len;

    json_scan_init(&scan, json, len, dcp->arena);
    if (json_scan_object(&scan)) {
        while (json_scan_key(&scan, &name, &name_len)) {
            if (!read_entry(dcp, file, &scan, name, name_len))
                break;
        }
    }
    if (json_scan_end(&scan, err) != STATUS_OK) {
        (void)error_wrap(err, SAFETENSORS_DCP_INFO);
        return STATUS_INVALID;
    }
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_entry *entry = safetensors_at(file, i);
        if (!dcp->offsets[i])
            return error_set(err, STATUS_INVALID, SAFETENSORS_DCP_INFO " lacks tensor \"%.*s\"",
                             (int)(entry->name_len < SHOWN ? entry->name_len : SHOWN), entry->name);
    }
    return STATUS_OK;
}

enum status safetensors_dcp_read(const struct safetensors *file, struct safetensors_dcp **out,
                                 struct error *err)
{
    size_t len, dims = 0, count = safetensors_count(file);
    const char *json = safetensors_meta(file, SAFETENSORS_DCP_INFO, &len);

    if (!json)
        return error_set(err, STATUS_NOT_FOUND, "the file has no " SAFETENSORS_DCP_INFO);
    for (size_t i = 0; i < count; i++)
        dims += safetensors_at(file, i)->dims;
    SCOPED(safetensors_dcp_destroy) struct safetensors_dcp *dcp = NEW(struct safetensors_dcp);
    /* Strings with escapes are no longer than the text; blocks are 16 bytes at least. */
    dcp->arena = arena_create(16 * (dims + len) + 64 * count + ((size_t)1 << 20));
    dcp->offsets = arena_alloc(dcp->arena, (count + 1) * sizeof(*dcp->offsets));
    enum status st = read_all(dcp, file, json, len, err);
    if (st == STATUS_OK)
        *out = TAKE(dcp);
    return st;
}
