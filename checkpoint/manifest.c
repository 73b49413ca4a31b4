/* manifest.c - see manifest.h. */
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <string.h>

#include "checkpoint/json_scan.h"
#include "checkpoint/vault_tree.h"

struct parse {
    struct json_scan scan;
    struct manifest *manifest;
};

static bool bad(struct parse *parse, const char *what)
{
    return json_scan_fail(&parse->scan, "%s is missing or not as it must be", what);
}

static bool read_text(struct parse *parse, const char **out)
{
    const char *text;
    size_t len;

    if (!json_scan_string(&parse->scan, &text, &len))
        return false;
    if (*out || memchr(text, 0, len))
        return bad(parse, "a text");
    char *copy = arena_alloc(parse->manifest->arena, len + 1);
    memcpy(copy, text, len);
    *out = copy;
    return true;
}

static bool read_i64(struct parse *parse, int64_t *out)
{
    uint64_t value;

    if (!json_scan_u64(&parse->scan, &value))
        return false;
    *out = (int64_t)value;
    return value <= INT64_MAX || bad(parse, "a number");
}

static bool read_u32(struct parse *parse, uint32_t *out)
{
    uint64_t value;

    if (!json_scan_u64(&parse->scan, &value))
        return false;
    *out = (uint32_t)value;
    return value <= UINT32_MAX || bad(parse, "a number");
}

static bool read_digest(struct parse *parse, char out[33])
{
    const char *text = NULL;

    if (!read_text(parse, &text) || !text)
        return false;
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
        return bad(parse, "an XXH3 digest");
    memcpy(out, text, 33);
    return true;
}

/* One bit a key: each must come, once. */
static bool seen(struct parse *parse, uint32_t *keys, uint32_t bit)
{
    if (*keys & (1U << bit))
        return json_scan_fail(&parse->scan, "a key comes twice");
    *keys |= 1U << bit;
    return true;
}

static bool key_of(struct parse *parse, const char *const *names, size_t count, uint32_t *keys,
                   size_t *which)
{
    const char *key;
    size_t len;

    if (!json_scan_key(&parse->scan, &key, &len))
        return false;
    for (*which = 0; *which < count; ++*which)
        if (json_scan_is(key, len, names[*which]))
            return seen(parse, keys, (uint32_t)*which);
    return json_scan_fail(&parse->scan, "a key that is not known");
}

static bool read_file(struct parse *parse, struct manifest_file *file)
{
    static const char *const names[] = {"path", "bytes", "crc32c", "xxh3"};
    uint32_t keys = 0;
    size_t which;
    bool good = json_scan_object(&parse->scan);

    while (good && key_of(parse, names, COUNT_OF(names), &keys, &which)) {
        int64_t bytes = 0;
        if (which == 0)
            good = read_text(parse, &file->path);
        else if (which == 1 && (good = read_i64(parse, &bytes)))
            file->bytes = (uint64_t)bytes;
        else if (which == 2)
            good = read_u32(parse, &file->crc32c);
        else if (which == 3)
            good = read_digest(parse, file->xxh3);
    }
    if (parse->scan.failed)
        return false;
    return (keys == 15 && vault_tree_path_ok(file->path)) || bad(parse, "a file");
}

static bool read_files(struct parse *parse, struct manifest_part *part)
{
    size_t cap = 0;

    if (!json_scan_array(&parse->scan))
        return false;
    while (json_scan_item(&parse->scan)) {
        if (part->files_count == cap) {
            cap = cap ? cap * 2 : 4;
            part->files = mem_resize(part->files, cap, sizeof *part->files);
        }
        struct manifest_file *file = &part->files[part->files_count++];
        *file = (struct manifest_file){0};
        if (!read_file(parse, file))
            return false;
    }
    return !parse->scan.failed;
}

static bool read_part(struct parse *parse, struct manifest_part *part)
{
    static const char *const names[] = {"role",    "rank",          "node",
                                        "samples", "layout_digest", "files"};
    const char *layout = NULL, *want = parse->manifest->layout_digest;
    uint32_t keys = 0;
    size_t which;
    bool good = json_scan_object(&parse->scan);

    while (good && key_of(parse, names, COUNT_OF(names), &keys, &which)) {
        if (which == 0)
            good = read_text(parse, &part->role);
        else if (which == 1)
            good = read_u32(parse, &part->rank);
        else if (which == 2)
            good = read_text(parse, &part->node);
        else if (which == 3)
            good = read_i64(parse, &part->samples);
        else if (which == 4)
            good = read_text(parse, &layout);
        else
            good = read_files(parse, part);
    }
    if (parse->scan.failed)
        return false;
    if ((keys | 16) != 63 || !layout != !want || (layout && strcmp(layout, want) != 0))
        return bad(parse, "a part");
    return true;
}

static bool read_parts(struct parse *parse)
{
    struct manifest *manifest = parse->manifest;
    size_t cap = 0;

    if (!json_scan_array(&parse->scan))
        return false;
    while (json_scan_item(&parse->scan)) {
        if (manifest->parts_count == cap) {
            cap = cap ? cap * 2 : 16;
            manifest->parts = mem_resize(manifest->parts, cap, sizeof *manifest->parts);
        }
        struct manifest_part *part = &manifest->parts[manifest->parts_count++];
        *part = (struct manifest_part){0};
        if (!read_part(parse, part))
            return false;
    }
    return !parse->scan.failed;
}

static bool read_format(struct parse *parse)
{
    const char *text = NULL;

    if (!read_text(parse, &text) || !text)
        return false;
    parse->manifest->sharded = strcmp(text, "rondo-checkpoint-2") == 0;
    return parse->manifest->sharded || strcmp(text, "rondo-checkpoint-1") == 0 ||
           bad(parse, "a format that this program knows");
}

/* The parts come last (as they are written), so that they can be compared with the head. */
static bool read_head(struct parse *parse, size_t which)
{
    struct manifest *manifest = parse->manifest;

    switch (which) {
    case 0:
        return read_format(parse);
    case 1:
        return read_text(parse, &manifest->layout);
    case 2:
        return read_text(parse, &manifest->layout_digest);
    case 3:
        return read_i64(parse, &manifest->id);
    case 4:
        return read_i64(parse, &manifest->job);
    case 5:
        return read_u32(parse, &manifest->attempt);
    case 6:
        return read_i64(parse, &manifest->step);
    case 7:
        return read_i64(parse, &manifest->samples);
    case 8:
        return read_i64(parse, &manifest->parent);
    case 9:
        return read_u32(parse, &manifest->world);
    case 10:
        return read_i64(parse, &manifest->created_us);
    case 11:
        return read_text(parse, &manifest->code);
    default:
        return read_parts(parse);
    }
}

static bool read_root(struct parse *parse)
{
    static const char *const names[] = {"format",     "layout", "layout_digest", "id",     "job",
                                        "attempt",    "step",   "samples",       "parent", "world",
                                        "created_us", "code",   "parts"};
    const struct manifest *manifest = parse->manifest;
    const uint32_t code = 1U << 11, plain = 0x17f9, all = 0x17ff;
    uint32_t keys = 0;
    size_t which;
    bool good = json_scan_object(&parse->scan);

    while (good && key_of(parse, names, COUNT_OF(names), &keys, &which))
        good = read_head(parse, which);
    if (parse->scan.failed)
        return false;
    if ((keys & ~code) != (manifest->sharded ? all : plain))
        return bad(parse, "a key");
    if (manifest->sharded && !manifest_find(manifest, manifest->layout))
        return bad(parse, "the file of the layout");
    return true;
}

enum status manifest_parse(const void *bytes, size_t len, struct manifest **out, struct error *err)
{
    SCOPED(manifest_destroy) struct manifest *manifest = NEW(struct manifest);
    struct parse parse = {.manifest = manifest};
    struct error why = {0};

    if (len > MANIFEST_BYTES_MAX)
        return error_set(err, STATUS_DATA_LOSS, MANIFEST_NAME ": %zu bytes are too many", len);
    manifest->arena = arena_create(32 * len + 4096); /* a text is no longer than its source */
    json_scan_init(&parse.scan, bytes, len, manifest->arena);
    (void)read_root(&parse);
    if (json_scan_end(&parse.scan, &why) != STATUS_OK)
        return error_set(err, STATUS_DATA_LOSS, MANIFEST_NAME ": %s", why.text);
    *out = TAKE(manifest);
    return STATUS_OK;
}

void manifest_destroy(struct manifest *manifest)
{
    if (!manifest)
        return;
    for (size_t i = 0; i < manifest->parts_count; i++)
        mem_free(manifest->parts[i].files);
    mem_free(manifest->parts);
    arena_destroy(manifest->arena);
    mem_free(manifest);
}

const struct manifest_file *manifest_find(const struct manifest *manifest, const char *path)
{
    for (size_t i = 0; i < manifest->parts_count; i++)
        for (size_t k = 0; k < manifest->parts[i].files_count; k++)
            if (strcmp(manifest->parts[i].files[k].path, path) == 0)
                return &manifest->parts[i].files[k];
    return NULL;
}

const struct manifest_part *manifest_part_of(const struct manifest *manifest, uint32_t rank)
{
    const char *dash;
    size_t len;

    if (!manifest->sharded)
        return NULL;
    len = strcspn(manifest->layout, "/"); /* "trainer-0/layout.json" */
    dash = memrchr(manifest->layout, '-', len);
    len = dash ? (size_t)(dash - manifest->layout) : len;
    for (size_t i = 0; i < manifest->parts_count; i++) {
        const struct manifest_part *part = &manifest->parts[i];
        if (part->rank == rank && strlen(part->role) == len &&
            memcmp(part->role, manifest->layout, len) == 0)
            return part;
    }
    return NULL;
}
