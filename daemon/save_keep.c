/* save_keep.c - see save_keep.h. */
#include "daemon/save_keep.h"
#include "daemon/attempt.h"
#include "daemon/job.h"
#include "daemon/save_inner.h"
#include "daemon/turn.h"
#include "daemon/watch.h"
#include <stdlib.h>

#define HOLDS_MAX    64
#define LOOK_MOST_US 3600000000 /* wall time may jump: no later than this */

static bool was_committed(const Pb__Checkpoint *row)
{
    return row->committed_us > 0 && row->state != SAVE_STATE(TORN);
}

bool save_keep_is_held(const struct job *job, const Pb__Checkpoint *row)
{
    int64_t now = loop_wall_us(job->hub->loop);

    for (size_t i = 0; i < row->n_holds; i++)
        if (row->holds[i]->until_us > now)
            return true;
    if (!attempt_is_open(job) || attempt_resume(attempt_view(job->attempt)) != row->id)
        return false;
    LIST_EACH((struct list *)(uintptr_t)&job->saves, item)
    {
        const struct save *save = LIST_ITEM(item, struct save, node);
        if (save_is_usable(save) && save_is_of_now(job, save_view(save)))
            return false; /* every rank has read it and gone on */
    }
    return true;
}

static struct retain_item item_of(const struct job *job, const Pb__Checkpoint *row)
{
    return (struct retain_item){
        .id = row->id,
        .parent = row->parent,
        .attempt = row->attempt,
        .incarnation = row->incarnation ? row->incarnation : 1,
        .step = row->step,
        .committed_us = row->committed_us,
        .usable = row->state == SAVE_STATE(COMMITTED) || row->state == SAVE_STATE(VERIFIED),
        .verified = row->state == SAVE_STATE(VERIFIED),
        .pinned = row->pinned,
        .held = save_keep_is_held(job, row),
        .has_metric = row->has_metric,
        .metric = row->metric,
    };
}

static struct retain_policy policy_of(const struct job *job)
{
    const Pb__CheckpointPolicy *policy = job_view(job)->spec->checkpoint;
    struct retain_policy out = {.newest = 1, .now_us = loop_wall_us(job->hub->loop)};

    if (!policy)
        return out;
    out.newest = policy->keep;
    out.every_steps = policy->keep_every_steps;
    out.ttl_us = (int64_t)policy->keep_ttl_s * 1000000;
    out.best = policy->keep_metric && *policy->keep_metric ? policy->keep_best : 0;
    out.best_is_max = policy->keep_order == PB__CHECKPOINT_POLICY__ORDER__MAX;
    return out;
}

static int oldest_first(const void *a, const void *b)
{
    const Pb__Checkpoint *left = *(const Pb__Checkpoint *const *)a;
    const Pb__Checkpoint *right = *(const Pb__Checkpoint *const *)b;

    if (save_is_newer(left, right) != save_is_newer(right, left))
        return save_is_newer(left, right) ? 1 : -1;
    return (left->id > right->id) - (left->id < right->id);
}

size_t save_keep_plan(const struct job *job, const Pb__Checkpoint **rows, enum retain_why *why,
                      size_t max)
{
    const struct retain_policy policy = policy_of(job);
    size_t count = 0, cap = 0;

    LIST_EACH((struct list *)(uintptr_t)&job->saves, item)
    cap++;
    SCOPED(mem_free) void *memory = mem_array(cap + 1, sizeof(struct retain_item));
    SCOPED(mem_free) void *verdicts = mem_array(cap + 1, sizeof(enum retain_why));
    SCOPED(mem_free) void *pointers = mem_array(cap + 1, sizeof(Pb__Checkpoint *));
    struct retain_item *items = memory;
    const Pb__Checkpoint **all = pointers;
    LIST_EACH((struct list *)(uintptr_t)&job->saves, item)
    {
        const Pb__Checkpoint *row = save_view(LIST_ITEM(item, struct save, node));
        if (row && was_committed(row))
            all[count++] = row;
    }
    qsort(all, count, sizeof(*all), oldest_first);
    for (size_t i = 0; i < count; i++)
        items[i] = item_of(job, all[i]);
    retain_plan(items, count, &policy, verdicts);
    size_t given = count < max ? count : max;
    memcpy(rows, all, given * sizeof(*rows));
    memcpy(why, verdicts, given * sizeof(*why));
    return count;
}

/* Of the last report at or before its step. Values come on another stream than commits. */
static void take_metrics(struct job *job)
{
    LIST_EACH(&job->saves, item)
    {
        struct save *save = LIST_ITEM(item, struct save, node);
        const Pb__Checkpoint *row = save_view(save);
        const struct job_metric *best = NULL;
        if (!row || row->has_metric || !save_is_usable(save))
            continue;
        for (size_t i = 0; i < COUNT_OF(job->metrics); i++) {
            const struct job_metric *at = &job->metrics[i];
            if (at->attempt == row->attempt && at->step <= row->step &&
                (!best || at->step >= best->step))
                best = at;
        }
        if (!best)
            continue;
        Pb__Checkpoint *edited = save_edit(save);
        edited->has_metric = true;
        edited->metric = best->value;
    }
}

static void earlier(int64_t *best, int64_t at, int64_t now)
{
    if (at > now && (!*best || at < *best))
        *best = at;
}

/* Wall time at which the plan may change with nobody doing anything; 0: never. */
static int64_t next_look(const struct job *job)
{
    const struct retain_policy policy = policy_of(job);
    int64_t now = policy.now_us, best = 0;

    LIST_EACH((struct list *)(uintptr_t)&job->saves, item)
    {
        const struct save *save = LIST_ITEM(item, struct save, node);
        const Pb__Checkpoint *row = save_view(save);
        if (!save_is_usable(save))
            continue;
        if (policy.ttl_us)
            earlier(&best, row->committed_us + policy.ttl_us, now);
        for (size_t i = 0; i < row->n_holds; i++)
            earlier(&best, row->holds[i]->until_us, now);
    }
    return best > now + LOOK_MOST_US ? now + LOOK_MOST_US : best;
}

void save_keep_run(struct job *job)
{
    size_t cap = 0;

    LIST_EACH(&job->saves, item)
    cap++;
    if (!cap)
        return;
    if (job->metrics_next)
        take_metrics(job);
    SCOPED(mem_free) void *memory = mem_array(cap, sizeof(Pb__Checkpoint *));
    SCOPED(mem_free) void *verdicts = mem_array(cap, sizeof(enum retain_why));
    const Pb__Checkpoint **rows = memory;
    enum retain_why *why = verdicts;
    size_t count = save_keep_plan(job, rows, why, cap);
    for (size_t i = 0; i < count; i++)
        if (why[i] == RETAIN_LET_GO)
            save_set_state(map_get(job->hub->saves, (uint64_t)rows[i]->id), SAVE_STATE(EXPIRED),
                           retain_why_text(why[i]));
    job->keep_look_us = next_look(job);
}

void save_keep_tick(struct hub *hub)
{
    int64_t now = loop_wall_us(hub->loop);

    for (size_t i = 0; i < hub->order_count; i++) {
        struct job *job = hub->order[i];
        if (job->keep_look_us && job->keep_look_us <= now && job->entry.row)
            turn_job(hub, job);
    }
}

enum status save_keep_pin(struct save *save, bool pinned, const char *note, const char *actor,
                          struct error *err)
{
    char text[300];

    if (!save_is_usable(save))
        return error_set(err, STATUS_PRECONDITION,
                         "checkpoint %lld is %s: there is nothing to keep", (long long)save->id,
                         HUB_NAME(checkpoint__state, save_view(save)->state));
    Pb__Checkpoint *row = save_edit(save);
    row->has_pinned = true;
    row->pinned = pinned;
    row->version++;
    draft_text(&row->pin_note, pinned ? note : NULL);
    snprintf(text, sizeof(text), "%s by %.100s%s%.150s", pinned ? "pinned" : "no longer pinned",
             actor, note && *note ? ": " : "", note ? note : "");
    save_event(save, pinned ? "checkpoint.pinned" : "checkpoint.unpinned", 0, text);
    if (!pinned)
        save_keep_run(save->job);
    return STATUS_OK;
}

/* Frees those that have ended, and the holder's own. */
static void drop_holds(Pb__Checkpoint *row, const char *holder, int64_t now)
{
    size_t kept = 0;

    for (size_t i = 0; i < row->n_holds; i++) {
        Pb__CheckpointHold *hold = row->holds[i];
        if (hold->until_us <= now || !strcmp(hold->holder, holder))
            pb__checkpoint_hold__free_unpacked(hold, NULL);
        else
            row->holds[kept++] = hold;
    }
    row->n_holds = kept;
}

enum status save_keep_hold(struct save *save, const char *holder, uint32_t seconds,
                           struct error *err)
{
    int64_t now = loop_wall_us(save->job->hub->loop);

    if (seconds && !save_is_usable(save))
        return error_set(err, STATUS_PRECONDITION, "checkpoint %lld is %s: it cannot be read",
                         (long long)save->id, HUB_NAME(checkpoint__state, save_view(save)->state));
    Pb__Checkpoint *row = save_edit(save);
    drop_holds(row, holder, now);
    if (seconds && row->n_holds >= HOLDS_MAX)
        return error_set(err, STATUS_EXHAUSTED, "checkpoint %lld has %d readers already",
                         (long long)save->id, HOLDS_MAX);
    row->version++;
    if (seconds) {
        Pb__CheckpointHold *hold = NEW(Pb__CheckpointHold);
        pb__checkpoint_hold__init(hold);
        hold->holder = mem_strdup(holder);
        hold->has_until_us = true;
        hold->until_us = now + (int64_t)seconds * 1000000;
        row->holds = mem_resize(row->holds, row->n_holds + 1, sizeof(void *));
        row->holds[row->n_holds++] = hold;
    }
    save_keep_run(save->job);
    return STATUS_OK;
}

/* --- the metric */

void save_keep_metric(struct job *job, int64_t step, double value)
{
    struct job_metric *at = &job->metrics[job->metrics_next++ % COUNT_OF(job->metrics)];

    *at = (struct job_metric){
        .attempt = (uint32_t)job_view(job)->attempt, .step = step, .value = value};
}
