/* vault_list.h - what lies in a vault, without asking a daemon: sealed checkpoints, and what is
 * none.
 *
 * What a directory is, its content says: a manifest that can be read makes a checkpoint, whatever
 * the names; a tombstone, a deleted one. Whether a sealed one was committed only the daemon knows.
 * Names tell only where to look: directories are descended until one of these is found, or one
 * called step-*. Blocking; any thread. Nothing is changed; links are never followed. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include "proto/pb.h"
#include <stdbool.h>

enum vault_list_kind {
    VAULT_LIST_SEALED,
    VAULT_LIST_BAD,      /* there is a manifest, and it is none: `problem` says why */
    VAULT_LIST_UNSEALED, /* files without a manifest: a save that goes on, or came to nothing */
    VAULT_LIST_DELETED,  /* a tombstone: it is being deleted, or its deleter died */
    VAULT_LIST_STAGING   /* an export or copy goes on, or its maker died */
};
struct vault_list_part { /* a directory below the checkpoint's */
    char *name;
    uint64_t bytes, disk, shared,
        files; /* of files; as allocated; of it, of files with other names */
};
struct vault_list_entry {
    enum vault_list_kind kind;
    char *path;          /* relative to the vault; "" is the vault itself */
    Pb__Checkpoint *row; /* SEALED: of the manifest; state, path, manifest_digest, bytes too */
    char *problem;
    int64_t modified_us; /* of the directory */
    struct vault_list_part *parts;
    size_t parts_count; /* 0 unless sizes were asked for; files beside the parts are in part "" */
};
struct vault_list {
    struct vault_list_entry *entries; /* by job, step, path */
    size_t count;
    uint64_t disk; /* with sizes: allocated in all, a file with several names once */
};

/* sizes: looks at every file. STATUS_NOT_FOUND: no such directory. */
enum status vault_list_read(const char *vault, bool sizes, struct vault_list **out,
                            struct error *err) MUST_CHECK;
void vault_list_destroy(struct vault_list *list); /* NULL is fine */
SCOPED_DESTRUCTOR(struct vault_list *, vault_list_destroy)
/* The row of one checkpoint's directory; free with pb__checkpoint__free_unpacked. STATUS_NOT_FOUND:
 * it is not sealed. */
enum status vault_list_one(const char *vault, const char *path, Pb__Checkpoint **out,
                           struct error *err) MUST_CHECK;
