/* vault_tree.h - directory trees below a vault, opened name by name so that no link is ever
 * followed out of them.
 *
 * For vault*.c and reader.c only. Any thread; blocking. Workers own parts of these trees and may
 * put anything into them, also while we look. Descriptors belong to the caller. Limits: depth,
 * count and bytes of names. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VAULT_TREE_DEPTH_MAX 32
#define VAULT_TREE_FILES_MAX 100000
#define VAULT_TREE_NAMES_MAX ((size_t)16 << 20)

/* Is this "a/b/c": relative, UTF-8, no empty part, no "." or "..", shorter than 4096? */
bool vault_tree_path_ok(const char *path);
/* One part of such a path. */
bool vault_tree_name_ok(const char *name);

/* Opens <vault>/<path> as a directory; with make, creates what is missing (0755) and syncs its
 * parent. path "" is the vault itself, which must exist. */
enum status vault_tree_open(const char *vault, const char *path, bool make, int *out,
                            struct error *err) MUST_CHECK;
/* Opens one file below dir for reading; no link is followed. */
enum status vault_tree_file(int dir, const char *path, int *out, struct error *err) MUST_CHECK;

struct text;
/* Appends the whole of one file to out; longer than out may become: STATUS_DATA_LOSS. */
enum status vault_tree_read(int dir, const char *name, struct text *out,
                            struct error *err) MUST_CHECK;

/* Called for each regular file, in no order; path is relative to the walked directory. */
typedef enum status (*vault_tree_fn)(void *arg, int fd, const char *path, struct error *err);
/* Walks the tree below dir. Anything but files and directories is STATUS_INVALID; with sync every
 * directory is synced after its files. */
enum status vault_tree_walk(int dir, bool sync, vault_tree_fn fn, void *arg,
                            struct error *err) MUST_CHECK;
/* Removes name below parent, whatever it is. Missing: success. */
enum status vault_tree_remove(int parent, const char *name, struct error *err) MUST_CHECK;

/* The names in a directory, by a descriptor of their own. NULL and errno. */
DIR *vault_tree_names(int dir);
/* The next one but "." and "..": a loan until the next call. NULL: that was all (errno is 0), or
 * the rest cannot be read (errno). */
const char *vault_tree_names_next(DIR *names);
void vault_tree_names_close(DIR *names); /* NULL is fine */
SCOPED_DESTRUCTOR(DIR *, vault_tree_names_close)

void vault_tree_close(int fd); /* -1 is fine */
/* STATUS_EXHAUSTED for a full disk or quota, NOT_FOUND, DENIED, else UNAVAILABLE. */
enum status vault_tree_status(int error_number);

static inline void vault_tree_scoped_close(int *fd)
{
    vault_tree_close(*fd);
}
#define SCOPED_FD __attribute__((cleanup(vault_tree_scoped_close)))
