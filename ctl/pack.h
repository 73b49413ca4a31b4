/* pack.h - a directory as a tar archive whose bytes depend on its content alone, and its digest.
 *
 * Any thread; blocking I/O. Sorted names, time 0, user and group 0, mode 0644 or 0755. Regular
 * files, directories and links that stay inside; anything else is refused by name. Bounds:
 * PACK_BYTES_MAX of archive, PACK_ENTRIES_MAX entries, PACK_DEPTH_MAX levels. What .rondoignore in
 * the directory matches is left out. */
#pragma once
#include "base/error.h"
#include "base/text.h"

enum { PACK_BYTES_MAX = 64 << 20, PACK_ENTRIES_MAX = 20000, PACK_DEPTH_MAX = 64 };

struct pack {
    struct text tar;
    size_t entries;
    char digest[65]; /* SHA-256 of the archive, in hex */
};

/* Free with pack_fini also after a failure. */
enum status pack_directory(const char *path, struct pack *out, struct error *err) MUST_CHECK;
void pack_fini(struct pack *pack);
/* Does a link at `path` (relative to the root) with this target point below the root? */
bool pack_link_is_inside(const char *path, const char *target);
