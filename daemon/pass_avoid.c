/* pass_avoid.c - see pass_avoid.h. */
#include "daemon/pass_avoid.h"
#include "scheduler/avoid.h"

#define ATTEMPTS_MAX 16  /* the last ones are looked at */
#define FAILURES_MAX 256 /* of them, in all: the newest */

/* The fault was the node's, or the node could not start the program. Of a start that timed out only
 * those are to blame that never ran: they have no exit status. */
static bool blames_node(const Pb__Attempt *row, const Pb__WorkerPlace *place)
{
    switch ((int)place->class_) {
    case PB__REASON__CODE__LAUNCH_FAILED:
    case PB__REASON__CODE__NODE_EXHAUSTED:
    case PB__REASON__CODE__SOURCE_LOST: /* another may see the vault, or the source */
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

/* Filled from the end, so that of too many the oldest are left out. Answers the new beginning. */
static size_t gather(const Pb__Attempt *row, struct arena *arena, struct avoid_failure *failures,
                     size_t first)
{
    const char *last = NULL;

    for (size_t i = row->has_ended_us ? row->n_places : 0; i-- > 0 && first > 0;) {
        const char *node = row->places[i]->node;
        if (!blames_node(row, row->places[i]) || (last && !strcmp(node, last)))
            continue; /* ranks of one node follow each other, and it counts once */
        last = node;
        failures[--first] =
            (struct avoid_failure){node, row->ended_us, why(row, row->places[i], arena)};
    }
    return first;
}

size_t pass_avoid(const struct job *job, int64_t now_us, struct arena *arena,
                  const struct snapshot_avoid **out)
{
    const struct list *item = job->attempts.prev;
    size_t first = FAILURES_MAX;

    if (item == &job->attempts)
        return 0;
    struct avoid_failure *failures = arena_alloc(arena, FAILURES_MAX * sizeof(*failures));
    for (size_t i = 0; i < ATTEMPTS_MAX && item != &job->attempts; i++, item = item->prev)
        first =
            gather(attempt_view(LIST_ITEM((struct list *)(uintptr_t)item, struct attempt, node)),
                   arena, failures, first);
    if (first == FAILURES_MAX)
        return 0;
    struct snapshot_avoid *avoids = arena_alloc(arena, AVOID_MAX * sizeof(*avoids));
    *out = avoids;
    return avoid_decide(failures + first, FAILURES_MAX - first, now_us, avoids);
}
