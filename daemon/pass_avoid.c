/* pass_avoid.c - see pass_avoid.h. */
#include "daemon/pass_avoid.h"
#include "scheduler/avoid.h"

#define ATTEMPTS_MAX 16  /* the last ones are looked at */
#define FAILURES_MAX 256 /* of them, in all */

/* The fault was the node's, or the node could not start the program. Of a start that timed out only
 * those are to blame that never ran: they have no exit status. */
static bool blames_node(const Pb__Attempt *row, const Pb__WorkerPlace *place)
{
    switch ((int)place->class_) {
    case PB__REASON__CODE__LAUNCH_FAILED:
    case PB__REASON__CODE__NODE_EXHAUSTED:
    case PB__REASON__CODE__DEVICE_FAULT:
    case PB__REASON__CODE__SHIM_LOST:
    case PB__REASON__CODE__NODE_LOST:
        return place->ended;
    default:
        return place->ended && !place->has_exit_code && !place->signal && row->end &&
               row->end->code == PB__REASON__CODE__START_TIMEOUT;
    }
}

static const char *why(const Pb__Attempt *row, const Pb__WorkerPlace *place, struct arena *arena)
{
    bool late = row->end && row->end->code == PB__REASON__CODE__START_TIMEOUT;
    const char *code = HUB_NAME(reason__code, late ? row->end->code : place->class_);
    char text[200];

    snprintf(text, sizeof(text), "%s in attempt %u%s%.120s", code, row->number,
             place->message && !late ? ": " : "", place->message && !late ? place->message : "");
    return arena_strdup(arena, text);
}

static size_t gather(const Pb__Attempt *row, struct arena *arena, struct avoid_failure *failures,
                     size_t count)
{
    for (size_t i = 0; row->has_ended_us && i < row->n_places && count < FAILURES_MAX; i++)
        if (blames_node(row, row->places[i]))
            failures[count++] = (struct avoid_failure){row->places[i]->node, row->ended_us,
                                                       why(row, row->places[i], arena)};
    return count;
}

size_t pass_avoid(const struct job *job, int64_t now_us, struct arena *arena,
                  const struct snapshot_avoid **out)
{
    const struct list *first = job->attempts.prev;
    size_t count = 0;

    if (first == &job->attempts)
        return 0;
    for (size_t i = 1; i < ATTEMPTS_MAX && first->prev != &job->attempts; i++)
        first = first->prev;
    struct avoid_failure *failures = arena_alloc(arena, FAILURES_MAX * sizeof(*failures));
    for (const struct list *item = first; item != &job->attempts; item = item->next)
        count =
            gather(attempt_view(LIST_ITEM((struct list *)(uintptr_t)item, struct attempt, node)),
                   arena, failures, count);
    if (!count)
        return 0;
    struct snapshot_avoid *avoids = arena_alloc(arena, AVOID_MAX * sizeof(*avoids));
    *out = avoids;
    return avoid_decide(failures, count, now_us, avoids);
}
