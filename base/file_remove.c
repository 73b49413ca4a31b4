/* file_remove.c - removing a tree that somebody else may be changing meanwhile.
 *
 * Walks by descriptors opened with O_NOFOLLOW, so a directory that is swapped for a link is never
 * entered. A tree deeper than REMOVE_DEPTH is flattened: the directory at the limit is moved to the
 * top of the tree and removed in a later pass, so neither stack nor descriptors grow with depth. */
#include "base/file.h"
#include "base/mem.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REMOVE_DEPTH  32
#define REMOVE_PASSES 100000 /* somebody refills the tree as fast as we empty it: give up */

struct remove_walk {
    const char *path; /* of the whole tree, for messages */
    int top;          /* descriptor of the tree */
    dev_t device;
    unsigned moved; /* directories flattened so far */
    struct error *err;
};

static enum status remove_failed(struct remove_walk *walk, const char *name)
{
    int errnum = errno;
    return error_set(walk->err, file_status(errnum), "remove %s: %s: %s", walk->path, name,
                     strerror(errnum));
}

/* Opens a directory for reading, if need be after giving ourselves the right to. -1 and errno. */
static int remove_open(int parent, const char *name)
{
    char link[64];
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(parent, name, flags);

    if (fd >= 0 || errno != EACCES)
        return fd;
    int place = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (place < 0)
        return -1;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", place);
    if (chmod(link, S_IRWXU) == 0)
        fd = openat(parent, name, flags);
    close(place);
    return fd;
}

static enum status remove_flatten(struct remove_walk *walk, int parent, const char *name)
{
    static atomic_uint number; /* of all walks: two may be in one tree */
    char moved[64];

    walk->moved++;
    snprintf(moved, sizeof(moved), ".removing-%d-%u", (int)getpid(), atomic_fetch_add(&number, 1));
    if (renameat(parent, name, walk->top, moved) < 0 && errno != ENOENT)
        return remove_failed(walk, name);
    return STATUS_OK;
}

static enum status remove_children(struct remove_walk *walk, int fd, int depth);

static enum status remove_directory(struct remove_walk *walk, int parent, const char *name,
                                    int depth)
{
    struct stat info;

    if (depth >= REMOVE_DEPTH)
        return remove_flatten(walk, parent, name);
    int fd = remove_open(parent, name);
    if (fd < 0)
        return errno == ENOENT ? STATUS_OK : remove_failed(walk, name);
    if (fstat(fd, &info) == 0 && info.st_dev != walk->device) {
        close(fd);
        return error_set(walk->err, STATUS_PRECONDITION, "remove %s: %s is on another file system",
                         walk->path, name);
    }
    enum status st = remove_children(walk, fd, depth + 1); /* closes fd */
    if (st == STATUS_OK && unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        st = remove_failed(walk, name);
    return st;
}

static enum status remove_entry(struct remove_walk *walk, int parent, const char *name, int depth)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return STATUS_OK;
    if (errno != EISDIR && errno != EPERM)
        return remove_failed(walk, name);
    return remove_directory(walk, parent, name, depth);
}

/* Takes fd. */
static enum status remove_children(struct remove_walk *walk, int fd, int depth)
{
    enum status st = STATUS_OK;
    const struct dirent *item;
    DIR *dir = fdopendir(fd);

    if (!dir) {
        st = remove_failed(walk, "open");
        close(fd);
        return st;
    }
    while (st == STATUS_OK && (item = readdir(dir)))
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
            st = remove_entry(walk, dirfd(dir), item->d_name, depth);
    closedir(dir);
    return st;
}

/* Passes until the last one moved nothing to the top. */
static enum status remove_passes(struct remove_walk *walk)
{
    for (int pass = 0; pass < REMOVE_PASSES; pass++) {
        unsigned moved = walk->moved;
        int fd = openat(walk->top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return remove_failed(walk, "open");
        enum status st = remove_children(walk, fd, 0);
        if (st != STATUS_OK || moved == walk->moved)
            return st;
    }
    return error_set(walk->err, STATUS_UNAVAILABLE, "remove %s: it fills up as it is emptied",
                     walk->path);
}

enum status file_remove_tree(const char *path, struct error *err)
{
    struct remove_walk walk = {.path = path, .err = err};
    struct stat info;

    if (unlink(path) == 0 || errno == ENOENT)
        return STATUS_OK;
    if (errno != EISDIR && errno != EPERM)
        return remove_failed(&walk, "unlink");
    walk.top = remove_open(AT_FDCWD, path);
    if (walk.top < 0)
        return errno == ENOENT ? STATUS_OK : remove_failed(&walk, "open");
    if (fstat(walk.top, &info) < 0) {
        close(walk.top);
        return remove_failed(&walk, "stat");
    }
    walk.device = info.st_dev;
    enum status st = remove_passes(&walk);
    for (int again = 0; st == STATUS_OK && rmdir(path) < 0 && errno != ENOENT; again++) {
        if (errno != ENOTEMPTY || again == REMOVE_PASSES)
            st = remove_failed(&walk, "rmdir");
        else
            st = remove_passes(&walk); /* another walk moved something to the top */
    }
    close(walk.top);
    return st;
}
