/* vault_list.c - see vault_list.h. */
#include "checkpoint/vault_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "checkpoint/digest.h"
#include "checkpoint/vault_manifest.h"
#include "checkpoint/vault_tree.h"

#define DEPTH_MAX      4 /* levels above a checkpoint */
#define ENTRIES_MAX    1000000u
#define TOMBSTONE_NAME "deleted"
#define STAGING_MARK   ".making-"

struct inode {
    dev_t device;
    ino_t number;
};
struct scan {
    const char *vault;
    struct vault_list *list;
    size_t room;
    bool sizes;
    struct inode *seen; /* files that have several names */
    size_t seen_count, seen_room;
};

static void row_free(Pb__Checkpoint *row)
{
    if (row)
        pb__checkpoint__free_unpacked(row, NULL);
}

static void entry_fini(struct vault_list_entry *entry)
{
    for (size_t i = 0; i < entry->parts_count; i++)
        mem_free(entry->parts[i].name);
    mem_free(entry->parts);
    mem_free(entry->path);
    mem_free(entry->problem);
    row_free(entry->row);
}

void vault_list_destroy(struct vault_list *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->count; i++)
        entry_fini(&list->entries[i]);
    mem_free(list->entries);
    mem_free(list);
}

/* --- one checkpoint */

static enum status read_row(int dir, const char *path, Pb__Checkpoint **out, struct error *err)
{
    struct text bytes;
    char digest[65];
    uint64_t sum = 0;
    enum status st;

    text_init(&bytes, VAULT_MANIFEST_MAX);
    st = vault_tree_read(dir, VAULT_MANIFEST_NAME, &bytes, err);
    if (st == STATUS_OK) {
        digest_sha256(text_get(&bytes), bytes.len, digest);
        st = vault_manifest_parse(text_get(&bytes), bytes.len, out, err);
    }
    text_fini(&bytes);
    if (st != STATUS_OK)
        return st;
    for (size_t i = 0; i < (*out)->n_parts; i++)
        for (size_t k = 0; k < (*out)->parts[i]->n_files; k++)
            sum += (*out)->parts[i]->files[k]->bytes;
    (*out)->has_state = (*out)->has_bytes = (*out)->has_parts_expected = true;
    (*out)->state = PB__CHECKPOINT__STATE__SEALED;
    (*out)->bytes = sum;
    (*out)->parts_expected = (uint32_t)(*out)->n_parts;
    (*out)->path = mem_strdup(path);
    (*out)->manifest_digest = mem_strdup(digest);
    return STATUS_OK;
}

enum status vault_list_one(const char *vault, const char *path, Pb__Checkpoint **out,
                           struct error *err)
{
    SCOPED_FD int dir = -1;
    enum status st = vault_tree_open(vault, path, false, &dir, err);

    return st == STATUS_OK ? read_row(dir, path, out, err) : st;
}

/* --- sizes */

/* Was the file not counted before? */
static bool first_time(struct scan *scan, const struct stat *st)
{
    for (size_t i = 0; i < scan->seen_count; i++)
        if (scan->seen[i].device == st->st_dev && scan->seen[i].number == st->st_ino)
            return false;
    if (scan->seen_count == scan->seen_room) {
        scan->seen_room = scan->seen_room ? 2 * scan->seen_room : 64;
        scan->seen = mem_resize(scan->seen, scan->seen_room, sizeof *scan->seen);
    }
    scan->seen[scan->seen_count++] = (struct inode){st->st_dev, st->st_ino};
    return true;
}

static struct vault_list_part *part_of(struct vault_list_entry *entry, const char *path)
{
    const char *slash = strchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;

    for (size_t i = 0; i < entry->parts_count; i++)
        if (strlen(entry->parts[i].name) == len && memcmp(entry->parts[i].name, path, len) == 0)
            return &entry->parts[i];
    entry->parts = mem_resize(entry->parts, entry->parts_count + 1, sizeof *entry->parts);
    struct vault_list_part *part = &entry->parts[entry->parts_count++];
    *part = (struct vault_list_part){.name = mem_printf("%.*s", (int)len, path)};
    return part;
}

struct measure {
    struct scan *scan;
    struct vault_list_entry *entry;
};

static enum status measure_file(void *arg, int fd, const char *path, struct error *err)
{
    struct measure *measure = arg;
    struct vault_list_part *part = part_of(measure->entry, path);
    struct stat st;

    if (fstat(fd, &st) != 0)
        return error_set(err, vault_tree_status(errno), "stat %s: %s", path, strerror(errno));
    uint64_t disk = (uint64_t)st.st_blocks * 512;
    part->files++;
    part->bytes += (uint64_t)st.st_size;
    part->disk += disk;
    if (st.st_nlink > 1)
        part->shared += disk;
    if (st.st_nlink <= 1 || first_time(measure->scan, &st))
        measure->scan->list->disk += disk;
    return STATUS_OK;
}

static int part_order(const void *a, const void *b)
{
    const struct vault_list_part *left = a, *right = b;

    return strcmp(left->name, right->name);
}

/* --- the walk */

static bool has(int dir, const char *name)
{
    return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static enum status add(struct scan *scan, int dir, const char *path, enum vault_list_kind kind,
                       struct error *err)
{
    struct vault_list *list = scan->list;
    struct error why = {0};
    struct stat st;

    if (list->count == ENTRIES_MAX)
        return error_set(err, STATUS_EXHAUSTED, "more than %u checkpoints", ENTRIES_MAX);
    if (list->count == scan->room) {
        scan->room = scan->room ? 2 * scan->room : 64;
        list->entries = mem_resize(list->entries, scan->room, sizeof *list->entries);
    }
    struct vault_list_entry *entry = &list->entries[list->count++];
    *entry = (struct vault_list_entry){.kind = kind, .path = mem_strdup(path)};
    if (fstat(dir, &st) == 0)
        entry->modified_us = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
    if (kind == VAULT_LIST_SEALED && read_row(dir, path, &entry->row, &why) != STATUS_OK) {
        entry->kind = VAULT_LIST_BAD;
        entry->problem = mem_strdup(why.text);
    }
    struct measure measure = {scan, entry};
    enum status status = STATUS_OK;
    if (scan->sizes)
        status = vault_tree_walk(dir, false, measure_file, &measure, err);
    if (entry->parts_count)
        qsort(entry->parts, entry->parts_count, sizeof *entry->parts, part_order);
    return status;
}

static enum status look(struct scan *scan, int dir, const char *path, unsigned depth,
                        struct error *err);

static enum status look_at(struct scan *scan, int parent, const char *path, const char *name,
                           unsigned depth, struct error *err)
{
    SCOPED_FD int dir = -1;
    SCOPED_TEXT char *below = mem_printf("%s%s%s", path, *path ? "/" : "", name);

    if (!vault_tree_name_ok(name))
        return STATUS_OK;
    dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 && (errno == ENOTDIR || errno == ELOOP || errno == ENOENT))
        return STATUS_OK; /* a file, a link, or it went away */
    if (dir < 0)
        return error_set(err, vault_tree_status(errno), "open %s: %s", below, strerror(errno));
    return look(scan, dir, below, depth + 1, err);
}

/* What the directory is; false: one to look into. */
static bool kind_of(int dir, const char *path, enum vault_list_kind *out)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    if (strstr(name, STAGING_MARK)) /* also when it has its manifest: the rename alone counts */
        *out = VAULT_LIST_STAGING;
    else if (has(dir, VAULT_MANIFEST_NAME))
        *out = VAULT_LIST_SEALED;
    else if (has(dir, TOMBSTONE_NAME))
        *out = VAULT_LIST_DELETED;
    else if (strncmp(name, "step-", 5) == 0)
        *out = VAULT_LIST_UNSEALED;
    else
        return false;
    return true;
}

static enum status look(struct scan *scan, int dir, const char *path, unsigned depth,
                        struct error *err)
{
    enum vault_list_kind kind;
    const struct dirent *entry;
    enum status st = STATUS_OK;

    if (kind_of(dir, path, &kind))
        return add(scan, dir, path, kind, err);
    if (depth >= DEPTH_MAX)
        return STATUS_OK;
    SCOPED(vault_tree_names_close) DIR *names = vault_tree_names(dir);
    if (!names)
        return error_set(err, vault_tree_status(errno), "list %s: %s", *path ? path : scan->vault,
                         strerror(errno));
    while (st == STATUS_OK && (entry = readdir(names)))
        if (entry->d_name[0] != '.' && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN))
            st = look_at(scan, dir, path, entry->d_name, depth, err);
    return st;
}

static int order(const void *a, const void *b)
{
    const struct vault_list_entry *left = a, *right = b;
    int64_t jobs = (left->row ? left->row->job : 0) - (right->row ? right->row->job : 0);
    int64_t steps = (left->row ? left->row->step : 0) - (right->row ? right->row->step : 0);

    if (jobs != 0)
        return jobs < 0 ? -1 : 1;
    if (steps != 0)
        return steps < 0 ? -1 : 1;
    return strcmp(left->path, right->path);
}

enum status vault_list_read(const char *vault, bool sizes, struct vault_list **out,
                            struct error *err)
{
    SCOPED(vault_list_destroy) struct vault_list *list = NEW(struct vault_list);
    SCOPED_FD int dir = -1;
    struct scan scan = {.vault = vault, .list = list, .sizes = sizes};
    enum status st = vault_tree_open(vault, "", false, &dir, err);

    if (st == STATUS_OK)
        st = look(&scan, dir, "", 0, err);
    mem_free(scan.seen);
    if (st != STATUS_OK)
        return st;
    if (list->count)
        qsort(list->entries, list->count, sizeof *list->entries, order);
    *out = TAKE(list);
    return STATUS_OK;
}
