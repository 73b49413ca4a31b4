#include "checkpoint/vault_store.h"
#include "base/text.h"
#include "checkpoint/vault_tree.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMP_PREFIX ".put-"

struct vault_store {
    const struct verbs *verbs;
    enum vault_store_class kind;
    char *dir;
};

/* What an implementation provides. Names are checked before. */
struct verbs {
    enum status (*read)(struct vault_store *, const char *, uint64_t, void *, size_t,
                        struct error *);
    enum status (*size)(struct vault_store *, const char *, uint64_t *, struct error *);
    enum status (*put)(struct vault_store *, const char *, const void *, size_t, struct error *);
    enum status (*list)(struct vault_store *, const char *, vault_store_fn, void *, struct error *);
    enum status (*remove)(struct vault_store *, const char *, struct error *);
};

static const char *const class_names[] = {"node", "shared", "object"};

const char *vault_store_class_name(enum vault_store_class kind)
{
    return class_names[kind];
}

bool vault_store_class_find(const char *name, enum vault_store_class *out)
{
    for (size_t i = 0; i < COUNT_OF(class_names); i++)
        if (strcmp(class_names[i], name) == 0) {
            *out = (enum vault_store_class)i;
            return true;
        }
    return false;
}

/* Splits "a/b/c" into the directory "a/b" (a copy, "" for none) and the name "c" (inside name). */
static char *parent_of(const char *name, const char **leaf)
{
    const char *slash = strrchr(name, '/');

    *leaf = slash ? slash + 1 : name;
    return mem_printf("%.*s", slash ? (int)(slash - name) : 0, name);
}

static enum status dir_open_file(struct vault_store *store, const char *name, int *out,
                                 struct stat *info, struct error *err)
{
    SCOPED_FD int dir = -1;
    SCOPED_FD int fd = -1;
    enum status st = vault_tree_open(store->dir, "", false, &dir, err);

    if (st == STATUS_OK)
        st = vault_tree_file(dir, name, &fd, err);
    if (st != STATUS_OK)
        return st;
    if (fstat(fd, info) != 0)
        return error_set(err, vault_tree_status(errno), "stat %s: %s", name, strerror(errno));
    if (!S_ISREG(info->st_mode))
        return error_set(err, STATUS_INVALID, "%s is no file", name);
    *out = fd;
    fd = -1; /* NOLINT(clang-analyzer-deadcode.DeadStores): the cleanup of SCOPED_FD reads it */
    return STATUS_OK;
}

static enum status dir_read(struct vault_store *store, const char *name, uint64_t at, void *out,
                            size_t len, struct error *err)
{
    SCOPED_FD int fd = -1;
    struct stat info;
    size_t have = 0;
    enum status st = dir_open_file(store, name, &fd, &info, err);

    if (st != STATUS_OK)
        return st;
    if (at > INT64_MAX - len)
        return error_set(err, STATUS_OUT_OF_RANGE, "%s has no such bytes", name);
    while (have < len) {
        ssize_t got = pread(fd, (char *)out + have, len - have, (off_t)(at + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, vault_tree_status(errno), "read %s: %s", name, strerror(errno));
        if (got == 0)
            return error_set(err, STATUS_OUT_OF_RANGE, "%s ends at byte %llu", name,
                             (unsigned long long)(at + have));
        have += (size_t)got;
    }
    return STATUS_OK;
}

static enum status dir_size(struct vault_store *store, const char *name, uint64_t *out,
                            struct error *err)
{
    SCOPED_FD int fd = -1;
    struct stat info;
    enum status st = dir_open_file(store, name, &fd, &info, err);

    if (st == STATUS_OK)
        *out = (uint64_t)info.st_size;
    return st;
}

static enum status write_synced(int fd, const char *bytes, size_t len, struct error *err)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set(err, vault_tree_status(n < 0 ? errno : EIO), "write: %s",
                             strerror(n < 0 ? errno : EIO));
        bytes += n;
        len -= (size_t)n;
    }
    if (fsync(fd) != 0)
        return error_set(err, vault_tree_status(errno), "sync: %s", strerror(errno));
    return STATUS_OK;
}

/* A server of files that lost its answer makes the client say ENOENT for a rename that took place:
 * what has our inode under the new name was renamed. */
static bool was_renamed(int dir, const char *name, int fd)
{
    struct stat ours, there;

    return fstat(fd, &ours) == 0 && fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

/* All or nothing: the name appears with the bytes behind it on the disk. */
static enum status put_temp(int dir, const char *temp, const char *leaf, const void *bytes,
                            size_t len, struct error *err)
{
    SCOPED_FD int fd =
        openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    enum status st;

    if (fd < 0)
        return error_set(err, vault_tree_status(errno), "create %s: %s", temp, strerror(errno));
    st = write_synced(fd, bytes, len, err);
    if (st != STATUS_OK)
        return st;
    if (renameat(dir, temp, dir, leaf) != 0 && !was_renamed(dir, leaf, fd))
        return error_set(err, vault_tree_status(errno), "rename %s: %s", leaf, strerror(errno));
    if (fsync(dir) != 0)
        return error_set(err, vault_tree_status(errno), "sync: %s", strerror(errno));
    return STATUS_OK;
}

static enum status dir_put(struct vault_store *store, const char *name, const void *bytes,
                           size_t len, struct error *err)
{
    static atomic_uint puts;
    SCOPED_FD int dir = -1;
    const char *leaf;
    SCOPED_TEXT char *parent = parent_of(name, &leaf);
    char host[65] = "", temp[160];
    enum status st = vault_tree_open(store->dir, parent, true, &dir, err);

    if (st != STATUS_OK)
        return st;
    (void)gethostname(host, sizeof(host) - 1); /* several hosts may put into one directory */
    (void)snprintf(temp, sizeof(temp), TEMP_PREFIX "%.64s-%ld-%u", host, (long)getpid(),
                   atomic_fetch_add(&puts, 1));
    (void)unlinkat(dir, temp, 0); /* of a process that had our number before us */
    st = put_temp(dir, temp, leaf, bytes, len, err);
    if (st != STATUS_OK)
        (void)unlinkat(dir, temp, 0);
    return st;
}

struct listing {
    const char *prefix;
    vault_store_fn fn;
    void *arg;
};

static enum status list_file(void *arg, int fd, const char *path, struct error *err)
{
    const struct listing *listing = arg;
    const char *slash = strrchr(path, '/'), *leaf = slash ? slash + 1 : path;
    struct stat info;

    if (strncmp(leaf, TEMP_PREFIX, sizeof(TEMP_PREFIX) - 1) == 0)
        return STATUS_OK;
    if (fstat(fd, &info) != 0)
        return error_set(err, vault_tree_status(errno), "stat %s: %s", path, strerror(errno));
    SCOPED_TEXT char *name =
        mem_printf("%s%s%s", listing->prefix, *listing->prefix ? "/" : "", path);
    return listing->fn(listing->arg, name, (uint64_t)info.st_size, err);
}

static enum status dir_list(struct vault_store *store, const char *prefix, vault_store_fn fn,
                            void *arg, struct error *err)
{
    SCOPED_FD int dir = -1;
    struct listing listing = {prefix, fn, arg};
    enum status st = vault_tree_open(store->dir, prefix, false, &dir, err);

    if (st == STATUS_NOT_FOUND && *prefix)
        return STATUS_OK;
    return st == STATUS_OK ? vault_tree_walk(dir, false, list_file, &listing, err) : st;
}

static enum status dir_remove(struct vault_store *store, const char *name, struct error *err)
{
    SCOPED_FD int dir = -1;
    const char *leaf;
    SCOPED_TEXT char *parent = parent_of(name, &leaf);
    enum status st = vault_tree_open(store->dir, parent, false, &dir, err);

    if (st == STATUS_NOT_FOUND && *parent)
        return STATUS_OK;
    if (st == STATUS_OK)
        st = vault_tree_remove(dir, leaf, err);
    if (st == STATUS_OK && fsync(dir) != 0)
        return error_set(err, vault_tree_status(errno), "sync: %s", strerror(errno));
    return st;
}

static const struct verbs dir_verbs = {dir_read, dir_size, dir_put, dir_list, dir_remove};

enum status vault_store_open_dir(const char *dir, enum vault_store_class kind,
                                 struct vault_store **out, struct error *err)
{
    SCOPED_FD int fd = -1;
    struct vault_store *store;
    enum status st = kind == VAULT_STORE_OBJECT
                         ? error_set(err, STATUS_INVALID, "a directory is no store of objects")
                         : vault_tree_open(dir, "", false, &fd, err);

    if (st != STATUS_OK)
        return st;
    store = NEW(struct vault_store);
    store->verbs = &dir_verbs;
    store->kind = kind;
    store->dir = mem_strdup(dir);
    *out = store;
    return STATUS_OK;
}

void vault_store_close(struct vault_store *store)
{
    if (!store)
        return;
    mem_free(store->dir);
    mem_free(store);
}

enum vault_store_class vault_store_class_of(const struct vault_store *store)
{
    return store->kind;
}

/* The names of unfinished puts are ours. */
static enum status check_name(const char *name, struct error *err)
{
    const char *slash = strrchr(name, '/'), *leaf = slash ? slash + 1 : name;

    if (!vault_tree_path_ok(name) || strncmp(leaf, TEMP_PREFIX, sizeof(TEMP_PREFIX) - 1) == 0)
        return error_set(err, STATUS_INVALID, "'%.80s' is no name in a vault", name);
    return STATUS_OK;
}

enum status vault_store_read(struct vault_store *store, const char *name, uint64_t at, void *out,
                             size_t len, struct error *err)
{
    enum status st = check_name(name, err);

    return st == STATUS_OK ? store->verbs->read(store, name, at, out, len, err) : st;
}

enum status vault_store_size(struct vault_store *store, const char *name, uint64_t *out,
                             struct error *err)
{
    enum status st = check_name(name, err);

    return st == STATUS_OK ? store->verbs->size(store, name, out, err) : st;
}

enum status vault_store_put(struct vault_store *store, const char *name, const void *bytes,
                            size_t len, struct error *err)
{
    enum status st = check_name(name, err);

    if (st == STATUS_OK && len > VAULT_STORE_PUT_MAX)
        st = error_set(err, STATUS_INVALID, "%s: more than %zu bytes in one piece", name,
                       VAULT_STORE_PUT_MAX);
    if (st == STATUS_OK)
        st = store->verbs->put(store, name, bytes, len, err);
    return st;
}

enum status vault_store_list(struct vault_store *store, const char *prefix, vault_store_fn fn,
                             void *arg, struct error *err)
{
    enum status st = *prefix ? check_name(prefix, err) : STATUS_OK;

    return st == STATUS_OK ? store->verbs->list(store, prefix, fn, arg, err) : st;
}

enum status vault_store_remove(struct vault_store *store, const char *name, struct error *err)
{
    enum status st = check_name(name, err);

    return st == STATUS_OK ? store->verbs->remove(store, name, err) : st;
}
