/* spare.h - worker directories made in advance: a start renames one instead of making a dozen files
 * while somebody waits.
 *
 * Loop thread only. They are made while nothing starts, lie under <state>/spare where nobody but
 * the agent may enter, and are never used twice: what a worker has had is removed, not recycled.
 * They hold empty files under the names that the steps of a start make anyway; a start that gets
 * none, or finds it gone, makes its own. What an earlier agent left there is removed by
 * spares_start. */
#pragma once
#include "base/loop.h"
#include <stddef.h>
#include <stdint.h>

struct files;
struct spares;

struct spares *spares_create(struct loop *loop, struct files *files, const char *dir,
                             uint32_t count);
void spares_destroy(struct spares *spares); /* after the files seam; NULL is fine */
void spares_start(struct spares *spares);
/* The path of a directory that is the caller's from now on. NULL: none is ready. Owned by the
 * caller. */
char *spares_take(struct spares *spares);
size_t spares_ready(const struct spares *spares);
