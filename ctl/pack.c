#include "ctl/pack.h"
#include "base/file.h"
#include "base/mem.h"
#include "ctl/ignore.h"
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES_MAX = 4096, READ_BYTES = 1 << 16 };

struct packing {
    struct archive *archive;
    struct ignore *ignore;
    struct pack *pack;
    struct error *err;
};

static la_ssize_t keep_bytes(struct archive *archive, void *arg, const void *bytes, size_t len)
{
    struct pack *pack = arg;
    text_add_bytes(&pack->tar, bytes, len);
    if (!pack->tar.full)
        return (la_ssize_t)len;
    archive_set_error(archive, EFBIG, "more than %d MiB", PACK_BYTES_MAX >> 20);
    return -1;
}

static enum status too_large(struct packing *packing)
{
    return error_set(packing->err, STATUS_EXHAUSTED,
                     "packed code is at most %d MiB and %d entries: leave data out with "
                     ".rondoignore, or use code with on_nodes",
                     PACK_BYTES_MAX >> 20, PACK_ENTRIES_MAX);
}

static enum status put_header(struct packing *packing, struct archive_entry *entry)
{
    if (++packing->pack->entries > PACK_ENTRIES_MAX)
        return too_large(packing);
    archive_entry_set_mtime(entry, 0, 0);
    archive_entry_set_uid(entry, 0);
    archive_entry_set_gid(entry, 0);
    if (archive_write_header(packing->archive, entry) == ARCHIVE_OK)
        return STATUS_OK;
    if (packing->pack->tar.full)
        return too_large(packing);
    return error_set(packing->err, STATUS_INVALID, "pack %.120s: %s", archive_entry_pathname(entry),
                     archive_error_string(packing->archive));
}

static enum status put_content(struct packing *packing, int fd, const char *path, int64_t size)
{
    char buffer[READ_BYTES];
    while (size > 0) {
        ssize_t n = read(fd, buffer, size < READ_BYTES ? (size_t)size : READ_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set(packing->err, STATUS_ABORTED, "%.160s: %s", path,
                             n < 0 ? strerror(errno) : "became shorter while it was packed");
        if (archive_write_data(packing->archive, buffer, (size_t)n) != n)
            return too_large(packing);
        size -= n;
    }
    return STATUS_OK;
}

static enum status put_file(struct packing *packing, int dir, const char *name, const char *path)
{
    struct stat st;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        int code = errno;
        if (fd >= 0)
            close(fd);
        return error_set(packing->err, STATUS_INVALID, "open %.160s: %s", path,
                         fd < 0 ? strerror(code) : "is no regular file any more");
    }
    struct archive_entry *entry = archive_entry_new();
    archive_entry_copy_pathname(entry, path);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, st.st_mode & 0100 ? 0755 : 0644);
    archive_entry_set_size(entry, st.st_size);
    enum status status =
        st.st_size > PACK_BYTES_MAX ? too_large(packing) : put_header(packing, entry);
    if (status == STATUS_OK)
        status = put_content(packing, fd, path, st.st_size);
    archive_entry_free(entry);
    close(fd);
    return status;
}

bool pack_link_is_inside(const char *path, const char *target)
{
    long depth = 0;
    for (const char *c = path; *c; c++)
        depth += *c == '/';
    if (*target == '/' || !*target)
        return false;
    for (const char *part = target; *part;) {
        size_t len = strcspn(part, "/");
        if (len == 2 && memcmp(part, "..", 2) == 0)
            depth--;
        else if (len > 0 && !(len == 1 && *part == '.'))
            depth++;
        if (depth < 0)
            return false;
        part += len + (part[len] == '/');
    }
    return true;
}

static enum status put_link(struct packing *packing, int dir, const char *name, const char *path)
{
    char target[PATH_BYTES_MAX];
    ssize_t len = readlinkat(dir, name, target, sizeof target - 1);
    if (len < 0)
        return error_set(packing->err, STATUS_INVALID, "read link %.160s: %s", path,
                         strerror(errno));
    target[len] = '\0';
    if (!pack_link_is_inside(path, target))
        return error_set(packing->err, STATUS_INVALID,
                         "link %.80s points outside the code, to %.80s: copy it, or add it to "
                         ".rondoignore",
                         path, target);
    struct archive_entry *entry = archive_entry_new();
    archive_entry_copy_pathname(entry, path);
    archive_entry_set_filetype(entry, AE_IFLNK);
    archive_entry_copy_symlink(entry, target);
    archive_entry_set_perm(entry, 0777);
    enum status st = put_header(packing, entry);
    archive_entry_free(entry);
    return st;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mem_free(names[i]);
    mem_free(names);
}

/* Sorted names in the directory; takes fd. */
static enum status list_names(struct packing *packing, int fd, const char *path, char ***out,
                              size_t *count)
{
    DIR *stream = fdopendir(fd);
    char **names = NULL;
    size_t found = 0;
    if (!stream) {
        close(fd);
        return error_set(packing->err, STATUS_INVALID, "list %.160s: %s", path, strerror(errno));
    }
    for (struct dirent *item; (item = readdir(stream)) != NULL;) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        names = mem_resize(names, found + 1, sizeof(char *));
        names[found++] = mem_strdup(item->d_name);
        if (found > 4 * PACK_ENTRIES_MAX)
            break;
    }
    closedir(stream);
    if (found > 4 * PACK_ENTRIES_MAX) {
        free_names(names, found);
        return too_large(packing);
    }
    if (found > 0)
        qsort(names, found, sizeof(char *), compare_names);
    *out = names;
    *count = found;
    return STATUS_OK;
}

static enum status put_tree(struct packing *packing, int dir, const char *prefix, unsigned depth);

static enum status put_directory(struct packing *packing, int dir, const char *name,
                                 const char *path, unsigned depth)
{
    if (depth >= PACK_DEPTH_MAX)
        return error_set(packing->err, STATUS_EXHAUSTED, "%.120s is nested deeper than %d levels",
                         path, PACK_DEPTH_MAX);
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_set(packing->err, STATUS_INVALID, "open %.160s: %s", path, strerror(errno));
    struct archive_entry *entry = archive_entry_new();
    archive_entry_copy_pathname(entry, path);
    archive_entry_set_filetype(entry, AE_IFDIR);
    archive_entry_set_perm(entry, 0755);
    enum status st = put_header(packing, entry);
    archive_entry_free(entry);
    if (st == STATUS_OK)
        st = put_tree(packing, fd, path, depth + 1);
    close(fd);
    return st;
}

static enum status put_entry(struct packing *packing, int dir, const char *name, const char *path,
                             unsigned depth)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return error_set(packing->err, STATUS_INVALID, "look at %.160s: %s", path, strerror(errno));
    if (ignore_match(packing->ignore, path, S_ISDIR(st.st_mode)))
        return STATUS_OK;
    if (S_ISDIR(st.st_mode))
        return put_directory(packing, dir, name, path, depth);
    if (S_ISLNK(st.st_mode))
        return put_link(packing, dir, name, path);
    if (S_ISREG(st.st_mode))
        return put_file(packing, dir, name, path);
    return error_set(packing->err, STATUS_INVALID,
                     "%.120s is a device, pipe or socket: add it to .rondoignore", path);
}

static enum status put_tree(struct packing *packing, int dir, const char *prefix, unsigned depth)
{
    char **names = NULL;
    size_t count = 0;
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy < 0)
        return error_set(packing->err, STATUS_INVALID, "list %.160s: %s", prefix, strerror(errno));
    enum status st = list_names(packing, copy, prefix, &names, &count);
    for (size_t i = 0; i < count && st == STATUS_OK; i++) {
        SCOPED_TEXT char *path = mem_printf("%s%s%s", prefix, *prefix ? "/" : "", names[i]);
        if (strlen(path) >= PATH_BYTES_MAX)
            st = error_set(packing->err, STATUS_INVALID, "%.80s...: path too long", path);
        else
            st = put_entry(packing, dir, names[i], path, depth);
    }
    free_names(names, count);
    return st;
}

static enum status read_ignore(const char *path, struct ignore **out, struct error *err)
{
    SCOPED_TEXT char *file = mem_printf("%s/.rondoignore", path);
    SCOPED_TEXT char *text = NULL;
    size_t len;
    enum status st = file_read(file, IGNORE_BYTES_MAX, &text, &len, err);
    if (st != STATUS_OK && st != STATUS_NOT_FOUND)
        return st;
    *out = ignore_create(st == STATUS_OK ? text : NULL);
    return STATUS_OK;
}

static enum status write_archive(struct packing *packing, int dir)
{
    packing->archive = archive_write_new();
    archive_write_set_format_gnutar(packing->archive);
    archive_write_set_bytes_in_last_block(packing->archive, 1);
    enum status st = STATUS_OK;
    if (archive_write_open(packing->archive, packing->pack, NULL, keep_bytes, NULL) != ARCHIVE_OK)
        st = error_set(packing->err, STATUS_INTERNAL, "begin archive");
    if (st == STATUS_OK)
        st = put_tree(packing, dir, "", 0);
    /* Also after a failure, or the library keeps its buffers. */
    if (archive_write_close(packing->archive) != ARCHIVE_OK && st == STATUS_OK)
        st = too_large(packing);
    archive_write_free(packing->archive);
    return st;
}

enum status pack_directory(const char *path, struct pack *out, struct error *err)
{
    struct packing packing = {.pack = out, .err = err};
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    *out = (struct pack){.entries = 0};
    text_init(&out->tar, PACK_BYTES_MAX);
    enum status st = read_ignore(path, &packing.ignore, err);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 && st == STATUS_OK)
        st = error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_INVALID, "open %.160s: %s",
                       path, strerror(errno));
    if (st == STATUS_OK)
        st = write_archive(&packing, dir);
    if (st == STATUS_OK && out->entries == 0)
        st = error_set(err, STATUS_INVALID, "%.160s holds nothing to pack", path);
    if (st == STATUS_OK &&
        EVP_Digest(text_get(&out->tar), out->tar.len, digest, &len, EVP_sha256(), NULL) != 1)
        st = error_set(err, STATUS_INTERNAL, "SHA-256 failed");
    if (st == STATUS_OK)
        text_to_hex(digest, len, out->digest);
    ignore_destroy(packing.ignore);
    if (dir >= 0)
        close(dir);
    return st;
}

void pack_fini(struct pack *pack)
{
    text_fini(&pack->tar);
}
