/* vault_sharded.c - see vault_sharded.h. */
#include "checkpoint/vault_sharded.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/layout.h"
#include "checkpoint/seal_check.h"
#include "checkpoint/vault_tree.h"

#define LAYOUT_NAME "layout.json"
#define BLOCKS_NAME "blocks.crc32c"

/* Names within the part: what its files' paths have behind the first '/'. */
static const char **names_of(const Pb__CheckpointPart *part)
{
    const char **names = mem_array(part->n_files + 1, sizeof *names);

    for (size_t i = 0; i < part->n_files; i++) {
        const char *slash = strchr(part->files[i]->path, '/');
        names[i] = slash ? slash + 1 : part->files[i]->path;
    }
    return names;
}

static bool has(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static enum status check(int dir, const char *const *names, const struct layout_table *table,
                         const Pb__CheckpointPart *part, struct error *err)
{
    enum status st = STATUS_OK;

    if (part->rank >= layout_table_world(table))
        return error_set(err, STATUS_DATA_LOSS, "the layout is of %u ranks, this is rank %u",
                         layout_table_world(table), part->rank);
    if (part->rank == 0) /* of all ranks the first one looks whether everything is covered */
        st = layout_table_check_storage(table, err);
    if (st == STATUS_OK)
        st = seal_check_part(dir, names, part->n_files, table, part->rank, err);
    return st;
}

static enum status describe(int dir, const char *const *names, Pb__CheckpointPart *part,
                            struct error *err)
{
    SCOPED(layout_table_destroy) struct layout_table *table = NULL;
    struct text json;
    enum status st;

    text_init(&json, LAYOUT_BYTES_MAX);
    st = vault_tree_read(dir, LAYOUT_NAME, &json, err);
    if (st != STATUS_OK) {
        text_fini(&json);
        return st;
    }
    st = layout_table_parse(text_get(&json), json.len, &table, NULL);
    text_fini(&json);
    if (st != STATUS_OK)
        return STATUS_OK; /* some program's own files of these names */
    st = check(dir, names, table, part, err);
    if (st != STATUS_OK)
        return st;
    part->layout_digest = mem_strdup(layout_table_digest(table));
    if (part->rank == 0)
        part->layout = mem_printf("%s-0/" LAYOUT_NAME, part->role);
    return STATUS_OK;
}

enum status vault_sharded_describe(const char *vault, const char *path, Pb__CheckpointPart *part,
                                   struct error *err)
{
    SCOPED(mem_free) void *memory = names_of(part);
    const char *const *names = memory;
    char below[512];
    SCOPED_FD int dir = -1;
    enum status st;

    if (!has(names, part->n_files, LAYOUT_NAME) || !has(names, part->n_files, BLOCKS_NAME))
        return STATUS_OK;
    if (snprintf(below, sizeof below, "%s/%s-%u", path, part->role, part->rank) >=
        (int)sizeof below)
        return error_set(err, STATUS_INVALID, "the path of the part is too long");
    st = vault_tree_open(vault, below, false, &dir, err);
    return st == STATUS_OK ? describe(dir, names, part, err) : st;
}
