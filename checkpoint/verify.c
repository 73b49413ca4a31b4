/* verify.c - see verify.h. */
#include "checkpoint/verify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/text.h"
#include "checkpoint/digest.h"
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"
#include "checkpoint/seal_check.h"
#include "checkpoint/shard_image.h"
#include "checkpoint/shard_read.h"
#include "checkpoint/slot.h"
#include "checkpoint/vault_tree.h"

#define TELL_MS 100

struct run {
    int dir;
    const struct watcher *watcher;
    struct verify_report *report;
    struct manifest *manifest;
    struct layout_table *layout; /* NULL: plain, or damaged */
    struct io_pool *pool;
    atomic_uint_least64_t done; /* bytes read so far; threads of the pool add to it */
};

void verify_report_destroy(struct verify_report *report)
{
    if (!report)
        return;
    for (size_t i = 0; i < report->found_count; i++) {
        mem_free(report->found[i].file);
        mem_free(report->found[i].text);
    }
    mem_free(report);
}

static void found(struct run *run, const char *file, const char *text)
{
    struct verify_report *report = run->report;

    if (report->found_count == VERIFY_FOUND_MAX)
        return;
    report->found[report->found_count].file = mem_strdup(file);
    report->found[report->found_count++].text = mem_strdup(text);
}

static void counted(struct run *run, const struct manifest_file *file)
{
    run->report->files++;
    run->report->bytes += file->bytes;
}

/* --- files as they are */

/* "": it is right. Else what is wrong. */
static enum status check_file(struct run *run, const struct manifest_file *want, struct error *why)
{
    const struct digest_options options = {.stop = run->watcher ? run->watcher->stop : NULL,
                                           .done = &run->done};
    SCOPED_FD int fd = -1;
    struct digest_file is;
    struct stat st;
    enum status status = vault_tree_file(run->dir, want->path, &fd, why);

    if (status == STATUS_NOT_FOUND)
        return error_set(why, STATUS_DATA_LOSS, "is missing");
    if (status != STATUS_OK)
        return status;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return error_set(why, STATUS_DATA_LOSS, "is no file");
    if ((uint64_t)st.st_size != want->bytes)
        return error_set(why, STATUS_DATA_LOSS, "has %" PRId64 " bytes, not %" PRIu64,
                         (int64_t)st.st_size, want->bytes);
    status = digest_fd_with(fd, want->path, &options, &is, why);
    if (status == STATUS_OK && (is.crc32c != want->crc32c || strcmp(is.xxh3, want->xxh3) != 0))
        status = error_set(why, STATUS_DATA_LOSS, "does not match its digest");
    return status;
}

struct files { /* that are checked whole, many at once */
    struct run *run;
    const struct manifest_file **list;
    struct error *why;
    enum status *status;
};

static enum status check_item(void *arg, size_t item, void *buffer, struct error *err)
{
    struct files *files = arg;

    (void)buffer;
    files->status[item] = check_file(files->run, files->list[item], &files->why[item]);
    return files->status[item] == STATUS_CANCELLED
               ? error_set(err, STATUS_CANCELLED, "%s was not read to its end",
                           files->list[item]->path)
               : STATUS_OK;
}

static enum status check_whole(struct run *run, const struct manifest_file **list, size_t count,
                               struct error *err)
{
    SCOPED(mem_free) void *why = mem_array(count + 1, sizeof(struct error));
    SCOPED(mem_free) void *status = mem_array(count + 1, sizeof(enum status));
    struct files files = {run, list, why, status};
    enum status st = io_pool_run(run->pool, count, check_item, &files, err);

    for (size_t i = 0; i < count && st == STATUS_OK; i++) {
        if (files.status[i] != STATUS_OK)
            found(run, list[i]->path, files.why[i].text);
        counted(run, list[i]);
    }
    return st;
}

/* --- shards, by their blocks */

/* Which file of the part's block table; -1: none. */
static int64_t shard_index(const struct manifest_part *part, const char *path)
{
    const char *slash = strchr(path, '/');
    unsigned rank, file, files;
    char again[SHARD_IMAGE_NAME_MAX];

    if (!slash || sscanf(slash + 1, "shard-%u-model-%u-of-%u.", &rank, &file, &files) != 3)
        return -1;
    shard_image_file_name(rank - 1, file - 1, files, again);
    return rank == part->rank + 1 && file > 0 && strcmp(again, slash + 1) == 0 ? (int64_t)file - 1
                                                                               : -1;
}

static enum status check_shard(struct run *run, const struct manifest_file *want,
                               const struct block_file *blocks, struct error *err)
{
    struct shard_read_whole whole = {.crc32c = want->crc32c, .done = &run->done};
    struct io_patience patience = {0};
    struct shard_read read;
    struct error why = {0};
    enum status st;

    memcpy(whole.xxh3, want->xxh3, sizeof whole.xxh3);
    shard_read_init(&read);
    st = shard_read_open(run->dir, want->path, blocks, &patience, &read, &why);
    if (st == STATUS_OK)
        st = shard_read_verify(run->pool, &read, &whole, run->watcher ? run->watcher->stop : NULL,
                               &why);
    shard_read_close(&read);
    if (st == STATUS_CANCELLED)
        return error_set(err, st, "%s", why.text);
    if (st != STATUS_OK)
        found(run, want->path, why.text);
    counted(run, want);
    return STATUS_OK;
}

static const struct manifest_file *file_of(const struct manifest_part *part, const char *name)
{
    for (size_t i = 0; i < part->files_count; i++) {
        const char *slash = strchr(part->files[i].path, '/');
        if (slash && strcmp(slash + 1, name) == 0)
            return &part->files[i];
    }
    return NULL;
}

static enum status read_blocks(struct run *run, const struct manifest_part *part,
                               struct block_table **out, struct error *why)
{
    const struct manifest_file *file = file_of(part, SLOT_BLOCKS_NAME);
    struct text bytes;
    enum status st;

    if (!file)
        return error_set(why, STATUS_DATA_LOSS, "has no " SLOT_BLOCKS_NAME);
    text_init(&bytes, BLOCK_TABLE_BYTES_MAX);
    st = vault_tree_read(run->dir, file->path, &bytes, why);
    if (st == STATUS_OK)
        st = block_table_parse(text_get(&bytes), bytes.len, out, why);
    text_fini(&bytes);
    return st;
}

static void check_headers(struct run *run, const struct manifest_part *part, const char *name)
{
    SCOPED(mem_free) void *memory = mem_array(part->files_count + 1, sizeof(char *));
    const char **names = memory;
    SCOPED_FD int dir = openat(run->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct error why = {0};

    for (size_t i = 0; i < part->files_count; i++) {
        const char *slash = strchr(part->files[i].path, '/');
        names[i] = slash ? slash + 1 : part->files[i].path;
    }
    if (dir < 0)
        found(run, name, "is missing");
    else if (part->rank >= layout_table_world(run->layout))
        found(run, name, "is of a rank that the layout does not have");
    else if (seal_check_part(dir, names, part->files_count, run->layout, part->rank, &why) !=
             STATUS_OK)
        found(run, name, why.text);
}

static enum status check_part(struct run *run, const struct manifest_part *part, struct error *err)
{
    SCOPED_TEXT char *name = mem_printf("%s-%" PRIu32, part->role, part->rank);
    SCOPED(block_table_destroy) struct block_table *blocks = NULL;
    SCOPED(mem_free) void *memory = mem_array(part->files_count + 1, sizeof(void *));
    const struct manifest_file **whole = memory;
    size_t count = 0;
    struct error why = {0};
    enum status st = STATUS_OK;

    run->report->parts++;
    if (run->layout)
        check_headers(run, part, name);
    if (run->layout && read_blocks(run, part, &blocks, &why) != STATUS_OK)
        found(run, name, why.text);
    for (size_t i = 0; i < part->files_count && st == STATUS_OK; i++) {
        const struct manifest_file *file = &part->files[i];
        int64_t index = shard_index(part, file->path);
        if (blocks && index >= 0 && index < blocks->files_count &&
            blocks->files[index].bytes == file->bytes)
            st = check_shard(run, file, &blocks->files[index], err);
        else
            whole[count++] = file;
    }
    return st == STATUS_OK ? check_whole(run, whole, count, err) : st;
}

/* --- the whole */

/* Without it a sharded checkpoint is checked as a plain one is. */
static void read_layout(struct run *run)
{
    const struct manifest *manifest = run->manifest;
    const struct manifest_file *file = manifest_find(manifest, manifest->layout);
    struct error why = {0};
    struct text json;
    enum status st;

    text_init(&json, LAYOUT_BYTES_MAX);
    st = vault_tree_read(run->dir, manifest->layout, &json, &why);
    if (st == STATUS_OK)
        st = layout_table_parse(text_get(&json), json.len, &run->layout, &why);
    text_fini(&json);
    if (st == STATUS_OK)
        st = layout_table_check_storage(run->layout, &why);
    if (st == STATUS_OK && (!file || strcmp(file->xxh3, manifest->layout_digest) != 0))
        st = error_set(&why, STATUS_DATA_LOSS, "is not the layout that the parts were made by");
    if (st == STATUS_OK)
        return;
    found(run, manifest->layout, why.text);
    layout_table_destroy(run->layout);
    run->layout = NULL;
}

static enum status read_manifest(struct run *run, const char *want, struct error *err)
{
    struct error why = {0};
    struct text bytes;
    char digest[65];
    enum status st;

    text_init(&bytes, MANIFEST_BYTES_MAX);
    st = vault_tree_read(run->dir, MANIFEST_NAME, &bytes, err);
    if (st != STATUS_OK) {
        text_fini(&bytes);
        return st;
    }
    digest_sha256(text_get(&bytes), bytes.len, digest);
    if (want && strcmp(digest, want) != 0)
        found(run, MANIFEST_NAME, "is not the one that was committed");
    if (manifest_parse(text_get(&bytes), bytes.len, &run->manifest, &why) != STATUS_OK)
        found(run, MANIFEST_NAME, why.text);
    text_fini(&bytes);
    return STATUS_OK;
}

static enum status run_all(struct run *run, const char *digest, struct error *err)
{
    enum status st = read_manifest(run, digest, err);

    if (st != STATUS_OK || !run->manifest)
        return st;
    run->report->sharded = run->manifest->sharded;
    if (run->manifest->sharded)
        read_layout(run);
    st = io_pool_create(NULL, &run->pool, err);
    for (size_t i = 0; i < run->manifest->parts_count && st == STATUS_OK; i++)
        st = check_part(run, &run->manifest->parts[i], err);
    return st;
}

/* --- with somebody who looks on */

struct work {
    struct run *run;
    const char *digest;
    struct error *err;
    enum status st;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over;
};

static void *work_run(void *arg)
{
    struct work *work = arg;
    enum status st = run_all(work->run, work->digest, work->err);

    (void)pthread_mutex_lock(&work->lock);
    work->st = st;
    work->over = true;
    (void)pthread_cond_signal(&work->changed);
    (void)pthread_mutex_unlock(&work->lock);
    return NULL;
}

static void tell(const struct run *run, uint64_t *told)
{
    uint64_t done = atomic_load(&run->done);

    if (done > *told)
        watcher_moved(run->watcher, done - *told);
    *told = done;
}

static bool is_over(struct work *work)
{
    struct timespec until;
    bool over;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TELL_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    (void)pthread_mutex_lock(&work->lock);
    if (!work->over)
        (void)pthread_cond_clockwait(&work->changed, &work->lock, CLOCK_MONOTONIC, &until);
    over = work->over;
    (void)pthread_mutex_unlock(&work->lock);
    return over;
}

/* The work has a thread of its own, for watchers are called from ours. Without one it is told at
 * the end what was done. */
static enum status run_watched(struct run *run, const char *digest, struct error *err)
{
    struct work work = {.run = run,
                        .digest = digest,
                        .err = err,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .changed = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    uint64_t told = 0;

    if (!run->watcher || pthread_create(&thread, NULL, work_run, &work) != 0)
        (void)work_run(&work);
    else {
        while (!is_over(&work))
            tell(run, &told);
        (void)pthread_join(thread, NULL);
    }
    tell(run, &told);
    return work.st;
}

enum status verify_run(const char *vault, const char *path, const char *digest,
                       const struct watcher *watcher, struct verify_report **out, struct error *err)
{
    SCOPED(verify_report_destroy) struct verify_report *report = NEW(struct verify_report);
    SCOPED_FD int dir = -1;
    enum status st = vault_tree_open(vault, path, false, &dir, err);
    struct run run = {.dir = dir, .watcher = watcher, .report = report};

    if (st == STATUS_OK)
        st = run_watched(&run, digest, err);
    io_pool_destroy(run.pool);
    layout_table_destroy(run.layout);
    manifest_destroy(run.manifest);
    if (st == STATUS_OK)
        *out = TAKE(report);
    return st;
}
