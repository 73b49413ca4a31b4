/* stored.c - see stored.h. */
#include "worker/stored.h"

#include <stdlib.h>
#include <string.h>

#include "worker/alone_manifest.h"
#include "worker/env.h"
#include "worker/member.h"
#include "worker/pieces.h"
#include "worker/sharded.h"

#define STATE_MAX ((size_t)256 << 20)

/* The agent hears where the damage is: it makes the next attempt begin at an older checkpoint.
 * Outside Rondo the manifest goes out of the way, to the same end. */
static void tell_damage(const struct rondo_stored *stored, const char *message)
{
    const char *where = stored->reader ? reader_damaged(stored->reader) : "";

    if (!stored->is_resume || !member_is_writer())
        return;
    if (!member.job.managed) {
        alone_manifest_set_aside(stored->dir);
        return;
    }
    (void)pthread_mutex_lock(&member.report_lock);
    record_damaged(&member.record, message, *where ? where : message);
    (void)reports_append(&member.reports, member.record.bytes, member.record.len);
    (void)pthread_mutex_unlock(&member.report_lock);
}

static int fail(const struct rondo_stored *stored, enum status st, const struct error *err)
{
    if (st == STATUS_DATA_LOSS)
        tell_damage(stored, err->text);
    return sharded_fail(st, err);
}

/* Directories that may hold slots of an earlier attempt on this node. */
static void find_shm(struct rondo_stored *stored)
{
    const char *names = getenv(ENV_RESUME_SHM);
    char *next;

    if (!stored->is_resume || !names || !*names)
        return;
    stored->shm_names = mem_strdup(names);
    next = stored->shm_names;
    for (char *name;
         stored->options.shm_dirs_count < STORED_SHM_MAX && (name = strsep(&next, ":"));)
        if (*name == '/')
            stored->shm_dirs[stored->options.shm_dirs_count++] = name;
    stored->options.shm_dirs = stored->shm_dirs;
}

int stored_open(const char *dir, uint32_t flags, struct rondo_stored **out)
{
    const char *path = dir ? dir : member.job.resume_dir;
    struct rondo_stored *stored;
    struct error err = {0};
    enum status st;

    if (!path)
        return member_fail(RONDO_NOT_FOUND, "there is no checkpoint to go on from");
    if (strlen(path) >= sizeof stored->dir)
        return member_fail(RONDO_INVALID, "the path of the checkpoint is too long");
    stored = NEW(struct rondo_stored);
    stored->is_resume = !dir;
    memcpy(stored->dir, path, strlen(path) + 1);
    stored->options.partial = (flags & RONDO_LOAD_PARTIAL) != 0;
    stored->options.ranks_here = member.job.local_world;
    stored->options.rank_here = member.job.local_rank;
    find_shm(stored);
    st = reader_open(stored->dir, "", &stored->options, &stored->reader, &err);
    if (st != STATUS_OK) {
        int result = fail(stored, st, &err);
        stored_close(stored);
        return result;
    }
    layout_table_print(reader_layout(stored->reader), &stored->layout);
    *out = stored;
    return 0;
}

void stored_close(struct rondo_stored *stored)
{
    if (!stored)
        return;
    while (stored->states) {
        struct stored_text *next = stored->states->next;
        mem_free(stored->states->bytes);
        mem_free(stored->states);
        stored->states = next;
    }
    reader_close(stored->reader);
    text_fini(&stored->layout);
    mem_free(stored->shm_names);
    mem_free(stored);
}

int stored_state(struct rondo_stored *stored, uint32_t rank, const char **out, size_t *len)
{
    struct stored_text *state = stored->states;
    struct error err = {0};
    enum status st;

    while (state && state->rank != rank)
        state = state->next;
    if (!state) {
        char *bytes = NULL;
        size_t bytes_len = 0;
        st = reader_state(stored->reader, rank, STATE_MAX, &bytes, &bytes_len, &err);
        if (st != STATUS_OK)
            return fail(stored, st, &err);
        state = NEW(struct stored_text);
        *state = (struct stored_text){rank, bytes, bytes_len, stored->states};
        stored->states = state;
    }
    *out = state->bytes;
    *len = state->len;
    return 0;
}

static enum status fill(struct rondo_stored *stored, const struct layout_table *target,
                        struct rondo_load *load, struct error *err)
{
    struct reader_stats stats = {0};
    struct pieces pieces = {0};
    enum status st =
        pieces_map(target, member.job.rank, load->pieces, load->pieces_count, &pieces, err);

    if (st == STATUS_OK)
        st = reader_load(stored->reader, target, member.job.rank, pieces.memory, &stats, err);
    pieces_fini(&pieces);
    if (st != STATUS_OK)
        return st;
    load->bytes = stats.bytes;
    load->bytes_memory = stats.copied;
    load->bytes_disk = stats.direct + stats.cached;
    return STATUS_OK;
}

int stored_load(struct rondo_stored *stored, struct rondo_load *load)
{
    struct layout_table *target = NULL;
    struct error err = {0};
    enum status st = layout_table_parse(load->layout, load->layout_len, &target, &err);

    if (st == STATUS_OK && layout_table_world(target) != member.job.world)
        st = error_set(&err, STATUS_INVALID, "a layout for %u ranks in a world of %u",
                       layout_table_world(target), member.job.world);
    if (st == STATUS_OK)
        st = layout_table_check(target, &err);
    if (st == STATUS_OK)
        st = fill(stored, target, load, &err);
    layout_table_destroy(target);
    return st == STATUS_OK ? 0 : fail(stored, st, &err);
}
