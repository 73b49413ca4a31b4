/* sharded_slot.c - a save into a slot: one copy into memory that the agent goes on from. */
#include <string.h>

#include "worker/member.h"
#include "worker/sharded.h"
#include "worker/slots.h"

#define FILES_MAX  SLOT_FILES_MAX
#define GRAIN      ((uint64_t)1 << 20) /* of the sizes asked for: the same again is the same slot */
#define PREPARE_MS 5000
#define WAIT_US    5000000 /* for the answer to STAGED; the next agent finds it itself */

struct plan { /* of the slot's files: shards, blocks, state, layout */
    uint64_t bytes[FILES_MAX];
    size_t count;
    uint64_t total;
};

static bool plan_files(struct sharded *sharded, size_t state_len, struct plan *plan)
{
    uint32_t shards = shard_image_files(sharded->image);

    if (shards + 3 > FILES_MAX)
        return false;
    for (uint32_t i = 0; i < shards; i++)
        plan->bytes[i] = shard_image_bytes(sharded->image, i);
    plan->bytes[shards] = block_table_bytes(plan->bytes, shards);
    plan->bytes[shards + 1] = state_len;
    plan->bytes[shards + 2] = sharded->layout.len;
    plan->count = shards + 3;
    plan->total = slot_bytes(plan->bytes, plan->count);
    if (plan->total == 0)
        return false;
    if (plan->total > sharded->slot_bytes) /* the state's text may grow a little */
        sharded->slot_bytes = (plan->total / GRAIN + 2) * GRAIN;
    plan->total = sharded->slot_bytes;
    return true;
}

/* Refusals that another way may not meet: no slots here, an agent that knows none, no room. */
static bool is_fallback(int result)
{
    return result == -RONDO_EXHAUSTED || result == -RONDO_INVALID || result == -RONDO_INTERNAL ||
           result == -RONDO_PRECONDITION || result == -STATUS_UNIMPLEMENTED ||
           result == -STATUS_NOT_FOUND || result == -STATUS_DENIED;
}

static int open_slot(const struct rondo_save *save, uint64_t bytes, struct slot_head **out)
{
    const struct ask_request request = {.kind = ASK_STAGE,
                                        .step = save->step,
                                        .samples = -1,
                                        .bytes = bytes,
                                        .no_wait = (save->flags & RONDO_SAVE_SKIP) != 0};
    struct ask_answer answer = {.dir = ""};
    struct error err;
    int result = member_ask(&request, save->ms, &answer);

    if (result == -STATUS_CANCELLED && request.no_wait)
        return RONDO_SKIPPED;
    if (result != 0)
        return is_fallback(result) ? SHARDED_FALLBACK : result;
    if (answer.dir[0] != '/' || slots_map(answer.dir, bytes, out, &err) != STATUS_OK)
        return SHARDED_FALLBACK;
    return 0;
}

void sharded_slot_prepare(struct sharded *sharded)
{
    struct plan plan = {0};
    struct slot_head *head;

    /* A slot that was asked for and not filled is given again: two steps for two slots. */
    for (int64_t step = 0; step < 2 && !sharded->used && plan_files(sharded, 0, &plan); step++) {
        const struct rondo_save save = {.step = step, .ms = PREPARE_MS};
        if (open_slot(&save, plan.total, &head) != 0)
            return;
    }
}

static void *add(struct slot_head *head, const char *name, uint64_t bytes, enum status *st,
                 struct error *err)
{
    uint64_t offset = 0;

    if (*st == STATUS_OK)
        *st = slot_add(head, name, bytes, &offset, err);
    return (char *)head + offset;
}

static enum status fill(struct sharded *sharded, const struct pieces *pieces,
                        const struct rondo_save *save, const struct plan *plan,
                        struct slot_head *head, struct error *err)
{
    uint32_t shards = shard_image_files(sharded->image);
    void *places[FILES_MAX];
    enum status st = STATUS_OK;

    slot_begin(head, plan->total, save->step);
    for (uint32_t i = 0; i < shards; i++)
        places[i] = add(head, shard_image_name(sharded->image, i), plan->bytes[i], &st, err);
    void *blocks = add(head, SLOT_BLOCKS_NAME, plan->bytes[shards], &st, err);
    void *state = add(head, SLOT_STATE_NAME, plan->bytes[shards + 1], &st, err);
    void *layout = add(head, SLOT_LAYOUT_NAME, plan->bytes[shards + 2], &st, err);
    if (st == STATUS_OK)
        st = shard_image_fill(sharded->image, sharded->declared,
                              (const void *const *)pieces->memory, places, err);
    if (st != STATUS_OK)
        return st;
    block_table_print(shard_image_blocks(sharded->image), blocks);
    memcpy(state, save->state, save->state_len);
    memcpy(layout, text_get(&sharded->layout), sharded->layout.len);
    slot_fill(head, save->samples, layout_table_digest(sharded->storage));
    return STATUS_OK;
}

int sharded_slot_save(struct sharded *sharded, const struct pieces *pieces, struct rondo_save *save)
{
    struct plan plan = {0};
    struct slot_head *head = NULL;
    struct error err = {0};
    enum status st;
    int result;

    if (!plan_files(sharded, save->state_len, &plan))
        return SHARDED_FALLBACK;
    member_set_in_save(1);
    sharded->used = true;
    result = open_slot(save, plan.total, &head);
    if (result == 0 && (st = fill(sharded, pieces, save, &plan, head, &err)) != STATUS_OK)
        result = sharded_fail(st, &err);
    member_set_in_save(0);
    if (result != 0)
        return result;
    sharded->due_step = save->step;
    sharded->due_us = ask_now_us();
    sharded->due_how = RONDO_IN_MEMORY;
    return 0;
}

int sharded_slot_finish(struct sharded *sharded, struct rondo_save *save)
{
    struct ask_request request = {.kind = ASK_STAGED, .step = save->step, .samples = save->samples};
    struct ask_answer answer;
    int result;

    memcpy(request.layout_digest, layout_table_digest(sharded->storage), 33);
    save->how = RONDO_IN_MEMORY;
    result = member_ask(&request, save->ms, &answer);
    if (result == -RONDO_DEADLINE && ask_now_us() - sharded->due_us > WAIT_US)
        return 0;
    return result;
}
