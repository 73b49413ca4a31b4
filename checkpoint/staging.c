/* staging.c - a directory that appears whole. See staging.h. */
#include "checkpoint/staging.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct staging {
    char *target, *path; /* path NULL: nothing is to be removed */
};

void staging_destroy(struct staging *staging)
{
    if (!staging)
        return;
    /* A failure here leaves a directory whose name says what it is. */
    enum status ignored = staging->path ? file_remove_tree(staging->path, NULL) : STATUS_OK;
    (void)ignored;
    mem_free(staging->path);
    mem_free(staging->target);
    mem_free(staging);
}

static enum status target_is_free(const char *target, struct error *err)
{
    struct file_list list;
    struct stat stat;

    if (lstat(target, &stat) != 0)
        return errno == ENOENT
                   ? STATUS_OK
                   : error_set(err, file_status(errno), "%s: %s", target, strerror(errno));
    if (!S_ISDIR(stat.st_mode))
        return error_set(err, STATUS_EXISTS, "%s is there already", target);
    enum status st = file_list_read(target, 1, &list, err);
    bool empty = st == STATUS_OK && list.count == 0;
    if (st == STATUS_OK)
        file_list_fini(&list);
    return empty ? STATUS_OK
                 : error_set(err, STATUS_EXISTS, "%s is there already and not empty", target);
}

enum status staging_create(const char *target, struct staging **out, struct error *err)
{
    SCOPED(staging_destroy) struct staging *staging = NEW(struct staging);
    size_t len = strlen(target);

    while (len > 1 && target[len - 1] == '/')
        len--;
    staging->target = mem_printf("%.*s", (int)len, target);
    enum status st = target_is_free(staging->target, err);
    if (st != STATUS_OK)
        return st;
    SCOPED_TEXT char *path = mem_printf("%s.making-%ld", staging->target, (long)getpid());
    if (mkdir(path, 0777) != 0)
        return error_set(err, file_status(errno), "make %s: %s", path, strerror(errno));
    staging->path = TAKE(path);
    *out = TAKE(staging);
    return STATUS_OK;
}

const char *staging_path(const struct staging *staging)
{
    return staging->path;
}

enum status staging_file(const struct staging *staging, const char *name, const void *bytes,
                         size_t len, struct error *err)
{
    SCOPED_TEXT char *path = mem_printf("%s/%s", staging->path, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0)
        return error_set(err, file_status(errno), "make %s: %s", path, strerror(errno));
    enum status st = file_write_at(fd, bytes, len, 0, err);
    if (st != STATUS_OK)
        (void)error_wrap(err, "write %s", path);
    else if (fsync(fd) != 0)
        st = error_set(err, file_status(errno), "fsync %s: %s", path, strerror(errno));
    if (close(fd) != 0 && st == STATUS_OK)
        st = error_set(err, file_status(errno), "close %s: %s", path, strerror(errno));
    return st;
}

enum status staging_publish(struct staging *staging, struct error *err)
{
    SCOPED_TEXT char *parent = mem_strdup(staging->target);
    char *slash = strrchr(parent, '/');
    enum status st = file_sync_dir(staging->path, err);

    if (st != STATUS_OK)
        return st;
    if (rename(staging->path, staging->target) != 0)
        return error_set(err, file_status(errno), "rename %s to %s: %s", staging->path,
                         staging->target, strerror(errno));
    mem_free(staging->path);
    staging->path = NULL;
    if (slash)
        slash[slash == parent] = '\0'; /* "/x": the root */
    return file_sync_dir(slash ? parent : ".", err);
}
