/* sharded.c - see sharded.h. */
#include "worker/sharded.h"

#include <string.h>

#include "worker/member.h"

int sharded_fail(enum status st, const struct error *err)
{
    switch (st) {
    case STATUS_OK:
        return 0;
    case STATUS_INVALID:
    case STATUS_NOT_FOUND:
    case STATUS_EXISTS:
    case STATUS_EXHAUSTED:
    case STATUS_PRECONDITION:
    case STATUS_ABORTED:
    case STATUS_UNAVAILABLE:
    case STATUS_DATA_LOSS:
        return member_fail((enum rondo_status)st, "%s", err->text);
    default:
        return member_fail(RONDO_INTERNAL, "%s", err->text);
    }
}

static void forget(struct sharded *sharded)
{
    shard_image_destroy(sharded->image);
    layout_table_destroy(sharded->storage);
    layout_table_destroy(sharded->declared);
    mem_free(sharded->text);
    text_fini(&sharded->layout);
    *sharded = (struct sharded){.due_step = -1};
}

static enum status make_tables(struct sharded *sharded, const char *layout, size_t len,
                               struct error *err)
{
    enum status st = layout_table_parse(layout, len, &sharded->declared, err);

    if (st != STATUS_OK)
        return st;
    if (layout_table_world(sharded->declared) != member.job.world)
        return error_set(err, STATUS_INVALID, "a layout for %u ranks in a world of %u",
                         layout_table_world(sharded->declared), member.job.world);
    st = layout_table_check(sharded->declared, err);
    if (st == STATUS_OK)
        st = layout_table_assign(sharded->declared, &sharded->storage, err);
    if (st == STATUS_OK)
        st = shard_image_create(sharded->storage, member.job.rank, &sharded->image, err);
    return st;
}

int sharded_prepare(struct sharded *sharded, const char *layout, size_t len)
{
    struct error err = {0};
    enum status st;

    if (!layout || len == 0 || len > LAYOUT_BYTES_MAX)
        return member_fail(RONDO_INVALID, "a layout of %zu bytes", len);
    if (sharded->text && sharded->text_len == len && memcmp(sharded->text, layout, len) == 0)
        return 0;
    forget(sharded);
    st = make_tables(sharded, layout, len, &err);
    if (st != STATUS_OK) {
        forget(sharded);
        return sharded_fail(st, &err);
    }
    layout_table_print(sharded->storage, &sharded->layout);
    sharded->text = mem_dup(layout, len);
    sharded->text_len = len;
    return 0;
}

/* The bytes are in place since the last call; what is due is an answer. */
static int go_on(struct sharded *sharded, struct rondo_save *save)
{
    int result = sharded->due_how == RONDO_IN_MEMORY ? sharded_slot_finish(sharded, save)
                                                     : sharded_file_finish(sharded, save);

    if (result != -RONDO_DEADLINE)
        sharded->due_step = -1;
    if (result == 0) {
        sharded->done[sharded->done_next] = save->step + 1;
        sharded->done_next = (sharded->done_next + 1) % SHARDED_DONE;
    }
    return result;
}

static bool is_done(const struct sharded *sharded, int64_t step)
{
    for (size_t i = 0; i < SHARDED_DONE; i++)
        if (sharded->done[i] == step + 1)
            return true;
    return false;
}

int sharded_save(struct sharded *sharded, struct rondo_save *save)
{
    struct pieces pieces = {0};
    struct error err = {0};
    enum status st;
    int result;

    if (sharded->text && sharded->due_step == save->step)
        return go_on(sharded, save);
    if (is_done(sharded, save->step)) /* an agent may be taking its files away right now */
        return member_fail(RONDO_EXISTS, "step %lld was saved before", (long long)save->step);
    sharded->due_step = -1;
    result = sharded_prepare(sharded, save->layout, save->layout_len);
    if (result != 0)
        return result;
    st = pieces_map(sharded->declared, member.job.rank, save->pieces, save->pieces_count, &pieces,
                    &err);
    if (st != STATUS_OK)
        return sharded_fail(st, &err);
    result = SHARDED_FALLBACK;
    if (member.job.managed && !(save->flags & RONDO_SAVE_SYNC))
        result = sharded_slot_save(sharded, &pieces, save);
    if (result == SHARDED_FALLBACK)
        result = sharded_file_save(sharded, &pieces, save);
    pieces_fini(&pieces);
    if (result == 0)
        result = go_on(sharded, save);
    return result;
}
