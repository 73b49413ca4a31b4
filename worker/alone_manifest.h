/* alone_manifest.h - manifest.json of a sharded checkpoint outside Rondo: the same file that the
 * daemon makes of what agents report, here of what the ranks' .done files say.
 *
 * Any thread and process: several may write it at once, all the same. Its appearance, by a link
 * that replaces nothing, is the commit. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/alone.h"

/* dir: of the step. 0: it is there. -EAGAIN: a rank has not done its part. -ENOENT: these parts are
 * not sharded. -EINVAL: their layouts differ. Else -errno. */
int alone_manifest_write(const struct alone *alone, const char *dir, int64_t step);
/* Is this rank's part there, and sharded, so that a manifest may come to name it? */
bool alone_manifest_wants(const struct alone *alone, const char *dir, int64_t step);
/* It is damaged: it counts no longer, and its files stay. */
void alone_manifest_set_aside(const char *dir);
/* Before a part of it is written again. */
void alone_manifest_remove(const char *dir);
