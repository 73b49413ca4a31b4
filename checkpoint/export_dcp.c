/* export_dcp.c - see export_dcp.h. */
#include "checkpoint/export_dcp.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "base/text.h"
#include "checkpoint/digest.h"
#include "checkpoint/staging.h"
#include "checkpoint/vault_tree.h"

#define COPY_BYTES ((size_t)4 << 20)

struct copy {
    int dir; /* of the checkpoint */
    const char *staging;
    const struct watcher *watcher;
    void *buffer;
    struct export_dcp_result result;
};

static enum status write_all(int fd, const char *bytes, size_t len, const char *name,
                             struct error *err)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(err, file_status(errno), "write %s: %s", name, strerror(errno));
        bytes += n;
        len -= (size_t)n;
    }
    return STATUS_OK;
}

/* From one to the other; *crc and *xxh3 are of what went by. */
static enum status pump(const struct copy *copy, int from, int to, const struct manifest_file *want,
                        uint32_t *crc, XXH3_state_t *xxh3, struct error *err)
{
    uint64_t at = 0;

    for (;;) {
        ssize_t got = read(from, copy->buffer, COPY_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, STATUS_DATA_LOSS, "read %s: %s", want->path, strerror(errno));
        at += (uint64_t)got;
        if (at > want->bytes || (got == 0 && at < want->bytes))
            return error_set(err, STATUS_DATA_LOSS, "%s is %s than it was", want->path,
                             at > want->bytes ? "longer" : "shorter");
        if (got == 0)
            return STATUS_OK;
        if (watcher_stopped(copy->watcher))
            return error_set(err, STATUS_CANCELLED, "stopped");
        *crc = digest_crc32c(*crc, copy->buffer, (size_t)got);
        (void)XXH3_128bits_update(xxh3, copy->buffer, (size_t)got);
        enum status st = write_all(to, copy->buffer, (size_t)got, want->path, err);
        if (st != STATUS_OK)
            return st;
        watcher_moved(copy->watcher, (uint64_t)got);
    }
}

static enum status copy_checked(const struct copy *copy, int from, int to,
                                const struct manifest_file *want, struct error *err)
{
    XXH3_state_t *xxh3 = XXH3_createState();
    XXH128_canonical_t canonical;
    char hex[33];
    uint32_t crc = 0;
    enum status st;

    if (!xxh3)
        return error_set(err, STATUS_EXHAUSTED, "no memory for a digest");
    (void)XXH3_128bits_reset(xxh3);
    st = pump(copy, from, to, want, &crc, xxh3, err);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(xxh3));
    (void)XXH3_freeState(xxh3);
    text_to_hex(canonical.digest, sizeof canonical.digest, hex);
    if (st == STATUS_OK && (crc != want->crc32c || strcmp(hex, want->xxh3) != 0))
        st = error_set(err, STATUS_DATA_LOSS, "%s does not match its digest", want->path);
    if (st == STATUS_OK && fdatasync(to) != 0)
        st = error_set(err, file_status(errno), "sync %s: %s", want->path, strerror(errno));
    return st;
}

static enum status copy_file(struct copy *copy, const struct manifest_file *want, const char *name,
                             struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", copy->staging, name);
    SCOPED_FD int from = -1;
    SCOPED_FD int to = -1;
    enum status st = vault_tree_file(copy->dir, want->path, &from, err);

    if (st == STATUS_NOT_FOUND)
        return error_set(err, STATUS_DATA_LOSS, "%s is missing", want->path);
    if (st != STATUS_OK)
        return st;
    to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); /* as the umask says */
    if (to < 0)
        return error_set(err, file_status(errno), "make %s: %s", path, strerror(errno));
    st = copy_checked(copy, from, to, want, err);
    if (st == STATUS_OK) {
        copy->result.files++;
        copy->result.bytes += want->bytes;
    }
    return st;
}

static bool is_shard(const char *name)
{
    size_t len = strlen(name);

    return strncmp(name, "shard-", 6) == 0 && !strchr(name, '/') && len > 12 &&
           strcmp(name + len - 12, ".safetensors") == 0;
}

static enum status copy_all(struct copy *copy, const struct reader *reader, struct error *err)
{
    uint32_t world = layout_table_world(reader_layout(reader));
    enum status st = STATUS_OK;

    for (uint32_t rank = 0; rank < world && st == STATUS_OK; rank++) {
        const struct manifest_part *part = manifest_part_of(reader_manifest(reader), rank);
        if (!part)
            return error_set(err, STATUS_DATA_LOSS, "the manifest has no part of rank %u", rank);
        for (size_t i = 0; i < part->files_count && st == STATUS_OK; i++) {
            const char *slash = strchr(part->files[i].path, '/');
            if (slash && is_shard(slash + 1))
                st = copy_file(copy, &part->files[i], slash + 1, err);
        }
    }
    return st;
}

enum status export_dcp_write(const char *dir, const char *path, const struct reader *reader,
                             const char *target, const struct watcher *watcher,
                             struct export_dcp_result *out, struct error *err)
{
    SCOPED(staging_destroy) struct staging *staging = NULL;
    SCOPED(mem_free) void *buffer = mem_array(COPY_BYTES, 1);
    SCOPED_FD int from = -1;
    struct copy copy = {.watcher = watcher, .buffer = buffer};
    enum status st = vault_tree_open(dir, path, false, &from, err);

    if (st == STATUS_OK)
        st = staging_create(target, &staging, err);
    if (st != STATUS_OK)
        return st;
    copy.dir = from;
    copy.staging = staging_path(staging);
    st = copy_all(&copy, reader, err);
    if (st == STATUS_OK)
        st = staging_publish(staging, err);
    if (st == STATUS_OK && out)
        *out = copy.result;
    return st;
}
