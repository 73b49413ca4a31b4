/* vault_watch.c - see vault_watch.h. */
#include "agent/vault_watch.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/vault.h"
#include "checkpoint/vault_tree.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 100000
#define DEPTH_MAX 16
#define OPEN_DIR  (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool vault_watch_pattern_ok(const char *pattern, struct error *err)
{
    if (!pattern || !*pattern || *pattern == '/' || strlen(pattern) > 512 ||
        strstr(pattern, "..")) {
        (void)error_set(err, STATUS_INVALID, "checkpoint.watch.pattern is not a relative path");
        return false;
    }
    const char *hole = strstr(pattern, "{step}");
    if (!hole || strstr(hole + 1, "{step}") || strchr(hole, '/')) {
        (void)error_set(err, STATUS_INVALID,
                        "checkpoint.watch.pattern needs {step} once, in its last part");
        return false;
    }
    return true;
}

bool vault_watch_match(const char *pattern, const char *name, int64_t *step)
{
    const char *hole = strstr(pattern, "{step}");
    if (!hole)
        return false;
    size_t before = (size_t)(hole - pattern), after = strlen(hole + 6), len = strlen(name);
    char digits[24];
    if (len <= before + after || len - before - after >= sizeof(digits))
        return false;
    if (strncmp(name, pattern, before) != 0 || strcmp(name + len - after, hole + 6) != 0)
        return false;
    memcpy(digits, name + before, len - before - after);
    digits[len - before - after] = '\0';
    return strspn(digits, "0123456789") == strlen(digits) &&
           text_to_i64(digits, 0, INT64_MAX, step);
}

static bool is_complete(int parent, const char *name, const char *marker)
{
    SCOPED_FD int fd = -1;
    struct stat st;
    SCOPED_FD int dir = openat(parent, name, OPEN_DIR);
    if (dir < 0)
        return false;
    if (!marker || !*marker)
        return true; /* the program renames whole directories into place */
    return vault_tree_file(dir, marker, &fd, NULL) == STATUS_OK && fstat(fd, &st) == 0 &&
           S_ISREG(st.st_mode);
}

enum status vault_watch_scan(struct vault_job *job, struct error *err)
{
    SCOPED(vault_tree_names_close) DIR *names = NULL;
    SCOPED_FD int fd = -1;
    if (!vault_watch_pattern_ok(job->pattern, err))
        return STATUS_INVALID;
    const char *last = last_part(job->pattern);
    size_t above = (size_t)(last - job->pattern);
    SCOPED_TEXT char *parent = mem_printf("%.*s", (int)(above ? above - 1 : 0), job->pattern);
    enum status st = vault_tree_open(job->source, parent, false, &fd, err);
    if (st != STATUS_OK)
        return st == STATUS_NOT_FOUND ? STATUS_OK : st;
    names = vault_tree_names(fd);
    if (!names)
        return error_set(err, STATUS_UNAVAILABLE, "list %s/%s: %s", job->source, parent,
                         strerror(errno));
    const char *name;
    while (job->steps_count < VAULT_JOB_STEPS_MAX && (name = vault_tree_names_next(names))) {
        int64_t step;
        if (!vault_watch_match(last, name, &step) || !is_complete(fd, name, job->marker))
            continue;
        job->steps[job->steps_count] = step;
        job->step_dirs[job->steps_count++] = mem_printf("%.*s%s", (int)above, job->pattern, name);
    }
    return STATUS_OK;
}

struct take {    /* one import */
    int64_t uid; /* only this user's files are taken (-1: any) */
    size_t files;
    const atomic_bool *stop;
};

static enum status failed(const char *what, const char *name, struct error *err)
{
    int code = errno;
    return error_set(err, vault_tree_status(code), "%s %s: %s", what, name, strerror(code));
}

static enum status stopped(const char *name, struct error *err)
{
    return error_set(err, STATUS_CANCELLED, "%s was not taken: stopped", name);
}

static enum status copy_file(const struct take *take, int in, int to, const char *name,
                             struct error *err)
{
    ssize_t n = 1;
    SCOPED_FD int out =
        openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (out < 0)
        return failed("make", name, err);
    while (n > 0 && !atomic_load(take->stop))
        n = sendfile(out, in, NULL, (size_t)64 << 20);
    return n < 0 ? failed("copy", name, err) : n > 0 ? stopped(name, err) : STATUS_OK;
}

/* The very file that was looked at, whatever has its name by now. */
static enum status take_file(struct take *take, int in, const struct stat *st, int to,
                             const char *name, struct error *err)
{
    char opened[64];
    if (++take->files > FILES_MAX)
        return error_set(err, STATUS_EXHAUSTED, "over %d files", FILES_MAX);
    if (take->uid >= 0 && (int64_t)st->st_uid != take->uid)
        return error_set(err, STATUS_DENIED, "%s is not the worker's own", name);
    (void)snprintf(opened, sizeof(opened), "/proc/self/fd/%d", in);
    if (linkat(AT_FDCWD, opened, to, name, AT_SYMLINK_FOLLOW) == 0 || errno == EEXIST)
        return STATUS_OK; /* EEXIST: the worker's doing, the digest will tell */
    return copy_file(take, in, to, name, err);
}

static enum status take_tree(int from, int to, int depth, struct take *take, struct error *err);

static enum status take_dir(int in, int to, const char *name, int depth, struct take *take,
                            struct error *err)
{
    if (depth >= DEPTH_MAX)
        return error_set(err, STATUS_EXHAUSTED, "%s is too deep", name);
    if (mkdirat(to, name, 0755) != 0 && errno != EEXIST)
        return failed("make", name, err);
    SCOPED_FD int below = openat(to, name, OPEN_DIR);
    return below < 0 ? failed("open the new", name, err)
                     : take_tree(in, below, depth + 1, take, err);
}

static enum status take_entry(int from, int to, const char *name, int depth, struct take *take,
                              struct error *err)
{
    struct stat st;
    if (atomic_load(take->stop))
        return stopped(name, err);
    SCOPED_FD int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (in < 0 || fstat(in, &st) != 0)
        return failed("open", name, err);
    if (S_ISREG(st.st_mode))
        return take_file(take, in, &st, to, name, err);
    if (S_ISDIR(st.st_mode))
        return take_dir(in, to, name, depth, take, err);
    return error_set(err, STATUS_INVALID, "%s is neither file nor directory", name);
}

/* By descriptors on both sides: the worker owns the tree that is read and the top of the one that
 * is made, and may put a link in the place of any directory while we look. */
static enum status take_tree(int from, int to, int depth, struct take *take, struct error *err)
{
    enum status st = STATUS_OK;
    SCOPED(vault_tree_names_close) DIR *names = vault_tree_names(from);
    if (!names)
        return failed("list", "a directory", err);
    const char *name;
    while (st == STATUS_OK && (name = vault_tree_names_next(names)))
        st = take_entry(from, to, name, depth, take, err);
    return st;
}

enum status vault_watch_import(struct vault_job *job, struct error *err)
{
    struct take take = {.uid = job->uid, .stop = &job->stop};
    SCOPED_FD int from = -1;
    SCOPED_FD int to = -1;
    enum status st = vault_part_create(job->vault, job->path, job->role, job->rank, job->uid,
                                       job->gid, job->dir, sizeof(job->dir), err);
    if (st == STATUS_OK)
        st = vault_tree_open(job->vault, job->dir + strlen(job->vault) + 1, false, &to, err);
    if (st == STATUS_OK)
        st = vault_tree_open(job->source, job->below, false, &from, err);
    if (st == STATUS_OK)
        st = take_tree(from, to, 0, &take, err);
    if (st != STATUS_OK)
        (void)error_wrap(err, "take %s", job->below);
    return st;
}
