/* import_hf.c - a checkpoint of safetensors files by others. See import_hf.h. */
#include "checkpoint/import_hf.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/json_scan.h"
#include "checkpoint/layout_build.h"
#include "checkpoint/maker.h"
#include "checkpoint/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_MAX  ((size_t)256 << 20)
#define FILES_MAX  100000
#define COPY_BYTES ((size_t)8 << 20)

struct file {
    char *name;
    int fd;
    struct safetensors *head;
};
struct wanted { /* a tensor and the file that the index says */
    const char *name;
    size_t len;
    uint32_t file;
};
struct import {
    const struct import_hf_options *options;
    struct file *files;
    size_t files_count;
    struct wanted *wanted; /* by name; none: all of the only file */
    size_t wanted_count;
    struct arena *arena;
    struct layout_table *table;
    uint64_t bytes;
};

static void import_fini(struct import *import)
{
    for (size_t i = 0; i < import->files_count; i++) {
        if (import->files[i].fd >= 0)
            (void)close(import->files[i].fd);
        safetensors_destroy(import->files[i].head);
        mem_free(import->files[i].name);
    }
    mem_free(import->files);
    mem_free(import->wanted);
    arena_destroy(import->arena);
    layout_table_destroy(import->table);
}

static const struct watcher *watcher_of(const struct import *import)
{
    return import->options ? import->options->watcher : NULL;
}

/* --- the index */

/* A plain name of a safetensors file, in the same directory. */
static bool name_ok(const char *name, size_t len)
{
    static const char extension[] = ".safetensors";
    size_t tail = sizeof(extension) - 1;

    return len > tail && len < 256 && memcmp(name + len - tail, extension, tail) == 0 &&
           name[0] != '.' && !memchr(name, '/', len) && !memchr(name, '\\', len) &&
           !memchr(name, ':', len) && text_is_utf8(name, len);
}

static bool file_add(struct import *import, const char *name, size_t len, uint32_t *out)
{
    for (size_t i = import->files_count; i-- > 0;) {
        if (json_scan_is(name, len, import->files[i].name)) {
            *out = (uint32_t)i;
            return true;
        }
    }
    if (import->files_count == FILES_MAX)
        return false;
    import->files = mem_resize(import->files, import->files_count + 1, sizeof(*import->files));
    import->files[import->files_count] =
        (struct file){.name = mem_printf("%.*s", (int)len, name), .fd = -1};
    *out = (uint32_t)import->files_count++;
    return true;
}

static bool index_entry(struct import *import, struct json_scan *scan, const char *name, size_t len)
{
    const char *file;
    size_t file_len;

    if (!json_scan_string(scan, &file, &file_len))
        return false;
    if (!name_ok(file, file_len))
        return json_scan_fail(scan, "\"%.*s\" is no name of a safetensors file beside the index",
                              (int)(file_len < 100 ? file_len : 100), file);
    struct wanted wanted = {.len = len};
    char *copy = arena_alloc(import->arena, len + 1);
    memcpy(copy, name, len);
    wanted.name = copy;
    if (!file_add(import, file, file_len, &wanted.file))
        return json_scan_fail(scan, "more than %d files", FILES_MAX);
    if (!(import->wanted_count & (import->wanted_count - 1)))
        import->wanted =
            mem_resize(import->wanted, import->wanted_count ? 2 * import->wanted_count : 1,
                       sizeof(*import->wanted));
    import->wanted[import->wanted_count++] = wanted;
    return true;
}

static int order_wanted(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;

    return text_order(x->name, x->len, y->name, y->len);
}

static enum status index_parse(struct import *import, const char *json, size_t len,
                               struct error *err)
{
    struct json_scan scan;
    const char *key;
    size_t key_len;

    json_scan_init(&scan, json, len, import->arena);
    (void)json_scan_object(&scan);
    while (json_scan_key(&scan, &key, &key_len)) {
        if (!json_scan_is(key, key_len, "weight_map")) {
            (void)json_scan_skip(&scan);
            continue;
        }
        (void)json_scan_object(&scan);
        while (json_scan_key(&scan, &key, &key_len)) {
            if (!index_entry(import, &scan, key, key_len))
                break;
        }
    }
    enum status st = json_scan_end(&scan, err);
    if (st != STATUS_OK)
        return st;
    if (!import->wanted_count)
        return error_set(err, STATUS_INVALID, "the index has no weight_map");
    qsort(import->wanted, import->wanted_count, sizeof(*import->wanted), order_wanted);
    for (size_t i = 1; i < import->wanted_count; i++)
        if (!order_wanted(&import->wanted[i - 1], &import->wanted[i]))
            return error_set(err, STATUS_INVALID, "tensor \"%.100s\" is in the index twice",
                             import->wanted[i].name);
    return STATUS_OK;
}

/* --- files */

static enum status file_open(struct file *file, int dir, struct error *err)
{
    struct stat stat;

    file->fd = openat(dir, file->name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &stat) != 0)
        return error_set(err, file_status(errno), "open %s: %s", file->name, strerror(errno));
    if (!S_ISREG(stat.st_mode))
        return error_set(err, STATUS_INVALID, "%s is no file", file->name);
    enum status st = safetensors_open(file->fd, (uint64_t)stat.st_size, true, &file->head, err);
    if (st != STATUS_OK)
        (void)error_wrap(err, "%.100s", file->name);
    return st;
}

static enum status sources_open(struct import *import, int dir, struct error *err)
{
    enum status st = STATUS_OK;

    for (size_t i = 0; st == STATUS_OK && i < import->files_count; i++) {
        st = file_open(&import->files[i], dir, err);
        if (st == STATUS_OK && safetensors_unknown(import->files[i].head)) {
            SCOPED_TEXT char *text =
                mem_printf("%s: %zu fields of tensors that this program does not know",
                           import->files[i].name, safetensors_unknown(import->files[i].head));
            watcher_warn(watcher_of(import), text);
        }
    }
    return st;
}

/* A directory with an index, or with one file. */
static enum status find_in_dir(struct import *import, const char *source, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/model.safetensors.index.json", source);
    SCOPED_TEXT char *json = NULL;
    uint32_t file;
    size_t len;
    enum status st = file_read(path, INDEX_MAX, &json, &len, err);

    if (st == STATUS_NOT_FOUND) {
        (void)file_add(import, "model.safetensors", strlen("model.safetensors"), &file);
        return STATUS_OK;
    }
    if (st != STATUS_OK)
        return st;
    import->arena = arena_create(4 * len + ((size_t)16 << 20) + 32 * len);
    st = index_parse(import, json, len, err);
    if (st != STATUS_OK)
        (void)error_wrap(err, "model.safetensors.index.json");
    return st;
}

static enum status find_sources(struct import *import, const char *source, struct error *err)
{
    struct stat stat_;
    uint32_t file;

    if (stat(source, &stat_) != 0)
        return error_set(err, file_status(errno), "%s: %s", source, strerror(errno));
    if (!S_ISDIR(stat_.st_mode)) {
        (void)file_add(import, source, strlen(source), &file);
        return sources_open(import, AT_FDCWD, err);
    }
    enum status st = find_in_dir(import, source, err);
    if (st != STATUS_OK)
        return st;
    int dir = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return error_set(err, file_status(errno), "open %s: %s", source, strerror(errno));
    st = sources_open(import, dir, err);
    (void)close(dir);
    return st;
}

/* --- the table */

static enum status table_add(struct import *import, struct layout_build *build,
                             const struct safetensors_entry *entry, struct error *err)
{
    static const uint32_t ranks_at[] = {0, 1}, ranks[] = {0};
    const char *prefix = import->options && import->options->prefix ? import->options->prefix : "";
    uint64_t cuts[LAYOUT_DIMS_MAX][2] = {{0}};
    struct layout_grid grid = {.dims = entry->dims, .ranks_at = ranks_at, .ranks = ranks};
    struct layout_tensor tensor = {.dtype = entry->dtype, .dims = entry->dims};

    if (entry->dims > LAYOUT_DIMS_MAX)
        return error_set(err, STATUS_INVALID, "tensor \"%.100s\" has %u dimensions (at most %d)",
                         entry->name, entry->dims, LAYOUT_DIMS_MAX);
    for (uint32_t d = 0; d < entry->dims; d++) {
        tensor.shape[d] = cuts[d][1] = entry->shape[d];
        grid.cuts[d] = cuts[d];
        grid.counts[d] = 2;
    }
    SCOPED_TEXT char *name = mem_printf("%s%s", prefix, entry->name);
    tensor.name = name;
    tensor.name_len = strlen(name);
    enum status st = layout_build_grid(build, &grid, &tensor.layout, err);
    if (st == STATUS_OK)
        st = layout_build_tensor(build, &tensor, err);
    import->bytes += entry->end - entry->begin;
    return st;
}

static const struct wanted *want_find(const struct import *import, const char *name, size_t len)
{
    const struct wanted key = {.name = name, .len = len};

    return import->wanted_count
               ? bsearch(&key, import->wanted, import->wanted_count, sizeof(key), order_wanted)
               : NULL;
}

static enum status table_add_file(struct import *import, struct layout_build *build, uint32_t file,
                                  size_t *taken, struct error *err)
{
    const struct safetensors *head = import->files[file].head;
    enum status st = STATUS_OK;

    for (size_t i = 0; st == STATUS_OK && i < safetensors_count(head); i++) {
        const struct safetensors_entry *entry = safetensors_at(head, i);
        const struct wanted *wanted = want_find(import, entry->name, entry->name_len);
        if (import->wanted_count && (!wanted || wanted->file != file)) {
            SCOPED_TEXT char *text =
                mem_printf("%s: tensor \"%.100s\" is not in the index: left out",
                           import->files[file].name, entry->name);
            watcher_warn(watcher_of(import), text);
            continue;
        }
        ++*taken;
        st = table_add(import, build, entry, err);
    }
    return st;
}

static enum status make_table(struct import *import, struct error *err)
{
    SCOPED(layout_build_destroy) struct layout_build *build = layout_build_create(1);
    size_t taken = 0;
    enum status st = STATUS_OK;

    for (uint32_t i = 0; st == STATUS_OK && i < import->files_count; i++)
        st = table_add_file(import, build, i, &taken, err);
    if (st != STATUS_OK)
        return st;
    for (size_t i = 0; i < import->wanted_count; i++) {
        const struct wanted *wanted = &import->wanted[i];
        if (!safetensors_find(import->files[wanted->file].head, wanted->name, wanted->len))
            return error_set(err, STATUS_INVALID, "%s has no tensor \"%.100s\", the index says so",
                             import->files[wanted->file].name, wanted->name);
    }
    return layout_build_finish(build, &import->table, err);
}

/* --- bytes */

static enum status copy_range(struct import *import, struct maker *maker, size_t piece, int fd,
                              uint64_t from, uint64_t len, char *buffer, struct error *err)
{
    uint64_t at = 0;

    while (at < len) {
        size_t most = len - at < COPY_BYTES ? (size_t)(len - at) : COPY_BYTES;
        ssize_t got = pread(fd, buffer, most, (off_t)(from + at));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return error_set(err, STATUS_DATA_LOSS, "read: %s",
                             got ? strerror(errno) : "the file has become shorter");
        if (watcher_stopped(watcher_of(import)))
            return error_set(err, STATUS_CANCELLED, "stopped");
        enum status st = maker_write(maker, piece, at, buffer, (size_t)got, err);
        if (st != STATUS_OK)
            return st;
        watcher_moved(watcher_of(import), (uint64_t)got);
        at += (uint64_t)got;
    }
    return STATUS_OK;
}

static enum status copy_tensor(struct import *import, struct maker *maker, size_t piece,
                               const struct layout_tensor *tensor, char *buffer, struct error *err)
{
    size_t skip = import->options && import->options->prefix ? strlen(import->options->prefix) : 0;
    const char *name = tensor->name + skip;
    const struct wanted *wanted = want_find(import, name, tensor->name_len - skip);
    const struct file *file = &import->files[wanted ? wanted->file : 0];
    const struct safetensors_entry *entry =
        safetensors_find(file->head, name, tensor->name_len - skip);

    if (!entry)
        return error_set(err, STATUS_INTERNAL, "tensor \"%.100s\" is gone", name);
    enum status st =
        copy_range(import, maker, piece, file->fd, safetensors_data_at(file->head) + entry->begin,
                   entry->end - entry->begin, buffer, err);
    if (st != STATUS_OK && st != STATUS_CANCELLED)
        (void)error_wrap(err, "%.100s", file->name);
    return st;
}

static enum status copy_all(struct import *import, const char *target, struct error *err)
{
    const struct maker_facts facts = {.step = import->options ? import->options->step : 0};
    SCOPED(maker_destroy) struct maker *maker = NULL;
    SCOPED(mem_free) void *buffer = mem_array(COPY_BYTES, 1);
    const struct shard_image *image;
    enum status st = maker_create(target, import->table, &facts, &maker, err);

    if (st == STATUS_OK)
        st = maker_rank_begin(maker, &image, err);
    for (size_t i = 0; st == STATUS_OK && i < shard_image_count(image); i++)
        st = copy_tensor(import, maker, i,
                         layout_table_at(import->table, shard_image_at(image, i)->tensor), buffer,
                         err);
    if (st == STATUS_OK)
        st = maker_rank_end(maker, err);
    return st == STATUS_OK ? maker_seal(maker, NULL, err) : st;
}

enum status import_hf_read(const char *source, const char *target,
                           const struct import_hf_options *options, struct import_hf_result *out,
                           struct error *err)
{
    struct import import = {.options = options};
    enum status st = find_sources(&import, source, err);

    if (st == STATUS_OK)
        st = make_table(&import, err);
    if (st == STATUS_OK)
        st = copy_all(&import, target, err);
    if (st == STATUS_OK && out)
        *out = (struct import_hf_result){import.bytes, (uint32_t)import.files_count,
                                         (uint32_t)layout_table_count(import.table)};
    import_fini(&import);
    return st;
}
