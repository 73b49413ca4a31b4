/* verify.h - reads a sealed checkpoint whole: is every byte what its manifest says, and, of a
 * sharded one, are headers, blocks and cover what its layout says?
 *
 * Blocking; reads with several threads. Goes on after damage, so that all of it is named. */
#pragma once
#include "base/error.h"
#include "base/mem.h"
#include "checkpoint/watcher.h"
#include <stdbool.h>
#include <stddef.h>

#define VERIFY_FOUND_MAX 1000u

struct verify_found {
    char *file; /* below the checkpoint's directory, or a part's */
    char *text; /* what is wrong, with the block where one is known */
};
struct verify_report {
    uint64_t bytes, files, parts; /* that were looked at */
    bool sharded;
    struct verify_found found[VERIFY_FOUND_MAX];
    size_t found_count; /* more than there is room for are not kept */
};

/* Watchers hear of bytes as they are read, a few times a second: also in the middle of a file.
 * digest: SHA-256 that the manifest must have (NULL: any). STATUS_OK: it was read to its end, *out
 * says what was found (nothing: it is whole). STATUS_NOT_FOUND: not sealed. watcher may be NULL. */
enum status verify_run(const char *vault, const char *path, const char *digest,
                       const struct watcher *watcher, struct verify_report **out,
                       struct error *err) MUST_CHECK;
void verify_report_destroy(struct verify_report *report); /* NULL is fine */
SCOPED_DESTRUCTOR(struct verify_report *, verify_report_destroy)
