/* vault_part.h - a part that an agent writes itself, from a slot: made under another name, and
 * there at once when it is whole.
 *
 * Blocking; any thread. A part of that name which is not sealed is from a save that came to nothing
 * (or from the same one, before a crash): it gives way. */
#pragma once
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

#define VAULT_PART_NAME_MAX 256

struct vault_part {
    int parent, dir; /* of the checkpoint; of the part while it is made */
    char name[VAULT_PART_NAME_MAX], temp[VAULT_PART_NAME_MAX];
};
/* Opens an empty directory for it.
 * STATUS_EXISTS: the checkpoint is sealed. */
enum status vault_part_begin(const char *vault, const char *path, const char *role, uint32_t rank,
                             struct vault_part *out, struct error *err) MUST_CHECK;
/* Every file in it is durable: so are now their names, and the part's. It is for uid:gid (-1: for
 * the caller's) alone to read, as the parts that workers write. */
enum status vault_part_publish(struct vault_part *part, int64_t uid, int64_t gid,
                               struct error *err) MUST_CHECK;
/* Closes it; what was not published is removed. Also for one that is all zero or closed. */
void vault_part_end(struct vault_part *part);
