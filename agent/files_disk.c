/* files_disk.c - the steps of files.h, done here and now.
 *
 * Any thread; blocks. Never follows a link in the last part of a path that a worker could have
 * made: reads refuse links and whatever is not a regular file. */
#include "agent/files.h"
#include "agent/files_unpack.h"
#include "agent/page_guard.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "worker/page.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES_MAX 65536

static enum status fail(const struct files_step *step, const char *what, struct error *err)
{
    int code = errno;
    return error_set(err, file_status(code), "%s %s: %s", what, step->path, strerror(code));
}

static enum status absent(struct files_step *step, const char *what, struct error *err)
{
    if (errno != ENOENT || !step->missing_ok)
        return fail(step, what, err);
    step->missing = true;
    return STATUS_OK;
}

static enum status read_all(struct files_step *step, int fd, struct error *err)
{
    size_t want = step->max;
    if (step->offset >= (int64_t)step->size)
        want = 0;
    else if (want > step->size - (uint64_t)step->offset && step->size > 0)
        want = (size_t)(step->size - (uint64_t)step->offset);
    step->bytes = mem_alloc(want + 1);
    step->len = 0;
    while (step->len < want) {
        ssize_t n = pread(fd, (char *)step->bytes + step->len, want - step->len,
                          (off_t)(step->offset + (int64_t)step->len));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(step, "read", err);
        if (n == 0)
            break;
        step->len += (size_t)n;
    }
    return STATUS_OK;
}

static enum status step_read(struct files_step *step, struct error *err)
{
    struct stat st;
    bool kernel = strncmp(step->path, "/proc/", 6) == 0; /* files without a size */
    int fd = open(step->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return absent(step, "open", err);
    enum status result = STATUS_OK;
    if (fstat(fd, &st) != 0) {
        result = fail(step, "stat", err);
    } else if (!S_ISREG(st.st_mode)) {
        result = error_set(err, STATUS_INVALID, "%s is not a regular file", step->path);
    } else {
        step->size = kernel ? step->max : (uint64_t)st.st_size;
        step->mtime_us = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
        off_t data = kernel ? 0 : lseek(fd, 0, SEEK_DATA);
        step->head = data < 0 ? (int64_t)step->size : (int64_t)data;
        if (step->offset < 0)
            step->offset =
                -step->offset > (int64_t)step->size ? 0 : (int64_t)step->size + step->offset;
        result = read_all(step, fd, err);
    }
    (void)close(fd);
    return result;
}

static enum status write_all(const struct files_step *step, int fd, struct error *err)
{
    size_t done = 0;
    while (done < step->len) {
        ssize_t n = write(fd, (const char *)step->bytes + done, step->len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(step, "write", err);
        done += (size_t)n;
    }
    if ((step->uid >= 0 || step->gid >= 0) && fchown(fd, (uid_t)step->uid, (gid_t)step->gid) != 0)
        return fail(step, "chown", err);
    if (step->sync && fdatasync(fd) != 0)
        return fail(step, "sync", err);
    return STATUS_OK;
}

static enum status sync_parent(const struct files_step *step, const char *path, struct error *err)
{
    SCOPED_TEXT char *parent = mem_strdup(path);
    char *slash = strrchr(parent, '/');
    if (!slash || slash == parent)
        return STATUS_OK;
    *slash = '\0';
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail(step, "open the directory of", err);
    int bad = fsync(fd);
    (void)close(fd);
    return bad ? fail(step, "sync the directory of", err) : STATUS_OK;
}

/* An empty file of ours that was made in advance. -1: it is something else. */
static int write_reuse(const char *temp, mode_t mode)
{
    struct stat st;
    int fd = open(temp, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
        st.st_size == 0 && st.st_uid == geteuid() &&
        ((st.st_mode & 0777) == mode || fchmod(fd, mode) == 0))
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static enum status step_write(struct files_step *step, struct error *err)
{
    SCOPED_TEXT char *temp = mem_printf("%s.new", step->path);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    const mode_t mode = step->mode ? step->mode : 0600;
    int fd = open(temp, flags, mode);
    if (fd < 0 && errno == EEXIST) {
        fd = write_reuse(temp, mode);
        if (fd < 0 && unlink(temp) == 0) /* a leftover: somebody died here */
            fd = open(temp, flags, mode);
    }
    if (fd < 0)
        return fail(step, "create", err);
    enum status st = write_all(step, fd, err);
    if (close(fd) != 0 && st == STATUS_OK)
        st = fail(step, "close", err);
    if (st == STATUS_OK && rename(temp, step->path) != 0)
        st = fail(step, "rename to", err);
    if (st != STATUS_OK)
        (void)unlink(temp);
    else if (step->sync)
        st = sync_parent(step, step->path, err);
    return st;
}

/* A failed append is undone, so that a later one never follows half a record. */
static enum status step_append(struct files_step *step, struct error *err)
{
    int fd = open(step->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                  step->mode ? step->mode : 0600);
    if (fd < 0)
        return fail(step, "open", err);
    off_t before = lseek(fd, 0, SEEK_END);
    enum status st = write_all(step, fd, err);
    if (st != STATUS_OK && before >= 0 && ftruncate(fd, before) != 0)
        st = STATUS_DATA_LOSS;
    (void)close(fd);
    return st;
}

static enum status step_dir(struct files_step *step, struct error *err)
{
    struct stat st;
    bool made = mkdir(step->path, 0700) == 0;
    if (!made && errno != EEXIST)
        return fail(step, "make directory", err);
    if (!made && (lstat(step->path, &st) != 0 || !S_ISDIR(st.st_mode)))
        return error_set(err, STATUS_INVALID, "%s is not a directory", step->path);
    made |= step->claim;
    if (made && (step->uid >= 0 || step->gid >= 0) &&
        lchown(step->path, (uid_t)step->uid, (gid_t)step->gid) != 0)
        return fail(step, "chown", err);
    if (made && chmod(step->path, step->mode) != 0)
        return fail(step, "chmod", err);
    return STATUS_OK;
}

static enum status step_remove(struct files_step *step, struct error *err)
{
    return file_remove_tree(step->path, err);
}

static enum status step_rename(struct files_step *step, struct error *err)
{
    if (rename(step->path, step->to) != 0) {
        step->missing = step->optional;
        return step->optional ? STATUS_OK : absent(step, "rename", err);
    }
    return step->sync ? sync_parent(step, step->to, err) : STATUS_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum status step_list(struct files_step *step, struct error *err)
{
    DIR *dir = opendir(step->path);
    if (!dir)
        return absent(step, "open directory", err);
    const struct dirent *entry;
    while ((entry = readdir(dir)) && step->names_count < NAMES_MAX) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        step->names = mem_resize(step->names, step->names_count + 1, sizeof(*step->names));
        step->names[step->names_count++] = mem_strdup(entry->d_name);
    }
    (void)closedir(dir);
    if (step->names_count)
        qsort(step->names, step->names_count, sizeof(*step->names), by_name);
    return STATUS_OK;
}

static enum status step_punch(struct files_step *step, struct error *err)
{
    int fd = open(step->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return absent(step, "open", err);
    int bad = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)step->offset,
                        (off_t)step->max);
    enum status st = bad && errno != EOPNOTSUPP ? fail(step, "punch", err) : STATUS_OK;
    (void)close(fd);
    return st;
}

static int page_file(struct files_step *step, struct error *err)
{
    if (step->len > 0) {
        struct page first = {.magic = PAGE_MAGIC, .version = 1};
        char block[PAGE_BYTES] = {0};
        first.agent_pid = (uint32_t)getpid();
        first.save_answered = -1;
        first.stop_answered = -1;
        memcpy(block, &first, sizeof(first));
        mem_free(step->bytes);
        step->bytes = mem_dup(block, sizeof(block));
        step->len = sizeof(block);
        if (step_write(step, err) != STATUS_OK)
            return -1;
    }
    int fd = open(step->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        (void)fail(step, "open", err);
    return fd;
}

static enum status step_page(struct files_step *step, struct error *err)
{
    struct stat st;
    struct error inner = {STATUS_OK, ""};
    int fd = page_file(step, &inner);
    if (fd < 0)
        return error_set(err, inner.code, "%s", inner.text);
    void *page = MAP_FAILED;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= PAGE_BYTES)
        page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    (void)close(fd);
    if (page == MAP_FAILED)
        return error_set(err, STATUS_DATA_LOSS, "%s cannot be mapped", step->path);
    if (((struct page *)page)->magic != PAGE_MAGIC) {
        (void)munmap(page, PAGE_BYTES);
        return error_set(err, STATUS_DATA_LOSS, "%s is not a page", step->path);
    }
    page_guard_add(page);
    step->page = page;
    return STATUS_OK;
}

static enum status step_user(struct files_step *step, struct error *err)
{
    struct passwd entry, *found = NULL;
    char buffer[16384];
    int code = getpwnam_r(step->path, &entry, buffer, sizeof(buffer), &found);
    if (!found)
        return error_set(err, code ? STATUS_UNAVAILABLE : STATUS_NOT_FOUND,
                         "no user '%s' on this node%s%s", step->path, code ? ": " : "",
                         code ? strerror(code) : "");
    step->uid = (int64_t)entry.pw_uid;
    step->gid = (int64_t)entry.pw_gid;
    struct stat st;
    if (entry.pw_dir && stat(entry.pw_dir, &st) == 0 && S_ISDIR(st.st_mode))
        step->home = mem_strdup(entry.pw_dir); /* users such as nobody have none */
    return STATUS_OK;
}

static enum status step_unpack(struct files_step *step, struct error *err)
{
    return files_unpack(step->path, step->hex, step->to, step->max, &step->size, err);
}

static enum status step_fsync(struct files_step *step, struct error *err)
{
    SCOPED_TEXT char *inside = mem_printf("%s/.", step->path);
    return sync_parent(step, inside, err);
}

static enum status (*const steps[])(struct files_step *step, struct error *err) = {
    [FILES_READ] = step_read, [FILES_WRITE] = step_write,   [FILES_APPEND] = step_append,
    [FILES_DIR] = step_dir,   [FILES_REMOVE] = step_remove, [FILES_RENAME] = step_rename,
    [FILES_LIST] = step_list, [FILES_PUNCH] = step_punch,   [FILES_PAGE] = step_page,
    [FILES_USER] = step_user, [FILES_UNPACK] = step_unpack, [FILES_FSYNC] = step_fsync,
};

enum status files_disk_run(struct files_batch *batch, struct error *err)
{
    for (batch->ran = 0; batch->ran < batch->count; batch->ran++) {
        struct files_step *step = &batch->steps[batch->ran];
        enum status st = steps[step->kind](step, err);
        if (st != STATUS_OK)
            return st;
    }
    return STATUS_OK;
}
