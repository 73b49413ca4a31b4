/* files_unpack.c - see files_unpack.h. */
#include "agent/files_unpack.h"
#include "agent/files.h"
#include "base/mem.h"
#include "base/text.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_MAX    200000
#define PATH_BYTES_MAX 3072
#define BLOCK_BYTES    ((size_t)128 << 10)

static enum status digest_hex(const char *path, char out[65], struct error *err)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned int len = 0;
    SCOPED(mem_free) void *block = mem_alloc(BLOCK_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return error_set(err, STATUS_UNAVAILABLE, "open %s: %s", path, strerror(errno));
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool good = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
    ssize_t n;
    while (good && (n = read(fd, block, BLOCK_BYTES)) != 0)
        good = n > 0 && EVP_DigestUpdate(ctx, block, (size_t)n);
    good = good && EVP_DigestFinal_ex(ctx, hash, &len);
    EVP_MD_CTX_free(ctx);
    (void)close(fd);
    if (!good)
        return error_set(err, STATUS_UNAVAILABLE, "digest %s", path);
    text_to_hex(hash, 32, out);
    return STATUS_OK;
}

/* Relative, without "..": what may become a path below the new directory. */
static bool path_is_inside(const char *path)
{
    if (!path || !*path || *path == '/' || strlen(path) > PATH_BYTES_MAX)
        return false;
    for (const char *at = path; at; at = strchr(at, '/'), at = at ? at + 1 : NULL)
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
            return false;
    return true;
}

/* A symbolic link may point at names below the directory it is in, and no higher: then no chain of
 * links can leave the tree. */
static enum status check_entry(struct archive_entry *entry, struct error *err)
{
    const char *path = archive_entry_pathname(entry);
    const char *hard = archive_entry_hardlink(entry), *soft = archive_entry_symlink(entry);
    if (!path_is_inside(path))
        return error_set(err, STATUS_INVALID, "the packed code has the path '%.80s'",
                         path ? path : "");
    if (hard && !path_is_inside(hard))
        return error_set(err, STATUS_INVALID, "'%.80s' is a link out of the code", path);
    if (hard)
        return STATUS_OK;
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
    case AE_IFDIR:
        return STATUS_OK;
    case AE_IFLNK:
        if (path_is_inside(soft))
            return STATUS_OK;
        return error_set(err, STATUS_INVALID, "'%.80s' is a link out of the code", path);
    default:
        return error_set(err, STATUS_INVALID, "'%.80s' is neither file nor directory", path);
    }
}

/* Under the new directory's name, readable for all, writable for none. */
static void place_entry(struct archive_entry *entry, const char *to)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", to, archive_entry_pathname(entry));
    archive_entry_set_pathname(entry, path);
    if (archive_entry_hardlink(entry)) {
        SCOPED_TEXT char *link = mem_printf("%s/%s", to, archive_entry_hardlink(entry));
        archive_entry_set_hardlink(entry, link);
    }
    bool run = archive_entry_filetype(entry) == AE_IFDIR || (archive_entry_perm(entry) & 0111);
    archive_entry_set_perm(entry, archive_entry_filetype(entry) == AE_IFDIR ? 0755
                                  : run                                     ? 0555
                                                                            : 0444);
}

static enum status copy_data(struct archive *in, struct archive *disk, uint64_t *bytes,
                             size_t bytes_max, struct error *err)
{
    const void *block;
    size_t len;
    la_int64_t offset;
    int rc;
    while ((rc = archive_read_data_block(in, &block, &len, &offset)) == ARCHIVE_OK) {
        *bytes += len;
        if (*bytes > bytes_max)
            return error_set(err, STATUS_EXHAUSTED, "the unpacked code is larger than %zu MiB",
                             bytes_max >> 20);
        if (archive_write_data_block(disk, block, len, offset) < ARCHIVE_OK)
            return error_set(err, STATUS_UNAVAILABLE, "write code: %s", archive_error_string(disk));
    }
    if (rc != ARCHIVE_EOF)
        return error_set(err, STATUS_DATA_LOSS, "read packed code: %s", archive_error_string(in));
    return STATUS_OK;
}

static enum status unpack_entries(struct archive *in, struct archive *disk, const char *to,
                                  size_t bytes_max, uint64_t *bytes, struct error *err)
{
    struct archive_entry *entry;
    int rc;
    for (size_t count = 0; (rc = archive_read_next_header(in, &entry)) != ARCHIVE_EOF; count++) {
        if (rc < ARCHIVE_WARN)
            return error_set(err, STATUS_DATA_LOSS, "read packed code: %s",
                             archive_error_string(in));
        if (count >= ENTRIES_MAX)
            return error_set(err, STATUS_EXHAUSTED, "the code has over %d files", ENTRIES_MAX);
        enum status st = check_entry(entry, err);
        if (st != STATUS_OK)
            return st;
        place_entry(entry, to);
        if (archive_write_header(disk, entry) < ARCHIVE_WARN)
            return error_set(err, STATUS_UNAVAILABLE, "write code: %s", archive_error_string(disk));
        st = copy_data(in, disk, bytes, bytes_max, err);
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}

static enum status unpack_open(const char *archive, const char *to, size_t bytes_max,
                               uint64_t *bytes, struct error *err)
{
    struct archive *in = archive_read_new(), *disk = archive_write_disk_new();
    enum status st = STATUS_OK;
    (void)archive_read_support_format_tar(in);
    (void)archive_read_support_filter_gzip(in);
    (void)archive_read_support_filter_zstd(in);
    (void)archive_write_disk_set_options(
        disk, ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_SECURE_SYMLINKS |
                  ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_UNLINK);
    if (archive_read_open_filename(in, archive, BLOCK_BYTES) != ARCHIVE_OK)
        st = error_set(err, STATUS_DATA_LOSS, "open packed code: %s", archive_error_string(in));
    if (st == STATUS_OK)
        st = unpack_entries(in, disk, to, bytes_max, bytes, err);
    if (archive_write_close(disk) != ARCHIVE_OK && st == STATUS_OK)
        st = error_set(err, STATUS_UNAVAILABLE, "write code: %s", archive_error_string(disk));
    (void)archive_write_free(disk);
    (void)archive_read_free(in);
    return st;
}

enum status files_unpack(const char *archive, const char *hex, const char *to, size_t bytes_max,
                         uint64_t *bytes, struct error *err)
{
    char got[65];
    enum status st = digest_hex(archive, got, err);
    if (st != STATUS_OK)
        return st;
    if (strcmp(got, hex) != 0)
        return error_set(err, STATUS_DATA_LOSS, "code %.12s arrived damaged", hex);
    if (mkdir(to, 0755) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "make %s: %s", to, strerror(errno));
    (void)chmod(to, 0755);
    *bytes = 0;
    st = unpack_open(archive, to, bytes_max, bytes, err);
    if (st != STATUS_OK) {
        struct files_batch *batch = files_batch_create();
        struct error ignored = {STATUS_OK, ""};
        (void)files_step_add(batch, FILES_REMOVE, to);
        if (files_disk_run(batch, &ignored) != STATUS_OK)
            st = error_wrap(err, "and left a part behind");
        files_batch_destroy(batch);
    }
    return st;
}
