/* vault_part.c - see vault_part.h. */
#include "checkpoint/vault_part.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/vault_manifest.h"
#include "checkpoint/vault_tree.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static enum status failed(const char *what, const char *name, struct error *err)
{
    return error_set(err, vault_tree_status(errno), "%s %s: %s", what, name, strerror(errno));
}

static bool is_sealed(int dir)
{
    return faccessat(dir, VAULT_MANIFEST_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The same name for each try: what an agent that died left behind goes with the next one. */
static enum status name_it(struct vault_part *part, const char *role, uint32_t rank,
                           struct error *err)
{
    int len = snprintf(part->name, sizeof part->name, "%s-%" PRIu32, role, rank);

    if (len < 0 || (size_t)len + 6 >= sizeof part->name || role[0] == '.' ||
        !vault_tree_name_ok(part->name))
        return error_set(err, STATUS_INVALID, "'%.80s' is no name of a role", role);
    (void)snprintf(part->temp, sizeof part->temp, ".%.249s.new", part->name);
    return STATUS_OK;
}

static enum status make(struct vault_part *part, struct error *err)
{
    enum status status = vault_tree_remove(part->parent, part->temp, err);

    if (status != STATUS_OK)
        return status;
    if (mkdirat(part->parent, part->temp, 0700) != 0)
        return failed("make", part->temp, err);
    part->dir = openat(part->parent, part->temp, OPEN_DIR);
    return part->dir < 0 ? failed("open", part->temp, err) : STATUS_OK;
}

enum status vault_part_begin(const char *vault, const char *path, const char *role, uint32_t rank,
                             struct vault_part *out, struct error *err)
{
    struct vault_part part = {.parent = -1, .dir = -1};
    enum status status = name_it(&part, role, rank, err);

    if (status == STATUS_OK)
        status = vault_tree_open(vault, path, true, &part.parent, err);
    if (status == STATUS_OK && is_sealed(part.parent))
        status = error_set(err, STATUS_EXISTS, "%s is sealed already", path);
    if (status == STATUS_OK)
        status = make(&part, err);
    if (status != STATUS_OK) {
        vault_part_end(&part);
        return status;
    }
    *out = part;
    return STATUS_OK;
}

enum status vault_part_publish(struct vault_part *part, int64_t uid, int64_t gid, struct error *err)
{
    if ((uid >= 0 || gid >= 0) &&
        fchown(part->dir, uid < 0 ? (uid_t)-1 : (uid_t)uid, gid < 0 ? (gid_t)-1 : (gid_t)gid) != 0)
        return failed("give away", part->name, err);
    if (fchmod(part->dir, 0750) != 0)
        return failed("set the mode of", part->name, err);
    if (fsync(part->dir) != 0)
        return failed("sync", part->name, err);
    if (is_sealed(part->parent)) /* not while the other name is taken away */
        return error_set(err, STATUS_EXISTS, "the checkpoint is sealed already");
    enum status status = vault_tree_remove(part->parent, part->name, err);
    if (status != STATUS_OK)
        return status;
    if (renameat(part->parent, part->temp, part->parent, part->name) != 0)
        return failed("rename", part->name, err);
    part->temp[0] = '\0';
    return fsync(part->parent) != 0 ? failed("sync the directory of", part->name, err) : STATUS_OK;
}

void vault_part_end(struct vault_part *part)
{
    if (part->parent > 0 && part->temp[0])
        (void)!vault_tree_remove(part->parent, part->temp, NULL);
    if (part->dir > 0)
        vault_tree_close(part->dir);
    if (part->parent > 0)
        vault_tree_close(part->parent);
    *part = (struct vault_part){.parent = -1, .dir = -1};
}
