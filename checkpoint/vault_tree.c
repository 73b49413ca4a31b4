/* vault_tree.c - see vault_tree.h. */
#include "checkpoint/vault_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

#define PATH_BYTES_MAX 4096
#define OPEN_DIR       (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

void vault_tree_close(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

DIR *vault_tree_names(int dir)
{
    int copy = openat(dir, ".", OPEN_DIR); /* closedir closes its own */
    DIR *names = copy < 0 ? NULL : fdopendir(copy);

    if (!names)
        vault_tree_close(copy);
    return names;
}

const char *vault_tree_names_next(DIR *names)
{
    const struct dirent *entry;

    while ((errno = 0, entry = readdir(names)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return entry->d_name;
    return NULL;
}

void vault_tree_names_close(DIR *names)
{
    if (names)
        (void)closedir(names);
}

enum status vault_tree_status(int error_number)
{
    switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
        return STATUS_EXHAUSTED;
    case ENOENT:
        return STATUS_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return STATUS_DENIED;
    case ELOOP:
    case ENOTDIR:
        return STATUS_INVALID;
    default:
        return STATUS_UNAVAILABLE;
    }
}

bool vault_tree_name_ok(const char *name)
{
    size_t len = strnlen(name, 256);

    return len > 0 && len < 256 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           !strchr(name, '/') && text_is_utf8(name, len);
}

/* Copies the first part of *path and moves *path behind it; false when the part is no good. */
static bool next_part(const char **path, char part[256])
{
    size_t len = strcspn(*path, "/");

    if (len == 0 || len >= 256)
        return false;
    memcpy(part, *path, len);
    part[len] = '\0';
    *path += len;
    if (**path == '/' && *++*path == '\0')
        return false; /* "a/" */
    return vault_tree_name_ok(part);
}

bool vault_tree_path_ok(const char *path)
{
    char part[256];
    size_t depth = 0;

    if (strnlen(path, PATH_BYTES_MAX) >= PATH_BYTES_MAX)
        return false;
    do {
        if (!next_part(&path, part) || ++depth > VAULT_TREE_DEPTH_MAX)
            return false;
    } while (*path);
    return true;
}

/* Opens one level; makes it first where asked. */
static int open_level(int parent, const char *name, bool make)
{
    int fd = openat(parent, name, OPEN_DIR);

    if (fd >= 0 || errno != ENOENT || !make)
        return fd;
    if (mkdirat(parent, name, 0755) != 0 && errno != EEXIST)
        return -1;
    if (fsync(parent) != 0)
        return -1;
    return openat(parent, name, OPEN_DIR);
}

enum status vault_tree_open(const char *vault, const char *path, bool make, int *out,
                            struct error *err)
{
    SCOPED_FD int at = open(vault, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *rest = path;
    char part[256];

    if (at < 0)
        return error_set(err, vault_tree_status(errno), "open vault %s: %s", vault,
                         strerror(errno));
    if (*path && !vault_tree_path_ok(path))
        return error_set(err, STATUS_INVALID, "'%.80s' is no path inside a vault", path);
    while (*rest) {
        int fd;
        (void)next_part(&rest, part);
        fd = open_level(at, part, make);
        if (fd < 0)
            return error_set(err, vault_tree_status(errno), "open %s/%s at %s: %s", vault, path,
                             part, strerror(errno));
        vault_tree_close(at);
        at = fd;
    }
    *out = at;
    at = -1; /* NOLINT(clang-analyzer-deadcode.DeadStores): the cleanup of SCOPED_FD reads it */
    return STATUS_OK;
}

enum status vault_tree_file(int dir, const char *path, int *out, struct error *err)
{
    SCOPED_FD int at = -1;
    const char *rest = path;
    char part[256];
    int fd;

    if (!vault_tree_path_ok(path))
        return error_set(err, STATUS_INVALID, "'%.80s' is no path inside a checkpoint", path);
    for (;;) {
        (void)next_part(&rest, part);
        if (!*rest)
            break;
        fd = openat(at < 0 ? dir : at, part, OPEN_DIR);
        if (fd < 0)
            return error_set(err, vault_tree_status(errno), "open %s: %s", path, strerror(errno));
        vault_tree_close(at);
        at = fd;
    }
    fd = openat(at < 0 ? dir : at, part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(err, vault_tree_status(errno), "open %s: %s", path, strerror(errno));
    *out = fd;
    return STATUS_OK;
}

struct walk {
    vault_tree_fn fn;
    void *arg;
    bool sync;
    uint32_t depth, entries;
    size_t names;
    size_t len; /* of path */
    char path[PATH_BYTES_MAX];
};

static enum status walk_dir(struct walk *walk, int fd, struct error *err);

static enum status walk_entry(struct walk *walk, int parent, const char *name, struct error *err)
{
    SCOPED_FD int fd = -1;
    struct stat st;
    size_t before = walk->len, name_len = strlen(name);
    enum status status;

    if (!vault_tree_name_ok(name) || before + name_len + 2 > sizeof walk->path)
        return error_set(err, STATUS_INVALID, "a name below %s is not UTF-8 or too long",
                         walk->path);
    walk->names += before + name_len + 1;
    if (++walk->entries > VAULT_TREE_FILES_MAX || walk->names > VAULT_TREE_NAMES_MAX)
        return error_set(err, STATUS_EXHAUSTED, "more than %d files in one part",
                         VAULT_TREE_FILES_MAX);
    walk->len += (size_t)snprintf(walk->path + before, sizeof walk->path - before,
                                  before ? "/%s" : "%s", name);
    fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(err, vault_tree_status(errno), "open %s: %s", walk->path,
                         errno == ELOOP ? "it is a link" : strerror(errno));
    if (fstat(fd, &st) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "stat %s: %s", walk->path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        status = walk_dir(walk, fd, err);
    else if (S_ISREG(st.st_mode))
        status = walk->fn(walk->arg, fd, walk->path, err);
    else
        status = error_set(err, STATUS_INVALID, "%s is neither a file nor a directory", walk->path);
    walk->len = before;
    walk->path[before] = '\0';
    return status;
}

static enum status walk_dir(struct walk *walk, int fd, struct error *err)
{
    SCOPED(vault_tree_names_close) DIR *names = NULL;
    const char *name;

    if (++walk->depth > VAULT_TREE_DEPTH_MAX)
        return error_set(err, STATUS_INVALID, "%.80s: too many levels", walk->path);
    names = vault_tree_names(fd);
    if (!names)
        return error_set(err, vault_tree_status(errno), "list %s: %s", walk->path, strerror(errno));
    while ((name = vault_tree_names_next(names))) {
        enum status status = walk_entry(walk, fd, name, err);
        if (status != STATUS_OK)
            return status;
    }
    if (errno != 0)
        return error_set(err, STATUS_UNAVAILABLE, "list %s: %s", walk->path, strerror(errno));
    if (walk->sync && fsync(fd) != 0)
        return error_set(err, vault_tree_status(errno), "sync %s: %s", walk->path, strerror(errno));
    walk->depth--;
    return STATUS_OK;
}

enum status vault_tree_walk(int dir, bool sync, vault_tree_fn fn, void *arg, struct error *err)
{
    SCOPED(mem_free) void *memory = mem_alloc(sizeof(struct walk));
    struct walk *walk = memory;

    walk->fn = fn;
    walk->arg = arg;
    walk->sync = sync;
    return walk_dir(walk, dir, err);
}

static enum status remove_level(int parent, const char *name, uint32_t depth, struct error *err);

static enum status remove_below(int fd, uint32_t depth, struct error *err)
{
    SCOPED(vault_tree_names_close) DIR *names = vault_tree_names(fd);
    const char *name;

    if (!names)
        return error_set(err, vault_tree_status(errno), "list: %s", strerror(errno));
    while ((name = vault_tree_names_next(names))) {
        enum status status = remove_level(fd, name, depth, err);
        if (status != STATUS_OK)
            return status;
    }
    return errno == 0 ? STATUS_OK : error_set(err, STATUS_UNAVAILABLE, "list: %s", strerror(errno));
}

static enum status remove_level(int parent, const char *name, uint32_t depth, struct error *err)
{
    SCOPED_FD int fd = -1;
    enum status status;

    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return STATUS_OK;
    if (errno != EISDIR && errno != EPERM)
        return error_set(err, vault_tree_status(errno), "remove %s: %s", name, strerror(errno));
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return STATUS_OK;
    if (depth > 4 * VAULT_TREE_DEPTH_MAX)
        return error_set(err, STATUS_INVALID, "remove %s: too many levels", name);
    fd = openat(parent, name, OPEN_DIR);
    if (fd < 0)
        return error_set(err, vault_tree_status(errno), "remove %s: %s", name, strerror(errno));
    status = remove_below(fd, depth + 1, err);
    if (status != STATUS_OK) {
        (void)error_wrap(err, "in %s", name);
        return status;
    }
    if (unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        return error_set(err, vault_tree_status(errno), "remove %s: %s", name, strerror(errno));
    return STATUS_OK;
}

enum status vault_tree_remove(int parent, const char *name, struct error *err)
{
    return remove_level(parent, name, 0, err);
}

enum status vault_tree_read(int dir, const char *name, struct text *out, struct error *err)
{
    SCOPED_FD int fd = -1;
    char block[65536];
    enum status status = vault_tree_file(dir, name, &fd, err);

    while (status == STATUS_OK) {
        ssize_t got = read(fd, block, sizeof block);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, STATUS_UNAVAILABLE, "read %s: %s", name, strerror(errno));
        if (got == 0)
            break;
        text_add_bytes(out, block, (size_t)got);
        if (out->full)
            return error_set(err, STATUS_DATA_LOSS, "%s is too large", name);
    }
    return status;
}
