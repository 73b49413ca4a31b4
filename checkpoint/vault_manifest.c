/* vault_manifest.c - manifest.json: the exact bytes of a checkpoint's table of contents, and back.
 */
#include "checkpoint/vault_manifest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "checkpoint/digest.h"
#include "checkpoint/json_text.h"
#include "checkpoint/vault.h"
#include "checkpoint/vault_tree.h"

static void add_quoted(struct text *out, const char *value)
{
    json_text_string(out, value ? value : "", value ? strlen(value) : 0);
}

static int part_order(const void *a, const void *b)
{
    const Pb__CheckpointPart *left = *(Pb__CheckpointPart *const *)a;
    const Pb__CheckpointPart *right = *(Pb__CheckpointPart *const *)b;
    int by_role = strcmp(left->role ? left->role : "", right->role ? right->role : "");

    if (by_role != 0)
        return by_role;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

static void add_file(struct text *out, const Pb__CheckpointFile *file, bool first)
{
    text_add(out, first ? "\n      {\"path\": " : ",\n      {\"path\": ");
    add_quoted(out, file->path);
    text_addf(out, ", \"bytes\": %" PRIu64 ", \"crc32c\": %" PRIu32 ", \"xxh3\": ", file->bytes,
              file->crc32c);
    add_quoted(out, file->xxh3);
    text_add(out, "}");
}

static void add_part(struct text *out, const Pb__CheckpointPart *part, bool first)
{
    text_add(out, first ? "\n    {\"role\": " : ",\n    {\"role\": ");
    add_quoted(out, part->role);
    text_addf(out, ", \"rank\": %" PRIu32 ", \"node\": ", part->rank);
    add_quoted(out, part->node);
    text_addf(out, ", \"samples\": %" PRId64 ", ", part->samples);
    if (part->layout_digest) {
        text_add(out, "\"layout_digest\": ");
        add_quoted(out, part->layout_digest);
        text_add(out, ", ");
    }
    text_add(out, "\"files\": [");
    for (size_t i = 0; i < part->n_files; i++)
        add_file(out, part->files[i], i == 0);
    text_add(out, "]}");
}

static bool is_sharded(const Pb__Checkpoint *checkpoint)
{
    return checkpoint->format == PB__CHECKPOINT__FORMAT__SHARDED;
}

static void add_format(struct text *out, const Pb__Checkpoint *checkpoint)
{
    text_addf(out, "{\n  \"format\": \"%s\",\n",
              is_sharded(checkpoint) ? VAULT_MANIFEST_FORMAT_SHARDED : VAULT_MANIFEST_FORMAT);
    if (!is_sharded(checkpoint))
        return;
    text_add(out, "  \"layout\": ");
    add_quoted(out, checkpoint->layout);
    text_add(out, ",\n  \"layout_digest\": ");
    add_quoted(out, checkpoint->layout_digest);
    text_add(out, ",\n");
}

static void add_code(struct text *out, const char *code)
{
    if (!code || !*code)
        return;
    text_add(out, "  \"code\": ");
    add_quoted(out, code);
    text_add(out, ",\n");
}

void vault_manifest_build(const Pb__Checkpoint *checkpoint, struct text *out, char digest[65])
{
    size_t start = out->len, count = checkpoint->n_parts;
    SCOPED(mem_free) void *memory = mem_array(count ? count : 1, sizeof(Pb__CheckpointPart *));
    Pb__CheckpointPart **parts = memory;

    if (count) {
        memcpy(parts, checkpoint->parts, count * sizeof *parts);
        qsort(parts, count, sizeof *parts, part_order);
    }
    add_format(out, checkpoint);
    text_addf(out, "  \"id\": %" PRId64 ",\n  \"job\": %" PRId64 ",\n  \"attempt\": %" PRIu32 ",\n",
              checkpoint->id, checkpoint->job, checkpoint->attempt);
    text_addf(out, "  \"step\": %" PRId64 ",\n  \"samples\": %" PRId64 ",\n", checkpoint->step,
              checkpoint->samples);
    text_addf(out, "  \"parent\": %" PRId64 ",\n  \"world\": %" PRIu32 ",\n", checkpoint->parent,
              checkpoint->world);
    text_addf(out, "  \"created_us\": %" PRId64 ",\n", checkpoint->created_us);
    add_code(out, checkpoint->code);
    text_add(out, "  \"parts\": [");
    for (size_t i = 0; i < count; i++)
        add_part(out, parts[i], i == 0);
    text_add(out, "]\n}\n");
    digest_sha256(text_get(out) + start, out->len - start, digest);
}

/* --- reading */

static enum status bad(struct error *err, const char *what)
{
    return error_set(err, STATUS_DATA_LOSS, "manifest: %s is missing or not as it must be", what);
}

static void json_destroy(json_t *json)
{
    json_decref(json);
}
SCOPED_DESTRUCTOR(json_t *, json_destroy)

static void checkpoint_destroy(Pb__Checkpoint *checkpoint)
{
    if (checkpoint)
        pb__checkpoint__free_unpacked(checkpoint, NULL);
}
SCOPED_DESTRUCTOR(Pb__Checkpoint *, checkpoint_destroy)

static bool get_number(const json_t *object, const char *key, int64_t max, int64_t *out)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > max)
        return false;
    *out = json_integer_value(value);
    return true;
}

static bool get_text(const json_t *object, const char *key, char **out)
{
    const char *value = json_string_value(json_object_get(object, key));

    if (!value)
        return false;
    *out = mem_strdup(value);
    return true;
}

static enum status read_file(const json_t *json, Pb__CheckpointFile *file, struct error *err)
{
    int64_t bytes, crc;

    if (!get_text(json, "path", &file->path) || !vault_tree_path_ok(file->path))
        return bad(err, "a file's path");
    if (!get_number(json, "bytes", INT64_MAX, &bytes) ||
        !get_number(json, "crc32c", UINT32_MAX, &crc))
        return bad(err, "a file's size or CRC32C");
    if (!get_text(json, "xxh3", &file->xxh3) || strlen(file->xxh3) != 32)
        return bad(err, "a file's XXH3");
    file->has_bytes = file->has_crc32c = true;
    file->bytes = (uint64_t)bytes;
    file->crc32c = (uint32_t)crc;
    return STATUS_OK;
}

static bool is_xxh3(const char *digest)
{
    return strlen(digest) == 32 && strspn(digest, "0123456789abcdef") == 32;
}

/* Of a sharded checkpoint every part has the digest, of a plain one none. */
static enum status read_layout_digest(const json_t *json, const char *want,
                                      Pb__CheckpointPart *part, struct error *err)
{
    const char *found = json_string_value(json_object_get(json, "layout_digest"));

    if (!want)
        return json_object_get(json, "layout_digest") ? bad(err, "format") : STATUS_OK;
    if (!found || strcmp(found, want) != 0)
        return bad(err, "a part's layout_digest");
    part->layout_digest = mem_strdup(found);
    return STATUS_OK;
}

static enum status read_part(const json_t *json, const char *layout_digest,
                             Pb__CheckpointPart *part, struct error *err)
{
    const json_t *files = json_object_get(json, "files");
    size_t count = json_array_size(files);
    int64_t rank;
    enum status status = STATUS_OK;

    if (!get_text(json, "role", &part->role) || !get_text(json, "node", &part->node) ||
        !get_number(json, "rank", UINT32_MAX, &rank) ||
        !get_number(json, "samples", INT64_MAX, &part->samples) || !json_is_array(files))
        return bad(err, "a part's role, rank, node, samples or files");
    part->has_rank = part->has_samples = true;
    part->rank = (uint32_t)rank;
    part->files = mem_array(count ? count : 1, sizeof *part->files);
    status = read_layout_digest(json, layout_digest, part, err);
    while (status == STATUS_OK && part->n_files < count) {
        Pb__CheckpointFile *file = NEW(Pb__CheckpointFile);
        pb__checkpoint_file__init(file);
        part->files[part->n_files] = file;
        status = read_file(json_array_get(files, part->n_files++), file, err);
    }
    return status;
}

static enum status read_parts(const json_t *parts, Pb__Checkpoint *checkpoint, struct error *err)
{
    size_t count = json_array_size(parts);
    enum status status = STATUS_OK;

    if (!json_is_array(parts))
        return bad(err, "parts");
    checkpoint->parts = mem_array(count ? count : 1, sizeof *checkpoint->parts);
    while (status == STATUS_OK && checkpoint->n_parts < count) {
        Pb__CheckpointPart *part = NEW(Pb__CheckpointPart);
        pb__checkpoint_part__init(part);
        checkpoint->parts[checkpoint->n_parts] = part;
        status = read_part(json_array_get(parts, checkpoint->n_parts++), checkpoint->layout_digest,
                           part, err);
    }
    return status;
}

static enum status read_format(const json_t *root, Pb__Checkpoint *checkpoint, struct error *err)
{
    const char *format = json_string_value(json_object_get(root, "format"));

    checkpoint->has_format = true;
    checkpoint->format = PB__CHECKPOINT__FORMAT__PLAIN;
    if (format && strcmp(format, VAULT_MANIFEST_FORMAT) == 0)
        return json_object_get(root, "layout") ? bad(err, "format") : STATUS_OK;
    if (!format || strcmp(format, VAULT_MANIFEST_FORMAT_SHARDED) != 0)
        return bad(err, "format");
    checkpoint->format = PB__CHECKPOINT__FORMAT__SHARDED;
    if (!get_text(root, "layout", &checkpoint->layout) || !vault_tree_path_ok(checkpoint->layout))
        return bad(err, "layout");
    if (!get_text(root, "layout_digest", &checkpoint->layout_digest) ||
        !is_xxh3(checkpoint->layout_digest))
        return bad(err, "layout_digest");
    return STATUS_OK;
}

/* The layout is a file of the checkpoint: its bytes have digests like all others. */
static enum status check_layout(const Pb__Checkpoint *checkpoint, struct error *err)
{
    if (!is_sharded(checkpoint))
        return STATUS_OK;
    for (size_t i = 0; i < checkpoint->n_parts; i++)
        for (size_t k = 0; k < checkpoint->parts[i]->n_files; k++)
            if (strcmp(checkpoint->parts[i]->files[k]->path, checkpoint->layout) == 0)
                return STATUS_OK;
    return bad(err, "the file of the layout");
}

static enum status read_head(const json_t *root, Pb__Checkpoint *checkpoint, struct error *err)
{
    int64_t attempt, world;
    enum status status = read_format(root, checkpoint, err);

    if (status != STATUS_OK)
        return status;
    if (!get_number(root, "id", INT64_MAX, &checkpoint->id) ||
        !get_number(root, "job", INT64_MAX, &checkpoint->job) ||
        !get_number(root, "attempt", UINT32_MAX, &attempt) ||
        !get_number(root, "step", INT64_MAX, &checkpoint->step) ||
        !get_number(root, "samples", INT64_MAX, &checkpoint->samples) ||
        !get_number(root, "parent", INT64_MAX, &checkpoint->parent) ||
        !get_number(root, "world", UINT32_MAX, &world) ||
        !get_number(root, "created_us", INT64_MAX, &checkpoint->created_us))
        return bad(err, "a number of the checkpoint");
    if (json_object_get(root, "code") && !get_text(root, "code", &checkpoint->code))
        return bad(err, "code");
    checkpoint->attempt = (uint32_t)attempt;
    checkpoint->world = (uint32_t)world;
    checkpoint->has_id = checkpoint->has_job = checkpoint->has_attempt = true;
    checkpoint->has_step = checkpoint->has_samples = checkpoint->has_parent = true;
    checkpoint->has_world = checkpoint->has_created_us = true;
    return STATUS_OK;
}

enum status vault_manifest_parse(const void *bytes, size_t len, Pb__Checkpoint **out,
                                 struct error *err)
{
    SCOPED(json_destroy) json_t *root = NULL;
    SCOPED(checkpoint_destroy) Pb__Checkpoint *checkpoint = NEW(Pb__Checkpoint);
    json_error_t problem;
    enum status status;

    pb__checkpoint__init(checkpoint);
    if (len > VAULT_MANIFEST_MAX)
        return error_set(err, STATUS_DATA_LOSS, "manifest: %zu bytes are too many", len);
    root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &problem);
    if (!json_is_object(root))
        return error_set(err, STATUS_DATA_LOSS, "manifest: line %d: %s", problem.line,
                         root ? "no object" : problem.text);
    status = read_head(root, checkpoint, err);
    if (status == STATUS_OK)
        status = read_parts(json_object_get(root, "parts"), checkpoint, err);
    if (status == STATUS_OK)
        status = check_layout(checkpoint, err);
    if (status == STATUS_OK)
        *out = TAKE(checkpoint);
    return status;
}

enum status vault_manifest_read(int dir, const char *digest, Pb__Checkpoint **out,
                                struct error *err)
{
    struct text bytes;
    char found[65];
    enum status status;

    text_init(&bytes, VAULT_MANIFEST_MAX);
    status = vault_tree_read(dir, VAULT_MANIFEST_NAME, &bytes, err);
    if (status == STATUS_OK) {
        digest_sha256(text_get(&bytes), bytes.len, found);
        if (digest && strcmp(found, digest) != 0)
            status =
                error_set(err, STATUS_DATA_LOSS, VAULT_MANIFEST_NAME " does not match its digest");
    }
    if (status == STATUS_OK)
        status = vault_manifest_parse(text_get(&bytes), bytes.len, out, err);
    text_fini(&bytes);
    return status;
}
