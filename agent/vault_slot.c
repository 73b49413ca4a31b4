/* vault_slot.c - see vault_slot.h. */
#include "agent/vault_slot.h"
#include "base/mem.h"
#include "checkpoint/slot.h"
#include "checkpoint/vault_tree.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

void vault_slot_dir(const Pb__WorkerKey *key, char *out, size_t cap)
{
    (void)snprintf(out, cap, "job-%" PRId64 "/%" PRIu32 ".%" PRIu32 "/%.63s-%" PRIu32, key->job,
                   key->attempt, key->incarnation ? key->incarnation : 1, key->role, key->rank);
}

static enum status failed(const char *what, const char *name, struct error *err)
{
    int code = errno;
    return error_set(err, vault_tree_status(code), "%s %s: %s", what, name, strerror(code));
}

/* /dev/shm is everybody's: who made the name first may not be who it should be. */
static enum status top_make(const char *path, struct error *err)
{
    struct stat st;
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return failed("make", path, err);
    if (lstat(path, &st) != 0)
        return failed("look at", path, err);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return error_set(err, STATUS_DENIED, "%s is not this agent's own directory", path);
    return STATUS_OK;
}

static int open_below(int parent, const char *name)
{
    if (mkdirat(parent, name, 0755) != 0 && errno != EEXIST)
        return -1;
    return openat(parent, name, OPEN_DIR);
}

static enum status dir_make(const char *top, const char *path, int *out, struct error *err)
{
    char rest[512], *next = rest;
    enum status st = top_make(top, err);
    if (st != STATUS_OK)
        return st;
    if (!vault_tree_path_ok(path) || strlen(path) >= sizeof(rest))
        return error_set(err, STATUS_INVALID, "'%.80s' is no path of a slot", path);
    SCOPED_FD int at = open(top, OPEN_DIR);
    (void)snprintf(rest, sizeof(rest), "%s", path);
    for (const char *name; at >= 0 && (name = strsep(&next, "/"));) {
        int below = open_below(at, name);
        vault_tree_close(at);
        at = below;
    }
    if (at < 0)
        return failed("make a directory of", path, err);
    *out = at;
    at = -1; /* NOLINT(clang-analyzer-deadcode.DeadStores): the cleanup of SCOPED_FD reads it */
    return STATUS_OK;
}

static bool is_slot_name(const char *name)
{
    return slot_place(name) >= 0 && strlen(name) < sizeof(((struct vault_slot_found *)NULL)->name);
}

/* Files that had this slot's place: "slot-0" gives way to "slot-0.1". */
static enum status drop_older(int at, const char *name, struct error *err)
{
    SCOPED(vault_tree_names_close) DIR *names = vault_tree_names(at);
    if (!names)
        return failed("list slots for", name, err);
    const char *older;
    while ((older = vault_tree_names_next(names)))
        if (slot_place(older) >= 0 && slot_place(older) == slot_place(name))
            (void)unlinkat(at, older, 0);
    return STATUS_OK;
}

enum status vault_slot_make(struct vault_job *job, struct error *err)
{
    SCOPED_FD int dir = -1;
    SCOPED_FD int fd = -1;
    enum status st = dir_make(job->vault, job->path, &dir, err);
    if (st != STATUS_OK)
        return error_wrap(err, "slot");
    st = drop_older(dir, job->below, err);
    if (st != STATUS_OK)
        return st;
    fd = openat(dir, job->below, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return failed("make slot", job->below, err);
    bool whole = ftruncate(fd, (off_t)job->bytes) == 0; /* without blocks: the worker takes them */
    if (whole && (job->uid >= 0 || job->gid >= 0))
        whole = fchown(fd, job->uid < 0 ? (uid_t)-1 : (uid_t)job->uid,
                       job->gid < 0 ? (gid_t)-1 : (gid_t)job->gid) == 0;
    if (!whole) {
        st = failed("make slot", job->below, err);
        (void)unlinkat(dir, job->below, 0);
        return st;
    }
    (void)snprintf(job->dir, sizeof(job->dir), "%s/%s/%s", job->vault, job->path, job->below);
    return STATUS_OK;
}

static void look_at(int dir, const char *name, struct vault_slot_found *out)
{
    struct slot_head head;
    struct stat st;
    SCOPED_FD int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    (void)snprintf(out->name, sizeof(out->name), "%s", name);
    out->step = -1;
    if (fd < 0 || fstat(fd, &st) != 0)
        return;
    out->bytes = (uint64_t)st.st_size;
    enum status status = slot_read(fd, &head, NULL);
    if (status != STATUS_OK && status != STATUS_PRECONDITION)
        return;
    if (head.magic == SLOT_MAGIC && head.step >= 0)
        out->step = head.step;
    if (status == STATUS_OK)
        out->state =
            atomic_load(&head.state) == SLOT_PERSISTED ? VAULT_SLOT_PERSISTED : VAULT_SLOT_FILLED;
}

/* Not STATUS_OK, with the directory missing: *out stays -1. */
static enum status dir_open(const struct vault_job *job, int *out, struct error *err)
{
    struct error why = {STATUS_OK, ""};
    enum status st = vault_tree_open(job->vault, job->path, false, out, &why);
    if (st == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (st != STATUS_OK && err)
        *err = why;
    return st;
}

enum status vault_slot_scan(struct vault_job *job, struct error *err)
{
    SCOPED(vault_tree_names_close) DIR *names = NULL;
    SCOPED_FD int fd = -1;
    enum status st = dir_open(job, &fd, err);
    if (st != STATUS_OK || fd < 0)
        return st;
    names = vault_tree_names(fd);
    if (!names)
        return failed("list", job->path, err);
    job->found = mem_array(VAULT_SLOT_FOUND_MAX, sizeof(*job->found));
    const char *name;
    while (job->found_count < VAULT_SLOT_FOUND_MAX && (name = vault_tree_names_next(names)))
        if (is_slot_name(name))
            look_at(fd, name, &job->found[job->found_count++]);
    return STATUS_OK;
}

enum status vault_slot_mark(struct vault_job *job, struct error *err)
{
    SCOPED_FD int dir = -1;
    enum status st = dir_open(job, &dir, err);
    if (st != STATUS_OK || dir < 0)
        return st;
    SCOPED_FD int fd = openat(dir, job->below, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return failed("open slot", job->below, err);
    return slot_set_state(fd, SLOT_PERSISTED, err);
}

static bool is_kept(const char *names, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = names; at && *at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, len) == 0 && (at[len] == '\n' || !at[len]))
            return true;
    }
    return false;
}

enum status vault_slot_drop(struct vault_job *job, struct error *err)
{
    SCOPED(vault_tree_names_close) DIR *names = NULL;
    SCOPED_FD int fd = -1;
    enum status st = dir_open(job, &fd, err);
    if (st != STATUS_OK || fd < 0)
        return st;
    names = vault_tree_names(fd);
    if (!names)
        return failed("list", job->path, err);
    const char *name;
    while (st == STATUS_OK && (name = vault_tree_names_next(names)))
        if (!is_kept(job->pattern, name))
            st = vault_tree_remove(fd, name, err);
    return st;
}
