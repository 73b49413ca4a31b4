/* safetensors.c - reads the header of a safetensors file. See safetensors.h. */
#include "checkpoint/safetensors.h"
#include "checkpoint/json_scan.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define META_KEY   "__metadata__"
#define SHOWN      100 /* bytes of a name in an error */
#define PREFIX     8
#define FIRST_ROOM 64

struct safetensors {
    struct arena *arena;
    struct safetensors_entry *entries;
    struct safetensors_entry **by_name;
    struct safetensors_pair *meta;
    size_t count, room, meta_count, meta_room, unknown;
    uint64_t data_at;
    bool import;
};
struct parse { /* one header */
    struct safetensors *file;
    struct json_scan scan;
    bool has_meta;
    uint64_t *shape; /* scratch */
    size_t shape_room;
};

void safetensors_destroy(struct safetensors *file)
{
    if (!file)
        return;
    arena_destroy(file->arena);
    mem_free(file->entries);
    mem_free(file->by_name);
    mem_free(file->meta);
    mem_free(file);
}

static int order_names(const void *a, const void *b)
{
    const struct safetensors_entry *x = *(struct safetensors_entry *const *)a;
    const struct safetensors_entry *y = *(struct safetensors_entry *const *)b;

    return text_order(x->name, x->name_len, y->name, y->name_len);
}

static int order_offsets(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return text_order(x->name, x->name_len, y->name, y->name_len);
}

static int order_meta(const void *a, const void *b)
{
    const struct safetensors_pair *x = a, *y = b;

    return text_order(x->key, x->key_len, y->key, y->key_len);
}

static int shown(size_t len)
{
    return (int)(len < SHOWN ? len : SHOWN);
}

/* --- JSON */

/* With a NUL behind it: the input has none. */
static const char *keep(struct safetensors *file, const char *text, size_t len)
{
    char *copy = arena_alloc(file->arena, len + 1);

    memcpy(copy, text, len);
    return copy;
}

static bool parse_meta(struct parse *parse)
{
    struct safetensors *file = parse->file;
    struct json_scan *scan = &parse->scan;
    const char *key, *value;
    size_t key_len, value_len;

    if (parse->has_meta)
        return json_scan_fail(scan, META_KEY " is there twice");
    parse->has_meta = true;
    if (json_scan_null(scan))
        return true;
    if (!json_scan_object(scan))
        return false;
    while (json_scan_key(scan, &key, &key_len)) {
        if (!json_scan_string(scan, &value, &value_len))
            return false;
        if (file->meta_count == file->meta_room) {
            file->meta_room = file->meta_room ? 2 * file->meta_room : FIRST_ROOM;
            file->meta = mem_resize(file->meta, file->meta_room, sizeof(*file->meta));
        }
        file->meta[file->meta_count++] = (struct safetensors_pair){
            keep(file, key, key_len), key_len, keep(file, value, value_len), value_len};
    }
    return !scan->failed;
}

static bool parse_shape(struct parse *parse, struct safetensors_entry *entry)
{
    struct json_scan *scan = &parse->scan;
    size_t dims = 0;
    uint64_t size;

    if (!json_scan_array(scan))
        return false;
    while (json_scan_item(scan)) {
        if (!json_scan_u64(scan, &size))
            return false;
        if (dims == parse->shape_room) {
            parse->shape_room = parse->shape_room ? 2 * parse->shape_room : FIRST_ROOM;
            parse->shape = mem_resize(parse->shape, parse->shape_room, sizeof(*parse->shape));
        }
        parse->shape[dims++] = size;
    }
    if (scan->failed)
        return false;
    uint64_t *shape = arena_alloc(parse->file->arena, (dims ? dims : 1) * sizeof(*shape));
    if (dims)
        memcpy(shape, parse->shape, dims * sizeof(*shape));
    entry->shape = shape;
    entry->dims = (uint32_t)dims;
    return true;
}

static bool parse_offsets(struct json_scan *scan, struct safetensors_entry *entry)
{
    return json_scan_array(scan) && json_scan_item(scan) && json_scan_u64(scan, &entry->begin) &&
           json_scan_item(scan) && json_scan_u64(scan, &entry->end) &&
           (!json_scan_item(scan) || json_scan_fail(scan, "data_offsets has two numbers")) &&
           !scan->failed;
}

static bool parse_dtype(struct json_scan *scan, struct safetensors_entry *entry)
{
    const char *text;
    size_t len;

    if (!json_scan_string(scan, &text, &len))
        return false;
    if (!dtype_find(text, len, &entry->dtype))
        return json_scan_fail(scan, "unknown dtype \"%.*s\"", shown(len), text);
    return true;
}

enum field { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4, FIELD_ALL = 7, FIELD_NONE = 0 };

static enum field field_of(const char *key, size_t len)
{
    return json_scan_is(key, len, "dtype")          ? FIELD_DTYPE
           : json_scan_is(key, len, "shape")        ? FIELD_SHAPE
           : json_scan_is(key, len, "data_offsets") ? FIELD_OFFSETS
                                                    : FIELD_NONE;
}

static bool parse_field(struct parse *parse, enum field field, struct safetensors_entry *entry)
{
    return field == FIELD_DTYPE   ? parse_dtype(&parse->scan, entry)
           : field == FIELD_SHAPE ? parse_shape(parse, entry)
                                  : parse_offsets(&parse->scan, entry);
}

static bool parse_entry(struct parse *parse, struct safetensors_entry *entry)
{
    struct json_scan *scan = &parse->scan;
    unsigned seen = 0;
    const char *key;
    size_t len;

    if (!json_scan_object(scan))
        return false;
    while (json_scan_key(scan, &key, &len)) {
        enum field field = field_of(key, len);
        if (!field && !parse->file->import)
            return json_scan_fail(scan, "unknown field \"%.*s\"", shown(len), key);
        if (seen & field)
            return json_scan_fail(scan, "field \"%.*s\" is there twice", shown(len), key);
        seen |= field;
        parse->file->unknown += !field;
        if (field ? !parse_field(parse, field, entry) : !json_scan_skip(scan))
            return false;
    }
    if (!scan->failed && seen != FIELD_ALL)
        return json_scan_fail(scan, "tensor \"%.*s\" lacks dtype, shape or data_offsets",
                              shown(entry->name_len), entry->name);
    return !scan->failed;
}

static bool parse_tensor(struct parse *parse, const char *name, size_t len)
{
    struct safetensors *file = parse->file;
    struct safetensors_entry entry = {.name_len = len};

    if (!len)
        return json_scan_fail(&parse->scan, "a tensor without a name");
    if (memchr(name, 0, len))
        return json_scan_fail(&parse->scan, "a tensor's name holds NUL");
    entry.name = keep(file, name, len);
    if (!parse_entry(parse, &entry))
        return false;
    if (file->count == file->room) {
        file->room = file->room ? 2 * file->room : FIRST_ROOM;
        file->entries = mem_resize(file->entries, file->room, sizeof(*file->entries));
    }
    file->entries[file->count++] = entry;
    return true;
}

static enum status parse_json(struct safetensors *file, const char *json, size_t len,
                              struct error *err)
{
    struct parse parse = {.file = file};
    const char *key;
    size_t key_len;

    json_scan_init(&parse.scan, json, len, file->arena);
    if (json_scan_object(&parse.scan)) {
        while (json_scan_key(&parse.scan, &key, &key_len)) {
            if (json_scan_is(key, key_len, META_KEY) ? !parse_meta(&parse)
                                                     : !parse_tensor(&parse, key, key_len))
                break;
        }
    }
    mem_free(parse.shape);
    if (json_scan_end(&parse.scan, err) != STATUS_OK) {
        (void)error_wrap(err, "header");
        return STATUS_INVALID;
    }
    return STATUS_OK;
}

/* --- what must hold */

enum status safetensors_bytes(enum dtype dtype, const uint64_t *shape, uint32_t dims, uint64_t *out,
                              struct error *err)
{
    uint64_t elements = 1;

    for (uint32_t i = 0; i < dims; i++) {
        if (__builtin_mul_overflow(elements, shape[i], &elements))
            return error_set(err, STATUS_INVALID, "its shape has more than 2^64 elements");
    }
    if (!dtype_bytes(dtype, elements, out))
        return error_set(err, STATUS_INVALID, "%llu elements of %s are no whole number of bytes",
                         (unsigned long long)elements, dtype_name(dtype));
    return STATUS_OK;
}

static enum status check_names(struct safetensors *file, struct error *err)
{
    file->by_name = mem_array(file->count ? file->count : 1, sizeof(*file->by_name));
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->entries[i];
    qsort(file->by_name, file->count, sizeof(*file->by_name), order_names);
    for (size_t i = 1; i < file->count; i++) {
        if (!order_names(&file->by_name[i - 1], &file->by_name[i]))
            return error_set(err, STATUS_INVALID, "tensor \"%.*s\" is there twice",
                             shown(file->by_name[i]->name_len), file->by_name[i]->name);
    }
    if (file->meta_count > 1)
        qsort(file->meta, file->meta_count, sizeof(*file->meta), order_meta);
    for (size_t i = 1; i < file->meta_count; i++) {
        if (!order_meta(&file->meta[i - 1], &file->meta[i]))
            return error_set(err, STATUS_INVALID, META_KEY ": key \"%.*s\" is there twice",
                             shown(file->meta[i].key_len), file->meta[i].key);
    }
    return STATUS_OK;
}

/* Entries are in the order of their offsets. */
static enum status check_offsets(const struct safetensors *file, uint64_t file_bytes,
                                 struct error *err)
{
    uint64_t at = 0, bytes;

    for (size_t i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];
        if (safetensors_bytes(entry->dtype, entry->shape, entry->dims, &bytes, err) != STATUS_OK) {
            (void)error_wrap(err, "tensor \"%.*s\"", shown(entry->name_len), entry->name);
            return STATUS_INVALID;
        }
        if (entry->begin != at || entry->end < entry->begin)
            return error_set(err, STATUS_INVALID,
                             "tensor \"%.*s\" lies at bytes %llu to %llu, where %llu is next",
                             shown(entry->name_len), entry->name, (unsigned long long)entry->begin,
                             (unsigned long long)entry->end, (unsigned long long)at);
        if (entry->end - entry->begin != bytes)
            return error_set(
                err, STATUS_INVALID, "tensor \"%.*s\" has %llu bytes of data, its shape needs %llu",
                shown(entry->name_len), entry->name,
                (unsigned long long)(entry->end - entry->begin), (unsigned long long)bytes);
        at = entry->end;
    }
    if (at != file_bytes - file->data_at)
        return error_set(err, STATUS_INVALID, "%llu bytes of data, the header says %llu",
                         (unsigned long long)(file_bytes - file->data_at), (unsigned long long)at);
    return STATUS_OK;
}

static enum status head_bytes(const unsigned char *head, uint64_t file_bytes, uint64_t *out,
                              struct error *err)
{
    uint64_t n = 0;

    for (int i = PREFIX - 1; i >= 0; i--)
        n = n << 8 | head[i];
    if (n > SAFETENSORS_HEADER_MAX)
        return error_set(err, STATUS_INVALID, "a header of %llu bytes (at most %u)",
                         (unsigned long long)n, SAFETENSORS_HEADER_MAX);
    if (n > file_bytes - PREFIX)
        return error_set(err, STATUS_INVALID, "a header of %llu bytes in a file of %llu",
                         (unsigned long long)n, (unsigned long long)file_bytes);
    *out = n;
    return STATUS_OK;
}

static enum status parse_file(const void *head, size_t len, uint64_t file_bytes, bool import,
                              struct safetensors **out, struct error *err)
{
    SCOPED(safetensors_destroy) struct safetensors *file = NEW(struct safetensors);
    uint64_t n;

    if (file_bytes < PREFIX || len < PREFIX)
        return error_set(err, STATUS_INVALID, "%llu bytes are no safetensors file",
                         (unsigned long long)file_bytes);
    if (head_bytes(head, file_bytes, &n, err) != STATUS_OK)
        return STATUS_INVALID;
    if (n > len - PREFIX)
        return error_set(err, STATUS_INVALID, "the header is cut off");
    file->import = import;
    file->data_at = PREFIX + n;
    /* Copies of names and shapes: a dimension takes two bytes of JSON at least, and 8 here. */
    file->arena = arena_create(64 * (size_t)n + ((size_t)1 << 20));
    enum status st = parse_json(file, (const char *)head + PREFIX, (size_t)n, err);
    if (st != STATUS_OK)
        return st;
    if (file->count > 1)
        qsort(file->entries, file->count, sizeof(*file->entries), order_offsets);
    st = check_names(file, err);
    if (st == STATUS_OK)
        st = check_offsets(file, file_bytes, err);
    if (st == STATUS_OK)
        *out = TAKE(file);
    return st;
}

enum status safetensors_parse(const void *head, size_t len, uint64_t file_bytes,
                              struct safetensors **out, struct error *err)
{
    return parse_file(head, len, file_bytes, false, out, err);
}

enum status safetensors_parse_import(const void *head, size_t len, uint64_t file_bytes,
                                     struct safetensors **out, struct error *err)
{
    return parse_file(head, len, file_bytes, true, out, err);
}

/* --- from a file */

static enum status read_at(int fd, void *to, size_t len, uint64_t at, struct error *err)
{
    size_t done = 0;

    while (done < len) {
        ssize_t got = pread(fd, (char *)to + done, len - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, STATUS_UNAVAILABLE, "read the header: %s", strerror(errno));
        if (got == 0)
            return error_set(err, STATUS_INVALID, "the file ends in its header");
        done += (size_t)got;
    }
    return STATUS_OK;
}

enum status safetensors_open(int fd, uint64_t file_bytes, bool import, struct safetensors **out,
                             struct error *err)
{
    unsigned char prefix[PREFIX];
    uint64_t n;

    if (file_bytes < PREFIX)
        return error_set(err, STATUS_INVALID, "%llu bytes are no safetensors file",
                         (unsigned long long)file_bytes);
    enum status st = read_at(fd, prefix, PREFIX, 0, err);
    if (st == STATUS_OK)
        st = head_bytes(prefix, file_bytes, &n, err);
    if (st != STATUS_OK)
        return st;
    SCOPED_TEXT char *head = mem_array(PREFIX + (size_t)n, 1);
    memcpy(head, prefix, PREFIX);
    st = read_at(fd, head + PREFIX, (size_t)n, PREFIX, err);
    return st == STATUS_OK ? parse_file(head, PREFIX + (size_t)n, file_bytes, import, out, err)
                           : st;
}

/* --- questions */

size_t safetensors_count(const struct safetensors *file)
{
    return file->count;
}

const struct safetensors_entry *safetensors_at(const struct safetensors *file, size_t index)
{
    return &file->entries[index];
}

const struct safetensors_entry *safetensors_find(const struct safetensors *file, const char *name,
                                                 size_t len)
{
    size_t low = 0, high = file->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct safetensors_entry *entry = file->by_name[middle];
        int order = text_order(entry->name, entry->name_len, name, len);
        if (!order)
            return entry;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

uint64_t safetensors_data_at(const struct safetensors *file)
{
    return file->data_at;
}

size_t safetensors_meta_count(const struct safetensors *file)
{
    return file->meta_count;
}

const struct safetensors_pair *safetensors_meta_at(const struct safetensors *file, size_t index)
{
    return &file->meta[index];
}

const char *safetensors_meta(const struct safetensors *file, const char *key, size_t *len)
{
    for (size_t i = 0; i < file->meta_count; i++) {
        if (json_scan_is(file->meta[i].key, file->meta[i].key_len, key)) {
            *len = file->meta[i].value_len;
            return file->meta[i].value;
        }
    }
    return NULL;
}

size_t safetensors_unknown(const struct safetensors *file)
{
    return file->unknown;
}
