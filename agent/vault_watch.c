/* vault_watch.c - see vault_watch.h. */
#include "agent/vault_watch.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/vault.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 100000
#define DEPTH_MAX 16

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

static bool is_complete(const char *dir, const char *marker)
{
    struct stat st;
    if (lstat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return false;
    if (!marker || !*marker)
        return true; /* the program renames whole directories into place */
    SCOPED_TEXT char *path = mem_printf("%s/%s", dir, marker);
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

enum status vault_watch_scan(struct vault_job *job, struct error *err)
{
    if (!vault_watch_pattern_ok(job->pattern, err))
        return STATUS_INVALID;
    size_t parent_len = (size_t)(last_part(job->pattern) - job->pattern);
    SCOPED_TEXT char *parent = mem_printf("%s/%.*s", job->source, (int)parent_len, job->pattern);
    DIR *dir = opendir(parent);
    if (!dir)
        return errno == ENOENT
                   ? STATUS_OK
                   : error_set(err, STATUS_UNAVAILABLE, "open %s: %s", parent, strerror(errno));
    const struct dirent *entry;
    while ((entry = readdir(dir)) && job->steps_count < VAULT_JOB_STEPS_MAX) {
        int64_t step;
        if (!vault_watch_match(last_part(job->pattern), entry->d_name, &step))
            continue;
        SCOPED_TEXT char *path = mem_printf("%s/%s", parent, entry->d_name);
        if (!is_complete(path, job->marker))
            continue;
        job->steps[job->steps_count] = step;
        job->step_dirs[job->steps_count++] = TAKE(path);
    }
    (void)closedir(dir);
    return STATUS_OK;
}

struct take {    /* one import */
    int64_t uid; /* only this user's files are copied (-1: any): a path may change under us */
    size_t files;
};

static enum status copy_file(const struct take *take, const char *from, const char *to,
                             struct error *err)
{
    struct stat st;
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    bool good = in >= 0 && out >= 0 && fstat(in, &st) == 0 && S_ISREG(st.st_mode) &&
                (take->uid < 0 || (int64_t)st.st_uid == take->uid);
    ssize_t n = 1;
    while (good && n > 0)
        n = sendfile(out, in, NULL, (size_t)64 << 20);
    good = good && n == 0;
    int code = errno;
    if (in >= 0)
        (void)close(in);
    if (out >= 0 && close(out) != 0)
        good = false;
    if (good)
        return STATUS_OK;
    return error_set(err, code == ENOSPC || code == EDQUOT ? STATUS_EXHAUSTED : STATUS_UNAVAILABLE,
                     "copy %s: %s", from, strerror(code));
}

static enum status take_file(const struct take *take, const char *from, const char *to,
                             struct error *err)
{
    if (link(from, to) == 0 || errno == EEXIST) /* EEXIST: an earlier agent linked it */
        return STATUS_OK;
    return copy_file(take, from, to, err);
}

static enum status take_tree(const char *from, const char *to, int depth, struct take *take,
                             struct error *err);

static enum status take_entry(const char *from, const char *to, int depth, struct take *take,
                              struct error *err)
{
    struct stat st;
    if (lstat(from, &st) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "stat %s: %s", from, strerror(errno));
    if (S_ISREG(st.st_mode))
        return ++take->files > FILES_MAX
                   ? error_set(err, STATUS_EXHAUSTED, "over %d files in %s", FILES_MAX, from)
                   : take_file(take, from, to, err);
    if (!S_ISDIR(st.st_mode))
        return error_set(err, STATUS_INVALID, "%s is neither file nor directory", from);
    if (depth >= DEPTH_MAX)
        return error_set(err, STATUS_EXHAUSTED, "%s is too deep", from);
    if (mkdir(to, 0755) != 0 && errno != EEXIST)
        return error_set(err, STATUS_UNAVAILABLE, "make %s: %s", to, strerror(errno));
    return take_tree(from, to, depth + 1, take, err);
}

static enum status take_tree(const char *from, const char *to, int depth, struct take *take,
                             struct error *err)
{
    enum status st = STATUS_OK;
    DIR *dir = opendir(from);
    if (!dir)
        return error_set(err, STATUS_UNAVAILABLE, "open %s: %s", from, strerror(errno));
    const struct dirent *entry;
    while (st == STATUS_OK && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        SCOPED_TEXT char *source = mem_printf("%s/%s", from, entry->d_name);
        SCOPED_TEXT char *target = mem_printf("%s/%s", to, entry->d_name);
        st = take_entry(source, target, depth, take, err);
    }
    (void)closedir(dir);
    return st;
}

enum status vault_watch_import(struct vault_job *job, struct error *err)
{
    struct take take = {.uid = job->uid};
    enum status st = vault_part_create(job->vault, job->path, job->role, job->rank, job->uid,
                                       job->gid, job->dir, sizeof(job->dir), err);
    return st == STATUS_OK ? take_tree(job->source, job->dir, 0, &take, err) : st;
}
