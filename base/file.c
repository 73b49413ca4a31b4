/* file.c - reading, atomic writing, making and listing; removal of trees is in file_remove.c. */
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status file_status(int errnum)
{
    switch (errnum) {
    case 0:
        return STATUS_OK;
    case ENOENT:
    case ENOTDIR:
        return STATUS_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
        return STATUS_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return STATUS_DENIED;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return STATUS_EXHAUSTED;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
        return STATUS_INVALID;
    default:
        return STATUS_UNAVAILABLE;
    }
}

static enum status file_failed(struct error *err, const char *what, const char *path)
{
    int errnum = errno;
    return error_set(err, file_status(errnum), "%s %s: %s", what, path, strerror(errnum));
}

static void file_close(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
#define SCOPED_FD __attribute__((cleanup(file_close)))

/* --- reading */

enum status file_read(const char *path, size_t max, char **bytes, size_t *len, struct error *err)
{
    SCOPED_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat info;
    SCOPED_TEXT char *data = NULL;
    size_t used = 0, cap = 0;

    if (fd < 0 || fstat(fd, &info) < 0)
        return file_failed(err, "read", path);
    if (!S_ISREG(info.st_mode))
        return error_set(err, STATUS_INVALID, "read %s: not a regular file", path);
    for (;;) {
        if (used == cap) { /* one byte more than max tells a file that is too long */
            cap = cap ? cap * 2 : (size_t)info.st_size + 1;
            cap = cap < 4096 ? 4096 : cap;
            cap = cap > max ? max + 1 : cap;
            data = mem_resize(data, cap + 1, 1);
        }
        ssize_t got = read(fd, data + used, cap - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return file_failed(err, "read", path);
        if (got == 0)
            break;
        used += (size_t)got;
        if (used > max)
            return error_set(err, STATUS_EXHAUSTED, "read %s: longer than %zu bytes", path, max);
    }
    data[used] = '\0';
    *bytes = TAKE(data);
    *len = used;
    return STATUS_OK;
}

/* --- writing */

static bool file_write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t put = write(fd, bytes, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        bytes += put;
        len -= (size_t)put;
    }
    return true;
}

static char *file_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return mem_strdup(".");
    return slash == path ? mem_strdup("/") : mem_printf("%.*s", (int)(slash - path), path);
}

enum status file_sync_dir(const char *path, struct error *err)
{
    SCOPED_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return file_failed(err, "sync", path);
    return STATUS_OK;
}

enum status file_write_atomic(const char *path, const void *bytes, size_t len, mode_t mode,
                              struct error *err)
{
    SCOPED_TEXT char *temp = mem_printf("%s.XXXXXX", path);
    SCOPED_TEXT char *parent = file_parent(path);
    SCOPED_FD int fd = mkostemp(temp, O_CLOEXEC);

    if (fd < 0)
        return file_failed(err, "write", path);
    if (!file_write_all(fd, bytes, len) || fchmod(fd, mode) < 0 || fsync(fd) < 0 ||
        rename(temp, path) < 0) {
        enum status st = file_failed(err, "write", path);
        unlink(temp);
        return st;
    }
    return file_sync_dir(parent, err);
}

/* --- directories */

static bool file_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum status file_write_at(int fd, const void *bytes, size_t len, uint64_t at, struct error *err)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = pwrite(fd, (const char *)bytes + done, len - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set(err, n ? file_status(errno) : STATUS_UNAVAILABLE, "write: %s",
                             n ? strerror(errno) : "nothing was taken");
        done += (size_t)n;
    }
    return STATUS_OK;
}

enum status file_make_dirs(const char *path, mode_t mode, struct error *err)
{
    SCOPED_TEXT char *part = mem_strdup(path);

    if (!*path)
        return error_set(err, STATUS_INVALID, "make directory: the path is empty");
    for (char *at = part + 1;; at++) {
        char end = *at;
        if (end != '/' && end != '\0')
            continue;
        *at = '\0';
        if (mkdir(part, mode) < 0 && !(errno == EEXIST && file_is_dir(part)))
            return file_failed(err, "make directory", part);
        if (end == '\0')
            return STATUS_OK;
        *at = end;
    }
}

static int file_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void file_list_fini(struct file_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        mem_free(list->names[i]);
    mem_free(list->names);
    *list = (struct file_list){NULL, 0};
}

static enum status file_list_fill(DIR *dir, const char *path, size_t max, struct file_list *list,
                                  struct error *err)
{
    size_t cap = 0;

    for (;;) {
        errno = 0;
        const struct dirent *item = readdir(dir);
        if (!item)
            return errno ? file_failed(err, "list", path) : STATUS_OK;
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        if (list->count == max)
            return error_set(err, STATUS_EXHAUSTED, "list %s: more than %zu names", path, max);
        if (list->count == cap) {
            cap = cap ? cap * 2 : 16;
            list->names = mem_resize(list->names, cap, sizeof(*list->names));
        }
        list->names[list->count++] = mem_strdup(item->d_name);
    }
}

enum status file_list_read(const char *path, size_t max, struct file_list *out, struct error *err)
{
    struct file_list list = {NULL, 0};
    DIR *dir = opendir(path);

    if (!dir)
        return file_failed(err, "list", path);
    enum status st = file_list_fill(dir, path, max, &list, err);
    closedir(dir);
    if (st != STATUS_OK) {
        file_list_fini(&list);
        return st;
    }
    if (list.count)
        qsort(list.names, list.count, sizeof(*list.names), file_compare);
    *out = list;
    return STATUS_OK;
}
