/* file.h - blocking helpers for small files and directories.
 *
 * Any thread, but they block: on a loop only at start or for a few small files. Texts name the path
 * and what failed. Never follows a link out of a tree that is removed. Callers own what is given.
 */
#pragma once
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct file_list {
    char **names; /* sorted; without "." and ".." */
    size_t count;
};

/* The whole of a regular file (or one of /proc), NUL-terminated behind *len. More than max bytes:
 * STATUS_EXHAUSTED. Absent: STATUS_NOT_FOUND. */
enum status file_read(const char *path, size_t max, char **bytes, size_t *len,
                      struct error *err) MUST_CHECK;
/* Temporary file beside it, fsync, rename, fsync of the directory: after a crash the old bytes or
 * the new ones are there. The umask does not matter. */
enum status file_write_atomic(const char *path, const void *bytes, size_t len, mode_t mode,
                              struct error *err) MUST_CHECK;
/* All of them, at that offset of an open file; interrupted and short writes go on. */
enum status file_write_at(int fd, const void *bytes, size_t len, uint64_t at,
                          struct error *err) MUST_CHECK;
/* Makes path and its missing parents; what exists keeps its mode. */
enum status file_make_dirs(const char *path, mode_t mode, struct error *err) MUST_CHECK;
/* Removes path, a file or a directory with all below it, however deep. Links are removed, never
 * followed; a mount point below stops it with STATUS_PRECONDITION. Absent is fine. */
enum status file_remove_tree(const char *path, struct error *err) MUST_CHECK;
/* The names in a directory; more than max of them: STATUS_EXHAUSTED. */
enum status file_list_read(const char *path, size_t max, struct file_list *out,
                           struct error *err) MUST_CHECK;
void file_list_fini(struct file_list *list);
enum status file_sync_dir(const char *path, struct error *err) MUST_CHECK;
/* The status that an errno stands for: ENOENT NOT_FOUND, EACCES DENIED, ENOSPC EXHAUSTED... */
enum status file_status(int errnum);
