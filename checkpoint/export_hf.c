/* export_hf.c - whole tensors in files that Hugging Face's tools open. See export_hf.h. */
#include "checkpoint/export_hf.h"
#include "base/file.h"
#include "checkpoint/json_text.h"
#include "checkpoint/reader_stream.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/staging.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INDEX_NAME "model.safetensors.index.json"
#define NAME_MAX_  64

struct item { /* one tensor, under its name in the export */
    const char *name;
    size_t len, tensor;
    uint64_t bytes;
    uint32_t file;
};
struct export
{
    struct reader *reader;
    const struct export_hf_options *options;
    struct staging *staging;
    struct item *items;
    size_t count;
    uint32_t files;
    uint64_t bytes;
    /* the file that is being written */
    int fd;
    uint64_t data_at;
    const struct safetensors_entry *entries; /* in its order, as the stream's pieces */
};

static int order_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    return text_order(x->name, x->len, y->name, y->len);
}

/* The name without the prefix; NULL: it has another. */
static const char *strip(const struct export *export, const char *name)
{
    const char *prefix = export->options && export->options->prefix ? export->options->prefix : "";
    size_t len = strlen(prefix);

    return strncmp(name, prefix, len) == 0 && name[len] ? name + len : NULL;
}

static uint64_t shard_max(const struct export *export)
{
    return export->options && export->options->max_shard_bytes ? export->options->max_shard_bytes
                                                               : EXPORT_HF_SHARD_BYTES;
}

static enum status choose(struct export *export, struct error *err)
{
    const struct layout_table *table = reader_layout(export->reader);
    uint64_t in_file = 0;

    export->items = mem_array(layout_table_count(table) + 1, sizeof(*export->items));
    for (size_t i = 0; i < layout_table_count(table); i++) {
        const struct layout_tensor *tensor = layout_table_at(table, i);
        const char *name = strip(export, tensor->name);
        if (name)
            export->items[export->count++] = (struct item){.name = name,
                                                           .len = strlen(name),
                                                           .tensor = i,
                                                           .bytes = layout_tensor_bytes(tensor)};
    }
    if (!export->count)
        return error_set(err, STATUS_NOT_FOUND, "no tensor's name begins with \"%s\"",
                         export->options && export->options->prefix ? export->options->prefix : "");
    qsort(export->items, export->count, sizeof(*export->items), order_items);
    for (size_t i = 0; i < export->count; i++) {
        struct item *item = &export->items[i];
        if (in_file && item->bytes > shard_max(export) - in_file) {
            export->files++;
            in_file = 0;
        }
        item->file = export->files;
        in_file =
            in_file + item->bytes > shard_max(export) ? shard_max(export) : in_file + item->bytes;
        export->bytes += item->bytes;
    }
    export->files++;
    return STATUS_OK;
}

static void file_name(const struct export *export, uint32_t file, char out[NAME_MAX_])
{
    if (export->files == 1)
        (void)snprintf(out, NAME_MAX_, "model.safetensors");
    else
        (void)snprintf(out, NAME_MAX_, "model-%05u-of-%05u.safetensors", file + 1, export->files);
}

/* --- one file */

static enum status put(void *arg, size_t piece, uint64_t at, const void *bytes, size_t len,
                       struct error *err)
{
    struct export *export = arg;
    const struct watcher *watcher = export->options ? export->options->watcher : NULL;

    if (watcher_stopped(watcher))
        return error_set(err, STATUS_CANCELLED, "stopped");
    watcher_moved(watcher, len);
    return file_write_at(export->fd, bytes, len,
                         export->data_at + export->entries[piece].begin + at, err);
}

/* Aliases of the file's tensors: their names lead to the one that is kept. */
static size_t file_meta(const struct export *export, uint32_t file, struct safetensors_pair *meta)
{
    const struct layout_table *table = reader_layout(export->reader);
    size_t count = 0, tensor;

    meta[count++] = (struct safetensors_pair){"format", 6, "pt", 2};
    for (size_t i = 0; i < layout_table_alias_count(table); i++) {
        const char *name = strip(export, layout_table_alias_at(table, i, &tensor));
        for (size_t k = 0; name && k < export->count; k++) {
            const struct item *item = &export->items[k];
            if (item->tensor == tensor && item->file == file)
                meta[count++] =
                    (struct safetensors_pair){name, strlen(name), item->name, item->len};
        }
    }
    return count;
}

static size_t file_entries(const struct export *export, uint32_t file,
                           struct safetensors_entry *entries)
{
    const struct layout_table *table = reader_layout(export->reader);
    size_t count = 0;

    for (size_t i = 0; i < export->count; i++) {
        const struct item *item = &export->items[i];
        const struct layout_tensor *tensor = layout_table_at(table, item->tensor);
        if (item->file == file)
            entries[count++] = (struct safetensors_entry){.name = item->name,
                                                          .name_len = item->len,
                                                          .dtype = tensor->dtype,
                                                          .dims = tensor->dims,
                                                          .shape = tensor->shape};
    }
    return count;
}

static enum status file_stream(struct export *export, size_t count, struct error *err)
{
    SCOPED(mem_free) void *memory = mem_array(count + 1, sizeof(struct reader_stream_piece));
    struct reader_stream_piece *pieces = memory;
    struct item key;

    for (size_t i = 0; i < count; i++) {
        key.name = export->entries[i].name;
        key.len = export->entries[i].name_len;
        const struct item *item =
            bsearch(&key, export->items, export->count, sizeof(key), order_items);
        if (!item)
            return error_set(err, STATUS_INTERNAL, "a tensor without a source");
        pieces[i].tensor = item->tensor;
        pieces[i].box =
            reader_stream_whole(layout_table_at(reader_layout(export->reader), item->tensor));
    }
    return reader_stream(export->reader, pieces, count, 0, put, export, err);
}

static enum status file_fill(struct export *export, const struct text *head, size_t count,
                             struct error *err)
{
    uint64_t bytes = head->len + (count ? export->entries[count - 1].end : 0);
    int errnum = posix_fallocate(export->fd, 0, (off_t)bytes);

    if (errnum)
        return error_set(err, file_status(errnum), "make room: %s", strerror(errnum));
    export->data_at = head->len;
    enum status st = file_write_at(export->fd, head->data, head->len, 0, err);
    if (st == STATUS_OK)
        st = file_stream(export, count, err);
    if (st == STATUS_OK && fdatasync(export->fd) != 0)
        st = error_set(err, file_status(errno), "sync: %s", strerror(errno));
    return st;
}

static enum status file_write(struct export *export, uint32_t file, struct error *err)
{
    SCOPED(mem_free) void *entries = mem_array(export->count, sizeof(struct safetensors_entry));
    SCOPED(mem_free)
    void *meta = mem_array(layout_table_alias_count(reader_layout(export->reader)) + 1,
                           sizeof(struct safetensors_pair));
    char name[NAME_MAX_];
    struct text head;

    file_name(export, file, name);
    SCOPED_TEXT char *path = mem_printf("%s/%s", staging_path(export->staging), name);
    size_t count = file_entries(export, file, entries);
    text_init(&head, 0);
    enum status st =
        safetensors_build(entries, count, meta, file_meta(export, file, meta), &head, err);
    if (st == STATUS_OK) {
        export->entries = entries;
        export->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        st = export->fd < 0 ? error_set(err, file_status(errno), "make it: %s", strerror(errno))
                            : file_fill(export, &head, count, err);
    }
    if (st != STATUS_OK && st != STATUS_CANCELLED)
        (void)error_wrap(err, "%s", name);
    if (export->fd >= 0)
        (void)close(export->fd);
    export->fd = -1;
    text_fini(&head);
    return st;
}

/* --- the index */

static enum status write_index(const struct export *export, struct error *err)
{
    struct text json;
    char name[NAME_MAX_];

    text_init(&json, 0);
    text_addf(&json, "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {",
              (unsigned long long)export->bytes);
    for (size_t i = 0; i < export->count; i++) {
        file_name(export, export->items[i].file, name);
        text_add(&json, i ? ",\n    " : "\n    ");
        json_text_string(&json, export->items[i].name, export->items[i].len);
        text_addf(&json, ": \"%s\"", name);
    }
    text_add(&json, "\n  }\n}\n");
    enum status st = json.full
                         ? error_set(err, STATUS_EXHAUSTED, "the index is too large")
                         : staging_file(export->staging, INDEX_NAME, json.data, json.len, err);
    text_fini(&json);
    return st;
}

static enum status write_files(struct export *export, struct error *err)
{
    enum status st = STATUS_OK;

    for (uint32_t file = 0; st == STATUS_OK && file < export->files; file++)
        st = file_write(export, file, err);
    if (st == STATUS_OK && export->files > 1)
        st = write_index(export, err);
    return st == STATUS_OK ? staging_publish(export->staging, err) : st;
}

enum status export_hf_write(struct reader *reader, const char *target,
                            const struct export_hf_options *options, struct export_hf_result *out,
                            struct error *err)
{
    struct export export = {.reader = reader, .options = options, .fd = -1};
    enum status st = choose(&export, err);

    if (st == STATUS_OK)
        st = staging_create(target, &export.staging, err);
    if (st == STATUS_OK)
        st = write_files(&export, err);
    if (st == STATUS_OK && out)
        *out = (struct export_hf_result){export.bytes, export.files, (uint32_t) export.count};
    staging_destroy(export.staging);
    mem_free(export.items);
    return st;
}
